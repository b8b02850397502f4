"""Files import each other in one direction: no circles."""

import functools
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
CRATES = {
    "sszip_core": "shared-core/src",
    "sszip_connect": "connect/src",
    "sszip_owner": "cache-owner/src",
    "sszip_envoy_carrier": "envoy-filter/carrier/src",
    "sszip_envoy": "envoy-filter/native/src",
    "sszip_envoy_wasm": "envoy-filter/wasm/src",
}

# Folders of cache/ that are rooms of their own.
CACHE = [(name,) for name in ("entry", "fleet", "process", "link", "owner", "owner_protocol", "store")]

# A comment that names the files of a circle, relative to its own folder, and the reason.
DEFENCE = re.compile(r"^// Circle of imports: ([\w./]+\.rs(?:, [\w./]+\.rs)+)\. (\w.+)$", re.M)


@functools.cache
def modules():
    """Each module of the crates, its path as a tuple, with its file."""
    found = {}
    for crate, folder in CRATES.items():
        for path in (ROOT / folder).rglob("*.rs"):
            *folders, name = path.relative_to(ROOT / folder).with_suffix("").parts
            if "tests" not in (*folders, name) and name not in ("main", "model"):
                found[(crate, *folders, *([] if name in ("mod", "lib") else [name]))] = path
    return found


def tokens(path):
    """The file without comments, texts, who may see what, and modules within it, tests above all."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    text = re.sub(r"pub\(in [\w:]+\)", "pub", text)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text, flags=re.S)
    text = re.sub(r"^(?:pub )?mod \w+ \{.*?^\}", "", text, flags=re.M | re.S)
    return [*re.findall(r"\w+|::|\S", text), ";"]


def named(words):
    """The paths that stand in a file, with braces taken apart."""
    found = []

    def take(at, before):
        if words[at] == "{":
            at += 1
            while words[at] != "}":
                at = take(at, before)
                at += words[at] == ","
            return at + 1
        before = (*before, words[at])
        if words[at + 1] == "::":
            return take(at + 2, before)
        found.append(before)
        return at + (3 if words[at + 1] == "as" else 1)

    at = 0
    while at < len(words) - 1:
        is_path = words[at].isidentifier() and words[at + 1] == "::"
        at = take(at, ()) if is_path else at + 1
    return found


def leads_to(module, path, known):
    """The module that a path leads to from another one, if it is one of ours."""
    first, *rest = path
    if first == "crate":
        place = module[:1]
    elif first in ("self", "super"):
        place = module if first == "self" else module[:-1]
        while rest[:1] == ["super"]:
            place, rest = place[:-1], rest[1:]
    elif first in CRATES:
        place = (first,)
    elif (*module, first) in known:
        place, rest = module, path
    else:
        return None
    for name in rest:
        if (*place, name) not in known:
            break
        place = (*place, name)
    return place


@functools.cache
def imports():
    """What each module imports: what it names. That a folder declares its files is no
    import; what one file adds to another's type can't be seen."""
    known = modules()
    return {
        module: {leads_to(module, path, known) for path in named(tokens(file))} - {None, module}
        for module, file in known.items()
    }


def circles(graph):
    """Sets of nodes in which each node leads to all others."""

    def reached(start):
        seen, left = set(), [start]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        return seen

    reach = {node: reached(node) for node in graph}
    found = {frozenset(other for other in reach[node] if node in reach[other]) for node in graph}
    return sorted(sorted(circle) for circle in found if circle)


def room(module):
    """The folder, or the file at the top, that a module of the core is in."""
    return "/".join(module[1:3] if module[1:2] == ("cache",) and module[2:3] in CACHE else module[1:2])


def defended(known):
    """The circles that comments give a reason for."""
    found = []
    for file in known.values():
        for files, _reason in DEFENCE.findall(file.read_text()):
            found.append(sorted(str((file.parent / name).relative_to(ROOT)) for name in files.split(", ")))
    return sorted(found)


class Imports(unittest.TestCase):
    def test_files_are_declared_as_modules(self):
        undeclared = []
        for folder in CRATES.values():
            for path in (ROOT / folder).rglob("*.rs"):
                if path.stem in ("lib", "main", "mod"):
                    continue
                # by the file of its folder, or by a neighbour with #[path]
                others = [file for file in path.parent.glob("*.rs") if file != path]
                others = [*others, *path.parent.parent.glob(f"{path.parent.name}.rs")]
                declared = re.compile(rf"^\s*(?:pub(?:\(.*\))? )?mod {path.stem};|path = \"{path.name}\"", re.M)
                if not any(declared.search(file.read_text()) for file in others):
                    undeclared.append(str(path.relative_to(ROOT)))
        self.assertEqual(undeclared, [])

    def test_files_import_each_other_in_a_circle_only_for_a_reason_in_a_comment(self):
        known = modules()
        found = [sorted(str(known[module].relative_to(ROOT)) for module in circle) for circle in circles(imports())]
        self.assertEqual(sorted(found), defended(known))

    def test_modules_of_all_crates_are_found(self):
        """An empty crate would have no circles."""
        known = modules()
        for crate, least in zip(CRATES, (300, 3, 20, 7, 35, 15), strict=True):
            with self.subTest(crate):
                self.assertGreater(sum(module[0] == crate for module in known), least)

    def test_envoy_crates_import_the_rooms_that_the_architecture_lists(self):
        rows = (ROOT / "docs/architecture.md").read_text().splitlines()
        for crate in ("sszip_envoy_carrier", "sszip_envoy", "sszip_envoy_wasm"):
            place = CRATES[crate].removesuffix("/src")
            others = {other for module, named in imports().items() if module[0] == crate for other in named}
            found = {room(other) if other[0] == "sszip_core" else other[0] for other in others if other[0] != crate}
            row = next(row for row in rows if row.startswith(f"| `{place}` |"))
            listed = re.findall(r"`([\w:/-]+)`", row.split("|")[3])
            names = {name.removeprefix("envoy-filter/").replace("carrier", "sszip_envoy_carrier").replace("::", "/") for name in listed}
            with self.subTest(crate):
                self.assertEqual(found, names)

    def test_rooms_have_an_order(self):
        """As docs/architecture.md draws it; the crate's own file names all of them."""
        core = {module: named for module, named in imports().items() if module[0] == "sszip_core" and module[1:]}
        rooms = {room(module): set() for module in core}
        for module, others in core.items():
            rooms[room(module)] |= {room(other) for other in others if other in core} - {room(module)}
        self.assertGreater(len(rooms), 15)
        self.assertEqual(circles(rooms), [])

    def test_paths_are_found_and_lead_to_files(self):
        words = re.findall(r"\w+|::|\S", "use super::{chain::{Chains, Mark}, use_stale as s, Key}; self::wire::decode(x);")
        paths = [("super", "chain", "Chains"), ("super", "chain", "Mark"), ("super", "use_stale"), ("super", "Key")]
        self.assertEqual(named([*words, ";"]), [*paths, ("self", "wire", "decode")])
        entry = ("sszip_core", "cache", "entry")
        expected = [entry[:2] + ("chain",)] * 2 + [entry[:2] + ("use_stale",), entry[:2], entry + ("wire",)]
        self.assertEqual([leads_to(entry, path, modules()) for path in named([*words, ";"])], expected)


if __name__ == "__main__":
    unittest.main()

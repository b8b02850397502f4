"""Each Rust file is compiled: a module or a path names it, or cargo finds it by its place. The tests
in a file that nothing names would not run."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).parents[2]

MODULE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.M)
PATH = re.compile(r'[\w./-]*?([\w-]+\.rs)"')
# Names and folders of a crate in which cargo finds targets.
TARGETS = {"lib.rs", "main.rs", "build.rs"}
TARGET_FOLDERS = {"tests", "examples", "benches", "fuzz_targets"}


def listed(*patterns):
    output = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in output.stdout.splitlines() if (ROOT / name).exists()]


def module_files(path, text):
    """The files that the modules of a file may be in."""
    is_root = path.name in TARGETS | {"mod.rs"} or path.parent.name in TARGET_FOLDERS
    folders = [path.parent] if is_root else [path.parent / path.stem, path.parent]
    for name in MODULE.findall(text):
        for folder in folders:
            yield folder / f"{name}.rs"
            yield folder / name / "mod.rs"


def files_without_a_module(files, texts):
    """The Rust files that no module and no path names."""
    named, names = set(), set()
    for path, text in texts.items():
        names.update(PATH.findall(text))
        if path.suffix == ".rs":
            named.update(module_files(path, text))
    for path in files:
        is_target = path.name in TARGETS or path.parent.name in TARGET_FOLDERS
        if not is_target and path not in named and path.name not in names:
            yield path


class Modules(unittest.TestCase):
    def test_rust_files_are_named_by_a_module_or_a_path(self):
        files = listed("*.rs")
        self.assertGreater(len(files), 500)
        texts = {path: path.read_text() for path in files + listed("*Cargo.toml", "*.py", "scripts/*")}
        found = [str(path.relative_to(ROOT)) for path in files_without_a_module(files, texts)]
        self.assertEqual(found, [])

    def test_file_without_a_module_is_found(self):
        folder = pathlib.Path("/crate/src")
        texts = {
            folder / "lib.rs": "mod one;\n#[path = \"far/two.rs\"]\nmod other;\n",
            folder / "one.rs": "pub mod inner;\n// mod three;\n",
        }
        files = [folder / name for name in ("lib.rs", "one.rs", "one/inner.rs", "far/two.rs", "three.rs")]
        self.assertEqual([path.name for path in files_without_a_module(files, texts)], ["three.rs"])

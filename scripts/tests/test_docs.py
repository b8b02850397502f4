"""The pages name what the code has, and lead somewhere."""

import json
import re
import subprocess
import unittest
from pathlib import Path

import jsonschema

ROOT = Path(__file__).parents[2]
DIRECTIVES = ROOT / "docs/directives.md"
MODULE = ROOT / "nginx-module/src"

# Values of `Context:` lines, with the flags of nginx that they stand for.
CONTEXTS = {
    "anywhere, and if in location": "NGX_HTTP_SSZIP_ANY_CONF|NGX_HTTP_LIF_CONF",
    "anywhere": "NGX_HTTP_SSZIP_ANY_CONF",
    "http": "NGX_HTTP_MAIN_CONF",
    "location": "NGX_HTTP_LOC_CONF",
}


def pages():
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split()]


def prose(page):
    """The page without its examples, in which a bracket is no link."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def anchors(page):
    """What GitHub makes of the headings."""
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), flags=re.M):
        words = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(words.replace(" ", "-"))
    return found


def first_column(page, above):
    """The words in the first column of the table below a heading."""
    table = page.read_text().split(above, 1)[1].split("\n\n|", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[0 if line[0] != "|" else 1] for line in table.splitlines()]
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


class Links(unittest.TestCase):
    def test_every_link_leads_to_a_file_and_a_heading_that_are_there(self):
        broken = []
        for page in pages():
            for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
                if re.match(r"[a-z]+:", link):
                    continue
                name, _, anchor = link.partition("#")
                target = (page.parent / name).resolve() if name else page
                if not target.exists() or (anchor and anchor not in anchors(target)):
                    broken.append(f"{page.relative_to(ROOT)}: {link}")
        self.assertEqual(broken, [])

    def test_every_page_of_docs_is_reached_from_the_readme(self):
        reached, left = set(), [ROOT / "README.md"]
        while left:
            page = left.pop()
            if page in reached:
                continue
            reached.add(page)
            for name in re.findall(r"\]\(([^)#\s]+\.md)", prose(page)):
                if (target := (page.parent / name).resolve()).exists():
                    left.append(target)
        self.assertEqual([page for page in pages() if page.parent == ROOT / "docs" and page not in reached], [])


class Directives(unittest.TestCase):
    def setUp(self):
        code = (MODULE / "ngx_http_sszip_module.c").read_text()
        row = r'ngx_http_sszip_(own|slot|rule)\("(sszip\w*)",\s+((?:NGX_HTTP_\w+\|)*)NGX_CONF_\w+\b'
        anywhere = {"rule": ["NGX_HTTP_SSZIP_ANY_CONF"]}
        rows = re.findall(row, code)
        self.code = {name: "|".join(anywhere.get(macro, []) + more.split("|")[:-1]) for macro, name, more in rows}
        sections = re.split(r"^### ", DIRECTIVES.read_text(), flags=re.M)[1:]
        named = {section.split("\n", 1)[0]: section for section in sections}
        self.page = {name: section for name, section in named.items() if name.startswith("sszip")}

    def test_page_of_directives_equals_the_directives_of_the_module(self):
        self.assertGreater(len(self.code), 20)
        self.assertEqual(set(self.page), set(self.code))

    def test_table_of_contents_equals_the_directives_of_the_module(self):
        table = DIRECTIVES.read_text().split("### ", 1)[0]
        self.assertEqual(set(re.findall(r"\[(sszip\w*)\]", table)), set(self.code))

    def test_context_of_each_directive_matches_its_flags(self):
        for name, flags in self.code.items():
            context = re.search(r"^Context: +(.+)$", self.page[name], flags=re.M)
            self.assertEqual(CONTEXTS[context[1]], flags, name)

    def test_directives_have_their_syntax_and_default(self):
        for name, section in self.page.items():
            self.assertRegex(section, rf"(?m)^Syntax: +{name} ")
            self.assertRegex(section, rf"(?m)^Default: +(-|{name} .+;|derived from .+)$")

    def test_table_of_variables_equals_the_log_variables(self):
        code = (ROOT / "shared-core/src/log_variable.rs").read_text()
        named = {f"${name}" for name in re.findall(r'LogVariable::\w+ => "(sszip_\w+)"', code)}
        self.assertGreater(len(named), 5)
        self.assertEqual({name for name in first_column(DIRECTIVES, "\n## Variables") if name[0] == "$"}, named)


class Schema(unittest.TestCase):
    # Directives that the Envoy hosts do not have.
    NGINX = "thread_pool cache_bypass no_cache"

    def test_schema_has_the_settings_of_the_page(self):
        sections = re.findall(r"^### sszip(?:_(\w+))?$", DIRECTIVES.read_text(), flags=re.M)
        page = {name or "enable" for name in sections} - set(self.NGINX.split())
        schema = json.loads((ROOT / "configs/envoy/sszip.schema.json").read_text())
        self.assertEqual(set(schema["properties"]), page)

    def test_default_of_each_setting_is_valid(self):
        schema = json.loads((ROOT / "configs/envoy/sszip.schema.json").read_text())
        with_default = {name: of for name, of in schema["properties"].items() if "default" in of}
        self.assertGreater(len(with_default), 20)
        for name, of in with_default.items():
            with self.subTest(name):
                jsonschema.validate(of["default"], of)


class Words(unittest.TestCase):
    def words(self, source, kind):
        code = (ROOT / "shared-core/src" / source).read_text()
        named = re.findall(rf'{kind}::\w+ => "([^"]+)"|^ +[A-Z]\w+ "([^"]+)",$', code, flags=re.M)
        self.assertGreater(len(named), 20)
        return {word for words in named for word in words if word}

    def test_table_of_modes_equals_the_response_modes(self):
        self.assertEqual(first_column(DIRECTIVES, "\n### Modes") - {"$sszip_mode"}, self.words("response_mode.rs", "ResponseMode"))

    def test_page_of_reasons_equals_the_reasons_of_the_core(self):
        page = ROOT / "docs/reasons.md"
        both = set(re.findall(r"^\| `([^`]+)` \|", page.read_text(), flags=re.M))
        self.assertEqual(both, self.words("cache/reason.rs", "Reason"))

    def test_reasons_in_other_pages_and_configurations_exist(self):
        only_if_cached = (ROOT / "shared-core/src/exchange/cache/only_if_cached.rs").read_text()
        # the detail of a request that was looked up and has no reason
        reasons = self.words("cache/reason.rs", "Reason") | set(re.findall(r'MISS_DETAIL: &str = "(.+)"', only_if_cached))
        listed = subprocess.run(
            ["git", "ls-files", "*.md", "configs", "docker"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        # decisions and the list of changes mention former names
        files = [name for name in listed.stdout.split() if "decisions/" not in name and name != "CHANGELOG.md"]
        mention = r"""detail=([a-z][a-z_-]*)|reason=\\?"([a-z_-]+)|reasons? \[?`([a-z_-]+)`|\(reason ([a-z_-]+)\)"""
        # the fleet tier has reasons of its own
        texts = {name: re.sub(r"sszip_fleet_\w+\{[^}]*\}", "", (ROOT / name).read_text(errors="replace")) for name in files}
        found = {
            (name, next(filter(None, words)))
            for name, text in texts.items()
            for words in re.findall(mention, text)
        }
        self.assertGreater(len(found), 5)
        self.assertEqual([pair for pair in sorted(found) if pair[1] not in reasons], [])


class Messages(unittest.TestCase):
    """The messages that a page explains are some that sszip writes."""

    # nginx's, the linker's and Envoy's
    OTHERS = (
        "version 1028000 instead of 1022001",
        "is not binary compatible",
        "undefined symbol",
        "cannot open shared object file",
        "librocksdb.so",
        "dlopen",
        "dynamic module",
        "not found",
        'unknown directive "sszip',
    )

    def test_troubleshooting_quotes_messages_as_they_are_written(self):
        listed = subprocess.run(
            ["git", "ls-files", "*.rs", "*.c"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        code = " ".join((ROOT / name).read_text() for name in listed.stdout.split())
        # literals that go on in the next line, and quotes in them
        code = re.sub(r'\\\n\s*|"\s*\n\s*"', "", code).replace('\\"', '"')
        page = (ROOT / "docs/troubleshooting.md").read_text()
        quoted = [
            text
            for row in re.findall(r"^\| (.+?) \|", page, flags=re.M)
            for text in re.findall(r"`([^`]+)`", row)
            if re.search(r"[a-z] [a-z]", text)
        ]
        self.assertGreater(len(quoted), 5)
        for text in quoted:
            parts = re.split(r"\.\.\.|NAME|\(\)|: ", text)
            for part in (part.strip(' :"') for part in parts):
                if part not in ("", "sszip", *self.OTHERS):
                    with self.subTest(part):
                        self.assertTrue(part in code, "nothing writes that")


class Readme(unittest.TestCase):
    def test_readme_has_fewer_than_1000_words(self):
        self.assertLess(len((ROOT / "README.md").read_text().split()), 1000)


if __name__ == "__main__":
    unittest.main()

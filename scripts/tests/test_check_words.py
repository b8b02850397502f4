"""Each rule of check-words finds its own mistake, and nothing in good code."""

import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKER = ROOT / "scripts/check-words"

RULES = r"""
[name]
said = "message"
give_out = "drain"

[type]
"=what" = "FillTarget"

[function]
"^of" = "from_"

[test]
"^nobody" = "the subject"
"=[a-z0-9]+(?:_[a-z0-9]+)?" = "subject, condition and expectation"

[module]
"=asked" = "lookup_request"

[comment]
"The same\\b" = "name the subject"
"So many\\b" = "Number of"

[term]
"herds?" = "coalesced requests"
"who waits" = "follower"

[[skip]]
file = "docs/old/*"
reason = "history"
"""

GOOD_RUST = r'''
//! Cache entries of one process.

/// Bytes of an entry: what is "said" here is a string.
/// The same line continues the sentence.
pub struct CacheEntry;

/// Returns the number of entries.
pub(crate) const fn entry_count() -> &'static str {
    "fn of_strings() { what is said }"
}

fn unsaid() {}

#[test]
fn entry_is_evicted_when_the_tier_is_full() {}
'''

GOOD_PYTHON = '''"""A module."""

MESSAGE = "def said(): who waits"


class Client:
    def lookup(self):
        """Looks a key up."""


def test_entry_is_evicted_when_the_tier_is_full():
    pass
'''

GOOD_C = """
/*
 * Copyright (C) the authors
 */


typedef struct {
    ngx_str_t     name;
} ngx_http_sszip_entry_t;


static ngx_int_t
ngx_http_sszip_send_body(ngx_http_request_t *r)
{
    if (ngx_http_sszip_report_directive(r)) {
        return NGX_OK;
    }

    return NGX_DECLINED;
}
"""

GOOD_PAGE = """# Cache

A hit costs no compression; `who waits` is code.

```
herd
```
"""


class CheckWords(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.git("init", "-q")
        self.write("scripts/words.toml", RULES)

    def git(self, *arguments):
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *name, *arguments], cwd=self.root, check=True, capture_output=True)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", ".")

    def check(self, *arguments):
        """The status, and the lines of the output."""
        command = [sys.executable, str(CHECKER), "--root", str(self.root), *arguments]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout.splitlines()

    def findings(self):
        status, lines = self.check()
        found = [line for line in lines if " findings of " not in line]
        self.assertEqual(status, 1 if found else 0)
        return found

    def assert_finding(self, file, text, *expected):
        self.write(file, text)
        self.assertEqual(self.findings(), [f"{file}:{line}" for line in expected])


class NameRules(CheckWords):
    def test_good_sources_and_pages_have_no_finding(self):
        self.write("core/src/entry.rs", GOOD_RUST)
        self.write("tests/client.py", GOOD_PYTHON)
        self.write("module/src/ngx_http_sszip_body.c", GOOD_C)
        self.write("docs/cache.md", GOOD_PAGE)
        self.assertEqual(self.findings(), [])

    def test_type_of_a_single_pronoun_is_found(self):
        self.assert_finding("a.rs", "pub enum What {\n}\n", "1: What: FillTarget")

    def test_word_is_found_in_the_middle_of_a_camel_case_name(self):
        self.assert_finding("a.rs", "\nstruct LastSaidLine;\n", "2: LastSaidLine: message")

    def test_rule_of_two_words_finds_adjacent_words_only(self):
        text = "fn give_out_all() {}\nfn give_way_out() {}\n"
        self.assert_finding("a.rs", text, "1: give_out_all: drain")

    def test_beginning_of_a_function_is_found_at_the_beginning_only(self):
        text = "impl A {\n    pub fn of_head() {}\n    fn length_of() {}\n}\n"
        self.assert_finding("a.rs", text, "2: of_head: from_")

    def test_exported_function_is_checked_without_its_prefix(self):
        text = 'pub unsafe extern "C" fn sszip_of_head() {}\n'
        self.assert_finding("a.rs", text, "1: sszip_of_head: from_")

    def test_function_and_type_of_c_are_found(self):
        text = GOOD_C.replace("_send_body", "_said").replace("_entry_t", "_what_t")
        name = "ngx_http_sszip"
        self.assert_finding("a.c", text, f"9: {name}_what: FillTarget", f"13: {name}_said: message")

    def test_class_and_function_of_python_are_found(self):
        text = "class What:\n    async def of_head(self):\n        pass\n"
        self.assert_finding("a.py", text, "1: What: FillTarget", "2: of_head: from_")

    def test_script_without_an_ending_is_read_as_python(self):
        self.assert_finding("run", "#!/usr/bin/env python3\ndef said():\n    pass\n", "2: said: message")

    def test_rust_test_is_checked_by_the_rule_for_tests(self):
        text = "#[test]\n#[ignore]\nfn nobody_waits_for_it() {}\n\n#[tokio::test]\nasync fn of_many_parts() {}\n"
        self.assert_finding("a.rs", text, "3: nobody_waits_for_it: the subject")

    def test_python_test_is_checked_without_its_prefix(self):
        text = "def test_nobody_waits_for_it():\n    pass\n\n\ndef test_streams():\n    pass\n"
        streams = "5: test_streams: subject, condition and expectation"
        self.assert_finding("a.py", text, "1: test_nobody_waits_for_it: the subject", streams)

    def test_module_is_found_by_its_file_or_its_folder(self):
        self.write("a/asked.rs", "")
        self.write("b/asked/mod.rs", "")
        term = "asked: lookup_request"
        self.assertEqual(self.findings(), [f"a/asked.rs:1: {term}", f"b/asked/mod.rs:1: {term}"])

    def test_module_that_differs_from_its_neighbour_in_an_ending_is_found(self):
        for name in ("a/stream.rs", "a/streaming.rs", "a/code.rs", "a/coding.rs", "b/streams.rs"):
            self.write(name, "")
        terms = [f"{one}: a name that is distinct from {other}" for one, other in (("coding", "code"), ("streaming", "stream"))]
        self.assertEqual(self.findings(), [f"a/coding.rs:1: {terms[0]}", f"a/streaming.rs:1: {terms[1]}"])


class TextRules(CheckWords):
    def test_doc_comment_that_begins_with_a_fragment_is_found(self):
        text = "//! The same.\n\n/// Entries.\n/// The same line.\nstruct A;\n    /// So many.\n    fn b() {}\n"
        self.assert_finding("a.rs", text, "1: The same: name the subject", "6: So many: Number of")

    def test_plain_comment_may_begin_with_a_fragment(self):
        self.assert_finding("a.rs", "// The same.\nstruct A;\n")

    def test_replaced_term_is_found_in_comments_of_each_language(self):
        self.write("a.rs", "struct A; // Herds\n")
        self.write("b.c", "/*\n * a herd\n */\n")
        self.write("c.py", '"""A herd."""\n\nX = 1  # who\n# waits, and who waits\n')
        found = ["a.rs:1: herds: coalesced requests", "b.c:2: herd: coalesced requests"]
        found += ["c.py:1: herd: coalesced requests", "c.py:4: who waits: follower"]
        self.assertEqual(self.findings(), found)

    def test_replaced_term_is_found_over_the_end_of_a_line(self):
        self.assert_finding("docs/a.md", "A client\nwho\nwaits.\n", "2: who waits: follower")

    def test_replaced_term_is_found_as_a_whole_word_only(self):
        self.assert_finding("docs/a.md", "Shepherds.\n")


class Exceptions(CheckWords):
    EXCEPTION = '\n[[exception]]\nrule = "function"\nname = "of_*"\nfile = "a/*"\nreason = "a trait\'s"\n'

    def test_exception_permits_a_name_in_its_files(self):
        self.write("scripts/words.toml", RULES + self.EXCEPTION)
        for name in ("a/b.rs", "c/b.rs"):
            self.write(name, "fn of_head() {}\n")
        self.assertEqual(self.findings(), ["c/b.rs:1: of_head: from_"])

    def test_exception_without_a_finding_fails(self):
        self.write("scripts/words.toml", RULES + self.EXCEPTION)
        status, lines = self.check()
        self.assertEqual((status, len(lines)), (1, 1))
        self.assertIn("exception matches nothing", lines[0])

    def test_skipped_file_has_no_finding(self):
        self.assert_finding("docs/old/a.md", "herd\n")


class Baseline(CheckWords):
    def setUp(self):
        super().setUp()
        self.path = self.root / "scripts/words-baseline.toml"
        self.write("core/a.rs", "fn of_head() {}\nfn of_body() {}\n")
        self.assertEqual(self.check("--lower"), (0, []))

    def test_first_baseline_allows_the_findings_of_today(self):
        self.assertEqual(tomllib.loads(self.path.read_text()), {"function": {"core": 2}})
        self.assertEqual(self.check(), (0, []))

    def test_check_fails_when_a_count_rises(self):
        self.write("core/b.rs", "fn of_tail() {}\n")
        status, lines = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(lines[2:], ["core/b.rs:1: of_tail: from_", "core: 3 findings of rule function, 2 allowed"])

    def test_count_of_one_folder_does_not_allow_findings_of_another(self):
        self.write("core/a.rs", "")
        self.write("cli/a.rs", "fn of_head() {}\n")
        self.assertEqual(self.check()[0], 1)

    def test_sunk_count_is_reported_and_does_not_fail(self):
        self.write("core/a.rs", "fn of_head() {}\n")
        self.assertEqual(
            self.check(), (0, ["core: findings of rule function sank to 1; run scripts/check-words --lower"])
        )

    def test_lower_writes_sunk_counts_and_never_raises_one(self):
        self.write("core/a.rs", "fn of_head() {}\nstruct What;\n")
        self.assertEqual(self.check("--lower")[0], 1)
        self.assertEqual(tomllib.loads(self.path.read_text()), {"function": {"core": 1}})

    def test_option_all_ignores_the_baseline(self):
        status, lines = self.check("--all")
        self.assertEqual((status, len(lines)), (1, 3))

    def test_option_since_prints_findings_on_changed_lines_only(self):
        self.git("commit", "-q", "-m", "a")
        self.write("core/a.rs", "fn of_head() {}\nfn of_body() {}\nfn of_tail() {}\n")
        found = ["core/a.rs:3: of_tail: from_", "core: 3 findings of rule function, 2 allowed"]
        self.assertEqual(self.check("--since", "HEAD"), (1, found))


class Counts(CheckWords):
    def test_counts_of_tests_doc_comments_and_speech(self):
        self.write("a.rs", "/// So many.\nfn said() {}\n/// Bytes.\nlet AskStore = untold; // told\n")
        self.write("b.py", "def test_nobody_waits():\n    pass\n\n\ndef test_entry_is_evicted():\n    pass\n")
        status, lines = self.check("--count")
        self.assertEqual(status, 0)
        self.assertEqual(
            lines,
            [
                "tests that begin with a pronoun, a preposition or a bare word: 1 of 2 (50.0 %)",
                "docs that begin with a fragment: 1 of 2 (50.0 %)",
                "say, ask and tell: 3 (2 in names, 1 in comments)",
            ],
        )


class Rules(unittest.TestCase):
    def test_project_rules_name_a_better_term_and_exceptions_a_reason(self):
        config = tomllib.loads((ROOT / "scripts/words.toml").read_text())
        tables = [table for table in config.values() if isinstance(table, dict)]
        self.assertTrue(all(term for table in tables for term in table.values()))
        for entry in config["exception"] + config["skip"]:
            self.assertTrue(entry["reason"])


if __name__ == "__main__":
    unittest.main()

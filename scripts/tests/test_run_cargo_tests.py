"""Tests of scripts/run-cargo-tests with a program in place of cargo: flaky tests are distinguished from
failing ones and from programs that are killed, and the reports name each test."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
CARGO = """#!/bin/sh
case "$*" in
    *--exact*) cat {folder}/again ;;
    *) echo "$PROPTEST_RNG_SEED" >{folder}/seed; cat {folder}/first ;;
esac
! grep -q -e FAILED -e 'signal: 6' {folder}/first || [ "$*" != "${{*#*--exact}}" ]
"""
FIRST = """     Running unittests src/lib.rs (target/debug/deps/one-1)

running 3 tests
test a::passes ... ok
test a::fails ... {outcome}
test a::is_left_out ... ignored

test result: {result}. 1 passed; 1 failed; 1 ignored

     Running tests/store/main.rs (target/debug/deps/store-1)

running 1 test
test b::passes ... ok

test result: ok. 1 passed; 0 failed; 0 ignored
"""
FAILING = FIRST.format(outcome="FAILED", result="FAILED")
PASSING = FIRST.format(outcome="ok", result="ok")
KILLED = """     Running tests/memory.rs (target/debug/deps/memory-1)

running 1 test
error: test failed, to rerun pass `--test memory`
  process didn't exit successfully: `memory-1` (signal: 6, SIGABRT: process abort signal)
"""
AGAIN = """     Running unittests src/lib.rs (target/debug/deps/one-1)

running 1 test
test a::fails ... ok

test result: ok. 1 passed; 0 failed; 0 ignored
"""


class RunCargoTests(unittest.TestCase):
    def run_on(self, first, again="", **environment):
        """The exit status, the counts, the test cases of the JUnit file and proptest's seed."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SSZIP_", "PROPTEST_"))}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "first").write_text(first)
            (folder / "again").write_text(again)
            cargo = folder / "cargo"
            cargo.write_text(CARGO.format(folder=folder))
            cargo.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            done = subprocess.run(
                [sys.executable, SCRIPTS / "run-cargo-tests", "stage"],
                env={**known, **environment, "PATH": path, "SSZIP_REPORTS": name},
                capture_output=True,
                text=True,
            )
            counts = json.loads((folder / "stage.json").read_text())
            cases = ElementTree.parse(folder / "stage.xml").findall("testcase")
            return done.returncode, counts, cases, (folder / "seed").read_text().strip()

    def test_tests_that_pass_are_in_the_counts_and_in_the_junit_file(self):
        status, counts, cases, _ = self.run_on(PASSING)
        self.assertEqual((status, counts["passed"], counts["skipped"]), (0, 3, 1))
        names = [(case.get("classname"), case.get("name"), [part.tag for part in case]) for case in cases]
        unit = [("src/lib.rs", f"a::{name}", parts) for name, parts in
                [("passes", []), ("fails", []), ("is_left_out", ["skipped"])]]  # fmt: skip
        self.assertEqual(names, [*unit, ("tests/store/main.rs", "b::passes", [])])

    def test_flaky_test_does_not_fail_the_stage(self):
        status, counts, cases, _ = self.run_on(FAILING, AGAIN)
        self.assertEqual((status, counts["passed"], counts["failed"]), (0, 3, 0))
        self.assertEqual(counts["flaky"], ["src/lib.rs: a::fails"])
        self.assertEqual([part.tag for part in cases[1]], ["failure"])

    def test_test_that_fails_twice_fails_the_stage(self):
        status, counts, _, _ = self.run_on(FAILING, AGAIN.replace("... ok", "... FAILED"))
        self.assertEqual((status, counts["failed"]), (1, 1))
        self.assertEqual(counts["failures"], ["src/lib.rs: a::fails"])

    def test_killed_program_fails_the_stage_when_another_test_is_flaky(self):
        status, counts, _, _ = self.run_on(FAILING + KILLED, AGAIN)
        self.assertEqual((status, counts["failed"], len(counts["flaky"])), (1, 0, 1))

    def test_property_tests_have_a_fixed_seed_in_tiers_or_that_of_the_environment(self):
        self.assertEqual(self.run_on(PASSING, SSZIP_TIER="test")[3], "0")
        self.assertEqual(self.run_on(PASSING, SSZIP_TIER="all", SSZIP_SEED="700")[3], "700")
        self.assertEqual(self.run_on(PASSING, SSZIP_SEED="700")[3], "700")
        self.assertEqual(self.run_on(PASSING)[3], "")


if __name__ == "__main__":
    unittest.main()

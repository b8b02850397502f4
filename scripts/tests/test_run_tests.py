"""Tests of scripts/run-tests: all stages run, and the summary names those that failed."""

import collections
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where the minutes of a tier are.
PAGES = {
    "test": {
        "README.md": r"^make test .* (\d+) minutes",
        "CONTRIBUTING.md": r"^make test +# (\d+) minutes",
        "Makefile": r"^test: .* (\d+) minutes",
        "tests/README.md": r"^\| `make test` \| (\d+) \|",
    },
    "all": {
        "CONTRIBUTING.md": r"^make test-all +# (\d+) minutes",
        "tests/README.md": r"^\| `make test-all` \| (\d+) \|",
    },
}
SCRIPT = ROOT / "scripts/run-tests"
# In place of make: writes a line, and fails in the stage `lint`, or only in its first run.
MAKE = """#!/bin/sh
echo "output of $2"
[ "$2" != lint ] || { %s; }
"""


def load_script():
    loader = importlib.machinery.SourceFileLoader("run_tests", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    with mock.patch.dict(os.environ, {"SSZIP_REPORTS": "reports"}):
        loader.exec_module(module)
    return module


class RunTests(unittest.TestCase):
    def run_quick(self, lint):
        """The exit status, and the output with its summary apart, of `quick` whose stage `lint` is this command."""
        with tempfile.TemporaryDirectory() as folder:
            make = pathlib.Path(folder, "make")
            make.write_text(MAKE % lint)
            make.chmod(0o755)
            done = subprocess.run(
                [sys.executable, SCRIPT, "quick"],
                env={**os.environ, "MAKE": str(make), "SSZIP_REPORTS": f"{folder}/reports"},
                cwd=folder,
                capture_output=True,
                text=True,
            )
        output, _, summary = done.stdout.partition("=== Summary")
        return done.returncode, output, summary

    def test_stages_after_a_failed_one_run_and_the_run_fails(self):
        status, output, summary = self.run_quick("false")
        self.assertEqual(status, 1)
        for stage in ("lint", "tested", "unit", "rows"):
            self.assertIn(f"=== {stage}: started, takes about ", output)
            self.assertIn(f"output of {stage}\n", output)
        self.assertRegex(summary, r"lint +FAILED")
        self.assertRegex(summary, r"rows +passed")
        self.assertIn("    | output of lint\n", summary)

    def test_stage_that_passes_the_second_time_is_flaky(self):
        status, _, summary = self.run_quick("[ -e failed ] || { touch failed; false; }")
        self.assertEqual(status, 0)
        self.assertIn("flaky: stage lint, without a failed test", summary)

    def test_stages_that_pass_are_not_repeated(self):
        status, output, summary = self.run_quick("true")
        self.assertEqual((status, output.count("output of lint\n")), (0, 1))
        self.assertNotIn("flaky", summary)


class Group(unittest.TestCase):
    def test_lane_that_is_free_begins_the_next_stage(self):
        script = load_script()
        has_last_ended = threading.Event()
        lanes = {}

        def run_stage(stage, _minutes, _console, lane):
            lanes[stage] = lane
            if stage == "long":
                has_last_ended.wait(60)
            if stage == "last":
                has_last_ended.set()
            return stage

        results = []
        with mock.patch.object(script, "run_stage", run_stage):
            script.run_group(["long", "second", "last"], collections.Counter(), results)
        self.assertEqual(results, ["second", "last", "long"])
        self.assertEqual(lanes, {"long": lanes["long"], "second": lanes["last"], "last": 1 - lanes["long"]})


class Pages(unittest.TestCase):
    def test_minutes_of_a_tier_are_the_same_on_all_pages(self):
        script = load_script()
        for name, pages in PAGES.items():
            expected = f"{script.expected_minutes(script.TIERS[name]):.0f}"
            for page, pattern in pages.items():
                found = re.findall(pattern, (ROOT / page).read_text(), re.MULTILINE)
                self.assertEqual((page, found), (page, [expected]))


class LanesOutput(unittest.TestCase):
    def test_second_lane_is_shown_when_the_first_has_ended(self):
        output = io.TextIOWrapper(io.BytesIO())
        with mock.patch("sys.stdout", output):
            console = load_script().Console(2)
            first, second = bytearray(b"one "), bytearray(b"two ")
            console.show(1, second)
            console.show(0, first)
            self.assertEqual((output.buffer.getvalue(), first), (b"one ", b""))
            console.end_lane(0)
            console.show(1, second)
            self.assertEqual((output.buffer.getvalue(), second), (b"one two ", b""))

    def test_output_of_a_stage_is_shown_when_it_ends(self):
        output = io.TextIOWrapper(io.BytesIO())
        with mock.patch("sys.stdout", output):
            console = load_script().Console(2)
            console.end_stage(bytearray(b"two\n"), "ended")
            self.assertEqual(output.buffer.getvalue(), b"two\nended\n")


if __name__ == "__main__":
    unittest.main()

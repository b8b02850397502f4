"""Tests of scripts/run-pytest: flaky tests are distinguished from failing ones."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
FLAKY = """
import pathlib

def test_passes_on_the_second_run():
    mark = pathlib.Path(__file__).with_name("mark")
    is_first = not mark.exists()
    mark.touch()
    assert not is_first

def test_passes():
    pass
"""
# As the harness reports a server that crashed.
CRASHING = FLAKY.replace("assert not is_first", 'assert not is_first, "Envoy ended with -11"')
FAILING = "\ndef test_fails():\n    assert 1 == 2\n"


class RunPytest(unittest.TestCase):
    def run_on(self, text, chosen="suite"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "suite").mkdir()
            (root / "suite/test_one.py").write_text(text)
            (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -n 2\n")
            done = subprocess.run(
                [sys.executable, SCRIPTS / "run-pytest", "stage", f"{root}/{chosen}"],
                env={**os.environ, "SSZIP_REPORTS": str(root / "reports")},
                capture_output=True,
                text=True,
            )
            counts = root / "reports/stage.json"
            self.assertTrue(counts.exists(), done.stdout + done.stderr)
            return done.returncode, json.loads(counts.read_text())

    def test_flaky_test_is_reported_and_does_not_fail_the_stage(self):
        status, counts = self.run_on(FLAKY)
        self.assertEqual(status, 0)
        self.assertEqual(counts["flaky"], ["suite/test_one.py::test_passes_on_the_second_run"])
        self.assertEqual((counts["passed"], counts["failed"]), (2, 0))

    def test_flaky_test_chosen_by_name_is_run_again(self):
        name = "suite/test_one.py::test_passes_on_the_second_run"
        status, counts = self.run_on(FLAKY, name)
        self.assertEqual((status, counts["flaky"]), (0, [name]))

    def test_test_in_which_a_process_crashed_fails_the_stage(self):
        status, counts = self.run_on(CRASHING)
        self.assertEqual(status, 1)
        self.assertEqual(counts["failures"], ["suite/test_one.py::test_passes_on_the_second_run"])
        self.assertEqual((counts["passed"], counts["flaky"]), (1, []))

    def test_test_that_fails_twice_fails_the_stage(self):
        status, counts = self.run_on(FLAKY + FAILING)
        self.assertEqual(status, 1)
        self.assertEqual(counts["failures"], ["suite/test_one.py::test_fails"])
        self.assertEqual((counts["passed"], counts["failed"]), (2, 1))

    def test_failures_above_the_retry_limit_are_not_retried(self):
        text = "".join(f"\ndef test_{n}():\n    assert False\n" for n in range(11))
        status, counts = self.run_on(text)
        self.assertEqual(status, 1)
        self.assertEqual((counts["failed"], counts["flaky"]), (11, []))

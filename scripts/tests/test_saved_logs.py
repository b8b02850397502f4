"""Tests of tests/saved_logs.py: logs of servers are kept if a test of their file failed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
CONFTEST = """
import pytest
import saved_logs
from saved_logs import pytest_runtest_makereport, pytest_runtest_setup

def save(folder):
    (folder / "container.log").write_text("of a container")
    raise OSError("the engine has stopped")

saved_logs.at_failure.append(lambda folder: folder.mkdir(parents=True, exist_ok=True))
saved_logs.at_failure.append(save)

@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    for name in ("log/error.log", "etc/nginx.conf", "etc/module.so", "var/other.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "etc/link.conf").symlink_to(folder / "etc/nginx.conf")
    yield folder
    saved_logs.save(folder, "log", "etc", "absent")
    saved_logs.discard(tmp_path / "other")
"""
FAILING = "def test_fails(server):\n    assert 1 == 2\n"
PASSING = "def test_passes(server):\n    pass\n"


class SavedLogs(unittest.TestCase):
    def run_on(self, *texts):
        """Runs a file of tests for each text; returns the output, and the files of the reports."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "suite").mkdir()
            (root / "suite/conftest.py").write_text(CONFTEST)
            (root / "suite/pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:xdist\n")
            for number, text in enumerate(texts):
                (root / f"suite/test_{number}.py").write_text(text)
            done = subprocess.run(
                [sys.executable, "-B", "-m", "pytest", f"--basetemp={root}/t", root / "suite"],
                env={**os.environ, "PYTHONPATH": str(TESTS), "SSZIP_REPORTS": str(root / "reports")},
                capture_output=True,
                text=True,
            )
            reports = root / "reports/servers"
            kept = {str(path.relative_to(reports)) for path in reports.rglob("*") if path.is_file()}
            return done.stdout.replace(str(reports), "SERVERS"), kept

    def test_texts_of_a_failed_tests_server_are_kept_and_the_report_names_the_folder(self):
        output, kept = self.run_on(FAILING)
        folder = "suite-test_0.py"
        names = {"container.log", "server/log/error.log", "server/etc/nginx.conf"}
        self.assertEqual(kept, {f"{folder}/{name}" for name in names}, output)
        self.assertIn(f"SERVERS/{folder}", output)

    def test_failure_to_save_is_reported_with_the_failure_of_the_test(self):
        output, _ = self.run_on(FAILING)
        self.assertIn("OSError('the engine has stopped')", output)
        self.assertIn("assert 1 == 2", output)

    def test_logs_of_another_file_are_not_kept(self):
        output, kept = self.run_on(FAILING, PASSING)
        self.assertIn("1 failed, 1 passed", output)
        self.assertEqual({name.partition("/")[0] for name in kept}, {"suite-test_0.py"})

    def test_logs_of_passed_tests_are_not_kept(self):
        output, kept = self.run_on(PASSING)
        self.assertEqual(kept, set(), output)


if __name__ == "__main__":
    unittest.main()

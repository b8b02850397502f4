"""Logs and configurations of servers whose tests failed.

A server's folder is deleted when it stops. If a test of the same file failed, its text
files are copied first, to SSZIP_REPORTS/servers/<test file>/<folder of the server>.
Servers that outlive a test file, or have no folder, are saved by a function of `at_failure`.

A conftest.py in the folder of a pytest.ini imports the hooks of this module: pytest reads no
conftest.py above it."""

import os
import pathlib
import re
import shutil

import pytest

LARGEST = 16 << 20  # bytes of one file that is copied
SUFFIXES = {".log", ".conf", ".yaml", ".toml", ".json", ".txt"}

# Functions that are called with the folder when a test has failed, before its fixtures end.
at_failure = []
_failed_file = None


def file_of(item):
    """Returns a test's file with its folder."""
    return f"{item.path.parent.name}/{item.path.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Forgets the failures of another test file."""
    global _failed_file
    if _failed_file != file_of(item):
        _failed_file = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Remembers the test file of a failure, for the servers that stop after it, and reports the folder."""
    global _failed_file
    report = yield
    if report.failed:
        _failed_file = file_of(item)
        if target := folder():
            report.sections.append(("Kept logs", str(target)))
            for save in at_failure:
                try:
                    save(target)
                except Exception as error:  # the failure of the test must be reported
                    report.sections.append(("Logs that are not kept", repr(error)))
    return report


def folder():
    """Where the logs are copied to; None unless SSZIP_REPORTS is set and a test failed."""
    reports = os.environ.get("SSZIP_REPORTS")
    if not reports or not _failed_file:
        return None
    return pathlib.Path(reports) / "servers" / re.sub(r"[^\w.-]+", "-", _failed_file)


def save(prefix, *parts):
    """Copies the text files of a server's folder, or of these parts of it, if a test of the file failed."""
    if not (target := folder()):
        return
    found = [path for part in parts or [""] for path in (prefix / part).rglob("*")]
    for path in found:
        is_text = path.suffix in SUFFIXES or path.name == "log"
        # a link may lead to a file of another system
        if is_text and path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            copy = target / prefix.name / path.relative_to(prefix)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def discard(prefix):
    """Deletes a server's folder; copies its logs first if a test of the file failed."""
    save(pathlib.Path(prefix))
    shutil.rmtree(prefix, ignore_errors=True)

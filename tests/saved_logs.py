"""Logs and configurations of servers whose tests failed.

A server's folder is deleted when it stops. If a test of the same file failed, its text
files are copied first, to SSZIP_REPORTS/servers/<test file>/<folder of the server>."""

import os
import pathlib
import re
import shutil

LARGEST = 16 << 20  # bytes of one file that is copied
SUFFIXES = {".log", ".conf", ".yaml", ".toml", ".json", ".txt"}

_failed_file = None


def record_failure(node_id):
    """Remembers the test file, for the servers that stop after it."""
    global _failed_file
    _failed_file = node_id.partition("::")[0]


def begin(node_id):
    """Forgets the failures of another test file."""
    global _failed_file
    if _failed_file != node_id.partition("::")[0]:
        _failed_file = None


def folder():
    """Where the logs are copied to; None unless SSZIP_REPORTS is set and a test failed."""
    reports = os.environ.get("SSZIP_REPORTS")
    if not reports or not _failed_file:
        return None
    return pathlib.Path(reports) / "servers" / re.sub(r"[^\w.-]+", "-", _failed_file)


def discard(prefix):
    """Deletes a server's folder; copies its logs first if a test of the file failed."""
    prefix = pathlib.Path(prefix)
    if target := folder():
        for path in prefix.rglob("*"):
            is_text = path.suffix in SUFFIXES or path.name == "log"
            if is_text and path.is_file() and path.stat().st_size <= LARGEST:
                copy = target / prefix.name / path.relative_to(prefix)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    shutil.rmtree(prefix, ignore_errors=True)

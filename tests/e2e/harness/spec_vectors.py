"""Values that the specifications' own code writes, with a Python of its own."""

import json
import os
import pathlib
import subprocess

import pytest

SSZ_TESTS = pathlib.Path(__file__).resolve().parents[2] / "ssz"


@pytest.fixture(scope="session")
def cache_directory():
    """The folder of files that are built once, outside the clone."""
    path = pathlib.Path(os.environ.get("SSZIP_CACHE", pathlib.Path.home() / ".cache" / "sszip"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def values(cache_directory, script, *arguments):
    """The output of a script of tests/ssz: one value per line."""
    command = [cache_directory / "ssz-venv" / "bin" / "python", SSZ_TESTS / script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]

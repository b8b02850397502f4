"""Values that the specifications' own code writes, with a Python of its own."""

import functools
import hashlib
import json
import os
import pathlib
import shutil
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
    """The output of a script of tests/ssz: one value per line. It is the same in each run, and
    is stored for as long as the scripts do not change."""
    folder = cache_directory / "spec-vectors" / _digest_of_scripts()
    name = hashlib.sha256(json.dumps([script, *arguments]).encode()).hexdigest()[:16]
    stored = folder / f"{script}-{name}"
    if not stored.exists():
        command = [cache_directory / "ssz-venv" / "bin" / "python", SSZ_TESTS / script, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        _remove_earlier(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # other workers read the whole output or none
        new = stored.with_name(f"{stored.name}.{os.getpid()}")
        new.write_text(done.stdout)
        new.rename(stored)
    return [json.loads(line) for line in stored.read_text().splitlines()]


@functools.cache
def _digest_of_scripts():
    sources = [SSZ_TESTS / "requirements.txt", *sorted(SSZ_TESTS.glob("*.py"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def _remove_earlier(folder):
    """Removes the outputs of earlier versions of the scripts."""
    for earlier in folder.parent.glob("*"):
        if earlier != folder:
            shutil.rmtree(earlier, ignore_errors=True)

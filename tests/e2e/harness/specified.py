"""Values that the specifications' own code writes, in a Python of its own."""

import json
import pathlib
import subprocess

SSZ_TESTS = pathlib.Path(__file__).resolve().parents[2] / "ssz"


def values(cache_directory, script, *arguments):
    """What a script of tests/ssz says: a value for each line."""
    command = [cache_directory / "ssz-venv" / "bin" / "python", SSZ_TESTS / script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]

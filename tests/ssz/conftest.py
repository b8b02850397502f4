"""Fixtures: the walkers under test, and Lodestar's types, as processes."""

import json
import os
import pathlib

import pytest

# Asserts in helper modules show both sides, as asserts in tests do.
pytest.register_assert_rewrite("newer_layouts", "process", "specs", "values")

import faster  # noqa: E402, F401
from process import Process  # noqa: E402

ORACLE = pathlib.Path(os.environ.get("SSZIP_SSZ_ORACLE", "ssz_oracle"))
LODESTAR = pathlib.Path(os.environ.get("SSZIP_LODESTAR", "lodestar"))
HERE = pathlib.Path(__file__).parent


def pytest_sessionstart(session):
    for name, path in [
        ("SSZIP_SSZ_ORACLE", ORACLE),
        ("SSZIP_LODESTAR", LODESTAR / "node_modules/@lodestar/types"),
    ]:
        if not path.exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


@pytest.fixture(scope="session")
def walkers():
    process = Process([ORACLE])
    yield process
    process.stop()


@pytest.fixture(scope="session")
def lodestar():
    """A function that returns the process of a preset; a process has one preset only."""
    processes = {}

    def process_of_preset(preset):
        if preset not in processes:
            processes[preset] = Process(
                ["node", HERE / "lodestar/answer.js", LODESTAR],
                env={**os.environ, "LODESTAR_PRESET": preset},
            )
        return processes[preset]

    yield process_of_preset
    for process in processes.values():
        process.stop()


@pytest.fixture(scope="session")
def described(walkers):
    """A function that returns the types of a fork's schema."""
    known = {}

    def types_of_fork(fork, preset):
        if (fork, preset) not in known:
            answer = walkers.request("describe", fork=fork, preset=preset)
            known[fork, preset] = json.loads(answer)
        return known[fork, preset]

    return types_of_fork

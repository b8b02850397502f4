"""Fixtures of Envoy's tests: a scripted node, and Envoy with the module in front
of it."""

import pathlib
import shutil

import pytest

from harness.envoy import ENVOY, MODULE, Envoy
from harness.running import nobody_complains, origin, session_origin, starting
from harness.specified import cache_directory

# for pytest, which looks for them here
__all__ = ["cache_directory", "nobody_complains", "origin", "session_origin"]


def pytest_sessionstart(session):
    for name, path in (("SSZIP_ENVOY", ENVOY), ("SSZIP_ENVOY_MODULE", MODULE)):
        if not shutil.which(path) and not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


@pytest.fixture(scope="module")
def start_envoy(session_origin):
    """Starts Envoy with these routes; it runs until the file's tests end."""
    yield from starting(lambda routes, **options: Envoy(routes, origin=session_origin, **options))

"""Fixtures of Envoy's tests: a scripted node, and Envoy with the module in front
of it."""

import pathlib
import shutil

import pytest

from harness.envoy import ENVOY, MODULE, Envoy
from harness.origin import Origin

_running = []


def pytest_sessionstart(session):
    for name, path in (("SSZIP_ENVOY", ENVOY), ("SSZIP_ENVOY_MODULE", MODULE)):
        if not shutil.which(path) and not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


@pytest.fixture(scope="session")
def session_origin(tmp_path_factory):
    origin = Origin(tmp_path_factory.mktemp("origin"))
    yield origin
    origin.close()


@pytest.fixture
def origin(session_origin):
    session_origin.forget()
    yield session_origin
    assert not session_origin.errors, session_origin.errors


@pytest.fixture(scope="module")
def start_envoy(session_origin):
    """Starts Envoy with these routes; it runs until the file's tests end."""
    started = []

    def start(routes, **options):
        envoy = Envoy(routes, origin=session_origin, **options)
        started.append(envoy)
        _running.append(envoy)
        return envoy.start()

    yield start
    failures = []
    for envoy in started:
        _running.remove(envoy)
        try:
            envoy.stop()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.fixture(autouse=True)
def envoy_does_not_complain():
    yield
    for envoy in _running:
        envoy.check()

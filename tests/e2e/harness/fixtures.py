"""Fixtures that every server under test needs: the scripted node, the library in front of the C
library, and the end of each server, which is checked."""

import pytest

from .origin import Origin
from .owner import Owner
from .preload import Preload

_running = []


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
def preload():
    """The library that a file's servers have in front of the C library."""
    preload = Preload()
    yield preload
    preload.close()


@pytest.fixture(scope="module")
def daemon():
    """The owner as a daemon, which runs as long as the file's tests."""
    owner = Owner(max_size="64m", memory="32m").start()
    yield owner
    owner.close()


def starting(make):
    """For a fixture: starts servers that `make` creates, which run until it ends."""
    started = []

    def start(*arguments, **options):
        server = make(*arguments, **options)
        started.append(server)
        _running.append(server)
        return server.start()

    yield start
    failures = []
    for server in started:
        _running.remove(server)
        try:
            server.stop()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.fixture(autouse=True)
def assert_no_error_log():
    yield
    for server in _running:
        server.check()

"""Fixtures of the owner's tests: real daemons on sockets of their own."""

import pytest

from daemon import CACHED, Daemon
from frames import Session


def pytest_sessionstart(session):
    if not CACHED.exists():
        raise pytest.UsageError(f"SSZIP_CACHED: there is no {CACHED}")


@pytest.fixture(scope="module")
def start_daemon(tmp_path_factory):
    """Starts daemons; those that still run at the end are stopped."""
    all = []

    def start(folder=None, **settings):
        daemon = Daemon(folder or tmp_path_factory.mktemp("owner"), **settings)
        all.append(daemon)
        return daemon.start()

    yield start
    for daemon in all:
        if daemon.process.poll() is None:
            daemon.stop()
        assert "panicked" not in daemon.log_text(), daemon.log_text()


@pytest.fixture(scope="module")
def owner(request, start_daemon):
    """One daemon for the file's tests, with the file's own SETTINGS."""
    return start_daemon(**getattr(request.module, "SETTINGS", {}))


@pytest.fixture
def join():
    """Opens sessions, which are closed at the end."""
    sessions = []

    def join(daemon, process):
        sessions.append(Session(daemon, process))
        return sessions[-1]

    yield join
    for session in sessions:
        session.close()

"""Fixtures of every end-to-end test: a scripted node, and nginx with the
module in front of it."""

import os
import pathlib

import pytest

from harness.lanes import Lanes
from harness.nginx import MODULE, NGINX, Nginx
from harness.origin import Origin

_running = []


def pytest_sessionstart(session):
    for name, path in (("SSZIP_NGINX", NGINX), ("SSZIP_MODULE", MODULE)):
        if not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


def pytest_xdist_make_scheduler(config, log):
    return Lanes(config, log)


@pytest.fixture(scope="session")
def cache_directory():
    """Where things that are built once are kept, outside the clone."""
    path = pathlib.Path(os.environ.get("SSZIP_CACHE", pathlib.Path.home() / ".cache" / "sszip"))
    path.mkdir(parents=True, exist_ok=True)
    return path


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
def start_nginx(session_origin):
    """Starts nginx with a configuration; it runs until the file's tests end."""
    started = []

    def start(http, **options):
        nginx = Nginx(http, origin=session_origin, **options)
        started.append(nginx)
        _running.append(nginx)
        return nginx.start()

    yield start
    failures = []
    for nginx in started:
        _running.remove(nginx)
        try:
            nginx.stop()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.fixture(scope="module")
def nginx(request, start_nginx):
    """nginx with the file's own CONFIG."""
    options = getattr(request.module, "OPTIONS", {})
    return start_nginx(request.module.CONFIG, **options)


@pytest.fixture(autouse=True)
def nginx_does_not_complain():
    yield
    for nginx in _running:
        nginx.check()

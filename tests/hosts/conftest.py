"""Fixtures of the tests that are the same on each host: a scripted node, and a server of `host`
in front of it."""

import os
import pathlib
import shutil

import pytest

from harness import hosts
from harness.fixtures import assert_no_error_log, daemon, origin, preload, session_origin, starting
from harness.spec_vectors import cache_directory

# pytest finds the fixtures by these names
__all__ = ["cache_directory", "assert_no_error_log", "daemon", "origin", "preload", "session_origin"]

NEEDED = {
    "nginx": ("SSZIP_NGINX", "SSZIP_MODULE"),
    "native": ("SSZIP_ENVOY", "SSZIP_ENVOY_MODULE"),
    "wasm": ("SSZIP_ENVOY", "SSZIP_WASM"),
}


def pytest_sessionstart(session):
    for name in {name for host in hosts.HOSTS for name in NEEDED[host]}:
        path = os.environ.get(name, "")
        if not shutil.which(path) and not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


def pytest_generate_tests(metafunc):
    if "host" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("hosts")
        names = [name for name in hosts.HOSTS if only is None or name in only.args]
        metafunc.parametrize("host", names, indirect=True, scope="module")


def pytest_collection_modifyitems(config, items):
    """Deselects, and does not skip, tests of hosts on which this suite does not run."""
    selected, left_out = [], []
    for item in items:
        only = item.get_closest_marker("hosts")
        (left_out if only and not set(only.args) & set(hosts.HOSTS) else selected).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = selected


@pytest.fixture(scope="module")
def host(request):
    """The name of the host: `nginx`, `native` (Envoy's module) or `wasm`."""
    return request.param


@pytest.fixture(scope="module")
def start_server(host, session_origin):
    """Starts a server of the host; it runs until the file's tests on that host end."""
    yield from starting(lambda *places, **options: hosts.server(host, session_origin, *places, **options))

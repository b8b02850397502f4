"""Fixtures of Envoy's tests: a scripted node, and Envoy with the module in front of it."""

import pathlib
import shutil

import pytest

from harness.envoy import ENVOY, MODULE, Envoy
from harness.fixtures import assert_no_error_log, daemon, origin, preload, session_origin, starting
from harness.sandbox import WASM, WasmEnvoy
from harness.spec_vectors import cache_directory

# pytest finds the fixtures by these names
__all__ = ["cache_directory", "assert_no_error_log", "daemon", "origin", "preload", "session_origin"]


def pytest_sessionstart(session):
    for name, path in (("SSZIP_ENVOY", ENVOY), ("SSZIP_ENVOY_MODULE", MODULE), ("SSZIP_WASM", WASM)):
        if not shutil.which(path) and not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


def pytest_generate_tests(metafunc):
    # files with HOSTS are run on each of these hosts
    hosts = getattr(metafunc.module, "HOSTS", None)
    for name in ("native", "wasm"):
        if metafunc.definition.get_closest_marker(name):
            hosts = (name,)
    if hosts and "host" in metafunc.fixturenames:
        metafunc.parametrize("host", hosts, indirect=True, scope="module")


@pytest.fixture(scope="module")
def host(request):
    """The kind of sszip in Envoy: `native` module, or `wasm` filter."""
    return getattr(request, "param", "native")


@pytest.fixture(scope="module")
def start_envoy(host, session_origin):
    """Starts Envoy with these routes; it runs until the file's tests end."""
    kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
    yield from starting(lambda routes, **options: kind(routes, origin=session_origin, **options))

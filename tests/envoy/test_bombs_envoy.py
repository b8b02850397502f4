"""Bodies that decode to hundreds of megabytes: the memory of Envoy stays bounded, that of the
sandbox within it."""

import pytest

from harness import bombs
from harness.envoy import route

HOSTS = ("native", "wasm")
# the daemon has the hot entries of sandboxes
SETTINGS = {"native": {"cache_memory": "8m"}, "wasm": {"buffer_limit": "16m"}}


@pytest.fixture(scope="module")
def envoy(host, start_envoy):
    routes = [route(path, {**bombs.SETTINGS, **more}) for path, more in bombs.PATHS.items()]
    return start_envoy(routes, settings=SETTINGS[host], per_connection=16 << 20)


@pytest.fixture(scope="module")
def base(envoy, session_origin):
    return bombs.begin(envoy, envoy.process.pid, session_origin)


@pytest.mark.parametrize("bomb", bombs.BOMBS, ids=lambda bomb: bomb.name)
def test_memory_of_envoy_is_bounded(envoy, origin, base, bomb):
    bombs.run(envoy, envoy.process.pid, origin, bomb, base)

"""Bodies that decode to more than a hundred megabytes: the memory of the host's process stays limited,
and so does a sandbox's within it."""

import pytest

from harness import decompression_bombs

pytestmark = [pytest.mark.bare, pytest.mark.memory]

# the daemon has the entries in memory for sandboxes
SETTINGS = {
    "nginx": {"cache_memory": "8m"},
    "native": {"cache_memory": "8m"},
    "wasm": {"buffer_limit": "16m"},
}


@pytest.fixture(scope="module")
def server(host, start_server):
    places = {path: {**decompression_bombs.SETTINGS, **more} for path, more in decompression_bombs.PATHS.items()}
    options = {} if host == "nginx" else {"per_connection": 16 << 20}
    return start_server(places, SETTINGS[host], **options)


@pytest.fixture(scope="module")
def base(server, session_origin):
    (process,) = server.workers()
    return decompression_bombs.baseline_memory(server, process, session_origin)


@pytest.mark.parametrize("bomb", decompression_bombs.BOMBS, ids=lambda bomb: bomb.name)
def test_memory_of_the_process_is_limited_when_a_body_is_a_decompression_bomb(server, origin, base, bomb):
    (process,) = server.workers()
    decompression_bombs.run(server, process, origin, bomb, base)

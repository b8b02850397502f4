"""Recorded responses of real nodes, by method: the client receives the node's bytes
through nginx."""

import pathlib

import pytest

from harness.client import Connection
from harness.replay import ReplayNode, calls

CORPUS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "corpus" / "execution"
METHODS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir()) if CORPUS.is_dir() else []

pytestmark = [
    pytest.mark.carried("many bodies in the same few ways"),
    pytest.mark.skipif(not METHODS, reason="no ../shared/corpus beside the clone"),
]

GZIP = [("Accept-Encoding", "gzip")]

CONFIG = """
map $http_x_zipped $asked { 1 gzip; default identity; }
upstream node { server @node@; keepalive 4; }
server {
    listen 127.0.0.1:@port@;
    client_max_body_size 0;
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    sszip on;
    # with X-Zipped the node is asked for gzip after all
    proxy_set_header Accept-Encoding $asked;
    location / { proxy_pass http://node; }
}
"""


@pytest.fixture(scope="module")
def node():
    replay = ReplayNode("--gzip", CORPUS)
    yield replay
    replay.stop()


@pytest.fixture(scope="module")
def recorded():
    by_method = {}
    for call in calls(CORPUS):
        by_method.setdefault(call.method, []).append(call)
    return by_method


@pytest.fixture(scope="module")
def behind(start_nginx, node):
    return start_nginx(CONFIG.replace("@node@", node.address))


@pytest.mark.parametrize("method", METHODS)
def test_recorded_responses_arrive_unchanged_for_each_method(behind, node, recorded, method):
    assert recorded.get(method), f"nothing recorded of {method}"
    for call in recorded[method]:
        with Connection(node.port) as direct:
            expected = call.fetch(direct)
        assert expected.status == 200
        with behind.connect() as connection:
            for zipped in ([], [("X-Zipped", "1")]):
                for headers in (GZIP, []):
                    response = call.fetch(connection, headers + zipped)
                    assert (response.status, response.decoded) == (200, expected.body)
                    assert response.header("Content-Type") == expected.header("Content-Type")
                    if not headers:
                        assert (response.coding, response.framing) == (None, "length")
                    elif not zipped and not method.startswith("engine_"):
                        assert response.coding == ("gzip" if len(expected.body) >= 1024 else None)
                        assert response.framing == "length"

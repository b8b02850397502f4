"""Recorded responses of real nodes twice through the cache: the client receives the
node's bytes, apart from the id."""

import json
import pathlib
import re

import pytest

from harness.client import Connection
from harness.replay import ReplayNode, calls

CORPUS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "corpus" / "execution"
METHODS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir()) if CORPUS.is_dir() else []

pytestmark = [
    pytest.mark.carried("many bodies in the same few ways"),
    pytest.mark.skipif(not METHODS, reason="no ../shared/corpus beside the clone"),
]

IDS = ["7", "0", "-1", "1.5", "1e3", "null", "9007199254740993", '""', '"a"', '"\\u00e9\\"\\n"', '"' + "x" * 250 + '"']
JSON = ("Content-Type", "application/json")
CODINGS = ([("Accept-Encoding", "gzip")], [])

CONFIG = """
sszip_cache_memory 1g;
upstream node { server @node@; keepalive 4; }
server {
    listen 127.0.0.1:@port@;
    client_max_body_size 0;
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    sszip on;
    sszip_cache on;

    sszip_cache_max_entry 64m;
    sszip_cache_valid immutable 1h;
    sszip_cache_valid unfinalized 1h;
    sszip_cache_valid tip 1h;
    location /single { sszip_cache_namespace single; proxy_pass http://node/; }
    location /batch { sszip_cache_namespace batch; proxy_pass http://node/; }
}
"""


@pytest.fixture(scope="module")
def node():
    replay = ReplayNode(CORPUS)
    yield replay
    replay.stop()


@pytest.fixture(scope="module")
def recorded():
    by_method = {}
    for call in calls(CORPUS):
        if call.body is not None:
            by_method.setdefault(call.method, []).append(call.body)
    return by_method


@pytest.fixture(scope="module")
def behind(start_nginx, node):
    return start_nginx(CONFIG.replace("@node@", node.address))


def under(id, body):
    """The call with another id, spelled as in `id`."""
    return re.sub(rb'"id": *\d+', lambda _: b'"id": ' + id.encode(), body, count=1)


def post(connection, path, body, headers):
    response = connection.exchange(path, method="POST", headers=[JSON, *headers], body=body)
    assert response.status == 200
    return response


def is_hit(response):
    return (response.header("Cache-Status") or "").startswith("sszip; hit")


@pytest.mark.parametrize("method", METHODS)
def test_recorded_calls_get_the_response_of_the_node_under_any_id(behind, node, recorded, method):
    assert recorded.get(method), f"nothing recorded of {method}"
    for number, body in enumerate(recorded[method]):
        with Connection(node.port) as direct, behind.connect() as connection:
            was_hit = None
            for turn in range(6):
                id = IDS[(number + turn) % len(IDS)]
                expected = post(direct, "/", under(id, body), [])
                response = post(connection, "/single", under(id, body), CODINGS[(number + turn) % 2])
                assert response.decoded == expected.body
                assert response.header("Content-Type") == expected.header("Content-Type")
                assert response.length == len(response.body)
                if turn > 0:
                    # a response that is stored stays stored
                    was_hit = is_hit(response) if was_hit is None else was_hit
                    assert is_hit(response) == was_hit


@pytest.mark.parametrize("method", METHODS)
def test_recorded_batches_get_the_elements_of_the_node(behind, node, recorded, method):
    """Batches with no call stored, half of them, and all: each element equals the
    node's response to the call alone."""
    bodies = recorded[method][:12]
    ids = [IDS[n % len(IDS)] if n < len(IDS) else str(1000 + n) for n in range(len(bodies))]
    calls = [under(id, body) for id, body in zip(ids, bodies, strict=True)]
    with Connection(node.port) as direct, behind.connect() as connection:
        expected = [post(direct, "/", body, []).body.strip() for body in calls]
        post(connection, "/batch", b"[" + b",".join(calls[::2]) + b"]", CODINGS[0])
        for headers in CODINGS * 2:
            response = post(connection, "/batch", b"[" + b", ".join(calls) + b"]", headers)
            assert elements(response.decoded) == expected
            assert response.length == len(response.body)


def elements(batch):
    """The elements of a JSON array of objects, as raw text."""
    found, at = [], batch.index(b"[") + 1
    decoder = json.JSONDecoder()
    text = batch.decode()
    while True:
        while text[at] in " \n\t,":
            at += 1
        if text[at] == "]":
            return found
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end].encode())
        at = end


def test_recorded_methods_are_hits(behind, node, recorded):
    """The tests above see hits, not two responses of the node."""
    hits = set()
    for method, bodies in recorded.items():
        with behind.connect() as connection:
            for body in bodies:
                post(connection, "/single", body, CODINGS[0])
                if is_hit(post(connection, "/single", body, CODINGS[0])):
                    hits.add(method)
    assert {"eth_getBlockByNumber", "eth_getBlockByHash", "eth_getLogs", "eth_call", "eth_chainId", "debug_traceTransaction", "eth_getTransactionReceipt"} <= hits

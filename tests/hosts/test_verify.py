"""sszip_verify: a share of the hits is fetched from the node again and compared with the
responses that were sent."""

import gzip
import itertools
import json
import re
import threading

import pytest

from harness import client
from harness.origin import RESET, answer
from harness.owner import owner_of, wait_until_linked
from harness.rpc import Node, call
from harness.status import read_status

# the sandbox does not verify hits
pytestmark = pytest.mark.hosts("nginx", "native")

SETTINGS = {"cache": True, "cache_valid": ["tip 1h", "immutable 1h"]}
PLACES = {
    "/status": {"status": True},
    "/purge/": {"verify": "100% purge"},
    "/never/": {},
    "/": {"verify": "100%"},
}
# settings of nginx only
LOOP = {"/loop/": {"verify": "100%", "thread_pool": False}}
LENGTH = """
server {
    listen 127.0.0.1:@port_length@;
    sszip_verify 100%;
    location / {
        set $length $content_length;
        proxy_set_header Content-Length $length;
        proxy_pass http://@origin@;
    }
}
"""
WORDS = ["same", "changed", "different", "unanswered"]
_places = itertools.count(1)


def block(number=1, id="1"):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id)


class Verified:
    """A path of its own, a node behind it, and its verdicts."""

    def __init__(self, host, server, origin, path="/", port=None):
        self.host, self.server, self.port = host, server, port or server.port
        self.path = f"{path}{next(_places)}"
        self.node = Node({"eth_getBlockByHash": b'{"number":"0x1","hash":"0xa"}', "eth_gasPrice": b'"0x1"'})
        origin.answers(self.node, self.path)
        self.before = self._read_counts()

    def _read_counts(self):
        if self.host == "native":
            # Envoy counts verdicts with the next request of a client
            client.fetch(self.server.port, "/never/counts")
        return read_status(self.server)["verified"]

    def send(self, body=None, accept="gzip"):
        headers = [("Content-Type", "application/json"), ("Accept-Encoding", accept)]
        body = body or block()
        return client.fetch(self.port, self.path, method="POST", headers=headers, body=body)

    def store(self, body=None):
        """Waits until the response is stored."""
        self.server.wait_for(lambda: "hit" in self.send(body).header("Cache-Status"), "it to be stored")

    def counts(self):
        now = self._read_counts()
        changes = {word: now.get(word, 0) - self.before.get(word, 0) for word in WORDS}
        return {word: count for word, count in changes.items() if count}

    def expect(self, **expected):
        self.server.wait_for(lambda: self.counts() == expected, f"{expected}, and it is {self.counts()}")


@pytest.fixture(scope="module")
def server(host, start_server):
    if host == "nginx":
        return start_server(PLACES | LOOP, SETTINGS, more=LENGTH)
    return start_server(PLACES, SETTINGS, workers=3)


@pytest.fixture
def place(host, server, origin):
    return lambda path="/", **more: Verified(host, server, origin, path, **more)


def test_equal_result_is_counted_as_same(place):
    it = place()
    first = it.send()
    for id in ("1", "2"):
        response = it.send(block(id=id))
        assert "hit" in response.header("Cache-Status")
    assert it.send().body == first.body
    it.expect(same=3)
    assert it.node.count() == 4
    # the node receives the request that was a hit
    assert {json.dumps(call["params"]) for call in it.node.received_calls} == {f'["0x{1:064x}", true]'}


def test_result_in_another_notation_is_counted_as_same(place):
    """White space and order of members don't matter: nodes of several kinds may respond."""
    it = place()
    it.send()
    it.node.results["eth_getBlockByHash"] = b'{ "hash": "0xa",\n "number": "0x1" }'
    it.send()
    it.expect(same=1)


@pytest.mark.parametrize("path", ["/", "/loop/"])
@pytest.mark.parametrize("now", [b'{"number":"0x1","hash":"0xb"}', b"null", b'"' + b"x" * 3_000_000 + b'"'])
def test_different_result_is_counted_logged_and_kept(place, server, now, path):
    """The difference is counted and logged with its key; the entry stays."""
    server.expect("a hit differs from the node's response")
    it = place(path)
    it.send()
    it.node.results["eth_getBlockByHash"] = now
    assert b'"0xa"' in it.send().decoded
    it.expect(different=1)
    line = server.wait_for(lambda: last_mismatch(server, it), "the line")
    assert re.search(r"sszip: a hit differs from the node's response: eth_getBlockByHash, key [0-9a-f]{64}, stored \d+ s ago: ", line)
    assert "now" in line
    assert "hit" in it.send().header("Cache-Status")
    # a later verdict would be counted in the next test
    it.expect(different=2)


def last_mismatch(server, it):
    lines = [line for line in server.error_log().splitlines() if "a hit differs from the node's response" in line]
    return lines[-1] if lines else None


def test_different_result_is_purged_when_configured(place, server):
    server.expect("a hit differs from the node's response")
    it = place("/purge/")
    it.send()
    it.node.results["eth_getBlockByHash"] = b'{"number":"0x1","hash":"0xb"}'
    assert b'"0xa"' in it.send().decoded
    it.expect(different=1)
    assert ", purged: " in server.wait_for(lambda: last_mismatch(server, it), "the line")
    response = it.send()
    assert "fwd=miss" in response.header("Cache-Status") and b'"0xb"' in response.decoded
    it.send()
    it.expect(different=1, same=1)


def test_different_result_of_a_volatile_call_is_counted_as_changed(place):
    it = place("/purge/")
    gas = call("eth_gasPrice")
    it.send(gas)
    it.node.results["eth_gasPrice"] = b'"0x2"'
    assert b'"0x1"' in it.send(gas).decoded
    it.expect(changed=1)
    assert b'"0x1"' in it.send(gas).decoded
    it.expect(changed=2)


@pytest.mark.parametrize(
    "script",
    [
        answer(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"busy"}}'),
        answer(b"<html>busy</html>", status=503, type="text/html"),
        answer(b'{"jsonrpc":"2.0","id":1,"resu'),
        [RESET],
    ],
    ids=["error", "503", "cut", "reset"],
)
def test_failed_request_is_counted_as_unanswered(place, origin, server, script):
    server.expect("upstream prematurely closed|Connection reset by peer|recv\\(\\) failed")
    it = place("/purge/")
    it.send()
    origin.answers(script, it.path)
    for _ in range(2):
        assert b'"0xa"' in it.send().decoded
    it.expect(unanswered=2)


def test_client_does_not_wait_for_the_verification(place, server):
    it = place()
    it.send()
    it.node.gates["eth_getBlockByHash"] = gate = threading.Event()
    with server.connect() as connection:
        headers = [("Content-Type", "application/json")]
        hit = connection.exchange(it.path, method="POST", headers=headers, body=block())
        assert b'"0xa"' in hit.decoded
        assert it.counts() == {}
        gate.set()
    it.expect(same=1)


def test_hits_of_resources_are_verified(place, origin):
    it = place()
    origin.answers(answer(b'{"a":1}', headers=[("Cache-Control", "max-age=60"), ("ETag", '"1"')]), it.path)
    get = lambda: client.fetch(it.port, it.path)  # noqa: E731
    get()
    assert "hit" in get().header("Cache-Status")
    it.expect(same=1)
    # the node's response to a HEAD or a range is not comparable
    for options in [
        {"method": "HEAD"},
        {"headers": [("Range", "bytes=0-1")]},
        {"headers": [("If-None-Match", '"1"')]},
    ]:
        assert "hit" in client.fetch(it.port, it.path, **options).header("Cache-Status")
    it.expect(same=2)
    origin.answers(answer(b'{"a":2}', headers=[("Cache-Control", "max-age=60")]), it.path)
    assert get().decoded == b'{"a":1}'
    it.expect(same=2, changed=1)


@pytest.mark.parametrize("path", ["/", "/purge/"])
@pytest.mark.parametrize("missing", [b"", b"," + block(9, "9")], ids=["hits", "part"])
def test_single_call_of_a_batch_is_verified(place, server, origin, path, missing):
    """The call is sent alone, unchanged, whether all of the batch is stored or a part."""
    it = place(path)
    for number in (1, 2):
        it.send(block(number))
    calls = [block(1, '"a"'), block(2, "7")]
    batch = b"[" + b" , ".join(calls) + missing + b"]"
    before = len(origin.received(it.path))
    answers = {str(one["id"]): one["result"]["hash"] for one in json.loads(it.send(batch).decoded)}
    assert answers == {"a": "0xa", "7": "0xa"} | ({"9": "0xa"} if missing else {})
    it.expect(same=1)
    bodies = [request.body for request in origin.received(it.path)[before:]]
    assert len([body for body in bodies if body in calls]) == 1
    assert [body for body in bodies if body not in calls] == ([b"[" + missing[1:] + b"]"] if missing else [])
    # the difference concerns the result that was sent for that call
    server.expect("a hit differs from the node's response")
    it.node.results["eth_getBlockByHash"] = b'{"number":"0x1","hash":"0xb"}'
    batch = b"[" + b",".join(calls) + b"]"
    assert b'"0xb"' not in it.send(batch).decoded
    it.expect(same=1, different=1)
    assert "eth_getBlockByHash" in server.wait_for(lambda: last_mismatch(server, it), "the line")
    if path == "/purge/":
        assert it.send(batch).decoded.count(b'"0xb"') == 1
        # of the other call, which was a hit
        it.expect(same=1, different=2)


def test_call_of_a_compressed_batch_is_verified(place, origin):
    it = place()
    it.send()
    headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    body = gzip.compress(b"[" + block() + b"]")
    before = len(origin.received(it.path))
    assert b'"0xa"' in client.fetch(it.port, it.path, method="POST", headers=headers, body=body).decoded
    it.expect(same=1)
    (request,) = origin.received(it.path)[before:]
    assert request.body == block() and request.header("Content-Encoding") is None


def test_calls_of_batches_are_verified_in_turn(place):
    it = place()
    for number in range(1, 6):
        it.send(block(number))
    batch = b"[" + b",".join(block(number, str(number)) for number in range(1, 6)) + b"]"
    before = it.node.count()
    for _ in range(60):
        it.send(batch)
    it.expect(same=60)
    assert {call["id"] for call in it.node.received_calls[before:]} == {1, 2, 3, 4, 5}


@pytest.mark.hosts("nginx")
def test_batch_is_not_verified_when_the_operator_sets_its_content_length(place, server):
    """The node would receive one call with the length of the batch."""
    it = place(port=server.ports["port_length"])
    it.send()
    for _ in range(3):
        assert "hit" in it.send(b"[" + block() + b"]").header("Cache-Status")
    it.expect()
    it.send()
    it.expect(same=1)


def test_hits_are_not_verified_by_default(place):
    it = place("/never/")
    for _ in range(5):
        it.send()
    it.expect()
    assert it.node.count() == 1


def test_different_result_is_purged_in_all_workers_with_a_store(host, start_server, origin):
    settings = {**SETTINGS, "cache_path": "@prefix@/cache max_size=64m memory=16m"}
    server = start_server(PLACES, settings, workers=3)
    server.expect("a hit differs from the node's response")
    wait_until_linked(server)
    it = Verified(host, server, origin, "/purge/")
    for _ in range(12):
        it.send()
    it.node.results["eth_getBlockByHash"] = b'{"number":"0x1","hash":"0xb"}'
    it.store()
    server.wait_for(lambda: it.send() and it.counts().get("different"), "it to be seen")
    server.wait_for(lambda: all(b'"0xb"' in it.send().decoded for _ in range(20)), "the new one everywhere")
    owner = owner_of(server)
    server.wait_for(lambda: owner.status()["purges_waiting"] == 0, "all purges to hold")

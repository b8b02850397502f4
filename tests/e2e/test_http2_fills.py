"""HTTP/2 clients that give a stream up while its answer is fetched, and would be
stored: it is stored, the connection's other streams go on, and nothing stays."""

import itertools
import os
import threading
import time

import pytest

from harness import bodies
from harness.http2 import Http2Client
from harness.origin import Until
from harness.rpc import Node, call
from harness.watch import settled

pytestmark = pytest.mark.bare

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
proxy_http_version 1.1;
proxy_buffers 16 64k;
proxy_busy_buffers_size 128k;
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_h2@ http2;
    location / { proxy_pass http://@origin_unix@; }
    location /hard { sszip_comp_level 12; proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin_unix@; }
    location /status { sszip off; stub_status; }
}
"""

_numbers = itertools.count(1)
LENGTHS = {"short": 300, "middle": 40_000, "long": 1_500_000}


def result(length):
    return b'"0x' + bodies.json(length // 2).hex().encode() + b'"'


def block(number, id):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', str(id))


def whole(length, id):
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (id, result(length))


class Gated(Node):
    """Sends its answers up to a part, and the rest when it is told to."""

    def __init__(self, length, before, **options):
        super().__init__({"eth_getBlockByHash": result(length)}, **options)
        self.before = before
        self.go = threading.Event()

    def __call__(self, request):
        head, *rest = super().__call__(request)
        body = b"".join(rest)
        if self.before == "head":
            return [Until(self.go), head, body]
        half = len(body) // 2
        return [head, body[:half], Until(self.go), body[half:]]


@pytest.fixture(autouse=True)
def nothing_stays(nginx, origin):
    (worker,) = nginx.workers()
    settled(nginx)
    before = len(os.listdir(f"/proc/{worker}/fd"))
    yield
    assert nginx.workers() == [worker]
    settled(nginx)
    nginx.wait_for(lambda: len(os.listdir(f"/proc/{worker}/fd")) <= before + 1, f"no more than {before} descriptors")


def is_stored(nginx, origin, number, length, path="/"):
    """... and no other request is made for it."""
    asked = len(origin.received())

    def hit():
        response = nginx.post(path, block(number, 9))
        assert response.decoded == whole(length, 9)
        return (response.header("Cache-Status") or "").startswith("sszip; hit")

    nginx.wait_for(hit, "the answer to be stored")
    assert len(origin.received()) == asked


# in which state the module is then: it waits for the head, it holds it, or the
# body goes to the client and a copy of it is kept
@pytest.mark.parametrize(
    "accept, framing, before",
    [("gzip", "length", "head"), ("gzip", "length", "body"), ("gzip", "chunked", "body"), (None, "length", "head"),
     (None, "length", "body"), (None, "chunked", "body")],
)  # fmt: skip
@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("path", ["/", "/unbuffered"])
def test_while_the_node_answers(nginx, origin, path, size, accept, framing, before):
    """The upstream module can't go on without a client that it does not buffer
    for: that answer is asked for again."""
    length = LENGTHS[size]
    node = Gated(length, before, framing=framing)
    origin.answers(node)
    number, other = next(_numbers), next(_numbers)
    with Http2Client(nginx.ports["port_h2"]) as client:
        given_up = client.ask(path, accept, "POST", block(number, 1))
        nginx.wait_for(lambda: len(origin.received()) == 1, "the node to be asked")
        staying = client.ask(path, accept, "POST", block(other, 2))
        nginx.wait_for(lambda: len(origin.received()) == 2, "the node to be asked")
        if before == "body" and accept is None:
            while given_up not in client.heads:
                client.step()
        client.reset(given_up)
        client.answers_pings()
        node.go.set()
        client.finish(staying)
        assert client.judged(staying) == whole(length, 2)
        if path == "/":
            is_stored(nginx, origin, number, length)
            assert len(origin.received()) == 2
        # the connection is good for more
        again = client.ask(path, "gzip", "POST", block(number, 3))
        client.finish(again)
        assert client.judged(again) == whole(length, 3)
        assert len(origin.received()) <= 3


def test_while_a_thread_codes(nginx, origin):
    """The coder is at work for much longer than it takes to give it up."""
    length = 300_000
    origin.answers(Node({"eth_getBlockByHash": result(length)}))
    (worker,) = nginx.workers()
    with Http2Client(nginx.ports["port_h2"]) as client:
        for _ in range(3):
            number, other = next(_numbers), next(_numbers)
            origin.requests.clear()
            given_up = client.ask("/hard", "gzip", "POST", block(number, 1))
            staying = client.ask("/hard", "gzip", "POST", block(other, 2))
            nginx.wait_for(lambda: len(origin.received()) == 2, "the node to be asked")
            client.answers_pings()
            client.reset(given_up)
            client.finish(staying)
            assert client.judged(staying) == whole(length, 2)
            assert given_up not in client.heads
            is_stored(nginx, origin, number, length, "/hard")
            assert len(origin.received()) == 2


def test_while_a_thread_decodes(nginx, origin):
    """What is stored, for a client that takes no gzip."""
    length = LENGTHS["long"]
    origin.answers(Node({"eth_getBlockByHash": result(length)}))
    with Http2Client(nginx.ports["port_h2"]) as client:
        for _ in range(10):
            number = next(_numbers)
            for accept in ("gzip", "gzip"):
                assert nginx.post("/", block(number, 1), accept).decoded == whole(length, 1)
            asked = len(origin.received())
            given_up = client.ask("/", None, "POST", block(number, 2))
            staying = client.ask("/", "gzip", "POST", block(number, 3))
            client.reset(given_up)
            client.finish(staying)
            assert client.judged(staying) == whole(length, 3)
            is_stored(nginx, origin, number, length)
            assert len(origin.received()) == asked


@pytest.mark.parametrize("size", LENGTHS)
def test_while_it_waits_for_another(nginx, origin, size):
    """The one that waits is given up: nobody is woken for it, and the one that
    fetches goes on. Then the one that fetches: the others get its answer."""
    length = LENGTHS[size]
    node = Gated(length, "head")
    origin.answers(node)
    number = next(_numbers)
    with Http2Client(nginx.ports["port_h2"]) as client, Http2Client(nginx.ports["port_h2"]) as second:
        fetches = client.ask("/", "gzip", "POST", block(number, 1))
        nginx.wait_for(lambda: len(origin.received()) == 1, "the node to be asked")
        waits = [client.ask("/", accept, "POST", block(number, 2)) for accept in ("gzip", None, "gzip")]
        elsewhere = second.ask("/", "gzip", "POST", block(number, 3))
        client.answers_pings()
        second.answers_pings()
        client.reset(waits[0])
        client.reset(fetches)
        client.answers_pings()
        node.go.set()
        client.finish(*waits[1:])
        second.finish(elsewhere)
        for stream in waits[1:]:
            assert client.judged(stream) == whole(length, 2)
        assert second.judged(elsewhere) == whole(length, 3)
        assert not {waits[0], fetches} & set(client.heads)
        is_stored(nginx, origin, number, length)
    assert len(origin.received()) == 1


def test_all_streams_and_their_connection(nginx, origin):
    """The client goes with all its streams, in whatever state they are."""
    for before in ("head", "body"):
        for length in LENGTHS.values():
            node = Gated(length, before)
            origin.answers(node)
            origin.requests.clear()
            numbers = [next(_numbers) for _ in range(3)]
            with Http2Client(nginx.ports["port_h2"]) as client:
                for n, number in enumerate(numbers * 2):
                    client.ask("/", ["gzip", None][n % 2], "POST", block(number, n))
                nginx.wait_for(lambda: len(origin.received()) == 3, "the node to be asked")
            # the connection is kept until what is fetched for it is there
            time.sleep(0.05)
            node.go.set()
            for number in numbers:
                is_stored(nginx, origin, number, length)
            assert len(origin.received()) == 3

"""HTTP/2 clients that reset a stream while its response is being fetched for the cache:
the response is stored, other streams continue, and nothing leaks."""

import itertools
import threading

import pytest

from harness import bodies
from harness.http2 import Http2Client
from harness.nginx import open_descriptors
from harness.origin import WaitFor
from harness.rpc import Node, call
from harness.nginx_state import temporary_files, wait_for_earlier_events, wait_until_stable

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
    location /file { proxy_buffers 8 4k; proxy_busy_buffers_size 8k; proxy_pass http://@origin_unix@; }
    location /status { sszip off; stub_status; }
    location = /worker { sszip off; return 200 $pid; }
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
    """Sends its responses up to a point, and the rest when `go` is set."""

    def __init__(self, length, before, **options):
        super().__init__({"eth_getBlockByHash": result(length)}, **options)
        self.before = before
        self.go = threading.Event()

    def __call__(self, request):
        head, *rest = super().__call__(request)
        body = b"".join(rest)
        if self.before == "head":
            return [WaitFor(self.go), head, body]
        half = len(body) // 2
        return [head, body[:half], WaitFor(self.go), body[half:]]


@pytest.fixture(autouse=True)
def descriptors_are_closed(nginx, origin):
    (worker,) = nginx.workers()
    wait_until_stable(nginx)
    before = open_descriptors(worker)
    yield
    assert nginx.workers() == [worker]
    wait_until_stable(nginx)
    nginx.wait_for(lambda: open_descriptors(worker) <= before + 1, f"no more than {before} descriptors")


def is_stored(nginx, origin, number, length, path="/"):
    """Asserts that the response becomes a hit without another request to the node."""
    requests_before = len(origin.received())

    def hit():
        response = nginx.post(path, block(number, 9))
        assert response.decoded == whole(length, 9)
        return (response.header("Cache-Status") or "").startswith("sszip; hit")

    nginx.wait_for(hit, "the answer to be stored")
    assert len(origin.received()) == requests_before


# the module's state at the reset: it waits for the head, it buffers, or the body is sent
# to the client and copied for the cache
@pytest.mark.parametrize(
    "accept, framing, before",
    [("gzip", "length", "head"), ("gzip", "length", "body"), ("gzip", "chunked", "body"), (None, "length", "head"),
     (None, "length", "body"), (None, "chunked", "body")],
)  # fmt: skip
@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("path", ["/", "/unbuffered"])
def test_response_is_stored_when_its_stream_is_reset_during_the_fetch(nginx, origin, path, size, accept, framing, before):
    """The upstream module can't continue an unbuffered response without a client: such a
    response is fetched again."""
    length = LENGTHS[size]
    node = Gated(length, before, framing=framing)
    origin.answers(node)
    number, other = next(_numbers), next(_numbers)
    with Http2Client(nginx.ports["port_h2"]) as client:
        aborted = client.fetch(path, accept, "POST", block(number, 1))
        nginx.wait_for(lambda: len(origin.received()) == 1, "the node to receive a request")
        staying = client.fetch(path, accept, "POST", block(other, 2))
        nginx.wait_for(lambda: len(origin.received()) == 2, "the node to receive a request")
        if before == "body" and accept is None:
            while aborted not in client.heads:
                client.step()
        client.reset(aborted)
        client.answers_pings()
        node.go.set()
        client.finish(staying)
        assert client.checked_body(staying) == whole(length, 2)
        if path == "/":
            is_stored(nginx, origin, number, length)
            assert len(origin.received()) == 2
        # the connection is still usable
        again = client.fetch(path, "gzip", "POST", block(number, 3))
        client.finish(again)
        assert client.checked_body(again) == whole(length, 3)
        assert len(origin.received()) <= 3


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_response_is_stored_when_its_stream_is_reset_while_it_is_sent_from_a_temporary_file(nginx, origin, framing):
    """Bytes of the file that wait for the stream's window occupy all buffers into which nginx reads the file."""
    length, window, read = LENGTHS["long"], 65_535, 200_000
    node = Gated(length, "body", framing=framing)
    origin.answers(node)
    number, files = next(_numbers), temporary_files(nginx)
    with Http2Client(nginx.ports["port_h2"]) as client:
        aborted = client.fetch("/file", None, "POST", block(number, 1))

        def receive(until):
            while len(client.bodies[aborted]) < until:
                client.step(acknowledge=False)

        receive(window)
        nginx.wait_for(lambda: temporary_files(nginx) > files, "a temporary file")
        for stream in (None, aborted):
            client.h2.increment_flow_control_window(read, stream)
        client.flush()
        receive(window + read)
        client.reset(aborted)
        client.answers_pings()
        node.go.set()
        is_stored(nginx, origin, number, length, "/file")


def test_response_is_stored_when_its_stream_is_reset_during_compression(nginx, origin):
    """Compression takes much longer than the reset."""
    length = 300_000
    origin.answers(Node({"eth_getBlockByHash": result(length)}))
    (worker,) = nginx.workers()
    with Http2Client(nginx.ports["port_h2"]) as client:
        for _ in range(3):
            number, other = next(_numbers), next(_numbers)
            origin.requests.clear()
            aborted = client.fetch("/hard", "gzip", "POST", block(number, 1))
            staying = client.fetch("/hard", "gzip", "POST", block(other, 2))
            nginx.wait_for(lambda: len(origin.received()) == 2, "the node to receive a request")
            client.answers_pings()
            client.reset(aborted)
            client.finish(staying)
            assert client.checked_body(staying) == whole(length, 2)
            assert aborted not in client.heads
            is_stored(nginx, origin, number, length, "/hard")
            assert len(origin.received()) == 2


def test_entry_stays_stored_when_a_stream_is_reset_during_decoding(nginx, origin):
    """The entry is decoded for a client without gzip."""
    length = LENGTHS["long"]
    origin.answers(Node({"eth_getBlockByHash": result(length)}))
    with Http2Client(nginx.ports["port_h2"]) as client:
        for _ in range(10):
            number = next(_numbers)
            for accept in ("gzip", "gzip"):
                assert nginx.post("/", block(number, 1), accept).decoded == whole(length, 1)
            requests_before = len(origin.received())
            aborted = client.fetch("/", None, "POST", block(number, 2))
            staying = client.fetch("/", "gzip", "POST", block(number, 3))
            client.reset(aborted)
            client.finish(staying)
            assert client.checked_body(staying) == whole(length, 3)
            is_stored(nginx, origin, number, length)
            assert len(origin.received()) == requests_before


@pytest.mark.parametrize("size", LENGTHS)
def test_followers_get_the_response_when_streams_of_leader_and_follower_are_reset(nginx, origin, size):
    """The stream of a follower is reset, and the leader continues. Then the leader's is:
    the other followers receive its response."""
    length = LENGTHS[size]
    node = Gated(length, "head")
    origin.answers(node)
    number = next(_numbers)
    with Http2Client(nginx.ports["port_h2"]) as client, Http2Client(nginx.ports["port_h2"]) as second:
        fetches = client.fetch("/", "gzip", "POST", block(number, 1))
        nginx.wait_for(lambda: len(origin.received()) == 1, "the node to receive a request")
        waits = [client.fetch("/", accept, "POST", block(number, 2)) for accept in ("gzip", None, "gzip")]
        elsewhere = second.fetch("/", "gzip", "POST", block(number, 3))
        client.answers_pings()
        second.answers_pings()
        client.reset(waits[0])
        client.reset(fetches)
        client.answers_pings()
        node.go.set()
        client.finish(*waits[1:])
        second.finish(elsewhere)
        for stream in waits[1:]:
            assert client.checked_body(stream) == whole(length, 2)
        assert second.checked_body(elsewhere) == whole(length, 3)
        assert not {waits[0], fetches} & set(client.heads)
        is_stored(nginx, origin, number, length)
    assert len(origin.received()) == 1


def test_responses_are_stored_when_the_client_closes_its_connection(nginx, origin):
    """The client closes the connection with streams in every state."""
    for before in ("head", "body"):
        for length in LENGTHS.values():
            node = Gated(length, before)
            origin.answers(node)
            origin.requests.clear()
            numbers = [next(_numbers) for _ in range(3)]
            with Http2Client(nginx.ports["port_h2"]) as client:
                for n, number in enumerate(numbers * 2):
                    client.fetch("/", ["gzip", None][n % 2], "POST", block(number, n))
                nginx.wait_for(lambda: len(origin.received()) == 3, "the node to receive a request")
            # the connection is kept until its fetches are complete
            wait_for_earlier_events(nginx)
            node.go.set()
            for number in numbers:
                is_stored(nginx, origin, number, length)
            assert len(origin.received()) == 3

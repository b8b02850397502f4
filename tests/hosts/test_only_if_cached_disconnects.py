"""Clients of Cache-Control: only-if-cached that disconnect while they receive the 504, or send a body that
is not read: no lease is left, and others continue."""

import contextlib
import itertools

import pytest

from harness.client import Malformed, Truncated, request_bytes
from harness.http2 import Http2Client
from harness.owner import owner_of, wait_until_linked
from harness.rpc import Node, call

ONLY_IF_CACHED = ("cache-control", "only-if-cached")
JSON, TEXT = ("content-type", "application/json"), ("content-type", "text/plain")
BODY = call("eth_chainId")
LENGTH = 1_000_000
NGINX = """
server { listen 127.0.0.1:@port_h2@ http2; location / { proxy_pass http://@origin@; } }
server { listen 127.0.0.1:@port_lingering@; lingering_close always; location / { proxy_pass http://@origin@; } }
"""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(start_server, host):
    # a request that waits for a lease does so for longer than a test
    general = {"cache": True, "cache_namespace": "main", "cache_lock_timeout": "1h"}
    if host != "wasm":
        # the sandbox has a daemon
        general["cache_path"] = "@prefix@/cache max_size=64m memory=32m"
    server = start_server({"/": {}}, general, workers=2, **({"more": NGINX} if host == "nginx" else {}))
    if host != "wasm":
        wait_until_linked(server)
    return server


@pytest.fixture
def node(origin):
    node = Node({"eth_chainId": b'"0x1"', "eth_getBlockByHash": lambda params: b'{"hash":"%b"}' % params[0].encode()})
    origin.answers(node)
    yield node
    assert all(request.header("Cache-Control") is None for request in origin.received())


def http2(server, **options):
    ports = getattr(server, "ports", {})
    return Http2Client(ports.get("port_h2", server.port), **options)


def new_block():
    return call("eth_getBlockByHash", f'["0x{next(_numbers):064x}",true]')


def check_server(server):
    owner = getattr(server, "owner", None) or owner_of(server)
    server.wait_for(lambda: owner.status()["leases"] == 0, "the leases to be returned")
    # on any worker
    for _ in range(4):
        assert server.fetch("/", BODY).status == 200


def leave(connection, how):
    if how == "reset":
        connection.reset()
    connection.close()


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "unread"])
@pytest.mark.parametrize("sent", [0, 1, 100_000])
def test_client_disconnects_within_a_body_that_is_not_read(server, host, node, sent, reads, how):
    head = request_bytes("/", method="POST", headers=[TEXT, ONLY_IF_CACHED, ("Content-Length", str(LENGTH))])
    for _ in range(4):
        with server.connect() as connection:
            connection.send(head + b"x" * sent)
            # Envoy may close the connection of a request that it has not read
            allowed = () if host == "nginx" else (Truncated, Malformed, ConnectionError)
            with contextlib.suppress(*allowed):
                if reads:
                    assert connection.read("POST").status == 504
            leave(connection, how)
    check_server(server)
    assert node.count() <= 1


@pytest.mark.hosts("nginx")
@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("rest", [0, 1, LENGTH])
def test_rest_of_a_body_is_read_after_the_504(server, node, rest, how):
    fields = [TEXT, ONLY_IF_CACHED, ("Connection", "close"), ("Content-Length", str(LENGTH))]
    with server.connect("port_lingering") as connection:
        connection.send(request_bytes("/", method="POST", headers=fields) + b"x")
        head = connection.read_head()
        assert head.status == 504
        # nginx reads the rest, and does not reset the connection
        connection.send(b"x" * max(rest - 1, 0))
        assert b"only-if-cached" in connection.take(int(head.header("Content-Length")))
        leave(connection, how)
    check_server(server)


@pytest.mark.parametrize("how", ["reset", "close"])
def test_client_disconnects_before_it_reads_the_504(server, node, how):
    bodies = [new_block() for _ in range(8)]
    for body in bodies:
        with server.connect() as connection:
            connection.send(request_bytes("/", method="POST", headers=[JSON, ONLY_IF_CACHED], body=body))
            leave(connection, how)
    check_server(server)
    for body in bodies:
        assert server.fetch("/", body).status == 200


def wait_for_504(client, stream):
    while stream not in client.heads:
        client.step()
    assert client.heads[stream][":status"] == "504"


@pytest.mark.parametrize("how", ["stream", "connection"])
def test_next_request_does_not_wait_for_a_504_that_is_being_sent(server, node, how):
    """The client's window is closed: the 504 ends with its stream or its connection."""
    batch = b"[%b,%b]" % (new_block(), new_block())
    for body in (new_block(), batch):
        with http2(server, window=0) as client:
            stream = client.fetch("/", method="POST", body=body, headers=[ONLY_IF_CACHED])
            wait_for_504(client, stream)
            assert server.fetch("/", body).status == 200
            assert stream not in client.ended and not client.bodies[stream]
            if how == "stream":
                client.reset(stream)
                client.answers_pings()
    check_server(server)


def send_part(client, length):
    """Sends a request with a part of its body, which is not read."""
    stream = client.h2.get_next_available_stream_id()
    head = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "localhost"), TEXT, ONLY_IF_CACHED]
    client.h2.send_headers(stream, head)
    for _ in range(0, length, 10_000):
        client.h2.send_data(stream, b"x" * 10_000)
    client.bodies[stream] = bytearray()
    client.flush()
    return stream


@pytest.mark.parametrize("how", ["stream", "connection", "rest"])
def test_http2_connection_continues_after_bodies_that_are_not_read(server, node, how):
    with http2(server) as client:
        # together they exceed the window of the connection
        for _ in range(8):
            stream = send_part(client, 20_000)
            wait_for_504(client, stream)
            if how == "rest" and stream not in client.resets:
                # the server may have reset the stream meanwhile
                client.h2.send_data(stream, b"x" * 10_000, end_stream=True)
                client.flush()
            if how == "stream" and stream not in client.resets:
                client.reset(stream)
            if how != "connection":
                client.answers_pings()
                other = client.fetch("/", method="POST", body=BODY)
                client.finish(other)
                assert client.heads[other][":status"] == "200"
    check_server(server)
    assert node.count() <= 1

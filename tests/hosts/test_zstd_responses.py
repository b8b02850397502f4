"""Responses in zstd: streams that a client decodes while the node pauses, clients of several
codings that wait for one response or hit it for the first time, and clients that abort."""

import itertools
import json
import re
import threading

import pytest

from harness import bodies
from harness.client import request_bytes
from harness.guards import GUARD_SECONDS
from harness.origin import WaitFor, answer, chunked
from harness.response_stream import open_stream
from harness.rpc import Node, call
from harness.status import read_status

ACCEPTED = ["gzip, zstd", "gzip", None, "zstd", "zstd;q=0.5, gzip"]
EXPECTED = {"gzip, zstd": "zstd", "zstd": "zstd", "zstd;q=0.5, gzip": "gzip"}
CACHED = {"zstd": True, "cache": True, "cache_namespace": "zstd", "cache_lock_timeout": "60s"}
PLACES = {
    "/stream": {"zstd": True, "hold": "0"},
    "/cached": CACHED,
    "/status": {"status": True},
    "/": {"zstd": True},
}
# nginx buffers bytes that do not fill one of its buffers, unless the node forbids it
UNBUFFERED = [("X-Accel-Buffering", "no")]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(host, start_server):
    return start_server({path: settings for path, settings in PLACES.items() if (host, path) != ("wasm", "/status")})


def gauge(host, server, name):
    if host == "nginx":
        return read_status(server)["workers"][name]
    return sum(server.stats(rf"sszip\.{re.escape(name)}$").values())


def block(number, id=1):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id=str(id))


def post(server, body, accept):
    headers = [("Content-Type", "application/json"), *([("Accept-Encoding", accept)] if accept else [])]
    with server.connect(timeout=GUARD_SECONDS) as connection:
        return connection.exchange("/cached", method="POST", headers=headers, body=body)


def start_threads(works):
    """Starts functions on threads; returns the threads and the list of their failures."""
    failures = []

    def run(work):
        try:
            work()
        except BaseException as failure:  # a thread can't raise
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    return threads, failures


def finish(threads, failures):
    """Waits for the threads, and raises the first failure."""
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_bytes_of_a_stream_are_decodable_while_the_node_pauses(server, origin):
    body = bodies.json(200000)
    cuts = [0, 1, 3000, 3001, 70000, 190000, len(body)]
    gates = [threading.Event() for _ in cuts[1:]]
    script = answer(framing="chunked", headers=UNBUFFERED)[:1]
    for start, end, gate in zip(cuts[:-1], cuts[1:], gates, strict=True):
        script += [*chunked([body[start:end]], last=False), WaitFor(gate)]
    origin.answers([*script, b"0\r\n\r\n"])
    with server.connect() as connection:
        stream = open_stream(connection, "/stream", "zstd")
        assert (stream.head.coding, stream.chunked) == ("zstd", True)
        for end, gate in zip(cuts[1:], gates, strict=True):
            assert stream.until(end) == body[:end]
            gate.set()
        assert stream.finish() == body


def test_server_sent_events_arrive_before_the_next_one_is_sent(server, origin):
    events = [b"data: %d %s\n\n" % (number, b"x" * 200) for number in range(5)]
    gates = [threading.Event() for _ in events]
    script = answer(framing="chunked", type="text/event-stream", headers=UNBUFFERED)[:1]
    for event, gate in zip(events, gates, strict=True):
        script += [*chunked([event], last=False), WaitFor(gate)]
    origin.answers([*script, b"0\r\n\r\n"])
    with server.connect() as connection:
        stream = open_stream(connection, "/", "zstd")
        assert stream.head.coding == "zstd"
        for number, gate in enumerate(gates):
            received = b"".join(events[: number + 1])
            assert stream.until(len(received)) == received
            gate.set()
        assert stream.finish() == b"".join(events)


def test_followers_receive_the_response_in_their_own_coding(host, server, origin):
    number = next(_numbers)
    result = b'"%b"' % bodies.random(20000).hex().encode()
    node = Node({"eth_getBlockByHash": result}, newline=b"")
    node.gates["eth_getBlockByHash"] = threading.Event()
    origin.answers(node)
    responses = {}

    def client(id, accept):
        return lambda: responses.setdefault(id, (accept, post(server, block(number, id), accept)))

    clients = [client(id, accept) for id, accept in enumerate(ACCEPTED * 3, 1)]
    threads, failures = start_threads(clients)
    server.wait_for(
        lambda: gauge(host, server, "cache.waiting") == len(clients) - 1 or failures, "all followers to wait"
    )
    node.gates["eth_getBlockByHash"].set()
    finish(threads, failures)
    assert node.count() == 1
    for id, (accept, response) in responses.items():
        assert response.coding == EXPECTED.get(accept, accept)
        assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result)


@pytest.mark.parametrize("length", [3000, 300_000, 3_000_000])
def test_first_hits_in_zstd_are_right_when_they_are_concurrent(server, origin, length):
    """The entry was fetched by a client of gzip: its zstd form is made by one of the hits, long
    ones off the event loop."""
    number = next(_numbers)
    result = b'"%b"' % bodies.json(length // 2).hex().encode()
    node = Node({"eth_getBlockByHash": result}, newline=b"")
    origin.answers(node)
    assert post(server, block(number), "gzip").coding == "gzip"

    def client(id, accept):
        def send():
            response = post(server, block(number, id), accept)
            assert response.coding == EXPECTED.get(accept, accept)
            assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result)
            assert "; hit" in response.header("Cache-Status")

        return send

    for turn in range(2):
        finish(*start_threads([client(id, accept) for id, accept in enumerate(ACCEPTED * 4, turn * 100)]))
    assert node.count() == 1


def test_batch_of_stored_and_new_responses_is_one_frame(server, origin):
    numbers = [next(_numbers) for _ in range(12)]
    results = {number: b'"%b"' % bodies.json(200 * 3**n % 90000).hex().encode() for n, number in enumerate(numbers)}
    node = Node({"eth_getBlockByHash": lambda params: results[int(params[0], 16)]}, newline=b"")
    origin.answers(node)
    for body in map(block, numbers[::2]):
        post(server, body, "zstd")
        # a client of zstd may have its response before the entry is stored
        server.wait_for(lambda body=body: "; hit" in post(server, body, "gzip").header("Cache-Status"), "a hit")
    node.received_calls.clear()
    expected = [{"jsonrpc": "2.0", "id": n, "result": json.loads(results[n])} for n in numbers]
    batch = b"[" + b",".join(block(number, number) for number in numbers) + b"]"
    for turn, accept in enumerate(("zstd", "zstd", "gzip", None)):
        response = post(server, batch, accept)
        assert response.coding == accept
        assert json.loads(response.decoded) == expected
        # the first response has stored the rest
        assert node.count() == len(numbers) // 2
        assert turn == 0 or "; hit" in response.header("Cache-Status")


def test_memory_is_returned_when_clients_abort_streams(host, server, origin):
    body = bodies.random(400_000)
    for turn in range(20):
        go = threading.Event()
        script = answer(framing="chunked", headers=UNBUFFERED)[:1]
        script += [*chunked([body[:100_000]], last=False), WaitFor(go), *chunked([body[100_000:]])]
        origin.answers(script)
        with server.connect(receive_buffer=4096) as connection:
            connection.send(request_bytes("/stream", headers=[("Accept-Encoding", "zstd")]))
            connection.take(1 + turn * 3000)
            (connection.close if turn % 2 else connection.reset)()
        go.set()
    server.wait_for(lambda: gauge(host, server, "memory.bytes") == 0, "all memory to be returned")
    origin.answers(answer(body, framing="chunked"))
    with server.connect() as connection:
        assert open_stream(connection, "/stream", "zstd").finish() == body

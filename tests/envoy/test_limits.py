"""Deadlines that expire although bytes arrive, and memory that does not grow with the bytes
that a client sends, or does not read."""

import threading
import time
import zlib

import pytest

from harness.client import gunzip, request_bytes
from harness.envoy import route
from harness.nginx import peak, resident
from harness.origin import WaitFor, answer, chunked, head
from tiers import times

HOSTS = ("native", "wasm")

CHUNKED = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
LINE = b'{"first":"' + b"a" * 3000 + b'",'
BLOCK = b'{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByHash","params":["0x%064x",true]}'
MB = 1_000_000


# the listener's limit by Envoy's default
LIMITED = {
    "native": {},
    "wasm": {"per_connection": 1 << 20, "settings": {"buffer_limit": "1m"}},
}


@pytest.fixture(scope="module")
def envoy(host, start_envoy):
    routes = [
        route("/slow", {"hold": "1k 300ms"}),
        route("/herd", {"cache": True}),
        route(
            "/stored",
            {"cache": True, "cache_memory": "512m", "cache_max_entry": "128m", "memory": "4g"},
        ),
        route("/eth", {"ssz": True, "ssz_request": "always", "ssz_max_size": "2m"}),
        route("/call", {"cache": True, "cache_max_request": "1m"}),
        route("/small", {"cache": True, "cache_max_request": "16k"}),
    ]
    return start_envoy(routes, workers=2, **LIMITED[host])


def plain_until(connection, wanted):
    """The decoder and the decoded body of a stream, once it contains `wanted`."""
    decoder, plain = zlib.decompressobj(31), b""
    while wanted not in plain:
        plain += decoder.decompress(connection.take(int(connection._line(), 16)))
        connection.take(2)
    return decoder, plain


def test_slowly_arriving_body_is_sent_after_the_buffering_window(envoy, origin):
    """The deadline does not restart with each piece."""
    seen, pause = threading.Event(), threading.Event()
    sent = []

    def steps():
        yield from [head(200, CHUNKED), *chunked([LINE], last=False)]
        for number in range(400):
            sent.append(number)
            yield chunked([b'"piece %d",' % number], last=False)[0]
            if not seen.is_set():
                yield WaitFor(pause, 0.02)
        yield b"0\r\n\r\n"

    origin.answers(lambda request: steps())
    with envoy.connect() as connection:
        connection.send(request_bytes("/slow", headers=[("Accept-Encoding", "gzip")]))
        connection.read_head()
        decoder, plain = plain_until(connection, b'"piece 1",')
        sent_at_deadline = len(sent)
        seen.set()
        plain += decoder.decompress(connection._chunks())
    assert sent_at_deadline < 400
    assert (
        plain == LINE + b"".join(b'"piece %d",' % number for number in range(400)) and decoder.eof
    )


def test_response_after_a_wait_is_sent_after_the_buffering_window(envoy, origin):
    """The deadline of the wait does not apply to the response."""
    go_on, requests = threading.Event(), []
    private = [*CHUNKED, ("Cache-Control", "no-store")]

    def steps(request):
        requests.append(request)
        yield head(200, private)
        yield from chunked([LINE], last=False)
        yield WaitFor(go_on)
        yield b"0\r\n\r\n"

    origin.answers(steps)
    fields = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
    data = request_bytes("/herd", method="POST", headers=fields, body=BLOCK % 7)
    connections = [envoy.connect() for _ in range(6)]
    try:
        for connection in connections:
            connection.send(data)
        for connection in connections:
            connection.read_head()
            plain_until(connection, LINE)
    finally:
        go_on.set()
        for connection in connections:
            connection.close()
    assert len(requests) == 6


def test_long_chunked_request_is_not_buffered(envoy, origin):
    """The body is longer than any submission: it is forwarded unchanged."""
    origin.answers(answer(b"{}"))
    before = peak(envoy.process.pid)
    length, piece = times(80, 150) * MB, b"\x00" * MB
    with envoy.connect(timeout=60) as connection:
        fields = [
            ("Content-Type", "application/octet-stream"),
            ("Eth-Consensus-Version", "electra"),
            ("Transfer-Encoding", "chunked"),
        ]
        connection.send(request_bytes("/eth/v2/beacon/blocks", method="POST", headers=fields))
        for _ in range(length // len(piece)):
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        response = connection.read("POST")
    assert response.status == 200
    (request,) = origin.received("/eth/v2/beacon/blocks")
    assert (
        len(request.body) == length and request.header("Content-Type") == "application/octet-stream"
    )
    assert peak(envoy.process.pid) - before < 60 << 10


TOO_LONG = "detail=request-length"
# Cache-Status of calls by length, where Envoy buffers that much. A sandbox has no more memory.
LOOKED_UP = {
    "native": [("/call", 700_000, "fwd=miss"), ("/call", 1_100_000, TOO_LONG), ("/small", 100_000, TOO_LONG)],
    "wasm": [("/call", 30_000, "fwd=miss"), ("/call", 700_000, TOO_LONG), ("/small", 70_000, TOO_LONG)],
}
KEPT = {
    "native": {"per_connection": 32 << 10},
    "wasm": {"per_connection": 128 << 10, "settings": {"buffer_limit": "128k"}},
}


@pytest.fixture(scope="module")
def small_listener(host, start_envoy):
    routes = [route("/call", {"cache": True, "cache_max_request": "1m"}), route("/small", {"cache": True})]
    return start_envoy(routes, **KEPT[host])


@pytest.mark.parametrize("chunks", [True, False], ids=["chunked", "length"])
def test_call_longer_than_the_limit_of_the_listener_is_looked_up(host, small_listener, origin, chunks):
    """sszip's limit may be higher or lower than Envoy's own."""
    envoy = small_listener
    number = 20 + chunks
    body = BLOCK % number
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":{"hash":"0x%064x"}}' % number))
    for path, length, cache_status in LOOKED_UP[host]:
        long = body[:-1] + b" " * length + b"}"
        fields = [("Content-Type", "application/json")]
        if chunks:
            fields.append(("Transfer-Encoding", "chunked"))
            sent = b"".join(b"%x\r\n%b\r\n" % (len(long[at : at + 5000]), long[at : at + 5000])
                            for at in range(0, len(long), 5000)) + b"0\r\n\r\n"  # fmt: skip
        else:
            sent = long
        with envoy.connect() as connection:
            response = connection.exchange(path, method="POST", headers=fields, body=sent)
        assert response.status == 200
        assert cache_status in response.header("Cache-Status"), (path, length)
        assert origin.last().body == long


@pytest.mark.parametrize("sent", [300_000, 500_000, 900_000])
def test_chunked_request_that_pauses_is_forwarded_whole(envoy, origin, sent):
    """The first bytes are buffered; then many arrive at once: at most one read of Envoy, which
    would reject more before it calls a sandbox."""
    origin.answers(answer(b"{}"))
    began, length = len(origin.received()), sent + 1_000_000
    body = BLOCK[:-1] + b" " * (length - len(BLOCK)) + b"}"
    first, rest = (b"%x\r\n%b\r\n" % (len(it), it) for it in (body[:sent], body[sent:]))
    fields = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    with envoy.connect() as connection:
        connection.send(request_bytes("/call", method="POST", headers=fields) + first)
        # the client pauses: Envoy has read the first bytes, unless it is busy
        time.sleep(0.05)
        connection.send(rest + b"0\r\n\r\n")
        response = connection.read("POST")
    assert response.status == 200
    (request,) = origin.received()[began:]
    assert request.body == body


# Stored bodies of the module exist once; a sandbox's are copied for each client.
LONGEST = {"native": times(20, 50) * MB, "wasm": 2 * MB}


def test_memory_is_limited_when_clients_of_hits_are_slow(host, envoy, origin):
    """Memory does not grow with the number of clients of a hit, nor with their slowness."""
    x = b"0" * LONGEST[host]
    result = b'{"jsonrpc":"2.0","id":1,"result":{"hash":"0x%064x","x":"' % 9 + x + b'"}}'
    origin.answers(answer(result))
    options = dict(method="POST", headers=[("Content-Type", "application/json")], body=BLOCK % 9)

    def whole():
        with envoy.connect(timeout=60) as connection:
            return connection.exchange("/stored", **options)

    def is_hit():
        response = whole()
        assert response.body == result
        return "; hit" in response.header("Cache-Status")

    assert not is_hit()
    envoy.wait_for(is_hit, "a hit")
    upstream_requests = len(origin.requests)
    before = resident(envoy.process.pid)
    connections = [envoy.connect(receive_buffer=65536, timeout=60) for _ in range(10)]
    for connection in connections:
        connection.send(request_bytes("/stored", **options))
    for connection in connections:
        connection.read_head()
        connection.take(1000)
    assert resident(envoy.process.pid) - before < 100 << 10
    for connection in connections[:5]:
        connection.reset()
    for connection in connections[5:]:
        assert connection.take(len(result) - 1000) == result[1000:]
        connection.close()
    assert host == "wasm" or len(origin.requests) == upstream_requests == 1
    assert gunzip(envoy.get("/slow").body)

"""Streams under load: slow clients, nodes that pause, large bodies, many streams, clients
that abort, reloads."""

import socket
import threading

import pytest

from harness import bodies
from harness.guards import GUARD_SECONDS
from harness.nginx import anonymous_memory, resident
from harness.recorded_nodes import BODY
from harness.origin import CloseWithoutResponse, WaitFor, answer, chunked, scattered
from harness.response_stream import open_stream
from harness.nginx_state import SLACK, memory_growth, wait_until_stable, wait_until_idle
from tiers import alternate, times

pytestmark = [pytest.mark.bare, pytest.mark.memory]

GZIP = [("Accept-Encoding", "gzip")]
NOISE = bodies.random(65536)

CONFIG = """
upstream kept { server @origin_unix@; keepalive 8; }
server {
    listen 127.0.0.1:@port@ sndbuf=64k backlog=1024;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    sszip @sszip@;
    sszip_hold 0;
    location / { proxy_pass http://kept; }
    location /unbuffered { proxy_buffering off; proxy_pass http://kept; }
    location /no-temp-file { proxy_max_temp_file_size 0; proxy_pass http://kept; }
    location /hold { sszip_hold 64k 1ms; proxy_max_temp_file_size 0; proxy_pass http://kept; }
    location /status { sszip off; stub_status; }
}
"""


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG.replace("@sszip@", "on"))


@pytest.fixture(autouse=True)
def healthy_after(nginx, origin):
    yield
    wait_until_stable(nginx)
    wait_until_idle(nginx)
    origin.forget()
    origin.answers(answer(BODY, framing="chunked"))
    response = nginx.get("/")
    assert (response.mode, response.decoded) == ("stream", BODY)


class Faucet:
    """A node that sends as many bytes as the proxy reads, and counts them."""

    def __init__(self, piece, total):
        self.piece = piece
        self.total = total
        self.sent = 0
        self.stalled = threading.Event()

    def script(self):
        return [answer(framing="chunked")[0], self.pour]

    def pour(self, connection, _request, _received):
        chunk = b"%x\r\n%b\r\n" % (len(self.piece), self.piece)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        for _ in range(self.total // len(self.piece)):
            left = memoryview(chunk)
            while left:
                # a socket that accepts no bytes for that time is closed
                connection.settimeout(None if self.stalled.is_set() else 0.3)
                try:
                    taken = connection.send(left)
                except TimeoutError:
                    self.stalled.set()
                    continue
                left = left[taken:]
                self.sent += taken
        connection.settimeout(None)
        connection.sendall(b"0\r\n\r\n")


class TestSlowClients:
    @pytest.mark.parametrize("path", ["/unbuffered", "/no-temp-file", "/hold"])
    def test_node_is_slowed_while_the_client_does_not_read(self, nginx, origin, path):
        """A client that does not read stops the node when the buffers of nginx and the
        sockets are full; it receives the whole body when it reads again."""
        faucet = Faucet(NOISE, 16 << 20)
        origin.answers(faucet.script())
        (worker,) = nginx.workers()
        before = anonymous_memory(worker)
        with nginx.connect(receive_buffer=4096) as connection:
            stream = open_stream(connection, path)
            stream.until(1)
            assert faucet.stalled.wait(GUARD_SECONDS)
            assert faucet.sent < 2 << 20
            assert anonymous_memory(worker) - before < 512 * SLACK
            wait_until_idle(nginx)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            assert stream.finish() == NOISE * 256

    @pytest.mark.parametrize("path", ["/", "/unbuffered", "/no-temp-file"])
    def test_slow_client_gets_the_whole_stream(self, nginx, origin, path):
        body = NOISE * 4 + bodies.json(1000000)
        origin.answers(answer(body, framing="chunked", split=scattered(8, 50)))
        with nginx.connect(receive_buffer=4096) as connection:
            assert open_stream(connection, path).finish() == body


class TestStalls:
    @pytest.mark.parametrize("path, received", alternate(["/", "/unbuffered", "/hold"], [1, 5000, 100000]))
    def test_worker_is_idle_while_the_node_pauses(self, nginx, origin, path, received):
        """ngx_brotli #20 and #80: a loop on an incomplete upstream response."""
        go = threading.Event()
        body = bodies.json(150000)
        head, *_ = answer(framing="chunked")
        origin.answers([head + chunked([body[:received]], last=False)[0], WaitFor(go), *chunked([body[received:]])])
        with nginx.connect() as connection:
            stream = open_stream(connection, path)
            wait_until_idle(nginx)
            go.set()
            assert stream.finish() == body


class TestMemory:
    @pytest.mark.parametrize("path, piece", alternate(["/", "/unbuffered", "/hold"], ["json:65536", "random:65536"]))
    def test_large_body_is_streamed_in_limited_memory(self, nginx, origin, path, piece):
        """A body passes a worker that grows by 8 MiB at most."""
        length = times(32, 64) << 20
        faucet = Faucet(bodies.generate(piece), length)
        faucet.stalled.set()  # never stop
        origin.answers(faucet.script())
        (worker,) = nginx.workers()
        before = most = resident(worker)
        with nginx.connect() as connection:
            stream = open_stream(connection, path)
            read = 0
            while stream.more():
                read += len(stream.body)
                stream.body.clear()
                most = max(most, resident(worker))
        assert read == length
        assert most - before <= 8192 * SLACK

    def test_slow_stream_takes_little_more_memory_than_without_sszip(self, start_nginx, origin):
        """Compares the memory for one more stream with that without sszip."""
        number = 200

        def cost(sszip):
            nginx = start_nginx(CONFIG.replace("@sszip@", sszip))
            go = threading.Event()
            pieces = [bodies.json(40000), b"x" * 100]
            head, *_ = answer(framing="chunked")
            origin.answers([head, *chunked(pieces[:1], last=False), WaitFor(go), *chunked(pieces[1:])])
            (worker,) = nginx.workers()
            before = resident(worker)
            connections = [nginx.connect() for _ in range(number)]
            streams = [open_stream(connection, "/unbuffered") for connection in connections]
            for stream in streams:
                assert stream.until(40000) == pieces[0]
            used = resident(worker) - before
            go.set()
            for stream, connection in zip(streams, connections, strict=True):
                assert stream.finish() == b"".join(pieces)
                connection.close()
            wait_until_stable(nginx)
            return used / number

        plain, coded = cost("off"), cost("on")
        assert coded - plain <= 160 * SLACK

    def test_streams_leak_no_memory(self, nginx, origin):
        origin.answers(answer(bodies.json(300000), framing="chunked", split=scattered(4, 10)))

        def work():
            with nginx.connect() as connection:
                for _ in range(30):
                    assert connection.exchange("/", headers=GZIP).coding == "gzip"

        assert memory_growth(nginx, work, rounds=8) < 2048 * SLACK


class TestMany:
    def test_concurrent_streams_get_their_pieces_in_turn(self, nginx, origin):
        """Sends 100 streams in turn, piece after piece."""
        gates = [threading.Event() for _ in range(4)]
        body = bodies.json(80000)
        head, *_ = answer(framing="chunked")
        script = [head]
        for number, gate in enumerate(gates):
            script += [*chunked([body[number * 20000 : (number + 1) * 20000]], last=False), WaitFor(gate)]
        origin.answers([*script, b"0\r\n\r\n"])
        connections = [nginx.connect() for _ in range(100)]
        streams = [open_stream(connection, "/unbuffered") for connection in connections]
        for number, gate in enumerate(gates):
            for stream in streams:
                assert stream.until((number + 1) * 20000) == body[: (number + 1) * 20000]
            gate.set()
        for stream, connection in zip(streams, connections, strict=True):
            assert stream.finish() == body
            connection.close()

    @pytest.mark.parametrize("path", ["/", "/unbuffered"])
    def test_streams_are_complete_when_nginx_reloads(self, start_nginx, origin, path):
        nginx = start_nginx(CONFIG.replace("@sszip@", "on"))
        go = threading.Event()
        body = bodies.json(300000)
        head, *_ = answer(framing="chunked")
        origin.answers([head + chunked([body[:20000]], last=False)[0], WaitFor(go), *chunked([body[20000:]])])
        connections = [nginx.connect() for _ in range(20)]
        streams = [open_stream(connection, path) for connection in connections]
        nginx.reload()
        go.set()
        for stream, connection in zip(streams, connections, strict=True):
            assert stream.finish() == body
            connection.close()
        nginx.wait_for(lambda: len(nginx.all_workers()) == 1, "the old worker to go")
        assert nginx.get(path).decoded == body


def test_upstream_connection_is_closed_when_the_client_aborts(nginx, origin):
    """test_stream_aborts.py has the other aborts."""
    hangup = CloseWithoutResponse()
    origin.answers([answer(framing="chunked")[0] + chunked([BODY], last=False)[0], hangup])
    connection = nginx.connect()
    stream = open_stream(connection, "/unbuffered")
    assert stream.until(len(BODY)) == BODY
    connection.reset()
    assert hangup.seen.wait(GUARD_SECONDS)

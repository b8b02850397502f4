"""Streams under pressure: slow clients, stalling nodes, large bodies, many at
once, clients that leave, reloads."""

import socket
import threading

import pytest

from harness import bodies
from harness.nginx import resident
from harness.nodes import BODY
from harness.origin import Hangup, Until, answer, chunked, scattered
from harness.stream import open_stream
from harness.watch import SLACK, growth, settled, wait_until_idle

pytestmark = pytest.mark.bare

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
    settled(nginx)
    wait_until_idle(nginx)
    origin.forget()
    origin.answers(answer(BODY, framing="chunked"))
    response = nginx.get("/")
    assert (response.mode, response.decoded) == ("stream", BODY)


class Faucet:
    """A node that sends as much as is taken, and counts it."""

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
                # a socket that takes nothing for so long is shut
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
    def test_the_node_is_slowed(self, nginx, origin, path):
        """A client that does not read stops the node, after the buffers that
        nginx and the sockets have; and gets everything when it reads on."""
        faucet = Faucet(NOISE, 16 << 20)
        origin.answers(faucet.script())
        (worker,) = nginx.workers()
        before = resident(worker)
        with nginx.connect(receive_buffer=4096) as connection:
            stream = open_stream(connection, path)
            stream.until(1)
            assert faucet.stalled.wait(20)
            assert faucet.sent < 2 << 20
            assert resident(worker) - before < 2048 * SLACK
            wait_until_idle(nginx)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            assert stream.finish() == NOISE * 256

    @pytest.mark.parametrize("path", ["/", "/unbuffered", "/no-temp-file"])
    def test_a_slow_reader_gets_everything(self, nginx, origin, path):
        body = NOISE * 4 + bodies.json(1000000)
        origin.answers(answer(body, framing="chunked", split=scattered(8, 50)))
        with nginx.connect(receive_buffer=4096) as connection:
            assert open_stream(connection, path).finish() == body


class TestStalls:
    @pytest.mark.parametrize("path", ["/", "/unbuffered", "/hold"])
    @pytest.mark.parametrize("received", [1, 5000, 100000])
    def test_the_worker_is_idle_while_the_node_is_silent(self, nginx, origin, path, received):
        """ngx_brotli #20 and #80: a loop on a partial upstream."""
        go = threading.Event()
        body = bodies.json(150000)
        head, *_ = answer(framing="chunked")
        origin.answers([head + chunked([body[:received]], last=False)[0], Until(go), *chunked([body[received:]])])
        with nginx.connect() as connection:
            stream = open_stream(connection, path)
            wait_until_idle(nginx)
            go.set()
            assert stream.finish() == body


class TestMemory:
    @pytest.mark.parametrize("path", ["/", "/unbuffered", "/hold"])
    @pytest.mark.parametrize("piece", ["json:65536", "random:65536"])
    def test_a_large_body(self, nginx, origin, path, piece):
        """64 MB through a worker that grows by 8 MiB at most."""
        faucet = Faucet(bodies.generate(piece), 64 << 20)
        faucet.stalled.set()  # never give up
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
        assert read == 64 << 20
        assert most - before <= 8192 * SLACK

    def test_many_slow_streams(self, start_nginx, origin):
        """What one more stream costs, against the same without sszip."""
        number = 200

        def cost(sszip):
            nginx = start_nginx(CONFIG.replace("@sszip@", sszip))
            go = threading.Event()
            pieces = [bodies.json(40000), b"x" * 100]
            head, *_ = answer(framing="chunked")
            origin.answers([head, *chunked(pieces[:1], last=False), Until(go), *chunked(pieces[1:])])
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
            settled(nginx)
            return used / number

        plain, coded = cost("off"), cost("on")
        assert coded - plain <= 160 * SLACK

    def test_streams_leave_no_memory(self, nginx, origin):
        origin.answers(answer(bodies.json(300000), framing="chunked", split=scattered(4, 10)))

        def work():
            with nginx.connect() as connection:
                for _ in range(30):
                    assert connection.exchange("/", headers=GZIP).coding == "gzip"

        assert growth(nginx, work, rounds=8) < 2048 * SLACK


class TestMany:
    def test_at_once(self, nginx, origin):
        """100 streams whose pieces come in turn."""
        gates = [threading.Event() for _ in range(4)]
        body = bodies.json(80000)
        head, *_ = answer(framing="chunked")
        script = [head]
        for number, gate in enumerate(gates):
            script += [*chunked([body[number * 20000 : (number + 1) * 20000]], last=False), Until(gate)]
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
    def test_reload_in_the_middle(self, start_nginx, origin, path):
        nginx = start_nginx(CONFIG.replace("@sszip@", "on"))
        go = threading.Event()
        body = bodies.json(300000)
        head, *_ = answer(framing="chunked")
        origin.answers([head + chunked([body[:20000]], last=False)[0], Until(go), *chunked([body[20000:]])])
        connections = [nginx.connect() for _ in range(20)]
        streams = [open_stream(connection, path) for connection in connections]
        nginx.reload()
        go.set()
        for stream, connection in zip(streams, connections, strict=True):
            assert stream.finish() == body
            connection.close()
        nginx.wait_for(lambda: len(nginx.all_workers()) == 1, "the old worker to go")
        assert nginx.get(path).decoded == body


def test_the_node_is_let_go(nginx, origin):
    """When its client leaves. (test_stream_aborts.py has the other aborts.)"""
    hangup = Hangup()
    origin.answers([answer(framing="chunked")[0] + chunked([BODY], last=False)[0], hangup])
    connection = nginx.connect()
    stream = open_stream(connection, "/unbuffered")
    assert stream.until(len(BODY)) == BODY
    connection.reset()
    assert hangup.seen.wait(20)

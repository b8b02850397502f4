"""A thousand streams that are aborted by the client, by the node or by both, by close or reset,
at every stage. Afterwards the worker has the same descriptors open, and all of
`sszip_memory`."""

import itertools
import random
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.guards import GUARD_SECONDS
from harness.http2 import Http2Client
from harness.nginx import open_descriptors
from harness.origin import answer, scattered
from harness.nginx_state import SLACK, memory_growth, wait_until_stable, wait_until_idle

pytestmark = pytest.mark.bare

WHOLE = bodies.json(150000)
NOISE = bodies.random(150000)
EXACT = bodies.json(30000)

PATHS = ["/held", "/stream", "/unbuffered", "/timer", "/narrow"]
# Position of the node: only its head was sent, a part of the body, or all of it but the last
# chunk.
STAGES = ["head", "middle", "end"]
CODINGS = ["gzip", "zstd", None]
KINDS = list(itertools.product(PATHS, CODINGS, ["client", "node", "both"], ["close", "reset"], STAGES))
ROUNDS, ROUNDS_H2 = 7, 3

LOCATIONS = """
    proxy_http_version 1.1;
    sszip on;
    sszip_zstd on;
    sszip_hold 0;
    location /held { sszip_hold 16m 60s; proxy_pass http://@origin@; }
    location /stream { proxy_pass http://@origin@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin@; }
    location /timer { sszip_hold 64k 1ms; proxy_pass http://@origin@; }
    location /narrow { sszip_buffers 1 1k; proxy_buffers 4 4k; proxy_busy_buffers_size 4k; proxy_pass http://@origin@; }
"""
CONFIG = f"""
server {{
    listen 127.0.0.1:@port@ sndbuf=16k backlog=1024;
    {LOCATIONS}
    # exactly what holding 30000 bytes takes
    location /exact {{ sszip_memory 60000; proxy_pass http://@origin@; }}
    location /status {{ sszip off; stub_status; }}
}}
server {{
    listen 127.0.0.1:@port_h2@ http2;
    {LOCATIONS}
}}
"""


class Abort:
    """One response that is aborted, and the node's part in it."""

    def __init__(self, number):
        self.chance = chance = random.Random(number)
        self.path, self.accept, self.by, self.how, self.stage = KINDS[number % len(KINDS)]
        self.uri = f"{self.path}?{number}"
        self.waits = threading.Event()
        self.go = threading.Event()
        body = chance.choice([WHOLE, NOISE])[: int(2 ** chance.uniform(0, 17.1))]
        head, *chunks, last = answer(body, framing="chunked", split=scattered(number, 8))
        sent = {"head": 0, "middle": chance.randrange(len(chunks)), "end": len(chunks)}[self.stage]
        self.first = head + b"".join(chunks[:sent])
        self.rest = b"".join(chunks[sent:]) + last

    def play(self, connection, _request, _received):
        connection.sendall(self.first)
        self.waits.set()
        self.go.wait(GUARD_SECONDS)
        if self.by == "client":
            connection.sendall(self.rest)
        else:
            connection.sendall(self.rest[: self.chance.randrange(len(self.rest))])
            if self.how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def client_leaves(self, leave):
        """Aborts while the node pauses, or while it sends."""
        if self.stage == "end" or self.by == "both":
            self.go.set()
        leave()
        self.go.set()


@pytest.fixture
def abort(origin):
    """Creates the abort of a number, which the node receives in the query."""
    running = {}

    def make(number):
        running[number] = Abort(number)
        return running[number]

    origin.answers(lambda request: [running.pop(int(request.target.partition("?")[2])).play])
    return make


@pytest.fixture(autouse=True)
def unharmed(nginx, origin):
    """Compares the worker after all aborts with its state before."""
    nginx.get("/status")
    (worker,) = nginx.all_workers()
    before = open_descriptors(worker)
    yield
    wait_until_stable(nginx)
    assert nginx.all_workers() == [worker]
    wait_until_idle(nginx)
    nginx.wait_for(lambda: open_descriptors(worker) <= before, f"no more than {before} descriptors")
    origin.answers(answer(EXACT))
    response = nginx.get("/exact")
    assert (response.mode, response.decoded) == ("oneshot", EXACT)
    origin.answers(answer(WHOLE, framing="chunked"))
    for path, coding in itertools.product(PATHS, CODINGS):
        response = nginx.get(path, coding)
        assert (response.coding, response.decoded) == (coding, WHOLE)


def run(nginx, abort):
    connection = nginx.connect(receive_buffer=abort.chance.choice([None, 4096]))
    connection.send(request_bytes(abort.uri, headers=[("Accept-Encoding", abort.accept)] if abort.accept else []))
    assert abort.waits.wait(GUARD_SECONDS)
    if abort.by != "node":

        def leave():
            connection.socket.settimeout(0.002)
            try:
                connection.take(abort.chance.choice([0, 1, abort.chance.randrange(40000)]))
            except (OSError, Truncated):
                pass
            (connection.close if abort.how == "close" else connection.reset)()

        abort.client_leaves(leave)
        return
    abort.go.set()
    with connection:
        try:
            assert connection.read().status == 502
        except Truncated:
            # after the head was sent
            assert abort.path != "/held" or abort.accept is None


def test_worker_recovers_when_streams_abort_over_http_1_1(nginx, abort):
    numbers = itertools.count()

    def work():
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(lambda _: run(nginx, abort(next(numbers))), KINDS))
        wait_until_stable(nginx)

    assert memory_growth(nginx, work, ROUNDS - 2) < 4096 * SLACK
    assert next(numbers) == ROUNDS * len(KINDS)


def test_worker_recovers_when_streams_abort_over_http_2(nginx, abort):
    """Twelve streams per connection: the client resets them, or closes the connection; nginx
    resets those that the node aborts."""
    chance = random.Random(2)
    numbers = chance.sample(range(ROUNDS_H2 * len(KINDS)), ROUNDS_H2 * len(KINDS))
    for start in range(0, len(numbers), 12):
        with Http2Client(nginx.ports["port_h2"], chance.choice([None, 1000])) as client:
            streams = {client.fetch((one := abort(number)).uri, one.accept): one for number in numbers[start : start + 12]}
            for one in streams.values():
                assert one.waits.wait(GUARD_SECONDS)
            broken = set()
            for stream, one in streams.items():
                if one.by == "node":
                    broken.add(stream)
                    one.go.set()
                elif one.how == "reset":
                    one.client_leaves(lambda stream=stream: client.reset(stream))
            client.finish_pinging(*broken)
            for stream in broken:
                assert client.heads[stream][":status"] == "502" or stream in client.resets
        for one in streams.values():
            one.go.set()


def test_rounds_abort_at_least_a_thousand_streams():
    assert (ROUNDS + ROUNDS_H2) * len(KINDS) >= 1000

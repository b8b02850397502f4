"""Clients and nodes that abort at any point, while others continue."""

import contextlib
import random
import threading
import time

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.envoy import address, cluster, route
from harness.http2 import Http2Client
from harness.nginx import resident
from harness.origin import CLOSE, RESET, answer, chunked, head
from harness.replay import ReplayNode
from harness.rpc import Node, call
from tiers import times

HOSTS = ("native", "wasm")

WORKERS = 4
CLIENTS = 8
EACH = times(25, 60)
BODY = bodies.json(400_000)
BLOCK = '["0x%064x",true]'
SLOW = "framing=chunked"


@pytest.fixture(scope="module")
def node():
    node = ReplayNode("--beacon", "json")
    yield node
    node.stop()


@pytest.fixture(scope="module")
def envoy(start_envoy, node):
    where = address(node.port)
    routes = [
        route("/cache", {"cache": True, "ssz": True}, "replay", prefix_rewrite="/"),
        route("/held", {"hold": "1m 60s"}),
        route("/at-once", {"hold": "0"}),
        route("/stored", {"cache": True}),
        route("/", {"ssz": True, "cache": True}, "replay"),
    ]
    return start_envoy(routes, workers=WORKERS, clusters=[cluster("replay", where)], hops="http2")


def requests(random):
    """A request of a random kind: short, long, compressed, looked up, coalesced, transcoded or
    rejected."""
    number = random.randrange(20)
    fields = [
        ("Content-Type", "application/json"),
        ("Accept-Encoding", random.choice(["gzip", "identity"])),
    ]
    block = call("eth_getBlockByNumber", '["latest",true]', str(number))
    logs = call("eth_getLogs", '[{"fromBlock":"0x1","toBlock":"latest"}]', str(number))
    return random.choice([
        ("POST", "/cache", fields, block),
        ("POST", "/cache", fields, b"[%b,%b]" % (block, call("eth_chainId", id="7"))),
        ("POST", "/cache", fields, logs),
        ("POST", "/cache", fields, b"[" + b"," * 1000),
        ("GET", "/eth/v2/beacon/blocks/head", [("Accept", "application/octet-stream"), fields[1]], None),
        ("GET", "/held", fields, None),
        ("GET", "/at-once", fields, None),
    ])  # fmt: skip


def leaves(port, seed):
    """Clients that abort at random points: while they send, before the response, within it,
    or at its end."""
    chance = random.Random(seed)
    for _ in range(EACH):
        method, path, fields, body = requests(chance)
        with contextlib.closing(Connecting(port, chance)) as client:
            client.part_of(request_bytes(path, method=method, headers=fields, body=body))


class Connecting:
    def __init__(self, port, chance):
        from harness.client import Connection

        self.connection = Connection(port, receive_buffer=chance.choice([None, 4096]))
        self.chance = chance

    def part_of(self, request):
        at = self.chance.choice([len(request), len(request), self.chance.randrange(len(request))])
        self.connection.send(request[:at])
        time.sleep(self.chance.choice([0, 0, 0.001, 0.005, 0.02]))
        if at == len(request) and self.chance.random() < 0.6:
            with contextlib.suppress(Truncated, TimeoutError, ConnectionError):
                self.connection.socket.settimeout(0.2)
                self.connection.take(self.chance.choice([1, 100, 1000, 10_000, 100_000]))

    def close(self):
        if self.chance.random() < 0.5:
            self.connection.reset()
        else:
            self.connection.close()


def resets(port, seed):
    """Clients over HTTP/2 that reset streams, and close connections now and then."""
    chance = random.Random(seed)
    left = EACH
    while left > 0:
        with Http2Client(port, window=chance.choice([1000, 65535, 1 << 20])) as client:
            for _ in range(10):
                left -= 1
                _, path, _, body = requests(chance)
                accept = chance.choice(["gzip", None])
                stream = client.fetch(path, accept, "POST" if body else "GET", body)
                client.socket.settimeout(chance.choice([0.0005, 0.005, 0.02]))
                with contextlib.suppress(TimeoutError):
                    for _ in range(chance.randrange(4)):
                        client.step(acknowledge=chance.random() < 0.8)
                if stream not in client.ended:
                    client.reset(stream)


def breaks(seed):
    """A node that aborts at any point, too."""
    chance = random.Random(seed)

    def script(request):
        if request.path == "/in-order":
            return answer(BODY)
        at = chance.randrange(len(BODY))
        plain = [("Content-Type", "application/json")]
        long = [*plain, ("Content-Length", str(len(BODY)))]
        pieces = [*plain, ("Transfer-Encoding", "chunked")]
        return chance.choice([
            [CLOSE], [RESET], [b"HTTP/1.1 200 O", CLOSE], [head(200, long), RESET],
            [head(200, long), BODY[:at], CLOSE], [head(200, long), BODY[:at], RESET],
            [head(200, pieces), *chunked([BODY[:at], BODY[at:]], last=False), RESET],
            answer(BODY), answer(BODY, framing="chunked"), answer(BODY, coding="gzip"),
        ])  # fmt: skip

    return script


def settled(envoy, node):
    return envoy.active() == 0 and node.stats()["in_flight"] == 0


def right(envoy, origin):
    """Asserts that later requests receive right responses."""
    origin.answers(answer(BODY))
    for path in ("/held", "/at-once"):
        assert envoy.get(path).decoded == BODY
    block = call("eth_getBlockByNumber", '["latest",true]')
    plain = envoy.fetch("/cache", block, accept=None).body
    for _ in range(3 * WORKERS):
        assert envoy.fetch("/cache", block).decoded == plain
    assert (
        envoy.fetch(
            "/eth/v2/beacon/blocks/head", headers=[("Accept", "application/octet-stream")]
        ).status
        == 200
    )


def storm(envoy, start):
    threads = [
        threading.Thread(target=behavior, args=(port, seed))
        for seed, (behavior, port) in enumerate(start)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def test_no_streams_or_memory_remain_after_hundreds_of_aborts(envoy, node, origin):
    """Clients over HTTP/1.1 and HTTP/2 abort together with the node: neither streams nor
    memory of them remain."""
    right(envoy, origin)
    sizes = []
    for round in range(2):
        origin.answers(breaks(round))
        storm(envoy, [(leaves, envoy.direct)] * (CLIENTS // 2) + [(resets, envoy.direct)] * (CLIENTS // 2)
              + [(leaves, envoy.port)])  # fmt: skip
        envoy.wait_for(lambda: settled(envoy, node), "all streams to be gone")
        right(envoy, origin)
        sizes.append(resident(envoy.process.pid))
    assert 2 * (CLIENTS + 1) * EACH >= times(400, 1000)
    assert sizes[1] - sizes[0] < 20 << 10, sizes


def test_follower_gets_the_response_when_the_leader_aborts(envoy, origin):
    """The follower receives the response of the flight all the same."""
    origin.answers(
        Node({"eth_getBlockByHash": lambda params: b'{"hash":"%b"}' % params[0].encode()})
    )
    for number in range(100, 130):
        body = call("eth_getBlockByHash", BLOCK % number)
        fields = [("Content-Type", "application/json")]
        request = request_bytes("/stored", method="POST", headers=fields, body=body)
        with envoy.connect() as first, envoy.connect() as second:
            first.send(request)
            second.send(request)
            first.reset()
            assert b"0x%064x" % number in second.read("POST").body
    envoy.wait_for(lambda: envoy.active() == 0, "all streams to be gone")

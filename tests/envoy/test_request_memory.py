"""Request bodies in flight count to `memory` by the bytes that arrived; none takes all of it."""

import json
import threading

import pytest

from harness.client import request_bytes
from harness.envoy import route
from harness.nginx import peak
from harness.rpc import Node, call

HOSTS = ("native", "wasm")

MB = 1 << 20
MEMORY = 16 * MB
FIELDS = [("Content-Type", "application/json")]
# the bodies must be read, and are buffered until they are complete
DENIED = {"cache": True, "cache_max_request": "15m", "memory": "16m", "method": "deny eth_sign"}
LIMITS = {"native": {}, "wasm": {"settings": {"buffer_limit": "16m"}}}


@pytest.fixture(scope="module")
def envoy(host, start_envoy):
    return start_envoy([route("/", DENIED)], workers=1, per_connection=16 * MB, **LIMITS[host])


def head(fields):
    return request_bytes("/", method="POST", headers=FIELDS + fields)


def long_call(envoy):
    body = call("eth_getCode", json.dumps(["0x" + "0" * 300_000, "latest"]))
    with envoy.connect(timeout=30) as connection:
        return connection.exchange("/", method="POST", headers=FIELDS, body=body)


def test_announced_lengths_take_no_memory(envoy, origin):
    origin.answers(Node({"eth_getCode": b'"0x"'}))
    stalled = [envoy.connect(timeout=30) for _ in range(17)]
    try:
        for connection in stalled:
            connection.send(head([("Content-Length", str(15 * MB))]) + b"[")
        for _ in range(3):
            response = long_call(envoy)
            assert (response.status, json.loads(response.decoded)["result"]) == (200, "0x")
    finally:
        for connection in stalled:
            connection.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
def test_bodies_under_way_stay_within_memory(envoy, origin, chunked):
    origin.answers(Node({"eth_getCode": b'"0x"'}))
    before = peak(envoy.process.pid)
    length = 7 * MB
    piece = b"[" + b" " * (MB // 4 - 1)
    if chunked:
        begin, piece = head([("Transfer-Encoding", "chunked")]), b"%x\r\n%b\r\n" % (len(piece), piece)
    else:
        begin = head([("Content-Length", str(length))])
    # Envoy reads up to 1 MiB of each in addition to the filter's bytes
    senders = [envoy.connect(timeout=30) for _ in range(20)]

    def send(connection):
        try:
            connection.send(begin)
            for _ in range(length // (MB // 4) - 1):
                connection.send(piece)
        except OSError:
            pass  # it was rejected, and closed

    threads = [threading.Thread(target=send, args=(connection,)) for connection in senders]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert long_call(envoy).status == 200
        # Envoy's own buffers are in addition
        assert peak(envoy.process.pid) - before <= (MEMORY + 32 * MB) / 1024
    finally:
        for connection in senders:
            connection.close()

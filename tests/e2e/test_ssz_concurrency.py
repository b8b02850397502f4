"""The limit of long responses that a worker transcodes at a time: the next one stays
unchanged, and a slot is released however its response ends."""

import itertools
import json
import random
import threading

import pytest

from harness.client import Truncated, request_bytes
from harness.origin import CLOSE, RESET, WaitFor, answer, chunked, head
from harness.rpc import call
from harness.nginx_state import wait_until_stable

from test_faults import FAULTS

OCTETS = "application/octet-stream"
EITHER = "application/octet-stream;q=1.0,application/json;q=0.9"
WITNESS = call("debug_executionWitness", '["latest"]')
CONSOLIDATIONS = "/eth/v1/beacon/states/9/pending_consolidations"

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
sszip_ssz_preset mainnet;
sszip_ssz_concurrency 2;
sszip_memory 1g;
client_max_body_size 64m;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin_unix@; }
    location /one/ { sszip_ssz_concurrency 1; proxy_pass http://@origin_unix@; }
    location /off/ { sszip_ssz_concurrency off; proxy_pass http://@origin_unix@; }
    location /status { sszip off; stub_status; }
}
"""

NODE = random.Random(5).randbytes(300).hex()
NODES = 9_000
STATE = ",".join([f'"0x{NODE}"'] * NODES)
# more than 4 MiB
JSON = f'{{"jsonrpc":"2.0","id":1,"result":{{"state":[{STATE}],"codes":[],"headers":["0xc0"],"keys":[]}}}}'.encode()
SHORT = b'{"jsonrpc":"2.0","id":1,"result":{"state":[],"codes":[],"headers":["0xc0"],"keys":[]}}'
_paths = itertools.count(1)


@pytest.fixture(autouse=True)
def worker_survives(nginx):
    (worker,) = nginx.workers()
    yield
    assert nginx.workers() == [worker]


def halted(go, framing="length", end=None):
    """A part of a witness and, when the gate opens, the rest or an abort."""
    half = len(JSON) * 5 // 6
    length = ("Content-Length", str(len(JSON))) if framing == "length" else ("Transfer-Encoding", "chunked")
    begin = head(headers=[("Content-Type", "application/json"), length])
    if framing == "length":
        first, rest = [JSON[:half]], [JSON[half:]]
    else:
        first, rest = chunked([JSON[:half]], last=False), chunked([JSON[half:]])
    return [begin, *first, WaitFor(go), *([end] if end else rest)]


def send_witness_call(nginx, path, accept=OCTETS):
    connection = nginx.connect()
    headers = [("Content-Type", "application/json"), ("Accept", accept)]
    connection.send(request_bytes(path, method="POST", headers=headers, body=WITNESS))
    return connection


class Gate:
    """Opens for two responses, and reports that they have arrived: by then nginx has read the
    bytes that were sent before over a Unix socket."""

    def __init__(self):
        self.reached, self.opened = threading.Semaphore(0), threading.Event()

    def wait(self, seconds):
        self.reached.release()
        self.opened.wait(seconds)

    def set(self):
        self.opened.set()


class Two:
    """Two responses in flight, which take all slots."""

    def __init__(self, nginx, origin, framing="length", end=None):
        self.go = Gate()
        self.connections = []
        for _ in range(2):
            path = f"/slow/{next(_paths)}"
            origin.answers(halted(self.go, framing, end), path)
            self.connections.append(send_witness_call(nginx, path))
        for _ in range(2):
            assert self.go.reached.acquire(timeout=30)
        # and has processed them
        nginx.get("/status")

    def close(self):
        self.go.set()
        for connection in self.connections:
            connection.close()


def post(nginx, path="/", accept=OCTETS, coding=None):
    return nginx.post(path, WITNESS, coding, [("Accept", accept)])


def assert_witness(response):
    assert response.status == 200, response.body[:300]
    assert response.header("Sszip-Type") == "ExecutionWitness;v=1"
    # an offset and bytes for each node, and the three lists
    assert len(response.decoded) == 12 + NODES * (4 + 300) + 4 + 1


def assert_slots_are_free(nginx, origin):
    """Asserts that both slots are free at once: each ended response has released its own."""
    origin.answers(answer(JSON))
    wait_until_stable(nginx)
    two = Two(nginx, origin)
    two.go.set()
    for connection in two.connections:
        assert_witness(connection.read("POST"))
    two.close()
    assert_witness(post(nginx))


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_call_beyond_the_limit_is_sent_as_json(nginx, origin, framing):
    two = Two(nginx, origin, framing)
    for its_framing in ("length", "chunked"):
        origin.answers(answer(JSON, framing=its_framing))
        for accept in (EITHER, OCTETS):
            # a client of a call is sent JSON, whatever it accepts
            response = post(nginx, accept=accept)
            assert (response.status, response.mode) == (200, "ssz-busy")
            assert response.header("Content-Type") == "application/json"
            assert response.header("Sszip-Type") is None
            assert response.decoded == JSON
            assert "Accept" in response.header("Vary").split(", ")
        # compressed, if the head decides it
        assert post(nginx, coding="gzip").decoded == JSON
    # the limit does not concern short responses, JSON, and locations without a limit
    assert post(nginx, accept="application/json").decoded == JSON
    assert_witness(post(nginx, "/off/"))
    origin.answers(answer(SHORT))
    assert post(nginx).header("Sszip-Type") == "ExecutionWitness;v=1"
    # the responses with a slot are not delayed
    two.go.set()
    for connection in two.connections:
        assert_witness(connection.read("POST"))
    two.close()
    assert_slots_are_free(nginx, origin)


def test_route_beyond_the_limit_is_a_503_for_a_client_of_ssz_only(nginx, origin):
    """A client that accepts SSZ only receives a 503."""
    two = Two(nginx, origin)
    value = b'{"version":"electra","data":[%s]}' % b",".join([b'{"source_index":"1","target_index":"515"}'] * 110_000)
    version = [("Eth-Consensus-Version", "electra")]
    for framing in ("length", "chunked"):
        origin.answers(answer(value, headers=version, framing=framing), CONSOLIDATIONS)
        response = nginx.get(CONSOLIDATIONS, headers=[("Accept", OCTETS)])
        assert (response.status, response.mode) == (503, "ssz-busy")
        assert response.header("Content-Type") == "application/json"
        error = json.loads(response.decoded)
        assert error["code"] == 503 and "too many long conversions" in error["message"]
        response = nginx.get(CONSOLIDATIONS, headers=[("Accept", EITHER)])
        assert (response.status, response.decoded, response.mode) == (200, value, "ssz-busy")
        assert response.header("Eth-Consensus-Version") == "electra"
        response = nginx.head(CONSOLIDATIONS, headers=[("Accept", OCTETS)])
        assert response.status in (200, 503)
    two.close()
    assert_slots_are_free(nginx, origin)
    response = nginx.get(CONSOLIDATIONS, headers=[("Accept", OCTETS)])
    assert (response.status, len(response.decoded)) == (200, 16 * 110_000)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("way", ["close", "reset"])
def test_slot_is_released_when_the_client_aborts(nginx, origin, way, framing):
    for _ in range(3):
        two = Two(nginx, origin, framing)
        for connection in two.connections:
            getattr(connection, way)()
        two.go.set()
        wait_until_stable(nginx)
    assert_slots_are_free(nginx, origin)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
def test_slot_is_released_when_the_node_aborts(nginx, origin, end, framing):
    nginx.expect("the response ended before|prematurely closed|reset by peer|not enough memory to buffer the response")
    two = Two(nginx, origin, framing, end)
    two.go.set()
    for connection in two.connections:
        assert connection.read("POST").status == 502
    two.close()
    assert_slots_are_free(nginx, origin)


def test_slot_is_released_before_a_slow_client_has_read(nginx, origin):
    """A transcoded response takes memory, and no slot."""
    origin.answers(answer(JSON))
    slow = []
    for _ in range(4):
        connection = nginx.connect(receive_buffer=4096)
        connection.send(
            request_bytes(
                "/", method="POST", headers=[("Content-Type", "application/json"), ("Accept", OCTETS)], body=WITNESS
            )
        )
        # the head was sent: transcoding has ended
        assert connection.read_head().header("Sszip-Type") == "ExecutionWitness;v=1"
        slow.append(connection)
    assert_witness(post(nginx))
    for connection in slow:
        connection.close()
    assert_slots_are_free(nginx, origin)


def test_slot_is_released_when_the_value_is_invalid(nginx, origin):
    nginx.expect("not available in the requested format")
    wrong = JSON.replace(b'"codes":[]', b'"codes":{}')
    for framing in ("length", "chunked"):
        origin.answers(answer(wrong, framing=framing))
        for accept in (EITHER, OCTETS):
            response = post(nginx, accept=accept)
            assert (response.status, response.mode) == (502, "ssz-invalid")
    assert_slots_are_free(nginx, origin)


def test_compressed_response_takes_a_slot_during_transcoding(nginx, origin):
    for framing in ("length", "chunked"):
        origin.answers(answer(JSON, coding="gzip", framing=framing))
        for _ in range(3):
            assert_witness(post(nginx))
        two = Two(nginx, origin)
        response = post(nginx)
        assert (response.decoded, response.mode) == (JSON, "ssz-busy")
        two.close()
        wait_until_stable(nginx)
    assert_slots_are_free(nginx, origin)


@pytest.mark.parametrize("fault", ["panic-body", "panic-compress", "fail-alloc"])
def test_slot_is_released_when_a_fault_is_injected(start_nginx, origin, fault):
    nginx = start_nginx(CONFIG.replace("concurrency 2", "concurrency 1"), module=FAULTS, main=f"env SSZIP_FAULT={fault};")
    nginx.expect("panicked|not enough memory to buffer the response|not available in the requested format")
    for framing, coding in itertools.product(("length", "chunked"), (None, "gzip")):
        origin.answers(answer(JSON, framing=framing, coding=coding))
        for accept in (EITHER, OCTETS, EITHER):
            try:
                response = post(nginx, accept=accept, coding="gzip")
            except Truncated:
                continue
            assert response.mode != "ssz-busy"
            assert response.status in (200, 502)
            assert response.header("Sszip-Type") or response.status == 502 or response.decoded == JSON

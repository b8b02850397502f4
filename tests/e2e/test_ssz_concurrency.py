"""How many long answers a worker makes another format of at a time: the next one stays
what it is, and a place is free again however the one that had it has ended."""

import itertools
import json
import random
import threading

import pytest

from harness.client import Truncated, request_bytes
from harness.origin import CLOSE, RESET, Until, answer, chunked, head
from harness.rpc import call
from harness.watch import settled

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
def the_worker_lives_on(nginx):
    (worker,) = nginx.workers()
    yield
    assert nginx.workers() == [worker]


def halted(go, framing="length", end=None):
    """Half of a witness, and then, once that is to be, the rest or an end of another kind."""
    half = len(JSON) * 5 // 6
    length = ("Content-Length", str(len(JSON))) if framing == "length" else ("Transfer-Encoding", "chunked")
    begin = head(headers=[("Content-Type", "application/json"), length])
    if framing == "length":
        first, rest = [JSON[:half]], [JSON[half:]]
    else:
        first, rest = chunked([JSON[:half]], last=False), chunked([JSON[half:]])
    return [begin, *first, Until(go), *([end] if end else rest)]


def asks(nginx, path, accept=OCTETS):
    connection = nginx.connect()
    headers = [("Content-Type", "application/json"), ("Accept", accept)]
    connection.send(request_bytes(path, method="POST", headers=headers, body=WITNESS))
    return connection


class Gate:
    """Opens for both, and says when they have come to it: over a Unix socket nginx has
    read by then what was sent before."""

    def __init__(self):
        self.reached, self.opened = threading.Semaphore(0), threading.Event()

    def wait(self, seconds):
        self.reached.release()
        self.opened.wait(seconds)

    def set(self):
        self.opened.set()


class Two:
    """Two whose answers are on their way, so that there is no place."""

    def __init__(self, nginx, origin, framing="length", end=None):
        self.go = Gate()
        self.connections = []
        for _ in range(2):
            path = f"/slow/{next(_paths)}"
            origin.answers(halted(self.go, framing, end), path)
            self.connections.append(asks(nginx, path))
        for _ in range(2):
            assert self.go.reached.acquire(timeout=30)
        # and has done with that
        nginx.get("/status")

    def close(self):
        self.go.set()
        for connection in self.connections:
            connection.close()


def post(nginx, path="/", accept=OCTETS, coding=None):
    return nginx.post(path, WITNESS, coding, [("Accept", accept)])


def is_made(response):
    assert response.status == 200, response.body[:300]
    assert response.header("Sszip-Type") == "ExecutionWitness;v=1"
    # an offset and its bytes for each, and the three lists
    assert len(response.decoded) == 12 + NODES * (4 + 300) + 4 + 1


def are_free(nginx, origin):
    """Both places are there: without waiting, for what ended has given them back."""
    origin.answers(answer(JSON))
    settled(nginx)
    two = Two(nginx, origin)
    two.go.set()
    for connection in two.connections:
        is_made(connection.read("POST"))
    two.close()
    is_made(post(nginx))


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_one_more_stays_what_it_is(nginx, origin, framing):
    two = Two(nginx, origin, framing)
    for its_framing in ("length", "chunked"):
        origin.answers(answer(JSON, framing=its_framing))
        for accept in (EITHER, OCTETS):
            # a call can do with JSON, whatever its client accepts
            response = post(nginx, accept=accept)
            assert (response.status, response.mode) == (200, "ssz-busy")
            assert response.header("Content-Type") == "application/json"
            assert response.header("Sszip-Type") is None
            assert response.decoded == JSON
            assert "Accept" in response.header("Vary").split(", ")
        # compressed, where that is known with the head
        assert post(nginx, coding="gzip").decoded == JSON
    # others are not its business: short ones, JSON, and places without a limit
    assert post(nginx, accept="application/json").decoded == JSON
    is_made(post(nginx, "/off/"))
    origin.answers(answer(SHORT))
    assert post(nginx).header("Sszip-Type") == "ExecutionWitness;v=1"
    # and who has a place is no later
    two.go.set()
    for connection in two.connections:
        is_made(connection.read("POST"))
    two.close()
    are_free(nginx, origin)


def test_one_more_of_a_route(nginx, origin):
    """Who takes SSZ only is told to come again."""
    two = Two(nginx, origin)
    value = b'{"version":"electra","data":[%s]}' % b",".join([b'{"source_index":"1","target_index":"515"}'] * 110_000)
    version = [("Eth-Consensus-Version", "electra")]
    for framing in ("length", "chunked"):
        origin.answers(answer(value, headers=version, framing=framing), CONSOLIDATIONS)
        response = nginx.get(CONSOLIDATIONS, headers=[("Accept", OCTETS)])
        assert (response.status, response.mode) == (503, "ssz-busy")
        assert response.header("Content-Type") == "application/json"
        error = json.loads(response.decoded)
        assert error["code"] == 503 and "too many long ones" in error["message"]
        response = nginx.get(CONSOLIDATIONS, headers=[("Accept", EITHER)])
        assert (response.status, response.decoded, response.mode) == (200, value, "ssz-busy")
        assert response.header("Eth-Consensus-Version") == "electra"
        response = nginx.head(CONSOLIDATIONS, headers=[("Accept", OCTETS)])
        assert response.status in (200, 503)
    two.close()
    are_free(nginx, origin)
    response = nginx.get(CONSOLIDATIONS, headers=[("Accept", OCTETS)])
    assert (response.status, len(response.decoded)) == (200, 16 * 110_000)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("way", ["close", "reset"])
def test_clients_that_go_away_leave_their_place(nginx, origin, way, framing):
    for _ in range(3):
        two = Two(nginx, origin, framing)
        for connection in two.connections:
            getattr(connection, way)()
        two.go.set()
        settled(nginx)
    are_free(nginx, origin)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
def test_nodes_that_go_away_leave_it(nginx, origin, end, framing):
    nginx.expect("the response ended before|prematurely closed|reset by peer|no memory for the whole answer")
    two = Two(nginx, origin, framing, end)
    two.go.set()
    for connection in two.connections:
        assert connection.read("POST").status == 502
    two.close()
    are_free(nginx, origin)


def test_clients_that_don_t_read_hold_none(nginx, origin):
    """What has been made is memory, and no work."""
    origin.answers(answer(JSON))
    slow = []
    for _ in range(4):
        connection = nginx.connect(receive_buffer=4096)
        connection.send(
            request_bytes(
                "/", method="POST", headers=[("Content-Type", "application/json"), ("Accept", OCTETS)], body=WITNESS
            )
        )
        # its head is out: it has been made
        assert connection.read_head().header("Sszip-Type") == "ExecutionWitness;v=1"
        slow.append(connection)
    is_made(post(nginx))
    for connection in slow:
        connection.close()
    are_free(nginx, origin)


def test_a_value_that_is_none_leaves_it(nginx, origin):
    nginx.expect("can't be had as SSZ")
    wrong = JSON.replace(b'"codes":[]', b'"codes":{}')
    for framing in ("length", "chunked"):
        origin.answers(answer(wrong, framing=framing))
        for accept in (EITHER, OCTETS):
            response = post(nginx, accept=accept)
            assert (response.status, response.mode) == (502, "ssz-invalid")
    are_free(nginx, origin)


def test_a_coded_answer_has_one_for_as_long_as_it_is_made(nginx, origin):
    for framing in ("length", "chunked"):
        origin.answers(answer(JSON, coding="gzip", framing=framing))
        for _ in range(3):
            is_made(post(nginx))
        two = Two(nginx, origin)
        response = post(nginx)
        assert (response.decoded, response.mode) == (JSON, "ssz-busy")
        two.close()
        settled(nginx)
    are_free(nginx, origin)


@pytest.mark.parametrize("fault", ["panic-body", "panic-compress", "fail-alloc"])
def test_what_fails_inside_leaves_it(start_nginx, origin, fault):
    nginx = start_nginx(CONFIG.replace("concurrency 2", "concurrency 1"), module=FAULTS, main=f"env SSZIP_FAULT={fault};")
    nginx.expect("panicked|no memory for the whole answer|can't be had as SSZ")
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

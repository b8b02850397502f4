"""Witnesses of tens of megabytes, of a hundred in `make test-all`, that are aborted by the client, by the node or
during a reload. The worker survives, frees its memory and descriptors, and sends the
next witness whole.

SSZIP_WITNESS_MB=500 makes them as long as the longest."""

import hashlib
import os
import random
import threading

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.large_aborts import abort_at_stage, assert_resources_released
from harness.nginx import SANITIZED, open_descriptors, resident
from harness.origin import answer
from harness.replay import ReplayNode
from harness.rpc import call
from harness.nginx_state import wait_until_stable
from tiers import by_tier, times

MEGABYTES = int(os.environ.get("SSZIP_WITNESS_MB", times(40, 100)))
JSON_LENGTH = MEGABYTES * 1_000_000
ROUNDS = times(2, 6)
# KiB that a worker may grow, less than a witness: small pieces, and under the sanitizer
# its quarantine of freed memory.
SLACK = (times(64, 128) if SANITIZED else 32) << 10

EXACT = bodies.json(30000)
CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
sszip_memory 4g;
sszip_ssz_max_size 2g;
proxy_read_timeout 120s;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://%s; }
    # exactly what holding 30000 bytes takes
    location /exact { sszip_memory 60000; proxy_pass http://@origin@; }
    location /status { sszip off; stub_status; }
}
"""
WITNESS = call("debug_executionWitness", '["latest"]')
OCTETS, EITHER = "application/octet-stream", "application/octet-stream, application/json;q=0.5"


@pytest.fixture(scope="module")
def node():
    node = ReplayNode("--witness", f"{JSON_LENGTH}")
    yield node
    node.stop()


@pytest.fixture(scope="module")
def nginx(start_nginx, node):
    nginx = start_nginx(CONFIG % node.address)
    # threads and encoders have allocated their memory from then on
    abort_clients(nginx, node, "length")
    return nginx


def send(nginx, *options, accept=OCTETS, coding=None, receive_buffer=None):
    """A connection with a request for a witness; the options are the node's."""
    connection = nginx.connect(receive_buffer=receive_buffer)
    connection.socket.settimeout(120)
    headers = [("Content-Type", "application/json"), ("Accept", accept)]
    if coding:
        headers.append(("Accept-Encoding", coding))
    if options:
        headers.append(("X-Replay", "&".join(options)))
    connection.send(request_bytes("/", method="POST", headers=headers, body=WITNESS))
    return connection


def whole(connection):
    """The hash of the witness that arrives."""
    with connection:
        response = connection.read("POST")
        assert response.status == 200, response.body[:300]
        assert response.header("Sszip-Type") == "ExecutionWitness;v=1"
        assert response.framing == "length" and len(response.body) > JSON_LENGTH // 3
        return hashlib.sha256(response.body).hexdigest()


def abort_clients(nginx, node, framing):
    """Clients abort while the node sends, during conversion, and while they receive; by
    close or reset."""
    chance = random.Random(framing)
    for stage in ["node", "coder", "client"] * ROUNDS:
        options = [f"framing={framing}"]
        if stage == "node":
            options.append(f"stall={chance.randrange(JSON_LENGTH * 9 // 10)}")
        accept, coding = chance.choice([OCTETS, EITHER]), chance.choice([None, "gzip"])
        before = node.stats()["requests"]
        connection = send(nginx, *options, accept=accept, coding=coding, receive_buffer=chance.choice([None, 4096]))
        abort_at_stage(stage, chance, connection, nginx, node, before, JSON_LENGTH)


def assert_worker_recovers(nginx, origin, worker, before, had):
    """Asserts that memory and descriptors of aborted requests are released."""
    assert_resources_released(nginx, worker, before, had, SLACK)
    origin.answers(answer(EXACT))
    # a thread frees long bodies
    nginx.wait_for(lambda: nginx.get("/exact").mode == "oneshot", "the memory of all answers")
    assert nginx.get("/exact").decoded == EXACT


@pytest.fixture
def worker(nginx, origin):
    """The worker after one witness; its state is compared after the test."""
    expected = whole(send(nginx))
    wait_until_stable(nginx)
    (worker,) = nginx.workers()
    # no bytes of it stay reserved
    nginx.wait_for(lambda: resident(worker) < (JSON_LENGTH // 3 >> 10) + SLACK, "the memory of what was long")
    before, had = resident(worker), open_descriptors(worker)
    yield worker
    assert_worker_recovers(nginx, origin, worker, before, had)
    assert whole(send(nginx)) == expected
    assert_worker_recovers(nginx, origin, worker, before, had)


@pytest.mark.parametrize("framing", by_tier(["chunked"], ["length", "chunked"]))
def test_worker_recovers_when_clients_of_large_witnesses_abort(nginx, node, worker, framing):
    abort_clients(nginx, node, framing)


@pytest.mark.parametrize("framing", by_tier(["length"], ["length", "chunked"]))
def test_response_is_502_when_the_node_truncates_a_large_witness(nginx, node, worker, framing):
    """The head is sent only when the body is complete: a 502, never a part."""
    chance = random.Random(framing)
    for number in range(ROUNDS):
        cut = chance.choice([1, 100, chance.randrange(JSON_LENGTH), JSON_LENGTH * 99 // 100])
        options = [f"framing={framing}", f"cut={cut}"] + (["reset=on"] if number % 2 else [])
        with send(nginx, *options, accept=chance.choice([OCTETS, EITHER])) as connection:
            assert connection.read("POST").status == 502, options
    # a client of JSON receives the part that arrived
    with send(nginx, f"framing={framing}", f"cut={JSON_LENGTH // 2}", accept="application/json") as connection:
        with pytest.raises(Truncated):
            connection.read("POST")


def test_large_witnesses_are_complete_when_nginx_reloads(nginx, node, origin):
    """The worker of before the reload serves responses that the node still sends and the
    client still reads."""
    expected = whole(send(nginx))
    chance = random.Random(7)
    for _ in range(2):
        (before,) = nginx.workers()
        halfway = f"stall={chance.randrange(JSON_LENGTH)}"
        stalls = send(nginx, halfway, "stall_ms=600")
        reads = send(nginx, receive_buffer=4096)
        head = reads.read_head()
        begun = reads.take(chance.randrange(JSON_LENGTH // 3))
        got = []
        thread = threading.Thread(target=lambda stalls=stalls, got=got: got.append(whole(stalls)))
        thread.start()
        nginx.reload()
        rest = reads.take(int(head.header("Content-Length")) - len(begun))
        assert hashlib.sha256(begun + rest).hexdigest() == expected
        reads.close()
        thread.join(120)
        assert got == [expected]
        assert nginx.workers() != [before]
    (worker,) = nginx.workers()
    assert whole(send(nginx)) == expected
    wait_until_stable(nginx)
    assert_worker_recovers(nginx, origin, worker, resident(worker), open_descriptors(worker))
    nginx.wait_for(lambda: resident(worker) < (JSON_LENGTH // 3 >> 10) + SLACK, "its memory")

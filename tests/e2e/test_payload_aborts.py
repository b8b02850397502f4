"""Witnesses of tens of megabytes, of a hundred in `make test-all`, between the Engine API over REST and over JSON-RPC:
complete, and aborted by the client, by the node or during a reload. The worker survives,
frees its memory and descriptors, and sends the next witness whole.

SSZIP_WITNESS_MB=500 makes them as long as the longest."""

import hashlib
import itertools
import json
import os
import random
import threading
import time

import pytest

from harness import payloads
from harness.client import fetch, request_bytes
from harness.large_aborts import abort_at_stage, assert_resources_released
from harness.nginx import SANITIZED, open_descriptors, resident
from harness.payloads import OCTETS, PROBLEM, ROUTE, call_of, flat, submission_of
from harness.replay import ReplayNode
from harness.nginx_state import wait_until_stable
from tiers import by_tier, pairwise, times

MEGABYTES = int(os.environ.get("SSZIP_WITNESS_MB", times(40, 100)))
JSON_LENGTH = MEGABYTES * 1_000_000
ROUNDS = times(1, 3)
# KiB that a worker may grow, less than a witness.
SLACK = (times(64, 128) if SANITIZED else 40) << 10

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
sszip_memory 8g;
sszip_ssz_max_size 2g;
client_max_body_size 64m;
client_body_buffer_size 1m;
proxy_read_timeout 120s;
server {
    listen 127.0.0.1:@port@;
    location / { sszip_ssz_witness rpc; proxy_pass http://%(node)s; }
    location /mortal/ { sszip_ssz_witness rpc; proxy_pass http://%(mortal)s; }
    location /status { sszip off; stub_status; }
}
server {
    listen 127.0.0.1:@port_rest@;
    location / { sszip_ssz_witness rest; proxy_pass http://%(node)s; }
    location /mortal/ { sszip_ssz_witness rest; proxy_pass http://%(mortal)s; }
}
"""
# Requests of clients: over REST; over JSON-RPC for JSON; and for SSZ.
ASKS = ["rpc", "rest", "rest-ssz"]


@pytest.fixture(scope="module")
def nodes():
    started = [ReplayNode("--witness", f"{JSON_LENGTH}") for _ in range(2)]
    yield started
    for node in started:
        node.stop()


@pytest.fixture(scope="module")
def node(nodes):
    return nodes[0]


@pytest.fixture(scope="module")
def value(cache_directory):
    """A short payload of the newest fork."""
    found = (it for it in payloads.calls(cache_directory) if it["fork"] == "amsterdam")
    return min(found, key=lambda it: len(it["ssz"]))


@pytest.fixture(scope="module")
def nginx(start_nginx, nodes, value):
    nginx = start_nginx(CONFIG % {"node": nodes[0].address, "mortal": nodes[1].address})
    # threads and encoders have allocated their memory from then on
    abort_clients(nginx, nodes[0], value, "length")
    return nginx


@pytest.fixture(scope="module")
def expected(node, value):
    """The hashes of the node's own responses; the node supports both APIs."""
    body, ssz = bytes.fromhex(value["ssz"]), submission_of(value)
    nested = fetch(node.port, ROUTE, method="POST", headers=ssz, body=body).body
    response = fetch(node.port, "/", method="POST", headers=[("Content-Type", "application/json")], body=call_of(value))
    result = json.loads(response.body)["result"]
    rlp = result["witness"][2:]
    return {"rpc": digest(nested), "rest-ssz": digest(flat(nested)), "rest": digest(without_keys(rlp))}


def digest(body):
    return hashlib.sha256(body).hexdigest()


def without_keys(rlp):
    """The lists of a witness in RLP, in hex, concatenated, without the list of keys."""
    at, lists = head_of(rlp, 0)[0], []
    for _ in range(3):
        begin, length = head_of(rlp, at)
        lists.append(rlp[at : begin + length])
        at = begin + length
    return "".join(lists).encode()


def head_of(rlp, at):
    """The start of a list's content and its length, in digits."""
    kind = int(rlp[at : at + 2], 16)
    if kind < 0xF8:
        return at + 2, 2 * (kind - 0xC0)
    begin = at + 2 + 2 * (kind - 0xF7)
    return begin, 2 * int(rlp[at + 2 : begin], 16)


def send(nginx, value, which, *options, path="", coding=None, receive_buffer=None):
    """A connection with a request for a witness; the options are the node's."""
    port = "port" if which == "rpc" else "port_rest"
    connection = nginx.connect(port=port, receive_buffer=receive_buffer)
    connection.socket.settimeout(120)
    headers, body, target = submission_of(value), bytes.fromhex(value["ssz"]), path + ROUTE
    if which != "rpc":
        headers, body, target = [("Content-Type", "application/json")], call_of(value), path + "/"
    if which == "rest-ssz":
        headers.append(("Accept", OCTETS))
    if coding:
        headers.append(("Accept-Encoding", coding))
    if options:
        headers.append(("X-Replay", "&".join(options)))
    connection.send(request_bytes(target, method="POST", headers=headers, body=body))
    return connection


def whole(connection, which):
    """The hash of the witness that arrives."""
    with connection:
        response = connection.read("POST")
    assert response.status == 200, response.body[:300]
    assert response.framing == "length" and len(response.body) > JSON_LENGTH // 3
    body = response.decoded
    if which != "rest":
        types = {"rpc": "PayloadStatusWithWitness;v=1", "rest-ssz": "NewPayloadWithWitness;v=1"}
        assert response.header("Sszip-Type") == types[which]
        return digest(body)
    result = json.loads(body)["result"]
    assert result["status"] == "VALID" and result["witness"].endswith("c0")
    return digest(without_keys(result["witness"][2:]))


def abort_clients(nginx, node, value, framing):
    """Clients abort while the node sends, during conversion, and while they receive; by
    close or reset."""
    chance = random.Random(framing)
    for number, stage in enumerate(["node", "coder", "client"] * ROUNDS):
        options = [f"framing={framing}"]
        if stage == "node":
            options.append(f"stall={chance.randrange(JSON_LENGTH * 4 // 10)}")
        before = node.stats()["requests"]
        which, coding = ASKS[number // 3 % 3], chance.choice([None, "gzip"])
        connection = send(nginx, value, which, *options, coding=coding, receive_buffer=chance.choice([None, 4096]))
        abort_at_stage(stage, chance, connection, nginx, node, before, JSON_LENGTH)


@pytest.fixture
def worker(nginx, value, expected):
    """The worker after one witness of each kind; its state is compared after the test."""
    assert {which: whole(send(nginx, value, which), which) for which in ASKS} == expected
    wait_until_stable(nginx)
    (worker,) = nginx.workers()
    # no bytes of it stay reserved
    nginx.wait_for(lambda: resident(worker) < (JSON_LENGTH // 3 >> 10) + SLACK, "the memory of what was long")
    before, had = resident(worker), open_descriptors(worker)
    yield worker
    assert_resources_released(nginx, worker, before, had, SLACK)
    assert {which: whole(send(nginx, value, which, coding="gzip"), which) for which in ASKS} == expected
    assert_resources_released(nginx, worker, before, had, SLACK)


@pytest.mark.parametrize("framing", by_tier(["chunked"], ["length", "chunked"]))
def test_worker_recovers_when_clients_of_large_witnesses_abort(nginx, node, value, worker, framing):
    abort_clients(nginx, node, value, framing)


def is_failure(connection, which):
    """Asserts that the response is a 502, and never a part."""
    with connection:
        response = connection.read("POST")
    assert response.status == 502, response.body[:300]
    assert len(response.body) < 1000


@pytest.mark.parametrize("framing", by_tier(["length"], ["length", "chunked"]))
def test_response_is_502_and_payload_sent_once_when_the_node_truncates_a_witness(nginx, node, value, worker, framing):
    """No payload is sent twice, whatever happens."""
    chance = random.Random(framing)
    initial, sent = node.stats(), 0
    for number in range(2 * len(ASKS)):
        cut = chance.choice([1, 100, chance.randrange(JSON_LENGTH * 4 // 10), JSON_LENGTH * 45 // 100])
        options = [f"framing={framing}", f"cut={cut}"] + (["reset=on"] if number % 2 else [])
        is_failure(send(nginx, value, ASKS[number % 3], *options), ASKS[number % 3])
        sent += 1
    assert node.stats()["requests"] == initial["requests"] + sent


def test_response_is_502_when_the_node_dies(nginx, nodes, value, worker):
    """The node dies while it sends a response of each kind."""
    mortal = nodes[1]
    stalls = {which: send(nginx, value, which, f"stall={JSON_LENGTH // 4}", path="/mortal") for which in ASKS}
    nginx.wait_for(lambda: mortal.stats()["in_flight"] == len(ASKS), "all to be on their way")
    # the responses are 502 at whatever moment it dies
    time.sleep(0.5)
    mortal.kill()
    nginx.expect("refused|prematurely closed|reset by peer|the response ended before")
    for which, connection in stalls.items():
        is_failure(connection, which)
        is_failure(send(nginx, value, which, path="/mortal"), which)


def test_large_witnesses_are_complete_when_nginx_reloads(nginx, node, value, expected):
    """The worker of before the reload serves responses that the node still sends and the
    client still reads."""
    chance = random.Random(7)
    for which in ASKS:
        (before,) = nginx.workers()
        stalls = send(nginx, value, which, f"stall={chance.randrange(JSON_LENGTH * 4 // 10)}", "stall_ms=600")
        reads = send(nginx, value, "rpc", receive_buffer=4096)
        head = reads.read_head()
        begun = reads.take(chance.randrange(JSON_LENGTH // 3))
        got = []
        thread = threading.Thread(target=lambda it=stalls, got=got, which=which: got.append(whole(it, which)))
        thread.start()
        nginx.reload()
        rest = reads.take(int(head.header("Content-Length")) - len(begun))
        assert digest(begun + rest) == expected["rpc"]
        reads.close()
        thread.join(120)
        assert got == [expected[which]]
        assert nginx.workers() != [before]
    (worker,) = nginx.workers()
    assert {which: whole(send(nginx, value, which), which) for which in ASKS} == expected
    wait_until_stable(nginx)
    assert resident(worker) < (JSON_LENGTH // 3 >> 10) + SLACK


def test_compressed_witness_equals_the_uncompressed_one(nginx, value):
    """The witness exceeds sszip_max_oneshot, too."""
    size = 24_000_000
    for which in ASKS:
        plain, coded = (
            send(nginx, value, which, f"witness={size}", *options, coding="gzip").read("POST")
            for options in ([], ["gzip=always"])
        )
        assert len(plain.decoded) > size * 4 // 10
        assert (plain.status, plain.decoded) == (coded.status, coded.decoded)


# Faults of the node's response, and the status for the client.
FAULTS = {
    "truncate=0": 502,
    "truncate=8": 502,
    "truncate=50000": 502,
    "corrupt=0": 502,
    "corrupt=3&framing=chunked": 502,
    "length_off=9": 502,
    "lost=on": 502,
    "lost=on&reset=on": 502,
    "cut=0": 502,
    "cut=0&framing=chunked": 502,
    "cut=60000&framing=chunked&piece=1000": 502,
    "header=Content-Encoding:gzip": 502,
    "header=Content-Encoding:br": 502,
    "header=Content-Encoding:zstd&framing=chunked": 502,
    "gzip=always&truncate=9000": 502,
    "gzip=always&truncate=9000&framing=chunked": 502,
    "status=500": 500,
    "status=503&framing=chunked": 503,
    "error=500": 500,
    "error=502": 502,
    "error=503&gzip=always": 503,
    "error=401": 401,
    "error=404": 404,
}


# each fault for one kind of request, or for all kinds
FAULTY = by_tier(list(zip(FAULTS, itertools.cycle(ASKS), strict=False)), list(itertools.product(FAULTS, ASKS)))


@pytest.mark.parametrize("fault, which", FAULTY)
def test_faulty_witness_gets_the_expected_status(nginx, node, value, which, fault):
    """The witness is short. The payload reaches the node once, and the next witness is whole."""
    nginx.expect("invalid header|prematurely closed|reset by peer|more data than|the response ended before")
    before = node.stats()["requests"]
    with send(nginx, value, which, "witness=200k", fault) as connection:
        response = connection.read("POST")
        assert response.status == FAULTS[fault], response.body[:300]
        assert response.header("Sszip-Type") is None
        media_type = response.header("Content-Type")
        assert media_type != OCTETS or response.status != 200
    assert node.stats()["requests"] == before + 1
    with send(nginx, value, which, "witness=200k") as connection:
        assert connection.read("POST").status == 200


@pytest.mark.parametrize(
    "refused, framing, which",
    pairwise([400, 404, 413, 415, 422, 500, 503], ["length", "chunked"], ["rest", "rest-ssz"]),
)
def test_problem_of_the_node_is_sent_as_a_json_rpc_error(nginx, value, which, refused, framing):
    codes = {400: -32600, 404: -32601, 413: -38004, 415: -32603, 422: -32602, 500: -32603, 503: -32603}
    with send(nginx, value, which, f"refuse={refused}", f"framing={framing}", "gzip=always") as connection:
        response = connection.read("POST")
    assert (response.status, response.header("Content-Type")) == (200, "application/json")
    assert json.loads(response.decoded)["error"]["code"] == codes[refused]


def test_response_is_502_when_a_witness_exceeds_a_limit(start_nginx, node, value):
    """The limits are those for SSZ and for memory; with a length and without."""
    limits = {"/short": "sszip_ssz_max_size 1m;", "/small": "sszip_memory 1m;"}
    at = f"http://{node.address}"
    places = "".join(f"location {path}/ {{ {limit} proxy_pass {at}; }}" for path, limit in limits.items())
    config = f"proxy_http_version 1.1; sszip on; sszip_ssz on; client_body_buffer_size 1m; \
        server {{ listen 127.0.0.1:@port@; sszip_ssz_witness rpc; {places} }} \
        server {{ listen 127.0.0.1:@port_rest@; sszip_ssz_witness rest; {places} }}"
    nginx = start_nginx(config)
    for which in ASKS:
        for path in limits:
            for framing in ("length", "chunked"):
                for coding in ("off", "always"):
                    options = ["witness=9M", f"framing={framing}", f"gzip={coding}"]
                    with send(nginx, value, which, *options, path=path) as connection:
                        response = connection.read("POST")
                    assert response.status == 502, (which, path, options)
                    expected = PROBLEM if which == "rpc" else "application/json"
                    assert response.header("Content-Type") == expected
            with send(nginx, value, which, "witness=100k", path=path) as connection:
                assert connection.read("POST").status == 200

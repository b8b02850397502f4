"""Payloads that clients submit for their witness over REST in SSZ, to a node that has the
JSON-RPC method only: values by the specifications' SSZ, errors, and payloads that must not
be sent, or not sent twice."""

import base64
import json
import random
import threading

import pytest

from harness.client import Connection, request_bytes
from harness.nginx import peak, resident
from harness.nginx_state import wait_until_stable
from harness.origin import CLOSE, RESET, answer, byte_chunks, head, scattered
from harness.spec_vectors import values as specified_values
from tiers import pairwise

ROUTE = "/engine/v1/payloads/witness"
OCTETS = ("Content-Type", "application/octet-stream")
AMSTERDAM = ("Eth-Execution-Version", "amsterdam")
PROBLEM = "application/problem+json"
TYPE = "PayloadStatusWithWitness;v=1"

CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
client_body_buffer_size 1m;
sszip on;
sszip_ssz on;
sszip_ssz_witness rpc;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin_unix@; }
    location /status { sszip off; stub_status; }
    location /key/ { proxy_pass http://@origin@/; }
    location /users/ { auth_basic x; auth_basic_user_file @prefix@/users; proxy_pass http://@origin@; }
    location ~ ^/(?:expression)/ { proxy_pass http://@origin@; }
    location /variable/ { set $node @origin@; proxy_pass http://$node; }
    location /own/ { set $node @origin@; proxy_pass http://$node$request_uri; }
    location /old/ { rewrite ^/old(/.*)$ $1 break; proxy_pass http://@origin@; }
    location /old/base/ { rewrite ^/old(/.*)$ $1 break; proxy_pass http://@origin@/below/; }
    location /if/ { if ($http_user_agent = "") { proxy_pass http://@origin@; } }
    location /off/ { sszip_ssz_witness off; proxy_pass http://@origin@; }
    location /no-ssz/ { sszip_ssz off; proxy_pass http://@origin@; }
    location /short/ { sszip_ssz_max_size 4k; proxy_pass http://@origin@; }
    location /small/ { sszip_memory 64k; proxy_pass http://@origin@; }
    location /pass/ { sszip_upstream_encoding pass; proxy_pass http://@origin@; }
    location /tiny/ { client_body_buffer_size 16; proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_exact@;
    location = /engine/v1/payloads/witness { proxy_pass http://@origin@/rpc; }
}
server {
    listen 127.0.0.1:@port_bare@;
    location = /engine/v1/payloads/witness { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_cached@;
    sszip_cache on;
    client_body_buffer_size 1k;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_several@;
    location / { proxy_pass http://several; }
}
upstream several {
    server @origin@ max_fails=0;
    server unix:/nowhere backup;
}
"""

OPTIONS = {"files": {"users": b"a:{PLAIN}b\n"}}


@pytest.fixture(scope="module")
def specified(cache_directory):
    found = specified_values(cache_directory, "payloads.py")
    assert {value["kind"] for value in found} == {"call", "status"}
    return found


@pytest.fixture(scope="module")
def calls(specified):
    found = [value for value in specified if value["kind"] == "call"]
    forks = {value["fork"] for value in found}
    assert forks == {"paris", "shanghai", "cancun", "prague", "osaka", "amsterdam"}
    # some of them have blobs
    assert any(len(value["params"]) > 1 and len(value["params"][1]) > 3 for value in found)
    return found


@pytest.fixture(scope="module")
def statuses(specified):
    return [value for value in specified if value["kind"] == "status"]


@pytest.fixture(scope="module")
def payload(calls):
    """A payload of the newest fork."""
    return bytes.fromhex(next(it["ssz"] for it in calls if it["fork"] == "amsterdam"))


def result(value, **options):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode()
    return answer(body, **options)


def error(code, message="what it is", **options):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}).encode()
    return answer(body, **options)


SYNCING = result({"status": "SYNCING", "latestValidHash": None, "validationError": None})
SYNCING_SSZ = bytes.fromhex("08000000" + "11000000" + "02" + "09000000" * 2)


def submit(nginx, body, fields=(OCTETS, AMSTERDAM), path=ROUTE, coding=None, **options):
    return nginx.get(path, coding, method="POST", body=body, headers=list(fields), **options)


def is_status(response, ssz):
    assert response.status == 200, response.body[:300]
    assert response.header("Content-Type") == "application/octet-stream"
    assert response.header("Sszip-Type") == TYPE
    assert response.decoded == ssz
    assert response.framing == "length"
    assert response.header("ETag") is None


def is_problem(response, status, name, detail=""):
    assert response.status == status, response.body[:300]
    assert response.header("Content-Type") == PROBLEM
    assert response.header("Sszip-Type") is None
    assert response.framing == "length"
    problem = json.loads(response.decoded)
    assert problem["type"] == f"/engine-api/errors/{name}"
    assert detail in problem.get("detail", "")
    return problem


@pytest.mark.parametrize("port", ["port", "port_cached"])
def test_payloads_of_every_fork_are_sent_as_calls(nginx, origin, calls, port):
    origin.answers(SYNCING)
    for value in calls:
        origin.requests.clear()
        fields = [OCTETS, ("Eth-Execution-Version", value["fork"]), ("Authorization", "Bearer a.b.c")]
        response = submit(nginx, bytes.fromhex(value["ssz"]), fields, port=port)
        is_status(response, SYNCING_SSZ)
        (request,) = origin.requests
        call = json.loads(request.body)
        assert call.pop("params") == value["params"], value["fork"]
        method = f"engine_newPayloadWithWitnessV{value['version']}"
        assert call == {"jsonrpc": "2.0", "id": 1, "method": method}
        assert (request.method, request.path) == ("POST", "/")
        assert request.header("Content-Type") == request.header("Accept") == "application/json"
        assert request.header("Content-Length") == str(len(request.body))
        assert request.header("Authorization") == "Bearer a.b.c"
        assert request.header("Accept-Encoding") == "identity"
        assert response.mode == "ssz"
        assert response.header("Cache-Status") is None or "stored" not in response.header("Cache-Status")


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_statuses_are_returned_as_ssz(nginx, origin, statuses, payload, coding):
    for number, value in enumerate(statuses):
        for split in (byte_chunks, scattered(number)):
            origin.answers(result(value["result"], split=split, framing="chunked" if number % 2 else "length"))
            response = submit(nginx, payload, coding=coding)
            ssz = bytes.fromhex(value["ssz"])
            is_status(response, ssz)
            # most of the body is random
            assert response.coding is None or coding == "gzip"


# For each target of the client, the target that the node receives.
TARGETS = {
    "port": {
        ROUTE: "/",
        "/key" + ROUTE: "/",
        "/expression/x" + ROUTE: "/expression/x/",
        "/variable" + ROUTE: "/variable/",
        "/own" + ROUTE: "/own" + ROUTE,
        "/old" + ROUTE: "/",
        "/old/base" + ROUTE: "/base/",
        "/if" + ROUTE: "/if/",
        "/a%20b" + ROUTE: "/a%20b/",
        "/a/../c/." + ROUTE: "/a/../c/./",
    },
    "port_exact": {ROUTE: "/rpc"},
    "port_bare": {ROUTE: "/"},
}


@pytest.mark.parametrize(
    "port, path, expected", [(port, *pair) for port, pairs in TARGETS.items() for pair in pairs.items()]
)
def test_path_of_the_call_follows_proxy_pass(nginx, origin, payload, port, path, expected):
    """The path of JSON-RPC is the prefix of the route, unless proxy_pass sets another one."""
    origin.answers(SYNCING)
    response = submit(nginx, payload, path=path + "?x=%2f", port=port)
    is_status(response, SYNCING_SSZ)
    (request,) = origin.requests
    path, _, query = request.target.partition("?")
    assert path == expected
    assert query.startswith("x=%2f&n=")
    # the log has the client's target
    assert response.logged["status"] == 200


# Of each error of JSON-RPC: the status and the name of the problem.
ERRORS = [
    (-32700, 400, "parse-error"),
    (-32600, 400, "invalid-request"),
    (-38005, 400, "unsupported-fork"),
    (-32601, 404, "method-not-found"),
    (-38004, 413, "request-too-large"),
    (-32602, 422, "invalid-body"),
    (-32603, 500, "internal"),
    (-32000, 500, "internal"),
    (4444, 500, "internal"),
]


@pytest.mark.parametrize(
    "error_case, framing, coding",
    pairwise(ERRORS, ["length", "chunked"], [None, "gzip"]),
    ids=str,
)
def test_json_rpc_error_is_sent_as_a_problem_of_the_route(nginx, origin, payload, error_case, framing, coding):
    code, status, name = error_case
    fields = [("ETag", '"a"'), ("Cache-Control", "max-age=9")]
    origin.answers(error(code, "é " * 30, split=byte_chunks, framing=framing, headers=fields))
    response = submit(nginx, payload, coding=coding)
    is_problem(response, status, name, "é é")
    assert response.header("ETag") is None and response.header("Cache-Control") is None
    assert response.mode == "ssz-nothing"
    assert len(origin.requests) == 1


def test_compressed_error_is_converted(nginx, origin, payload):
    """The node compresses an error without Accept-Encoding: gzip."""
    origin.answers(error(-38005, coding="gzip"))
    response = submit(nginx, payload, path="/pass" + ROUTE, coding="gzip")
    is_problem(response, 400, "unsupported-fork")
    assert origin.requests[0].header("Accept-Encoding") == "identity"


WRONG_ANSWERS = {
    "null": b'{"jsonrpc":"2.0","id":1,"result":null}',
    "nothing": b'{"jsonrpc":"2.0","id":1}',
    "a string": b'{"jsonrpc":"2.0","id":1,"result":"0x"}',
    "no status": b'{"jsonrpc":"2.0","id":1,"result":{"latestValidHash":null}}',
    "another status": b'{"jsonrpc":"2.0","id":1,"result":{"status":"FINE"}}',
    "no RLP": b'{"jsonrpc":"2.0","id":1,"result":{"status":"VALID","witness":"0x01"}}',
    "an error that is none": b'{"jsonrpc":"2.0","id":1,"error":"no"}',
    "no end": b'{"jsonrpc":"2.0","id":1,"result":{"status":"SYNCING"}',
    "no JSON": b"<html>",
    "no byte": b"",
}
DIVISIONS = {"whole": lambda body: [body], "bytewise": byte_chunks}


@pytest.mark.parametrize("case, division, framing", pairwise(list(WRONG_ANSWERS), list(DIVISIONS), ["length", "chunked"]))
def test_invalid_result_is_a_502(nginx, origin, payload, case, division, framing):
    origin.answers(answer(WRONG_ANSWERS[case], split=DIVISIONS[division], framing=framing))
    response = submit(nginx, payload)
    is_problem(response, 502, "internal", "not available as SSZ")
    assert response.mode in ("ssz-nothing", "ssz-invalid")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 415, 429, 500, 503])
def test_response_with_another_status_is_sent_unchanged(nginx, origin, payload, status):
    origin.answers(answer(b"missing token", status=status, type="text/plain"))
    response = submit(nginx, payload)
    assert (response.status, response.body) == (status, b"missing token")
    assert response.header("Content-Type") == "text/plain"
    assert len(origin.requests) == 1


def test_response_that_is_not_json_is_sent_unchanged(nginx, origin, payload):
    origin.answers(answer(b"<html>", type="text/html"))
    response = submit(nginx, payload)
    assert (response.status, response.body) == (200, b"<html>")
    assert response.header("Content-Type") == "text/html"


@pytest.mark.parametrize("port", ["port", "port_cached"])
def test_invalid_payload_is_rejected(nginx, origin, calls, port):
    origin.answers(SYNCING)
    origin.requests.clear()
    for value in calls[::7]:
        ssz = bytes.fromhex(value["ssz"])
        fields = [OCTETS, ("Eth-Execution-Version", value["fork"])]
        for wrong in (ssz[:-1] if ssz[-1:] else b"", b"", ssz[:4], b"\xff" * len(ssz), b"{}", ssz[4:]):
            response = submit(nginx, wrong, fields, port=port)
            if response.status == 200:
                # a shorter last part may be valid, too
                assert wrong == ssz[:-1]
                origin.requests.clear()
                continue
            problem = is_problem(response, 400, "ssz-decode-error", "the body is not a valid ExecutionPayloadEnvelope")
            assert "byte " in problem["detail"]
            assert response.mode == "ssz-invalid"
    assert origin.requests == []
    deep = bytes.fromhex(next(it["ssz"] for it in calls if it["fork"] == "shanghai"))
    # 17 withdrawals
    response = submit(nginx, deep + bytes(44 * 17), [OCTETS, ("Eth-Execution-Version", "shanghai")], port=port)
    problem = is_problem(response, 400, "ssz-decode-error")
    assert "payload.withdrawals, byte " in problem["detail"]


@pytest.mark.parametrize(
    "fields, status, name, mode",
    [
        ([AMSTERDAM], 415, "unsupported-media-type", "ssz-invalid"),
        ([AMSTERDAM, ("Content-Type", "application/json")], 415, "unsupported-media-type", "ssz-invalid"),
        ([AMSTERDAM, OCTETS, ("Content-Encoding", "br")], 415, "unsupported-media-type", "encoded"),
        ([OCTETS], 400, "unsupported-fork", "ssz-fork"),
        ([OCTETS, ("Eth-Execution-Version", "electra")], 400, "unsupported-fork", "ssz-fork"),
        ([OCTETS, ("Eth-Consensus-Version", "gloas")], 400, "unsupported-fork", "ssz-fork"),
        ([OCTETS, AMSTERDAM, ("Sszip-Type", "PayloadStatusWithWitnessAndKeys;v=1")], 422, "invalid-body", "ssz-version"),
    ],
)
def test_invalid_head_is_rejected(nginx, origin, payload, fields, status, name, mode):
    origin.answers(SYNCING)
    origin.requests.clear()
    with nginx.connect() as connection:
        for _ in range(2):
            response = connection.exchange(ROUTE, method="POST", headers=fields, body=payload)
            is_problem(response, status, name)
    assert submit(nginx, payload, fields).mode == mode
    assert origin.requests == []


def test_requested_type_is_returned_when_it_is_supported(nginx, origin, payload):
    origin.answers(SYNCING)
    is_status(submit(nginx, payload, [OCTETS, AMSTERDAM, ("Sszip-Type", TYPE)]), SYNCING_SSZ)


def test_requests_without_the_witness_bridge_are_forwarded_unchanged(nginx, origin, payload):
    origin.answers(answer(b"x", type="text/plain"))
    for path, method, fields in (
        ("/engine/v1/payloads", "POST", [OCTETS, AMSTERDAM]),
        (ROUTE + "/", "POST", [OCTETS, AMSTERDAM]),
        (ROUTE, "PUT", [OCTETS, AMSTERDAM]),
        (ROUTE, "POST", [OCTETS, AMSTERDAM, ("Cache-Control", "no-transform")]),
        ("/off" + ROUTE, "POST", [OCTETS, AMSTERDAM]),
        ("/no-ssz" + ROUTE, "POST", [OCTETS, AMSTERDAM]),
    ):
        origin.requests.clear()
        response = nginx.get(path, None, method=method, body=payload, headers=fields)
        assert response.body == b"x"
        (request,) = origin.requests
        assert (request.body, request.path) == (payload, path)
        assert request.header("Content-Type") == "application/octet-stream"


def test_payload_that_exceeds_a_limit_is_rejected(nginx, origin, payload):
    origin.answers(SYNCING)
    long = payload + b"a" * 5000
    assert len(payload) < 4096
    origin.requests.clear()
    response = submit(nginx, long, path="/short" + ROUTE)
    is_problem(response, 413, "request-too-large", "4096 bytes")
    assert response.mode == "ssz-length"
    response = submit(nginx, payload + bytes(40_000), path="/small" + ROUTE)
    is_problem(response, 503, "internal", "memory is short")
    assert response.mode == "memory"
    assert origin.requests == []
    for path in ("/short", "/small"):
        is_status(submit(nginx, payload, path=path + ROUTE), SYNCING_SSZ)


def test_status_that_exceeds_a_limit_is_a_502(nginx, origin, payload):
    nodes = b"\xfa" + (5000 * 301).to_bytes(3, "big") + (b"\xb9\x01\x2a" + bytes(298)) * 5000
    lists = b"\xc0\xc0" + nodes
    witness = b"\xfa" + len(lists).to_bytes(3, "big") + lists
    value = {"status": "VALID", "latestValidHash": None, "witness": "0x" + witness.hex()}
    for path, mode in (("/short", "ssz-length"), ("/small", "memory")):
        origin.answers(result(value, framing="chunked"))
        response = submit(nginx, payload, path=path + ROUTE)
        is_problem(response, 502, "internal")
        assert response.mode == mode
        assert len(origin.requests) == 1
        origin.requests.clear()


def test_unauthorized_payload_does_not_reach_the_node(nginx, origin, payload):
    origin.answers(SYNCING)
    origin.requests.clear()
    path = "/users" + ROUTE
    assert submit(nginx, payload, path=path).status == 401
    assert origin.requests == []
    basic = ("Authorization", "Basic " + base64.b64encode(b"a:b").decode())
    is_status(submit(nginx, payload, [OCTETS, AMSTERDAM, basic], path=path), SYNCING_SSZ)
    assert [request.header("Authorization") for request in origin.requests] == [basic[1]]


def test_payload_in_chunks_or_in_a_file_is_sent_as_a_call(nginx, origin, calls):
    origin.answers(SYNCING)
    long = max((it for it in calls if it["fork"] == "amsterdam"), key=lambda it: len(it["ssz"]))
    ssz = bytes.fromhex(long["ssz"])
    assert len(ssz) > 400_000
    for path in (ROUTE, "/tiny" + ROUTE):
        for framing in ("length", "chunked"):
            origin.requests.clear()
            fields, body = [OCTETS, AMSTERDAM], ssz
            if framing == "chunked":
                fields.append(("Transfer-Encoding", "chunked"))
                pieces = [ssz[n : n + 7000] for n in range(0, len(ssz), 7000)]
                body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            is_status(submit(nginx, body, fields, path=path), SYNCING_SSZ)
            (request,) = origin.requests
            assert json.loads(request.body)["params"] == long["params"]
            assert request.header("Transfer-Encoding") is None


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
@pytest.mark.parametrize("length", [0, 30, 9000])
def test_payload_is_not_repeated_when_the_node_aborts(nginx, origin, payload, end, length):
    nginx.expect("the response ended before|prematurely closed|reset by peer|no live upstreams")
    body = b'{"jsonrpc":"2.0","id":1,"result":{"status":"VALID","witness":"0x%b"}}' % (b"c0" * 9000)
    begun = head(headers=[("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    origin.requests.clear()
    origin.answers([begun + body[:length], end] if length else [end])
    assert submit(nginx, payload, port="port_several").status == 502
    assert len(origin.requests) == 1


def test_incomplete_payload_does_not_reach_the_node(nginx, origin, payload):
    origin.answers(SYNCING)
    origin.requests.clear()
    whole = request_bytes(ROUTE, method="POST", headers=[OCTETS, AMSTERDAM], body=payload)
    for port in ("port", "port_cached"):
        for sent in (1, 100, len(payload) - 1):
            with Connection(nginx.ports[port]) as connection:
                connection.send(whole[: len(whole) - len(payload) + sent])
    wait_until_stable(nginx)
    is_status(submit(nginx, payload), SYNCING_SSZ)
    assert len(origin.requests) == 1


def valid(node, nodes):
    """A status with a witness of `nodes` equal nodes, as JSON in pieces."""
    item = b"\xb9" + len(node).to_bytes(2, "big") + node
    size = 4 if len(item) * nodes >> 24 else 3
    state = bytes([0xF7 + size]) + (len(item) * nodes).to_bytes(size, "big")
    rest = len(state) + len(item) * nodes
    lead = bytes([0xF7 + size]) + (rest + 2).to_bytes(size, "big") + b"\xc0\xc0" + state
    opening = b'{"jsonrpc":"2.0","id":1,"result":{"status":"VALID","latestValidHash":null,"validationError":null,'
    return opening + b'"witness":"0x' + lead.hex().encode() + item.hex().encode() * nodes + b'"}}'


def nodes_of(ssz):
    """The nodes of a witness, by the offsets of the status, of the witness and of its lists."""

    def number(at):
        return int.from_bytes(ssz[at : at + 4], "little")

    begin = number(4)
    assert number(begin) == 4
    begin += 4
    state, codes, headers = (number(begin + 4 * n) for n in range(3))
    assert (state, headers) == (12, codes) and begin + codes == len(ssz)
    begin += 12
    count = number(begin) // 4
    offsets = [begin + number(begin + 4 * n) for n in range(count)] + [len(ssz)]
    return [ssz[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]


@pytest.mark.bare
@pytest.mark.memory
def test_memory_for_a_long_witness_is_close_to_its_ssz(start_nginx, origin, payload):
    """50 MB of JSON are converted without being buffered."""
    node, nodes = random.Random(3).randbytes(532), 48_000
    body = valid(node, nodes)
    assert len(body) > 50_000_000
    nginx = start_nginx(CONFIG, **OPTIONS)
    origin.answers(SYNCING)
    is_status(submit(nginx, payload), SYNCING_SSZ)
    worker = nginx.workers()[0]
    before = resident(worker)
    origin.answers(answer(body, framing="chunked"))
    response = submit(nginx, payload)
    assert response.header("Sszip-Type") == TYPE
    assert nodes_of(response.body) == [node] * nodes
    assert (peak(worker) - before) << 10 < 1.15 * len(response.body) + (32 << 20)


@pytest.mark.parametrize("reloads", [False, True], ids=["gone", "gone, and a reload"])
def test_witness_is_whole_after_other_clients_aborted(nginx, origin, payload, reloads):
    node = bytes(range(256)) * 2
    origin.answers(answer(valid(node, 20_000), framing="chunked"))
    whole = request_bytes(ROUTE, method="POST", headers=[OCTETS, AMSTERDAM], body=payload)
    for number in range(8):
        with nginx.connect() as connection:
            connection.send(whole)
            if number % 2:
                connection.take(1)
            connection.reset()
        if reloads:
            nginx.reload()
    response = submit(nginx, payload, coding="gzip")
    assert nodes_of(response.decoded) == [node] * 20_000
    assert response.coding == "gzip"


def test_concurrent_payloads_get_their_own_status(nginx, origin, calls):
    """Each client receives the status of its own payload; the node gets each call once."""

    def echo(request):
        call = json.loads(request.body)
        block = call["params"][0]["blockHash"]
        return result({"status": "VALID", "latestValidHash": block, "validationError": None})

    origin.answers(echo)
    origin.requests.clear()
    failures = []

    def send(values):
        for value in values:
            fields = [OCTETS, ("Eth-Execution-Version", value["fork"])]
            response = submit(nginx, bytes.fromhex(value["ssz"]), fields, port="port_cached")
            block = bytes.fromhex(value["params"][0]["blockHash"][2:])
            offsets = b"".join(n.to_bytes(4, "little") for n in (8, 8 + 41))
            expected = offsets + b"\0" + b"".join(n.to_bytes(4, "little") for n in (9, 41)) + block
            if response.body != expected:
                failures.append(response.body[:100])

    threads = [threading.Thread(target=send, args=(calls[n::6],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(origin.requests) == len(calls)

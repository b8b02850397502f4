"""Calls for the witness of a payload, to a node that has the REST route only: values by the
specifications' SSZ, results as JSON and as SSZ, errors, and calls that must not be sent, or
not sent twice."""

import json
import random

import pytest

from harness.nginx import peak, resident
from harness.origin import CLOSE, RESET, answer, byte_chunks, head, scattered
from harness.payloads import flat
from harness.rpc import call
from harness.spec_vectors import values as specified_values
from tiers import pairwise

ROUTE = "/engine/v1/payloads/witness"
OCTETS = "application/octet-stream"
PROBLEM = "application/problem+json"
TYPE = "NewPayloadWithWitness;v=1"

CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
client_body_buffer_size 1m;
sszip on;
sszip_ssz on;
sszip_ssz_witness rest;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin_unix@; }
    location /key/ { proxy_pass http://@origin@/; }
    location = /exact { proxy_pass http://@origin@; }
    location ~ ^/(?:expression) { proxy_pass http://@origin@; }
    location /off/ { sszip_ssz_witness off; proxy_pass http://@origin@; }
    location /short/ { sszip_ssz_max_size 4k; proxy_pass http://@origin@; }
    location /small/ { sszip_memory 64k; proxy_pass http://@origin@; }
    location /tiny/ { client_body_buffer_size 16; proxy_pass http://@origin@; }
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


@pytest.fixture(scope="module")
def specified(cache_directory):
    return specified_values(cache_directory, "payloads.py")


@pytest.fixture(scope="module")
def calls(specified):
    return [value for value in specified if value["kind"] == "call"]


@pytest.fixture(scope="module")
def statuses(specified):
    """Statuses that SSZ represents exactly: a longer text is truncated, a witness has no keys."""
    return [value for value in specified if value["kind"] == "status"]


def payload_call(value, id=1):
    method = f"engine_newPayloadWithWitnessV{value['version']}"
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": value["params"]}).encode()


@pytest.fixture(scope="module")
def payload(calls):
    return payload_call(next(it for it in calls if it["fork"] == "amsterdam"))


def octets(ssz, **options):
    return answer(ssz, type=OCTETS, **options)


def problem(name, status, detail=None, **options):
    body = {"type": f"/engine-api/errors/{name}"} | ({"detail": detail} if detail else {})
    return answer(json.dumps(body).encode(), status=status, type=PROBLEM, **options)


SYNCING = bytes.fromhex("08000000" + "11000000" + "02" + "09000000" * 2)


def post(nginx, body, path="/", accept=None, fields=(), coding=None, port="port"):
    fields = [*fields, ("Accept", accept)] if accept else list(fields)
    return nginx.post(path, body, coding, fields, port=port)


def is_error(response, code, text="", id=1):
    assert response.status == 200, response.body[:300]
    assert response.header("Content-Type") == "application/json"
    assert response.header("Sszip-Type") is None
    reply = json.loads(response.decoded)
    assert (reply["jsonrpc"], reply["id"], reply["error"]["code"]) == ("2.0", id, code)
    assert text in reply["error"]["message"]


@pytest.mark.parametrize("port", ["port", "port_cached"])
def test_calls_of_every_fork_are_sent_to_the_route(nginx, origin, calls, port):
    origin.answers(octets(SYNCING))
    for value in calls:
        origin.requests.clear()
        fields = [("Authorization", "Bearer a.b.c"), ("Eth-Execution-Version", value["fork"])]
        response = post(nginx, payload_call(value, "é"), fields=fields, port=port)
        result = {"status": "SYNCING", "latestValidHash": None, "validationError": None, "witness": None}
        assert json.loads(response.body) == {"jsonrpc": "2.0", "id": "é", "result": result}
        assert response.header("Content-Type") == "application/json"
        assert (response.mode, response.framing) == ("json", "length")
        assert "Accept" in response.header("Vary").split(", ")
        (request,) = origin.requests
        assert request.body == bytes.fromhex(value["ssz"]), value["fork"]
        assert (request.method, request.path) == ("POST", ROUTE)
        assert request.header("Content-Type") == request.header("Accept") == OCTETS
        assert request.header("Eth-Execution-Version") == value["fork"]
        assert request.header("Content-Length") == str(len(request.body))
        assert request.header("Authorization") == "Bearer a.b.c"
        assert "stored" not in (response.header("Cache-Status") or "")


def test_fork_is_detected_when_no_header_names_it(nginx, origin, calls):
    origin.answers(octets(SYNCING))
    for value in calls:
        origin.requests.clear()
        assert post(nginx, payload_call(value)).status == 200
        (request,) = origin.requests
        # payloads of prague are read as osaka's
        fork = "osaka" if value["fork"] == "prague" else value["fork"]
        assert request.header("Eth-Execution-Version") == fork
        assert request.body == bytes.fromhex(value["ssz"])


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_statuses_are_returned_as_ssz_or_json(nginx, origin, statuses, payload, coding):
    seen = set()
    for number, value in enumerate(statuses):
        ssz = bytes.fromhex(value["ssz"])
        for split in (byte_chunks, scattered(number)):
            script = octets(ssz, split=split, framing="chunked" if number % 2 else "length")
            origin.answers(script)
            response = post(nginx, payload, accept=OCTETS, coding=coding)
            assert response.header("Sszip-Type") == TYPE
            assert response.header("Content-Type") == OCTETS
            assert response.decoded == flat(ssz)
            assert response.mode in ("ssz", "oneshot")
            response = post(nginx, payload, accept="application/json" if number % 2 else None, coding=coding)
            assert response.header("Sszip-Type") is None
            assert response.header("Content-Type") == "application/json"
            result = json.loads(response.decoded)["result"]
            expected = {"validationError": None, "latestValidHash": None, "witness": None, **value["result"]}
            if expected["status"] == "INVALID_BLOCK_HASH":
                expected["status"] = "INVALID"
            if len(expected["validationError"] or "") > 1024:
                expected["validationError"] = result["validationError"]
            if expected["witness"]:
                # four lists, the last of them empty
                assert result.pop("witness").endswith("c0") and expected.pop("witness")
            assert result == expected
            seen.add((result["status"], "witness" in result))
    assert seen >= {("VALID", False), ("VALID", True), ("SYNCING", True), ("INVALID", True)}


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/", ROUTE),
        ("/key/", ROUTE),
        ("/a%20b", "/a%20b" + ROUTE),
        ("/a/b/", "/a/b" + ROUTE),
        ("/exact", "/exact" + ROUTE),
        ("/expression", "/expression" + ROUTE),
    ],
)
def test_path_of_the_route_follows_proxy_pass(nginx, origin, payload, path, expected):
    origin.answers(octets(SYNCING))
    response = post(nginx, payload, path=path + "?x=%2f")
    assert json.loads(response.body)["result"]["status"] == "SYNCING"
    (request,) = origin.requests
    path, _, query = request.target.partition("?")
    assert path == expected and query.startswith("x=%2f&n=")
    assert response.logged["status"] == 200


# Of each problem of the route: its status, and the error of JSON-RPC.
PROBLEMS = [
    ("parse-error", 400, -32700),
    ("ssz-decode-error", 400, -32602),
    ("unsupported-fork", 400, -38005),
    ("method-not-found", 404, -32601),
    ("request-too-large", 413, -38004),
    ("unsupported-media-type", 415, -32603),
    ("invalid-body", 422, -32602),
    ("internal", 500, -32603),
    ("service-unavailable", 503, -32603),
]


@pytest.mark.parametrize("case, accept, framing", pairwise(PROBLEMS, [None, OCTETS], ["length", "chunked"]), ids=str)
def test_problem_of_the_route_is_sent_as_a_json_rpc_error(nginx, origin, payload, case, accept, framing):
    name, status, code = case
    for detail in (None, 'é "x"'):
        origin.requests.clear()
        origin.answers(problem(name, status, detail, split=byte_chunks, framing=framing))
        response = post(nginx, payload, accept=accept, coding="gzip")
        is_error(response, code, detail or name)
        assert response.mode == "ssz-nothing"
        assert len(origin.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_node_error_without_a_problem_body_is_sent_unchanged(nginx, origin, payload, status):
    origin.answers(answer(b"missing token", status=status, type="text/plain"))
    for accept in (None, OCTETS):
        response = post(nginx, payload, accept=accept)
        assert (response.status, response.body) == (status, b"missing token")
        assert response.header("Content-Type") == "text/plain"


WRONG = {
    "nothing": b"",
    "a text": b"<html>",
    "zeros": bytes(40),
    "a status that is none": SYNCING[:8] + b"\4" + SYNCING[9:],
    "more": SYNCING + b"\0",
    "less": SYNCING[:-1],
    "flat": bytes.fromhex("02" + "0d000000" * 3),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("accept", [None, OCTETS])
def test_invalid_status_is_a_502(nginx, origin, payload, body, accept):
    origin.answers(octets(body, framing="chunked", split=byte_chunks))
    response = post(nginx, payload, accept=accept)
    assert (response.status, response.mode) == (502, "ssz-invalid")
    assert response.header("Content-Type") == "application/json"
    reply = json.loads(response.body)
    assert (reply["id"], reply["error"]["code"]) == (1, -32603)
    assert len(origin.requests) == 1


def test_invalid_call_is_rejected(nginx, origin, calls):
    origin.answers(octets(SYNCING))
    value = next(it for it in calls if it["fork"] == "amsterdam")
    params = value["params"]
    first = params[0]
    withdrawal = {"index": "0x0", "validatorIndex": "0x0", "address": "0x" + "00" * 20, "amount": "0x00"}
    for wrong, text in [
        ([], "params is empty"),
        (params[:3], "3 params instead of 4"),
        ([*params, []], "5 params instead of 4"),
        ([{**first, "gasUsed": "0x01"}, *params[1:]], "params[0].gasUsed, byte "),
        ([{**first, "gasUsed": 1}, *params[1:]], "params[0].gasUsed, byte "),
        ([{**first, "withdrawals": [withdrawal]}, *params[1:]], "params[0].withdrawals[0].amount, byte "),
        ([{k: v for k, v in first.items() if k != "slotNumber"}, *params[1:]], "params[0]"),
        ([first, ["0x00"], *params[2:]], "params[1]"),
        ([first, params[1], "0x00", params[3]], "params[2]"),
        ([*params[:3], ["0x0"]], "params[3][0]"),
    ]:
        origin.requests.clear()
        response = post(nginx, payload_call({**value, "params": wrong}, "x"), coding="gzip")
        is_error(response, -32602, text, "x")
        assert response.mode == "ssz-invalid"
        assert origin.requests == []


def test_call_with_wrong_blob_hashes_is_invalid(nginx, origin, calls):
    """The route has no field for the hashes, so that the node would not detect the mismatch."""
    origin.answers(octets(SYNCING))
    origin.requests.clear()
    value = next(it for it in calls if it["version"] > 2 and len(it["params"][1]) > 2)
    hashes = value["params"][1]
    for wrong in ([], hashes[1:], hashes[:-1], [*hashes, hashes[0]], hashes[::-1]):
        params = [value["params"][0], wrong, *value["params"][2:]]
        for accept in (None, OCTETS):
            response = post(nginx, payload_call({**value, "params": params}), accept=accept)
            result = json.loads(response.body)["result"]
            assert (result["status"], result["latestValidHash"]) == ("INVALID", None)
            assert "versioned hashes" in result["validationError"]
            assert response.header("Content-Type") == "application/json"
    assert origin.requests == []


def test_calls_without_the_witness_bridge_are_forwarded_unchanged(nginx, origin, payload):
    result = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
    origin.answers(answer(result))
    for path, body in (
        ("/", call("engine_newPayloadV4", "[]")),
        ("/", call("engine_newPayloadWithWitnessV6", "[]")),
        ("/", call("eth_chainId")),
        ("/", b"[" + payload + b"]"),
        ("/", payload.replace(b'"id": 1, ', b"")),
        ("/", payload[:-1]),
        ("/off/", payload),
    ):
        origin.requests.clear()
        response = post(nginx, body, path=path)
        assert response.body == result
        (request,) = origin.requests
        assert (request.body, request.path) == (body, path)
        assert request.header("Content-Type") == "application/json"


def test_call_that_exceeds_a_limit_is_rejected(nginx, origin, payload):
    origin.answers(octets(SYNCING))
    origin.requests.clear()
    long = payload[:-1] + b" " * 70_000 + b"}"
    is_error(post(nginx, long, path="/short/"), -38004, "4096 bytes")
    is_error(post(nginx, long, path="/small/"), -32603, "memory is short")
    assert origin.requests == []


def test_call_in_a_file_is_sent_to_the_route(nginx, origin, calls):
    origin.answers(octets(SYNCING))
    value = max(calls, key=lambda it: len(it["ssz"]))
    fields = [("Eth-Execution-Version", value["fork"])]
    assert post(nginx, payload_call(value), path="/tiny/", fields=fields).status == 200
    assert origin.requests[-1].body == bytes.fromhex(value["ssz"])


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
@pytest.mark.parametrize("length", [0, 30])
def test_call_is_not_repeated_when_the_node_aborts(nginx, origin, payload, end, length):
    nginx.expect("the response ended before|prematurely closed|reset by peer|no live upstreams")
    begun = head(headers=[("Content-Type", OCTETS), ("Content-Length", "9000")])
    origin.requests.clear()
    origin.answers([begun + SYNCING.ljust(length, b"\0")[:length], end] if length else [end])
    for accept in (None, OCTETS):
        origin.requests.clear()
        assert post(nginx, payload, accept=accept, port="port_several").status == 502
        assert len(origin.requests) == 1


@pytest.mark.bare
@pytest.mark.memory
def test_long_witness_is_converted_in_limited_memory(start_nginx, origin, payload):
    """25 MB of SSZ: the body is buffered together with its conversion only."""
    node, nodes = random.Random(3).randbytes(532), 48_000
    offsets = b"".join((4 * nodes + len(node) * n).to_bytes(4, "little") for n in range(nodes))
    state = offsets + node * nodes
    end = (12 + len(state)).to_bytes(4, "little")
    ssz = SYNCING.replace(b"\2", b"\0") + b"\4\0\0\0" + b"\x0c\0\0\0" + end * 2 + state
    nginx = start_nginx(CONFIG)
    origin.answers(octets(SYNCING))
    assert post(nginx, payload).status == 200
    worker = nginx.workers()[0]
    before = resident(worker)
    origin.answers(octets(ssz, framing="chunked"))
    response = post(nginx, payload, accept=OCTETS)
    assert response.header("Sszip-Type") == TYPE
    assert response.body == flat(ssz)
    response = post(nginx, payload)
    witness = json.loads(response.body)["result"]["witness"]
    assert witness.count(node.hex()) == nodes
    assert (peak(worker) - before) << 10 < len(ssz) + 1.5 * len(response.body) + (32 << 20)

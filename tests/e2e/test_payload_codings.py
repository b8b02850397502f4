"""The witness bridge between the Engine API over REST and over JSON-RPC, with compressed
payloads of clients and compressed responses of nodes."""

import gzip
import json
import random

import pytest

from harness import payloads, zstd
from harness.origin import answer, byte_chunks
from harness.payloads import OCTETS, PROBLEM, ROUTE, SYNCING, SYNCING_RESULT, call_of, flat, submission_of
from harness.rpc import call
from tiers import alternate, pairwise

CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
client_body_buffer_size 1m;
sszip on;
sszip_ssz on;
server {
    listen 127.0.0.1:@port@;
    sszip_ssz_witness rpc;
    include @prefix@/places;
}
server {
    listen 127.0.0.1:@port_rest@;
    sszip_ssz_witness rest;
    include @prefix@/places;
}
server {
    listen 127.0.0.1:@port_cached@;
    sszip_ssz_witness rpc;
    sszip_cache on;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_rest_cached@;
    sszip_ssz_witness rest;
    sszip_cache on;
    sszip_cache_max_request 4k;
    location / { proxy_pass http://@origin@; }
}
"""

PLACES = """
location / { proxy_pass http://@origin@; }
location /off/ { sszip_request_decoding off; proxy_pass http://@origin@; }
location /always/ { sszip_request_decoding always; proxy_pass http://@origin@; }
location /short/ { sszip_ssz_max_size 4k; proxy_pass http://@origin@; }
location /small/ { sszip_memory 64k; proxy_pass http://@origin@; }
location /tiny/ { client_body_buffer_size 16; proxy_pass http://@origin@; }
location /little/ { sszip_max_oneshot 8k; proxy_pass http://@origin@; }
"""

CODERS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": zstd.compress}


@pytest.fixture(scope="module")
def nginx(start_nginx, session_origin):
    places = PLACES.replace("@origin@", session_origin.address)
    return start_nginx(CONFIG, files={"places": places.encode()})


@pytest.fixture(scope="module")
def calls(cache_directory):
    return payloads.calls(cache_directory)


@pytest.fixture(scope="module")
def payload(calls):
    """A long payload of the newest fork."""
    return max((it for it in calls if it["fork"] == "amsterdam"), key=lambda it: len(it["ssz"]))


def octets(body, **options):
    return answer(body, type=OCTETS, **options)


def submit(nginx, value, coding, body=None, path="", port="port", accept=None):
    body = CODERS[coding](bytes.fromhex(value["ssz"])) if body is None else body
    fields = [*submission_of(value), ("Content-Encoding", coding)]
    return nginx.get(path + ROUTE, accept, method="POST", headers=fields, body=body, port=port)


def post(nginx, body, coding, path="/", port="port_rest", fields=(), accept=None):
    fields = [("Content-Type", "application/json"), ("Content-Encoding", coding), *fields]
    return nginx.get(path, accept, method="POST", headers=fields, body=body, port=port)


def is_problem(response, status, name):
    assert response.status == status, response.body[:300]
    assert response.header("Content-Type") == PROBLEM
    problem = json.loads(response.decoded)
    assert problem["type"] == f"/engine-api/errors/{name}"
    return problem.get("detail", "")


def is_error(response, code):
    assert response.status == 200, response.body[:300]
    error = json.loads(response.decoded)["error"]
    assert error["code"] == code
    return error["message"]


@pytest.mark.parametrize("coding, port", alternate(list(CODERS), ["port", "port_cached"]))
def test_compressed_payload_is_decoded_and_sent_as_a_call(nginx, origin, calls, coding, port):
    origin.answers(answer(SYNCING_RESULT))
    for value in calls:
        origin.requests.clear()
        response = submit(nginx, value, coding, port=port)
        assert (response.status, response.body) == (200, SYNCING)
        (request,) = origin.requests
        assert json.loads(request.body)["params"] == value["params"], value["fork"]
        assert request.header("Content-Encoding") is None
        assert request.header("Content-Length") == str(len(request.body))


@pytest.mark.parametrize("coding, port", alternate(list(CODERS), ["port_rest", "port_rest_cached"]))
def test_compressed_call_is_decoded_and_sent_as_a_payload(nginx, origin, calls, coding, port):
    origin.answers(octets(SYNCING))
    long = 0
    for value in calls:
        origin.requests.clear()
        whole = call_of(value, "x")
        response = post(nginx, CODERS[coding](whole), coding, port=port, fields=submission_of(value)[1:])
        assert json.loads(response.body)["id"] == "x"
        assert json.loads(response.body)["result"]["status"] == "SYNCING"
        (request,) = origin.requests
        assert request.path == ROUTE
        assert request.body == bytes.fromhex(value["ssz"]), value["fork"]
        assert request.header("Content-Encoding") is None
        assert "stored" not in (response.header("Cache-Status") or "")
        long += len(whole) > 4096
    # some are longer than a lookup reads, some shorter
    assert 0 < long < len(calls)


@pytest.mark.parametrize("path", ["", "/off", "/always"])
@pytest.mark.parametrize("coding", ["br", "gzip, zstd", "gzip"])
def test_undecodable_payload_is_rejected_with_415(nginx, origin, payload, path, coding):
    origin.answers(answer(SYNCING_RESULT))
    origin.requests.clear()
    response = submit(nginx, payload, coding, body=gzip.compress(bytes.fromhex(payload["ssz"])), path=path)
    if coding == "gzip" and path != "/off":
        assert (response.status, response.body) == (200, SYNCING)
    else:
        is_problem(response, 415, "unsupported-media-type")
        assert response.mode == "encoded"
        assert origin.requests == []


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_damaged_payload_is_rejected(nginx, origin, calls, coding):
    origin.answers(answer(SYNCING_RESULT))
    origin.requests.clear()
    # a short payload: there may be no memory for the length that the end of a long one claims
    payload = min((it for it in calls if it["fork"] == "amsterdam"), key=lambda it: len(it["ssz"]))
    sound = CODERS[coding](bytes.fromhex(payload["ssz"]))
    for wrong in (b"", sound[:-1], sound[: len(sound) // 2], sound + b"x", b"x" + sound, CODERS[coding](b"{}")):
        detail = is_problem(submit(nginx, payload, coding, body=wrong), 400, "ssz-decode-error")
        assert "content coding is not supported" in detail or "is not a valid ExecutionPayloadEnvelopeAmsterdam" in detail
    assert origin.requests == []


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_payload_that_exceeds_a_limit_is_rejected(nginx, origin, payload, coding):
    origin.answers(answer(SYNCING_RESULT))
    origin.requests.clear()
    # 40 MB in a few KB
    bomb = CODERS[coding](bytes(40 << 20))
    assert "4096 bytes" in is_problem(submit(nginx, payload, coding, path="/short"), 413, "request-too-large")
    is_problem(submit(nginx, payload, coding, body=bomb, path="/short"), 413, "request-too-large")
    assert "memory is short" in is_problem(submit(nginx, payload, coding, path="/small"), 503, "internal")
    is_problem(submit(nginx, payload, coding, body=bomb, path="/small"), 503, "internal")
    whole = CODERS[coding](call_of(payload))
    assert "4096 bytes" in is_error(post(nginx, whole, coding, path="/short/"), -38004)
    assert origin.requests == []


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_undecodable_call_is_forwarded_unchanged(nginx, origin, payload, coding):
    """A damaged or very long body is not known to be a call that the node lacks."""
    error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'
    origin.answers(answer(error, status=400))
    sound = CODERS[coding](call_of(payload))
    bomb = CODERS[coding](b" " * (70 << 20))
    for path, body in [
        ("/", sound[:-1]),
        ("/", sound + b"x"),
        ("/", bomb),
        ("/small/", sound),
        ("/off/", sound),
        ("/", CODERS[coding](b"[" + call_of(payload) + b"]")),
        ("/", CODERS[coding](call_of(payload)[:-1])),
    ]:
        origin.requests.clear()
        response = post(nginx, body, coding, path=path)
        assert (response.status, response.body) == (400, error)
        (request,) = origin.requests
        assert (request.path, request.body) == (path, body)
        assert request.header("Content-Encoding") == coding


def test_compressed_call_of_another_method_is_handled_as_without_the_witness_bridge(nginx, origin):
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'))
    whole = call("eth_chainId")
    body = gzip.compress(whole)
    for path, forwarded in [("/", body), ("/off/", body), ("/always/", whole)]:
        origin.requests.clear()
        assert post(nginx, body, "gzip", path=path).body == b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
        (request,) = origin.requests
        assert request.body == forwarded
    # the result of another call is transcoded
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0xabcd"}'))
    coded = gzip.compress(call("eth_getCode", '["0x00", "latest"]'))
    response = post(nginx, coded, "gzip", fields=[("Accept", OCTETS)])
    assert (response.body, response.header("Sszip-Type")) == (b"\xab\xcd", "ByteString;v=1")
    # calls are stored with their compressed bodies
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'))
    fields = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    statuses = []
    for _ in range(2):
        with nginx.connect(port="port_rest_cached") as connection:
            statuses.append(connection.exchange("/a", method="POST", headers=fields, body=body).header("Cache-Status"))
    assert statuses[0] == "sszip; fwd=miss" and statuses[1].startswith("sszip; hit")
    # longer than a lookup reads
    long = call("eth_chainId")[:-1] + b" " * 9000 + b"}"
    coded = gzip.compress(long)
    response = post(nginx, coded, "gzip", port="port_rest_cached")
    assert response.header("Cache-Status") == "sszip; fwd=bypass; detail=request-length"
    assert origin.requests[-1].body == coded


def test_compressed_body_in_a_file_or_in_chunks_is_decoded(nginx, origin, payload):
    origin.answers(answer(SYNCING_RESULT))
    coded = gzip.compress(bytes.fromhex(payload["ssz"]))
    assert submit(nginx, payload, "gzip", path="/tiny").body == SYNCING
    fields = [*submission_of(payload), ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")]
    body = b"".join(b"%x\r\n%b\r\n" % (len(coded[at : at + 97]), coded[at : at + 97]) for at in range(0, len(coded), 97))
    response = nginx.get(ROUTE, None, method="POST", headers=fields, body=body + b"0\r\n\r\n")
    assert (response.status, response.body) == (200, SYNCING)
    assert json.loads(origin.requests[-1].body)["params"] == payload["params"]
    origin.answers(octets(SYNCING))
    assert post(nginx, gzip.compress(call_of(payload)), "gzip", path="/tiny/").status == 200
    assert origin.requests[-1].body == bytes.fromhex(payload["ssz"])


def witness(nodes):
    """A status with a witness, for REST and for JSON-RPC."""
    node = random.Random(8).randbytes(300)
    state = b"".join((4 * nodes + 300 * n).to_bytes(4, "little") for n in range(nodes)) + node * nodes
    end = (12 + len(state)).to_bytes(4, "little")
    ssz = SYNCING.replace(b"\2", b"\0") + b"\4\0\0\0" + b"\x0c\0\0\0" + end * 2 + state
    items = (b"\xb9\x01\x2c" + node) * nodes
    lists = b"\xc0\xc0" + b"\xfa" + len(items).to_bytes(3, "big") + items
    rlp = b"\xfa" + len(lists).to_bytes(3, "big") + lists
    status = {"status": "VALID", "latestValidHash": None, "validationError": None, "witness": "0x" + rlp.hex()}
    return ssz, json.dumps({"jsonrpc": "2.0", "id": 1, "result": status}).encode()


@pytest.mark.parametrize(
    "coding, framing, accept, path",
    pairwise(["gzip", "zstd"], ["length", "chunked"], [None, "gzip"], ["", "/little"]),
)
def test_compressed_witness_is_decoded_and_converted(nginx, origin, payload, coding, framing, accept, path):
    """The body is decoded at any length, since its compressed form is of no use."""
    ssz, result = witness(300)
    options = {"coding": coding, "framing": framing}
    origin.answers(answer(result, **options))
    response = submit(nginx, payload, "gzip", path=path, accept=accept)
    assert (response.status, response.decoded) == (200, ssz)
    assert response.coding == accept
    origin.answers(octets(ssz, **options))
    body = gzip.compress(call_of(payload))
    response = post(nginx, body, "gzip", path=path + "/", accept=accept, fields=[("Accept", OCTETS)])
    assert response.decoded == flat(ssz)
    response = post(nginx, body, "gzip", path=path + "/", accept=accept)
    converted = json.loads(response.decoded)["result"]["witness"]
    expected = json.loads(result)["result"]["witness"]
    # a fourth list, without keys
    assert converted.endswith("c0") and converted[12:-2].endswith(expected[12:])


@pytest.mark.parametrize("split", [lambda body: [body], byte_chunks], ids=["whole", "bytewise"])
@pytest.mark.parametrize("accept", [None, "gzip"])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_compressed_error_is_decoded_and_converted(nginx, origin, payload, split, accept, coding):
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -38005, "message": "not that fork"}}
    origin.answers(answer(json.dumps(error).encode(), coding=coding, split=split))
    assert is_problem(submit(nginx, payload, "gzip", accept=accept), 400, "unsupported-fork") == "not that fork"
    problem = {"type": "/engine-api/errors/unsupported-fork", "detail": "not that fork"}
    origin.answers(answer(json.dumps(problem).encode(), status=400, type=PROBLEM, coding=coding, split=split))
    response = post(nginx, gzip.compress(call_of(payload)), "gzip", accept=accept)
    assert is_error(response, -38005) == "not that fork"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_damaged_compressed_response_is_a_502(nginx, origin, payload, coding):
    ssz, result = witness(300)
    coded = [("Content-Encoding", coding)]
    compress = CODERS[coding]
    for body in (result, compress(result)[:-1], compress(result) + b"x", b""):
        origin.answers(answer(body, headers=coded))
        is_problem(submit(nginx, payload, "gzip"), 502, "internal")
        origin.answers(octets(body.replace(result, ssz), headers=coded))
        response = post(nginx, gzip.compress(call_of(payload)), "gzip")
        assert (response.status, json.loads(response.body)["error"]["code"]) == (502, -32603)

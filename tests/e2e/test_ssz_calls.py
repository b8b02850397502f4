"""Results of JSON-RPC calls as SSZ, from a node that has JSON only: values by the
specifications' SSZ, in each form of real nodes, and responses that stay JSON."""

import itertools
import json
import pathlib
import random
import threading

import pytest

from harness.client import fetch
from harness.nginx import SANITIZED, peak, resident
from harness.origin import CLOSE, RESET, answer, byte_chunks, head, scattered
from harness.rpc import call
from harness.spec_vectors import values as specified_values
from tiers import alternate, pairwise

CORPUS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "corpus" / "witness"

JSON = ("Content-Type", "application/json")
OCTETS = ("Accept", "application/octet-stream")
EITHER = ("Accept", "application/octet-stream;q=1.0,application/json;q=0.9")
# Bytes in addition to a response's; AddressSanitizer keeps freed memory.
SLACK = (64 if SANITIZED else 32) << 20

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
client_body_buffer_size 1m;
client_max_body_size 8m;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin_unix@; }
    location /small/ { sszip_ssz_hold 1k; sszip_memory 16m; proxy_pass http://@origin_unix@; }
    location /tiny/ { client_body_buffer_size 16; proxy_pass http://@origin_unix@; }
    location /engine/ { auth_basic x; auth_basic_user_file @prefix@/users; proxy_pass http://@origin_unix@; }
    location /off/ { sszip_ssz off; proxy_pass http://@origin_unix@; }
    location = /here { return 200 here; }
}
server {
    listen 127.0.0.1:@port_cached@;
    sszip_cache on;
    sszip_cache_namespace $arg_run;
    location / { proxy_pass http://@origin@; }
}
"""

OPTIONS = {"files": {"users": b"a:{PLAIN}b\n"}}

METHODS = {
    "ByteString": [
        "debug_getRawBlock",
        "debug_getRawBlockAccessList",
        "debug_getRawHeader",
        "debug_getRawTransaction",
        "eth_call",
        "eth_getCode",
        "eth_getRawTransactionByBlockHashAndIndex",
        "eth_getRawTransactionByBlockNumberAndIndex",
        "eth_getRawTransactionByHash",
    ],
    "ByteStrings": ["debug_getRawReceipts", "debug_getRawTransactions"],
    "ExecutionWitness": ["debug_executionWitness", "debug_executionWitnessByBlockHash"],
    "NewPayloadWithWitness": [f"engine_newPayloadWithWitnessV{number}" for number in range(1, 6)],
    "ForkchoiceUpdatedWithWitness": [
        f"engine_forkchoiceUpdatedWithWitnessV{number}" for number in range(1, 5)
    ],
}

CODE = call("eth_getCode", '["0x%s","latest"]' % ("11" * 20))
_runs = itertools.count(1)


@pytest.fixture(scope="module")
def specified(cache_directory):
    """Results of each type that has a method, by the specifications' SSZ."""
    found = specified_values(cache_directory, "results.py", *METHODS)
    assert {value["type"] for value in found} == set(METHODS)
    return found


def result(text, **options):
    return answer(b'{"jsonrpc":"2.0","id":1,"result":%b}' % text, **options)


def post(nginx, body, accept=OCTETS, path="/", coding=None, port="port", headers=()):
    fields = [*headers, accept] if accept else headers
    return nginx.post(path, body, coding, fields, port=port)


def is_ssz(response, octets, type_):
    assert response.status == 200, response.body[:200]
    assert response.decoded == octets
    assert response.header("Content-Type") == "application/octet-stream"
    assert response.header("Sszip-Type") == f"{type_};v=1"
    assert "Accept" in response.header("Vary").split(", ")
    assert response.framing == "length"


def is_json(response, body, status=200):
    assert (response.status, response.decoded) == (status, body)
    assert response.header("Content-Type") == "application/json"
    assert response.header("Sszip-Type") is None
    assert "Accept" in response.header("Vary").split(", ")


@pytest.mark.parametrize("coding, framing", alternate([None, "gzip"], ["length", "chunked"]))
def test_results_of_every_type_are_transcoded(nginx, origin, specified, framing, coding):
    for number, value in enumerate(specified):
        text = json.dumps(
            value["result"], separators=(", ", " : ") if number % 2 else (",", ":")
        ).encode()
        # the shortest are not compressed
        taken = "gzip" if number % 2 else None
        origin.answers(result(text, framing=framing, coding=coding, split=scattered(number)))
        methods = METHODS[value["type"]]
        body = call(methods[number % len(methods)], '["latest"]')
        response = post(nginx, body, accept=EITHER if number % 3 else OCTETS, coding=taken)
        is_ssz(response, bytes.fromhex(value["ssz"]), value["type"])
        assert response.mode == "ssz"
        assert origin.requests[-1].body == body
        assert origin.requests[-1].header("Accept") == "application/json"


def test_results_of_every_method_are_transcoded(nginx, origin, specified):
    for type_, methods in METHODS.items():
        value = max((it for it in specified if it["type"] == type_), key=lambda it: len(it["ssz"]))
        origin.answers(result(json.dumps(value["result"]).encode(), split=byte_chunks))
        for method in methods:
            is_ssz(post(nginx, call(method, '["latest"]')), bytes.fromhex(value["ssz"]), type_)


recorded = pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus beside the clone")


def octets_of(text):
    return bytes.fromhex(text[2:])


def decoded(ssz):
    """The three lists of a witness, by their offsets."""

    def parts(octets, count):
        offsets = [int.from_bytes(octets[4 * n : 4 * n + 4], "little") for n in range(count)]
        return [octets[a:b] for a, b in itertools.pairwise([*offsets, len(octets)])]

    lists = parts(ssz, 3)
    return [parts(one, int.from_bytes(one[:4], "little") // 4) for one in lists]


@recorded
def test_recorded_witnesses_are_transcoded(nginx, origin):
    """Witnesses of geth, whose headers are objects, and of reth in both forms."""
    forms = set()
    for path in sorted(CORPUS.glob("test_*.json")):
        for number, pair in enumerate(json.loads(path.read_bytes())):
            body = json.dumps(pair["response"]).encode()
            origin.answers(answer(body, split=scattered(number)))
            response = post(nginx, json.dumps(pair["request"]).encode())
            found = pair["response"].get("result")
            if found is None:
                is_json(response, body)
                continue
            assert response.header("Sszip-Type") == "ExecutionWitness;v=1", path
            state, codes, headers = decoded(response.body)
            assert state == [octets_of(node) for node in found["state"]], path
            assert codes == [octets_of(code) for code in found["codes"]], path
            assert len(headers) == len(found["headers"]), path
            for header, one in zip(headers, found["headers"], strict=True):
                if isinstance(one, str):
                    assert header == octets_of(one), path
                else:
                    # the walker has compared the hashes
                    assert (
                        octets_of(one["stateRoot"]) in header
                        and octets_of(one["extraData"]) in header
                    ), path
                forms.add((type(one), found["keys"] is None))
    assert forms == {(dict, True), (str, False)}


@recorded
def test_recorded_witness_of_a_prover_is_transcoded(nginx, origin):
    found = json.loads((CORPUS / "cache_hoodi_1265656.json").read_bytes())["witness"]
    origin.answers(result(json.dumps(found).encode(), framing="chunked"))
    response = post(nginx, call("debug_executionWitness", '["0x134ff8"]'), coding="gzip")
    assert response.header("Sszip-Type") == "ExecutionWitness;v=1" and response.coding == "gzip"
    expected = [[octets_of(it) for it in found[name]] for name in ("state", "codes", "headers")]
    assert decoded(response.decoded) == expected
    assert len(expected[0]) > 1000


@pytest.mark.bare
@pytest.mark.memory
@pytest.mark.parametrize("coding, framing", alternate([None, "gzip"], ["length", "chunked"]))
def test_memory_for_a_long_witness_is_close_to_its_ssz(start_nginx, origin, framing, coding):
    """50 MB of JSON are transcoded with at most sszip_ssz_hold of them buffered, and with the
    part of the SSZ that is not compressed yet; the longest list arrives last."""
    random_bytes = random.Random(3).randbytes
    # nodes that compress to about half
    nodes = [2 * random_bytes(266) for _ in range(48_000)]
    text = '","0x'.join(node.hex() for node in nodes).encode()
    begin = (
        b'{"jsonrpc":"2.0","id":1,"result":{"headers":["0xc0"],"codes":[],"keys":[],"state":["0x'
    )
    body = begin + text + b'"]}}'
    assert len(body) > 50_000_000
    nginx = start_nginx(CONFIG, files=OPTIONS["files"])
    origin.answers(result(b'"0x60"'))
    is_ssz(post(nginx, CODE), b"\x60", "ByteString")
    worker = nginx.workers()[0]
    before = resident(worker)
    origin.answers(answer(body, framing=framing))
    response = post(nginx, call("debug_executionWitness", '["latest"]'), coding=coding)
    assert response.header("Sszip-Type") == "ExecutionWitness;v=1"
    assert response.header("Content-Encoding") == coding
    assert int(response.header("Content-Length")) == len(response.body)
    assert coding is None or len(response.body) < 0.7 * len(response.decoded)
    ssz = response.decoded
    state, codes, headers = decoded(ssz)
    assert state == nodes
    assert (codes, headers) == ([], [b"\xc0"])
    assert (peak(worker) - before) << 10 < 1.15 * len(ssz) + SLACK


def test_payload_is_sent_once_whatever_the_response(nginx, origin):
    """The body has megabytes, which nginx writes to a file; the request is not repeated."""
    body = call("engine_newPayloadWithWitnessV4", '[{"transactions":["0x%s"]}]' % ("ab" * 400_000))
    basic = ("Authorization", "Basic YTpi")
    nginx.expect("prematurely closed|reset by peer")
    valid = b'{"status":"VALID","latestValidHash":null,"validationError":null}'
    for script, status in (
        (result(valid), 200),
        (result(valid, status=500), 500),
        (
            answer(
                b'{"jsonrpc":"2.0","id":1,"error":{"code":-38005,"message":"Unsupported fork"}}'
            ),
            200,
        ),
        ([CLOSE], 502),
    ):
        origin.requests.clear()
        origin.answers(script)
        response = post(nginx, body, path="/tiny/", headers=[basic])
        assert response.status == status
        assert (response.header("Sszip-Type") is None) == (script != result(valid))
        assert [request.body for request in origin.requests] == [body]
        assert origin.requests[0].header("Authorization") == basic[1]


# Responses without a valid result of the type, and the value of $sszip_mode.
ANSWERS = {
    "an error": (
        "ssz-nothing",
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"header not found"}}',
    ),
    "null": ("ssz-nothing", b'{"jsonrpc":"2.0","id":1,"result": null }'),
    "nothing": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1}'),
    "both": ("ssz-nothing", b'{"jsonrpc":"2.0","id":1,"result":"0x","error":{"code":1}}'),
    "a batch's": ("ssz-invalid", b'[{"jsonrpc":"2.0","id":1,"result":"0x"}]'),
    "odd digits": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1,"result":"0x0"}'),
    "no digits": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1,"result":"0xgg"}'),
    "no prefix": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1,"result":"00"}'),
    "an object": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1,"result":{"code":"0x"}}'),
    "no end": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1,"result":"0x00"'),
    "more after the end": ("ssz-invalid", b'{"jsonrpc":"2.0","id":1,"result":"0x00"}{}'),
    "no JSON": ("ssz-invalid", b"<html>"),
    "no byte": ("ssz-invalid", b""),
}
DIVISIONS = {"whole": lambda body: [body], "bytewise": byte_chunks}


@pytest.mark.parametrize(
    "case, division, framing, coding",
    pairwise(list(ANSWERS), list(DIVISIONS), ["length", "chunked"], [None, "gzip"]),
)
def test_response_without_a_valid_result_is_sent_as_json(nginx, origin, case, division, framing, coding):
    """The status is no 406: a response to a POST reports what was done."""
    mode, body = ANSWERS[case]
    split = DIVISIONS[division]
    origin.answers(
        answer(body, split=split, framing=framing, coding=coding, headers=[("ETag", '"a"')])
    )
    for accept in (OCTETS, EITHER):
        response = post(nginx, CODE, accept=accept)
        is_json(response, body)
        assert response.coding is None
        assert response.mode == mode


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_error_status_and_body_are_sent_unchanged(nginx, origin, status):
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"%b"}}' % (b"no " * 600)
    origin.answers(answer(body, status=status))
    response = post(nginx, CODE, coding="gzip")
    is_json(response, body, status)
    assert response.coding == "gzip"


@pytest.mark.parametrize(
    "body",
    [
        b"[" + CODE + b"]",
        b"[" + CODE + b"," + CODE + b"]",
        call("eth_chainId"),
        CODE.replace(b'"id"', b'"Id"'),
        CODE.replace(b"eth_getCode", b"eth_get\\u0043ode"),
        CODE.replace(b'"2.0"', b'"1.0"'),
        CODE.replace(b'"id":1,', b""),
        CODE[:-1],
        b"null",
    ],
)
def test_request_without_a_single_supported_call_is_not_transcoded(nginx, origin, body):
    origin.answers(result(b'"0x6001"'))
    response = post(nginx, body)
    is_json(response, b'{"jsonrpc":"2.0","id":1,"result":"0x6001"}')
    assert origin.requests[-1].body == body
    assert origin.requests[-1].header("Accept") == OCTETS[1]


@pytest.mark.parametrize(
    "accept", [None, ("Accept", "*/*"), ("Accept", "application/json"), ("Accept", "text/html")]
)
def test_client_without_accept_of_ssz_gets_json(nginx, origin, accept):
    origin.answers(result(b'"0x6001"'))
    is_json(post(nginx, CODE, accept=accept), b'{"jsonrpc":"2.0","id":1,"result":"0x6001"}')
    assert origin.requests[-1].header("Accept") == (accept[1] if accept else None)


def test_request_of_another_method_or_type_is_not_transcoded(nginx, origin):
    origin.answers(lambda request: result(b'"0x6001"', method=request.method))
    for method, headers in (
        ("GET", [JSON]),
        ("HEAD", [JSON]),
        ("PUT", [JSON]),
        ("POST", [("Content-Type", "text/plain")]),
    ):
        body = None if method in ("GET", "HEAD") else CODE
        response = fetch(nginx.port, "/", method=method, body=body, headers=[OCTETS, *headers])
        assert response.header("Content-Type") == "application/json"
        assert response.header("Sszip-Type") is None
    # and for a response of nginx itself
    assert (
        fetch(nginx.port, "/here", method="POST", body=CODE, headers=[OCTETS, JSON]).body == b"here"
    )


def test_result_is_sent_as_json_when_transcoding_is_off(nginx, origin):
    origin.answers(result(b'"0x6001"'))
    response = post(nginx, CODE, path="/off/")
    assert response.header("Content-Type") == "application/json"
    assert "Accept" not in (response.header("Vary") or "").split(", ")


def test_result_of_a_request_in_a_file_is_transcoded(nginx, origin):
    origin.answers(result(b'"0x6001"'))
    for size in (20_000, 900_000):
        body = CODE[:-1] + b" " * size + b"}"
        is_ssz(post(nginx, body, path="/tiny/"), b"\x60\x01", "ByteString")
        assert origin.requests[-1].body == body


def test_result_of_a_chunked_request_is_transcoded(nginx, origin):
    origin.answers(result(b'"0x6001"'))
    with nginx.connect() as connection:
        fields = f"{': '.join(JSON)}\r\n{': '.join(OCTETS)}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(f"POST / HTTP/1.1\r\nHost: x\r\n{fields}".encode())
        for byte in CODE:
            connection.send(b"1\r\n%c\r\n" % byte)
        connection.send(b"0\r\n\r\n")
        is_ssz(connection.read(), b"\x60\x01", "ByteString")
    assert origin.requests[-1].body == CODE


def test_unauthorized_request_does_not_reach_the_node(nginx, origin):
    origin.answers(result(b'"0x6001"'))
    assert post(nginx, CODE, path="/engine/").status == 401
    assert not origin.requests
    basic = ("Authorization", "Basic YTpi")
    is_ssz(post(nginx, CODE, path="/engine/", headers=[basic]), b"\x60\x01", "ByteString")
    # the credentials are forwarded
    assert origin.requests[-1].header("Authorization") == basic[1]
    assert len(origin.requests) == 1


def test_untranscodable_result_longer_than_the_buffer_is_a_502(nginx, origin):
    text = b'"0x' + b"60" * 40_000
    for accept in (OCTETS, EITHER):
        origin.answers(result(text + b'"', split=byte_chunks))
        is_ssz(post(nginx, CODE, accept=accept, path="/small/"), b"\x60" * 40_000, "ByteString")
        for framing, id in (("length", b"1"), ("chunked", b'"a\\u00e9 b"')):
            origin.answers(result(text + b'0"', split=byte_chunks, framing=framing))
            body = CODE.replace(b'"id":1', b'"id":' + id)
            response = post(nginx, body, accept=accept, path="/small/", coding="gzip")
            assert (response.status, response.mode) == (502, "ssz-invalid")
            assert response.header("Content-Type") == "application/json"
            assert response.header("Sszip-Type") is None
            reply = json.loads(response.body)
            assert reply["id"] == json.loads(id) and reply["error"]["code"] == -32603
            assert reply["error"]["message"].startswith(
                "the result is not available as SSZ: result, byte 80"
            )


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
@pytest.mark.parametrize("accept", [EITHER, OCTETS], ids=["either", "ssz only"])
def test_truncated_result_is_a_502(nginx, origin, end, accept):
    nginx.expect("the response ended before|prematurely closed|reset by peer")
    body = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % (b"60" * 9000)
    origin.answers([head(headers=[JSON, ("Content-Length", str(len(body)))]) + body[:9000], end])
    assert post(nginx, CODE, accept=accept).status == 502


def test_worker_stays_healthy_when_clients_abort(nginx, origin):
    size = 2_000_000
    origin.answers(result(b'"0x' + b"60" * size + b'"', framing="chunked"))
    worker = nginx.workers()[0]
    request_head = f"POST / HTTP/1.1\r\nHost: x\r\n{': '.join(JSON)}\r\n{': '.join(OCTETS)}\r\nContent-Length: {len(CODE)}\r\n\r\n"
    for number in range(30):
        with nginx.connect() as connection:
            connection.send(request_head.encode() + (CODE if number % 3 else CODE[:20]))
            if number % 3 == 1:
                connection.take(1)
            connection.reset()
    is_ssz(post(nginx, CODE), b"\x60" * size, "ByteString")
    assert resident(worker) < 400 << 10


def test_formats_are_not_mixed_when_the_cache_has_json(nginx, origin):
    """The cache has JSON only, whichever client is first, and under concurrent load."""
    run = next(_runs)
    code = call("eth_getCode", '["0x%s","0x1"]' % ("22" * 20))
    octets = b"\x60" * 3000
    text = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % octets.hex().encode()
    origin.answers(answer(text))
    failures = []

    def send(number):
        for turn in range(12):
            accept = (OCTETS, EITHER, None, ("Accept", "application/json"))[(number + turn) % 4]
            fields = [JSON] + ([accept] if accept else [])
            fields += [("Accept-Encoding", "gzip")] if turn % 2 else []
            response = fetch(
                nginx.ports["port_cached"], f"/?run={run}", method="POST", body=code, headers=fields
            )
            wants = accept in (OCTETS, EITHER)
            try:
                (is_ssz(response, octets, "ByteString") if wants else is_json(response, text))
            except AssertionError as failure:
                failures.append(failure)

    clients = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert not failures, failures[:3]
    fetch(nginx.ports["port_cached"], f"/?run={run}", method="POST", body=code, headers=[JSON])
    before = len(origin.requests)
    for accept in (("Accept", "application/json"), OCTETS):
        hit = fetch(
            nginx.ports["port_cached"],
            f"/?run={run}",
            method="POST",
            body=code,
            headers=[JSON, accept],
        )
        (is_ssz(hit, octets, "ByteString") if accept is OCTETS else is_json(hit, text))
        assert hit.header("Cache-Status").startswith("sszip; hit") and len(origin.requests) == before

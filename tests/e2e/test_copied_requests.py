"""Request bodies in several buffers or in a file, which are copied: each allocation on
the way fails in turn, or there is no memory for the copy. The node receives the client's
bytes or the same value as JSON, once; or the client receives an error."""

import json

import pytest

from harness.client import Truncated, request_bytes
from harness.origin import CLOSE, answer
from harness.preload import LIBRARIES
from harness.rpc import call
from harness.spec_vectors import values as specified_values
from harness.nginx_state import wait_until_stable

OCTETS = ("Content-Type", "application/octet-stream")
JSON = ("Content-Type", "application/json")
REGISTRATIONS = "/eth/v1/validator/register_validator"
ROUTE = "/engine/v1/payloads/witness"
ONE = b"a" * 180
SYNCING = b'{"jsonrpc":"2.0","id":1,"result":{"status":"SYNCING","latestValidHash":null,"validationError":null}}'
SYNCING_SSZ = bytes.fromhex("08000000" + "11000000" + "02" + "09000000" * 2)
CODE = b'{"jsonrpc":"2.0","id":1,"result":"0x6001"}'

# a pool of 112 bytes is almost full at once, so that each request of nginx for memory is
# an allocation of its own
PLACES = """
location / { proxy_pass http://@origin@; }
location /file/ { client_body_buffer_size 16; proxy_pass http://@origin@/; }
location /cached/ { sszip_cache on; sszip_cache_max_request 1m; proxy_pass http://@origin@/; }
location /rpc/ { sszip_ssz_witness rpc; proxy_pass http://@origin@/; }
location /rest/ { sszip_ssz_witness rest; proxy_pass http://@origin@/; }
location /rest-file/ { client_body_buffer_size 16; sszip_ssz_witness rest; proxy_pass http://@origin@/; }
location /status { sszip off; stub_status; }
"""
CONFIG = f"""
proxy_http_version 1.1;
client_max_body_size 8m;
client_body_buffer_size 1m;
sszip on;
sszip_ssz on;
sszip_ssz_preset mainnet;
sszip_ssz_request always;
server {{ listen 127.0.0.1:@port@; request_pool_size 112; {PLACES} }}
server {{ listen 127.0.0.1:@port_small@; sszip_memory 64k; {PLACES} }}
"""


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    nginx = start_nginx(CONFIG, environment=preload.environment)
    nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")
    nginx.expect("not enough memory to buffer the response")
    return nginx


@pytest.fixture(autouse=True)
def worker_survives(nginx):
    (worker,) = nginx.workers()
    yield
    assert nginx.workers() == [worker]
    wait_until_stable(nginx)


@pytest.fixture(scope="module")
def payload(cache_directory):
    found = specified_values(cache_directory, "payloads.py")
    return next(it for it in found if it["kind"] == "call" and it["fork"] == "amsterdam")


def engine_call(value, padding=0):
    method = f"engine_newPayloadWithWitnessV{value['version']}"
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": value["params"]}
    text = json.dumps(message).encode()
    return text[:-1] + b" " * padding + b"}"


def node(request):
    """Accepts all requests except those without a length, which nginx never sends."""
    if not request.body:
        return answer(b"{}", status=400, headers=[("Connection", "close")], then=[CLOSE])
    if request.path.endswith(REGISTRATIONS):
        return answer(b"", type=None)
    if request.path.endswith(ROUTE):
        return answer(SYNCING_SSZ, type=OCTETS[1])
    return answer(SYNCING if b"engine_" in request.body else CODE)


def send(nginx, path, body, headers, port="port"):
    """A status and the response, or `"cut"`."""
    try:
        with nginx.connect(port) as connection:
            sent = request_bytes(path, method="POST", headers=[*headers, ("Connection", "close")], body=body)
            connection.send(sent)
            return (response := connection.read("POST")).status, response
    except (Truncated, ConnectionError):
        return "cut", None


class Case:
    """A request, and the forms in which its node may receive it."""

    def __init__(self, path, body, headers, others, whole):
        self.path, self.body, self.headers, self.others, self.whole = path, body, headers, others, whole


def cases(payload):
    registrations = ONE * 150

    def is_json(request):
        return request.header("Content-Type") == "application/json" and len(json.loads(request.body)) == 150

    def is_payload(request):
        return request.path == ROUTE and request.body == bytes.fromhex(payload["ssz"])

    def is_call(request):
        message = json.loads(request.body)
        return request.path == "/" and message["params"] == payload["params"]

    fork = ("Eth-Execution-Version", "amsterdam")
    accept = ("Accept", OCTETS[1])
    code = call("eth_getCode", f'["0x{"11" * 20}","latest"{" " * 20_000}]')
    ok = lambda response: response.body == b""  # noqa: E731
    status = lambda response: response.body.endswith(b"\0\0\0") or b"SYNCING" in response.body  # noqa: E731
    result = lambda response: response.body in (b"\x60\x01", CODE)  # noqa: E731
    return {
        "published": Case(REGISTRATIONS, registrations, [OCTETS], is_json, ok),
        "published, in a file": Case("/file" + REGISTRATIONS, registrations, [OCTETS], is_json, ok),
        "called": Case("/", code, [JSON, accept], None, result),
        "called, in a file": Case("/file/", code, [JSON, accept], None, result),
        "called, looked up": Case("/cached/", code, [JSON, accept], None, result),
        "submitted": Case("/rpc" + ROUTE, bytes.fromhex(payload["ssz"]), [OCTETS, accept, fork], is_call, status),
        "called for a route": Case("/rest/", engine_call(payload, 3000), [JSON, fork], is_payload, status),
        "called for a route, in a file": Case("/rest-file/", engine_call(payload), [JSON, fork], is_payload, status),
    }


NAMES = [
    "published",
    "published, in a file",
    "called",
    "called, in a file",
    "called, looked up",
    "submitted",
    "called for a route",
    "called for a route, in a file",
]


def judged(case, origin, outcome, response):
    """`"whole"` or another word for an outcome that is allowed after failed allocations."""
    received = origin.received()
    # never twice
    assert len(received) <= 1
    for request in received:
        is_it = request.body == case.body and request.header("Content-Type") == dict(case.headers)["Content-Type"]
        assert is_it or request.body == b"" or case.others and case.others(request), request.body[:200]
    if outcome == 200 and b'"error"' in response.body:
        assert json.loads(response.body)["error"]["code"] == -32603 and not received
        return "refused"
    if outcome == 200:
        assert len(received) == 1
        assert case.whole(response), response.body[:200]
        return "whole"
    assert outcome in ("cut", 400, 500, 502, 503), response.body[:300]
    return outcome


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["nginx's", "the core's"])
def test_request_is_forwarded_or_rejected_when_any_allocation_fails(nginx, origin, preload, payload, name, kind):
    case = cases(payload)[name]
    origin.answers(node)
    (worker,) = nginx.workers()
    options = {} if kind == "nginx's" else {"sizes": (3000, 1 << 40), "caller": LIBRARIES}
    outcomes = []
    for skip in range(400):
        # each request is a new key: its second one would be a hit
        body = case.body.replace(b"11" * 20, b"%040x" % skip) if name == "called, looked up" else case.body
        attempt = Case(case.path, body, case.headers, case.others, case.whole)
        origin.requests.clear()
        with preload.refusing(worker, skip=skip, **options):
            outcomes.append(judged(attempt, origin, *send(nginx, attempt.path, body, attempt.headers)))
        if not preload["refused"]:
            break
        if name != "called, looked up":
            origin.requests.clear()
            assert judged(attempt, origin, *send(nginx, attempt.path, body, attempt.headers)) == "whole"
    assert outcomes[-1] == "whole", outcomes
    assert kind != "nginx's" or len(outcomes) > 20


def test_request_is_forwarded_unchanged_or_rejected_without_memory_for_its_copy(nginx, origin, payload):
    """The copies exceed `sszip_memory`."""
    origin.answers(node)

    def post(path, body, *headers):
        origin.requests.clear()
        status, response = send(nginx, path, body, headers, "port_small")
        return status, response, origin.received()

    for prefix in ("", "/file", "/cached"):
        body = ONE * 400
        status, _, (request,) = post(prefix + REGISTRATIONS, body, OCTETS)
        assert (status, request.body, request.header("Content-Type")) == (200, body, OCTETS[1])
        body = call("eth_getCode", f'["0x{"11" * 20}","latest"{" " * 70_000}]')
        status, response, (request,) = post(prefix + "/", body, JSON, ("Accept", OCTETS[1]))
        assert (status, request.body, response.body) == (200, body, CODE)
        assert response.header("Content-Type") == "application/json"
    # the Cache-Status names the reason
    assert response.header("Cache-Status") == "sszip; fwd=bypass; detail=memory"
    ssz = bytes.fromhex(payload["ssz"]) + bytes(70_000)
    fields = [OCTETS, ("Accept", OCTETS[1]), ("Eth-Execution-Version", "amsterdam")]
    status, response, received = post("/rpc" + ROUTE, ssz, *fields)
    assert (status, received) == (503, [])
    assert "memory is short" in json.loads(response.body)["detail"]
    for prefix in ("/rest/", "/rest-file/"):
        status, response, received = post(prefix, engine_call(payload, 70_000), JSON)
        assert (status, received) == (200, [])
        error = json.loads(response.body)
        assert (error["id"], error["error"]["code"]) == (1, -32603)
        # other calls are forwarded, at the same length too
        body = call("engine_newPayloadV4", f'["{"a" * 70_000}"]')
        status, response, (request,) = post(prefix, body, JSON)
        assert (status, request.body, request.path) == (200, body, "/")
    # memory is available again: nothing was leaked
    for prefix in ("", "/file"):
        status, _, (request,) = post(prefix + REGISTRATIONS, ONE * 20, OCTETS)
        assert (status, request.header("Content-Type")) == (200, "application/json")

"""The witness bridge in configurations of operators: TLS and HTTP/2 to the client, five
workers, brotli in either load order, authentication, Unix sockets, several nodes, and
`if`; with payloads of every fork, in both directions. The client is curl."""

import base64
import collections
import concurrent.futures
import json
import pathlib
import subprocess

import pytest

from harness import payloads
from harness.nginx import MODULE
from harness.origin import answer
from harness.payloads import OCTETS, ROUTE, call_of, submission_of
from tiers import IS_THOROUGH, alternate

FOLDER = pathlib.Path("/usr/lib/nginx/modules")
BROTLI = FOLDER / "ngx_http_brotli_filter_module.so"

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx")

CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
client_body_buffer_size 1m;
ssl_certificate @prefix@/certificate;
ssl_certificate_key @prefix@/key;
brotli on;
brotli_types *;
brotli_min_length 1;
sszip on;
sszip_ssz on;
upstream several {
    server @origin@;
    server @origin_unix@;
    server unix:/nowhere backup;
    keepalive 4;
}
server {
    listen 127.0.0.1:@port@ ssl http2;
    sszip_ssz_witness rpc;
    include @prefix@/places;
}
server {
    listen 127.0.0.1:@port_rest@ ssl http2;
    sszip_ssz_witness rest;
    include @prefix@/places;
}
"""

PLACES = """
location / { proxy_pass http://%(unix)s; }
location /several/ { proxy_set_header Connection ""; proxy_pass http://several/; }
location /basic/ { auth_basic x; auth_basic_user_file users; proxy_pass http://%(tcp)s/; }
location /auth/ { auth_request /check; proxy_pass http://%(tcp)s/; }
location = /check {
    internal;
    sszip_ssz_witness off;
    proxy_pass_request_body off;
    proxy_set_header Content-Length "";
    proxy_pass http://%(tcp)s/check;
}
location /if/ {
    set $node %(tcp)s;
    if ($http_x_unix) { proxy_pass http://%(unix)s; }
    if ($request_method = GET) { return 405; }
    proxy_pass http://$node;
}
location /cached/ { sszip_cache on; proxy_pass http://%(tcp)s/; }
"""

JWT = ("Authorization", "Bearer aGVhZA.Ym9keQ.c2lnbmF0dXJl")
BASIC = ("Authorization", "Basic " + base64.b64encode(b"a:b").decode())
# Additional headers of the client, and the prefix of the path at the node.
ASKED = {
    "": ([JWT], ""),
    "/several": ([JWT], ""),
    "/basic": ([BASIC], ""),
    "/auth": ([JWT], ""),
    "/if": ([JWT], "/if"),
    "/if/x": ([JWT, ("X-Unix", "1")], "/if/x"),
    "/cached": ([JWT], ""),
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-keyout", folder / "key", "-out", folder / "certificate"]
    subprocess.run(command, check=True, capture_output=True)
    return {name: (folder / name).read_bytes() for name in ("key", "certificate")}


@pytest.fixture(scope="module", params=["before", "after"])
def nginx(request, start_nginx, session_origin, certificate):
    """nginx that loads sszip before brotli, or after it."""
    places = PLACES % {"tcp": session_origin.address, "unix": f"unix:{session_origin.path}:"}
    files = {"places": places.encode(), "users": b"a:{PLAIN}b\n", **certificate}
    options = {"files": files, "workers": 5}
    if request.param == "before":
        return start_nginx(CONFIG, main=f"load_module {BROTLI};\n", **options)
    ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
    return start_nginx(CONFIG, main=ours, module=BROTLI, **options)


@pytest.fixture(scope="module")
def values(cache_directory):
    """Payloads of every fork, with blobs and without."""
    found = collections.defaultdict(list)
    for value in payloads.calls(cache_directory):
        if len(value["ssz"]) < 100_000:
            found[value["fork"]].append(value)
    assert len(found) == 6
    return [value for of_fork in found.values() for value in of_fork[::5]]


def curl(nginx, port, path, fields, body, accept=None):
    """Status, headers and body of a response to curl over HTTP/2."""
    command = ["curl", "-sSk", "--http2", "-i", "--data-binary", "@-", f"https://127.0.0.1:{nginx.ports[port]}{path}"]
    for name, value in [*fields, ("Accept-Encoding", accept or ""), ("Expect", "")]:
        command += ["-H", f"{name}: {value}"]
    done = subprocess.run(command, input=body, capture_output=True, check=True, timeout=60)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    version, *lines = head.decode().split("\r\n")
    assert version.startswith("HTTP/2 "), version
    return int(version.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def nested(block):
    """The status VALID of a payload with that hash, in the form of REST."""
    offsets = b"".join(n.to_bytes(4, "little") for n in (8, 8 + 41))
    return offsets + b"\0" + b"".join(n.to_bytes(4, "little") for n in (9, 41)) + block


class Node:
    """A node with both APIs, which returns each payload's own hash."""

    def __init__(self, values):
        self.of_ssz = {bytes.fromhex(value["ssz"]): value["params"][0]["blockHash"] for value in values}

    def __call__(self, request):
        if request.path == "/check":
            return answer(b"", status=200 if request.header("Authorization") == JWT[1] else 401)
        if request.path.endswith(ROUTE):
            block = bytes.fromhex(self.of_ssz[request.body][2:])
            return answer(nested(block), type=OCTETS)
        block = json.loads(request.body)["params"][0]["blockHash"]
        result = {"status": "VALID", "latestValidHash": block, "validationError": None}
        return answer(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())


def one(nginx, value, path, port, accept):
    """Requests the witness of a payload; returns what is wrong with the response."""
    fields, _ = ASKED[path]
    block = value["params"][0]["blockHash"]
    if port == "port":
        headers = [*submission_of(value), *fields]
        status, head, body = curl(nginx, port, path + ROUTE, headers, bytes.fromhex(value["ssz"]), accept)
        label, expected = "payloadstatuswithwitness;v=1", nested(bytes.fromhex(block[2:]))
        is_right = (body, head["content-type"], head.get("sszip-type")) == (expected, OCTETS, label)
    else:
        headers = [("Content-Type", "application/json"), *submission_of(value)[1:], *fields]
        status, head, body = curl(nginx, port, path + "/", headers, call_of(value), accept)
        result = {"status": "VALID", "latestValidHash": block, "validationError": None, "witness": None}
        is_right = json.loads(body) == {"jsonrpc": "2.0", "id": 1, "result": result}
    is_right = is_right and status == 200 and int(head["content-length"]) == len(body)
    return None if is_right else (path, port, value["fork"], status, head, body[:300])


def values_of_place(values, number):
    """All payloads; in `make test` one of each fork, others in the next location."""
    if IS_THOROUGH:
        return values
    by_fork = collections.defaultdict(list)
    for value in values:
        by_fork[value["fork"]].append(value)
    return [of_fork[number % len(of_fork)] for of_fork in by_fork.values()]


@pytest.mark.parametrize("port", ["port", "port_rest"])
def test_payloads_of_every_fork_reach_the_node_once_in_every_location(nginx, origin, values, port):
    origin.answers(Node(values))
    submissions = [(value, path) for number, path in enumerate(ASKED) for value in values_of_place(values, number)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        wrong = list(pool.map(lambda it: one(nginx, *it, port, None), submissions))
    assert [it for it in wrong if it] == []
    received = collections.Counter()
    for request in origin.received():
        if request.path == "/check":
            assert request.header("Authorization") == JWT[1]
            continue
        assert request.header("Authorization") in (JWT[1], BASIC[1])
        of = request.body if port == "port_rest" else json.dumps(json.loads(request.body)["params"])
        received[request.path, of] += 1
    # each value once in each location: a payload is never sent twice
    expected = collections.Counter()
    for value, path in submissions:
        before = ASKED[path][1]
        if port == "port_rest":
            expected[before + ROUTE, bytes.fromhex(value["ssz"])] += 1
        else:
            expected[before + "/", json.dumps(value["params"])] += 1
    assert received == expected


@pytest.mark.parametrize("port", ["port", "port_rest"])
def test_unauthorized_payload_does_not_reach_the_node(nginx, origin, values, port):
    origin.answers(Node(values))
    value = values[-1]
    body, target = (bytes.fromhex(value["ssz"]), ROUTE) if port == "port" else (call_of(value), "/")
    fields = submission_of(value) if port == "port" else [("Content-Type", "application/json")]
    for path, wrong in [("/basic", []), ("/basic", [JWT]), ("/auth", []), ("/auth", [BASIC])]:
        status, _, _ = curl(nginx, port, path + target, [*fields, *wrong], body)
        assert status == 401, path
    assert [it.path for it in origin.received() if it.path != "/check"] == []


LONG = b"\xb9\x01\x2c" + b"\xab" * 300


@pytest.mark.parametrize("accept, path", alternate(["gzip", "br", "br, gzip", None], ["", "/several"]))
def test_witness_is_readable_when_brotli_is_on(nginx, origin, values, accept, path):
    """The coding is one that the client accepts, and the body is complete."""
    value = values[-1]
    state = LONG * 3000
    lists = b"\xc0\xc0\xfa" + len(state).to_bytes(3, "big") + state
    rlp = "0x" + (b"\xfa" + len(lists).to_bytes(3, "big") + lists).hex()
    result = {"status": "VALID", "latestValidHash": None, "validationError": None, "witness": rlp}
    origin.answers(answer(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode(), framing="chunked"))
    status, head, body = curl(nginx, "port", path + ROUTE, [*submission_of(value), JWT], bytes.fromhex(value["ssz"]), accept)
    assert (status, head["sszip-type"]) == (200, "payloadstatuswithwitness;v=1")
    coding = head.get("content-encoding")
    assert coding in [None, *(accept or "").split(", ")]
    ssz = decoded(coding, body)
    assert payloads.lists_of(ssz) == [[LONG[3:]] * 3000, [], []]
    # and in the other direction
    origin.answers(answer(ssz, type=OCTETS, framing="chunked"))
    fields = [("Content-Type", "application/json"), JWT]
    status, head, body = curl(nginx, "port_rest", path + "/", fields, call_of(value), accept)
    converted = json.loads(decoded(head.get("content-encoding"), body))["result"]
    assert (status, converted["status"]) == (200, "VALID")
    assert converted["witness"].endswith(state.hex() + "c0")


def decoded(coding, body):
    script = {"gzip": "gunzipSync", "br": "brotliDecompressSync", None: None}[coding]
    if script is None:
        return body
    command = ["node", "-e", f"process.stdout.write(require('zlib').{script}(require('fs').readFileSync(0)))"]
    return subprocess.run(command, input=body, capture_output=True, check=True).stdout

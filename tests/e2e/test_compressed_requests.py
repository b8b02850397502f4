"""Compressed request bodies beyond lookups: SSZ submissions, JSON for nodes that accept
no coding, and calls whose results are sent as SSZ; in every framing, made by the tools
of clients."""

import gzip
import itertools
import json
import random
import subprocess

import pytest

from harness import zstd
from harness.client import Connection, fetch, request_bytes
from harness.nginx_state import wait_until_stable
from harness.origin import answer
from harness.rpc import call
from tiers import pairwise, times


CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
sszip on;
server {
    listen 127.0.0.1:@port@;
    sszip_ssz on;
    sszip_ssz_request always;
    location / { proxy_pass http://@origin@; }
    location /status { sszip off; stub_status; }
    location /file/ { client_body_in_file_only clean; proxy_pass http://@origin@/; }
    location /unbuffered/ { proxy_request_buffering off; proxy_pass http://@origin@/; }
    location /cached/ {
        sszip_cache on;
        client_body_buffer_size 1k;
        proxy_pass http://@origin@/;
    }
}
server {
    listen 127.0.0.1:@port_decoded@;
    sszip_request_decoding always;
    location / { proxy_pass http://@origin@; }
    location /file/ { client_body_in_file_only clean; proxy_pass http://@origin@/; }
    location /unbuffered/ { proxy_request_buffering off; proxy_pass http://@origin@/; }
    location /cached/ {
        sszip_cache on;
        client_body_buffer_size 1k;
        proxy_pass http://@origin@/;
    }
}
server {
    listen 127.0.0.1:@port_auto@;
    sszip_ssz on;
    location / { proxy_pass http://@origin@; }
    location /either/ { proxy_pass http://@origin@/; }
}
server {
    listen 127.0.0.1:@port_small@;
    sszip_ssz on;
    sszip_ssz_request always;
    sszip_request_decoding always;
    sszip_memory 1m;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_off@;
    sszip_ssz on;
    sszip_ssz_request always;
    sszip_request_decoding off;
    location / { proxy_pass http://@origin@; }
}
"""

REGISTRATIONS = "/eth/v1/validator/register_validator"
OCTETS = ("Content-Type", "application/octet-stream")
JSON = ("Content-Type", "application/json")
# incompressible: longer than a buffer of 1k
SOME = random.Random(7).randbytes(180 * 100)
_numbers = itertools.count(1)
PLACES = ["", "/file", "/unbuffered", "/cached"]


def by_tool(*command):
    return lambda body: subprocess.run(command, input=body, capture_output=True, check=True).stdout


CODERS = {
    "gzip": ("gzip", by_tool("gzip", "-c")),
    "gzip -1": ("gzip", by_tool("gzip", "-1", "-c")),
    "python": ("x-gzip", gzip.compress),
    "zstd": ("zstd", zstd.compress),
    "zstd -19": ("zstd", lambda body: zstd.compress(body, 19)),
}


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


@pytest.fixture(autouse=True)
def taken(origin):
    origin.requests.clear()
    origin.answers(answer(b"", type=None))


def chunked(body, size=700):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def post(nginx, port, target, body, *headers, coding="gzip", framing="length"):
    headers = [*headers, ("Content-Encoding", coding)]
    if framing == "chunked":
        headers, body = [*headers, ("Transfer-Encoding", "chunked")], chunked(body)
    return fetch(nginx.ports[port], target, method="POST", headers=headers, body=body)


@pytest.mark.parametrize("coder, place, framing", pairwise(list(CODERS), PLACES, ["length", "chunked"]))
def test_compressed_submission_is_decoded_and_transcoded(nginx, origin, coder, place, framing):
    coding, code = CODERS[coder]
    for body in (SOME[:180], SOME):
        origin.requests.clear()
        response = post(nginx, "port", place + REGISTRATIONS, code(body), OCTETS, coding=coding, framing=framing)
        assert response.status == 200
        (request,) = origin.received(REGISTRATIONS)
        pubkeys = [one["message"]["pubkey"] for one in json.loads(request.body)]
        assert pubkeys == ["0x" + body[at + 36 : at + 84].hex() for at in range(0, len(body), 180)]
        assert request.header("Content-Type") == "application/json"
        assert request.header("Content-Length") == str(len(request.body))
        assert request.all("Content-Encoding") == request.all("Transfer-Encoding") == []


@pytest.mark.parametrize("coder, place, framing", pairwise(list(CODERS), PLACES, ["length", "chunked"]))
def test_compressed_request_is_decoded_when_configured(nginx, origin, coder, place, framing):
    coding, code = CODERS[coder]
    blocks = "/eth/v2/beacon/blocks"
    for kind, body in ((OCTETS, SOME), (JSON, b'{"message":"0x%b"}' % SOME.hex().encode())):
        origin.requests.clear()
        version = ("Eth-Consensus-Version", "electra")
        response = post(nginx, "port_decoded", place + blocks, code(body), kind, version, coding=coding, framing=framing)
        assert response.status == 200
        (request,) = origin.received(blocks)
        assert request.body == body
        assert (request.header("Content-Type"), request.header("Content-Length")) == (kind[1], str(len(body)))
        assert request.header("Eth-Consensus-Version") == "electra"
        assert request.all("Content-Encoding") == request.all("Transfer-Encoding") == []


@pytest.mark.parametrize("coder, place, framing", pairwise(list(CODERS), PLACES, ["length", "chunked"]))
def test_result_of_a_compressed_call_is_transcoded_to_ssz(nginx, origin, coder, place, framing):
    coding, code = CODERS[coder]
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x60016002"}'))
    # a payload is long, and is not stored
    body = call("debug_getRawBlock", '["0x%x","%s"]' % (next(_numbers), SOME.hex()))
    coded = code(body)
    octets = ("Accept", "application/octet-stream")
    response = post(nginx, "port", place + "/", coded, JSON, octets, coding=coding, framing=framing)
    assert (response.header("Sszip-Type"), response.body) == ("ByteString;v=1", bytes.fromhex("60016002"))
    (request,) = origin.received()
    assert (request.body, request.header("Content-Encoding")) == (coded, coding)
    if place == "/cached":
        again = post(nginx, "port", place + "/", coded, JSON, octets, coding=coding, framing=framing)
        assert (again.header("Sszip-Type"), again.body) == ("ByteString;v=1", bytes.fromhex("60016002"))
        assert again.header("Cache-Status").startswith("sszip; hit") and len(origin.received()) == 1


SOUND = gzip.compress(SOME)
UNDECODABLE_GZIP = {
    "garbage after it": SOUND + b"x",
    "cut": SOUND[:-1],
    "cut in the middle": SOUND[: len(SOUND) // 2],
    "another checksum": SOUND[:-5] + bytes([SOUND[-5] ^ 1]) + SOUND[-4:],
    "not coded": SOME,
    "empty": b"",
}
SOUND_ZSTD = zstd.compress(b"a" * 18_000)
UNDECODABLE_ZSTD = {
    "garbage after it": SOUND_ZSTD + b"x",
    "cut": SOUND_ZSTD[:-1],
    "not coded": SOME,
    "another coding": SOUND,
    "empty": b"",
}


@pytest.mark.parametrize("port", ["port", "port_decoded"])
@pytest.mark.parametrize(
    ("coding", "defect"),
    [*(("gzip", defect) for defect in UNDECODABLE_GZIP), *(("zstd", defect) for defect in UNDECODABLE_ZSTD)],
)
def test_undecodable_request_is_forwarded_unchanged(nginx, origin, coding, defect, port):
    body = {"gzip": UNDECODABLE_GZIP, "zstd": UNDECODABLE_ZSTD}[coding][defect]
    assert post(nginx, port, REGISTRATIONS, body, OCTETS, coding=coding).status == 200
    (request,) = origin.received(REGISTRATIONS)
    assert (request.body, request.header("Content-Encoding")) == (body, coding)
    assert request.header("Content-Type") == "application/octet-stream"


def test_request_of_several_gzip_members_is_decoded_as_one_body(nginx, origin):
    for coding, code in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        origin.requests.clear()
        body = code(SOME[:200]) + code(b"") + code(SOME[200:])
        assert post(nginx, "port", REGISTRATIONS, body, OCTETS, coding=coding).status == 200
        (request,) = origin.received(REGISTRATIONS)
        assert len(json.loads(request.body)) == 100


def test_error_about_a_compressed_submission_describes_the_decoded_body(nginx, origin):
    response = post(nginx, "port", REGISTRATIONS, gzip.compress(SOME[:-1]), OCTETS)
    assert (response.status, json.loads(response.body)["code"]) == (400, 400)
    assert b"17999 bytes, not a multiple of 180" in response.body
    # the node may be probed
    assert origin.received(REGISTRATIONS) == []


@pytest.mark.parametrize("headers", [[OCTETS], [JSON]], ids=["ssz", "json"])
@pytest.mark.parametrize(("coding", "code"), [("gzip", gzip.compress), ("zstd", zstd.compress)], ids=["gzip", "zstd"])
def test_decompression_bomb_is_forwarded_unchanged(nginx, origin, headers, coding, code):
    """A few KB decode to 40 MB, where a worker may use 1 MB; valid bodies are still
    decoded after enough bombs to have taken all the memory."""
    bomb = code(bytes(40 << 20))
    for _ in range(5):
        assert post(nginx, "port_small", REGISTRATIONS, bomb, *headers, coding=coding).status == 200
    requests = origin.received(REGISTRATIONS)
    assert [(one.body, one.header("Content-Encoding")) for one in requests] == [(bomb, coding)] * 5
    origin.requests.clear()
    count = times(30, 100)
    for _ in range(count):
        assert post(nginx, "port_small", REGISTRATIONS, SOUND, OCTETS).status == 200
    assert [len(json.loads(one.body)) for one in origin.received(REGISTRATIONS)] == [100] * count


def test_compressed_request_is_forwarded_unchanged_when_decoding_is_off(nginx, origin):
    assert post(nginx, "port_off", REGISTRATIONS, SOUND, OCTETS).status == 200
    (request,) = origin.received(REGISTRATIONS)
    assert (request.body, request.header("Content-Encoding")) == (SOUND, "gzip")


def test_requests_are_decoded_after_the_node_rejected_a_coding(nginx, origin):
    """The node names the coding as the reason of its 415: it accepts SSZ."""

    def refuses(request):
        coded = request.all("Content-Encoding")
        fields = [("Accept-Encoding", "identity")]
        return answer(b"no", status=415, type="text/plain", headers=fields) if coded else answer(b"", type=None)

    origin.answers(refuses)
    workers = 5
    statuses = [post(nginx, "port_auto", REGISTRATIONS, SOUND, OCTETS).status for _ in range(60)]
    assert 1 <= statuses.count(415) <= workers and set(statuses) == {200, 415}
    origin.requests.clear()
    for kind, body in ((OCTETS, SOME), (JSON, b"[]")):
        assert post(nginx, "port_auto", REGISTRATIONS, gzip.compress(body), kind).status == 200
        # no request is sent twice
        (forwarded,) = origin.requests
        assert (forwarded.body, forwarded.header("Content-Type")) == (body, kind[1])
        origin.requests.clear()


def test_requests_are_decoded_and_transcoded_after_an_ambiguous_415(nginx, origin):
    def refuses(request):
        refused = request.all("Content-Encoding") or request.header("Content-Type") != "application/json"
        return answer(b"no", status=415, type="text/plain") if refused else answer(b"", type=None)

    origin.answers(refuses)
    workers = 5
    statuses = [post(nginx, "port_auto", "/either" + REGISTRATIONS, SOUND, OCTETS).status for _ in range(60)]
    # one 415 informs each worker about both
    assert 1 <= statuses.count(415) <= workers and set(statuses) == {200, 415}
    assert len(json.loads(origin.last().body)) == 100


@pytest.mark.parametrize("reloads", [False, True], ids=["gone", "gone, and a reload"])
def test_request_reaches_the_node_whole_and_once_when_its_client_aborts(nginx, origin, reloads):
    """Each request that reaches the node is complete, and sent once."""
    headers = [OCTETS, ("Content-Encoding", "gzip")]
    many = gzip.compress(b"a" * 180 * 20_000)
    whole = request_bytes(REGISTRATIONS, method="POST", headers=headers, body=many)
    for _ in range(10):
        with Connection(nginx.ports["port"]) as connection:
            connection.send(whole)
        if reloads:
            nginx.reload()
    assert post(nginx, "port", REGISTRATIONS, gzip.compress(b"a" * 180), OCTETS).status == 200
    wait_until_stable(nginx)
    lengths = [len(json.loads(request.body)) for request in origin.received(REGISTRATIONS)]
    assert lengths.count(1) == 1 and set(lengths) <= {1, 20_000} and len(lengths) <= 11

"""Requests whose bodies the client has compressed (Content-Encoding: gzip): they are looked
up, and decoded for a node that rejects the coding."""

import gzip
import random

import pytest

from harness.client import connected
from harness.origin import answer
from harness.rpc import Node, call

pytestmark = pytest.mark.bare

CONFIG = """
log_format seen '$uri $request_body';
sszip on;
sszip_cache on;
sszip_cache_namespace $uri;
sszip_max_oneshot 1m;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    access_log @prefix@/seen.log seen;
    location / { proxy_pass http://@origin@; }
    location /refused { proxy_pass http://@origin@; }
    location /other { proxy_pass http://@origin@; }
    location /always { sszip_request_decoding always; proxy_pass http://@origin@; }
    location /unbuffered {
        sszip_request_decoding always;
        proxy_request_buffering off;
        proxy_pass http://@origin@;
    }
    location /file { client_body_buffer_size 1k; proxy_pass http://@origin@; }
    location /updated {
        sszip_request_decoding always;
        sszip_cache_valid tip 1ms;
        sszip_cache_use_stale updating;
        sszip_cache_background_update on;
        proxy_pass http://@origin@;
    }
}
"""

CODED = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
PLAIN = [("Content-Type", "application/json")]
CHAIN_ID = call("eth_chainId")


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


@pytest.fixture
def node(origin):
    node = Node({"eth_chainId": b'"0x1"', "eth_blockNumber": b'"0x2"', "eth_sendRawTransaction": b'"0x3"'})

    def decoding(request):
        if request.header("Content-Encoding") == "gzip":
            request.body = gzip.decompress(request.body)
        return node(request)

    origin.requests.clear()
    origin.answers(decoding)
    return node


def post(nginx, target, body, headers=tuple(CODED)):
    with nginx.connect() as connection:
        return connection.exchange(target, method="POST", headers=list(headers), body=body)


def cache_status(response):
    return response.header("Cache-Status")


def chunked(body, size):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def is_hit(nginx, target):
    return (cache_status(post(nginx, target, CHAIN_ID, PLAIN)) or "").startswith("sszip; hit")


@pytest.mark.parametrize("target", ["/chunks", "/always/chunks", "/unbuffered/chunks"])
def test_compressed_chunked_request_is_looked_up(nginx, node, origin, target):
    headers = [*CODED, ("Transfer-Encoding", "chunked")]
    response = post(nginx, target, chunked(gzip.compress(CHAIN_ID), 7), headers)
    assert response.decoded == b'{"jsonrpc":"2.0","id":1,"result":"0x1"}\n'
    assert cache_status(response) == "sszip; fwd=miss"
    (request,) = origin.received()
    assert request.all("Transfer-Encoding") == []
    if target == "/chunks":
        assert request.header("Content-Encoding") == "gzip"
    else:
        assert request.all("Content-Encoding") == []
        assert (request.header("Content-Length"), request.body) == (str(len(CHAIN_ID)), CHAIN_ID)
    assert is_hit(nginx, target)


def test_request_of_several_gzip_members_is_looked_up(nginx, node):
    body = gzip.compress(CHAIN_ID[:20]) + gzip.compress(b"") + gzip.compress(CHAIN_ID[20:])
    assert cache_status(post(nginx, "/members", body)) == "sszip; fwd=miss"
    assert is_hit(nginx, "/members")


SOUND = gzip.compress(CHAIN_ID)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (SOUND + b"x", "content-encoding"),
        (SOUND[:-1], "content-encoding"),
        (SOUND[:-5] + bytes([SOUND[-5] ^ 1]) + SOUND[-4:], "content-encoding"),
        (CHAIN_ID, "content-encoding"),
        # ten megabytes in ten kilobytes: too long to be buffered decoded
        (gzip.compress(CHAIN_ID[:-1] + b" " * (10 << 20) + b"}"), "request-length"),
    ],
    ids=["garbage", "cut", "checksum", "plain", "bomb"],
)
@pytest.mark.parametrize("target", ["/as-it-came", "/always/as-it-came"])
def test_undecodable_request_is_forwarded_unchanged(nginx, origin, target, body, detail):
    origin.requests.clear()
    origin.answers(lambda _: answer(b'{"jsonrpc":"2.0","id":1,"result":"0x9"}', type="application/json"))
    for _ in range(2):
        assert cache_status(post(nginx, target, body)) == f"sszip; fwd=bypass; detail={detail}"
    assert [request.body for request in origin.received()] == [body] * 2
    assert all(request.header("Content-Encoding") == "gzip" for request in origin.received())


def test_compressed_request_in_a_file_is_forwarded_unchanged(nginx, node, origin):
    params = '["0x%s"]' % random.Random(5).randbytes(3000).hex()
    body = gzip.compress(call("eth_sendRawTransaction", params))
    assert cache_status(post(nginx, "/file", body)) == "sszip; fwd=bypass; detail=body-on-disk"
    assert origin.received()[0].header("Content-Encoding") == "gzip"
    # in memory a compressed body is looked up
    assert cache_status(post(nginx, "/file", SOUND)) == "sszip; fwd=miss"


def test_requests_are_decoded_after_the_node_rejected_a_coding_once(nginx, origin):
    node = Node({"eth_chainId": b'"0x1"'})

    def refusing(request):
        coded = request.all("Content-Encoding")
        return answer(b"no", status=415, type="text/plain") if coded else node(request)

    origin.requests.clear()
    origin.answers(refusing)
    # the request is not repeated: its client receives the 415
    assert post(nginx, "/refused", SOUND).status == 415
    response = post(nginx, "/refused", SOUND)
    assert (response.status, cache_status(response)) == (200, "sszip; fwd=miss")
    assert [bool(forwarded.all("Content-Encoding")) for forwarded in origin.received()] == [True, False]
    forwarded = origin.received()[1]
    assert (forwarded.header("Content-Length"), forwarded.body) == (str(len(CHAIN_ID)), CHAIN_ID)
    assert is_hit(nginx, "/refused")
    # another location has its own node
    assert post(nginx, "/other", SOUND).status == 415


def test_uncacheable_request_is_decoded_and_sent_once(nginx, node, origin):
    body = call("eth_sendRawTransaction", '["0x02"]')
    response = post(nginx, "/always/sent", gzip.compress(body))
    assert cache_status(response) == "sszip; fwd=bypass; detail=rpc-method"
    (request,) = origin.received()
    assert request.body == body and node.count() == 1
    assert request.all("Content-Encoding") == []


def test_compressed_request_with_expect_continue_is_decoded(nginx, node, origin):
    lines = [f"{name}: {value}" for name, value in CODED]
    head = ["POST /always/expect HTTP/1.1", "Host: x", "Expect: 100-continue", f"Content-Length: {len(SOUND)}", *lines]
    with connected(nginx.port) as connection:
        connection.send(("\r\n".join(head) + "\r\n\r\n").encode())
        interim = b""
        while not interim.endswith(b"\r\n\r\n"):
            interim += connection.socket.recv(1)
        assert interim.startswith(b"HTTP/1.1 100")
        connection.send(SOUND)
        assert cache_status(connection.read("POST")) == "sszip; fwd=miss"
    assert origin.received()[0].body == CHAIN_ID
    assert is_hit(nginx, "/always/expect")


def test_background_update_of_a_compressed_request_is_decoded(nginx, node, origin):
    body = gzip.compress(call("eth_blockNumber"))
    assert cache_status(post(nginx, "/updated", body)) == "sszip; fwd=miss"

    def updated():
        return "hit" in (cache_status(post(nginx, "/updated", body)) or "") and len(origin.received()) > 1

    nginx.wait_for(updated, "an update")
    for request in origin.received():
        assert (request.body, request.all("Content-Encoding")) == (call("eth_blockNumber"), [])


def test_split_batch_of_a_compressed_request_is_decoded(nginx, node, origin):
    assert post(nginx, "/batch", CHAIN_ID, PLAIN).status == 200
    origin.requests.clear()
    batch = b"[%b,%b]" % (call("eth_chainId", id="7"), call("eth_blockNumber", id="8"))
    response = post(nginx, "/batch", gzip.compress(batch))
    expected = b'[{"jsonrpc":"2.0","id":7,"result":"0x1"},{"jsonrpc":"2.0","id":8,"result":"0x2"}]'
    assert response.decoded.replace(b"\n", b"") == expected
    (request,) = origin.received()
    assert request.body == b"[%b]" % call("eth_blockNumber", id="8")
    assert request.all("Content-Encoding") == []


def test_log_has_the_request_body_of_the_client(nginx, node):
    post(nginx, "/always/logged", SOUND)
    log = nginx.prefix / "seen.log"
    nginx.wait_for(lambda: b"/always/logged" in log.read_bytes(), "the log")
    (line,) = [line for line in log.read_bytes().splitlines() if line.startswith(b"/always/logged")]
    assert b"\\x1F\\x8B\\x08" in line and b"eth_chainId" not in line

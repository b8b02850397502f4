"""Response heads that violate specifications are handled by nginx with sszip as without
it: the same status, and the same bytes when decoded."""

import gzip

import pytest

from harness.client import Malformed, Truncated, gunzip
from harness.recorded_nodes import BODY
from harness.origin import CLOSE, gzipped

TYPE = b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: 30000\r\n"

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    location /on { sszip on; proxy_pass http://@origin@/; }
    location /off { proxy_set_header Accept-Encoding identity; proxy_pass http://@origin@/; }
}
"""


def chunks(body):
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


RESPONSES = {
    "two-lengths": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + LENGTH, BODY),
    "two-different-lengths": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"Content-Length: 29999\r\n", BODY),
    "length-and-chunked": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"Transfer-Encoding: chunked\r\n", chunks(BODY)),
    "chunked-and-length": (b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n" + LENGTH, chunks(BODY)),
    "two-types": (b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Type: image/png\r\n" + LENGTH, BODY),
    "two-codings-of-none": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"Content-Encoding: identity\r\n" * 2, BODY),
    "an-empty-coding": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"Content-Encoding:\r\n", BODY),
    "an-empty-vary": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"Vary:\r\n", BODY),
    "an-empty-etag": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"ETag:\r\n", BODY),
    "an-etag-without-quotes": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"ETag: abc\r\n", BODY),
    "two-etags": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b'ETag: "a"\r\nETag: "b"\r\n', BODY),
    "names-in-capitals": (b"HTTP/1.1 200 OK\r\nCONTENT-TYPE: application/json\r\nCONTENT-LENGTH: 30000\r\nVARY: Origin\r\n", BODY),
    "line-feeds-only": (b"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 30000\n", BODY),
    "white-space-around-values": (b"HTTP/1.1 200 OK\r\nContent-Type:\t application/json \t\r\nContent-Length:  30000  \r\n", BODY),
    "white-space-before-a-colon": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"X-A : b\r\n", BODY),
    "a-line-without-a-colon": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"nonsense\r\n", BODY),
    "bytes-above-ascii": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"X-A: \xff\xfe\r\nVary: \xe4\r\n", BODY),
    "no-reason": (b"HTTP/1.1 200\r\n" + TYPE + LENGTH, BODY),
    "a-status-of-two-digits": (b"HTTP/1.1 20 OK\r\n" + TYPE + LENGTH, BODY),
    "a-status-above-599": (b"HTTP/1.1 999 Odd\r\n" + TYPE + LENGTH, BODY),
    "a-204-with-a-body": (b"HTTP/1.1 204 No Content\r\n" + TYPE + LENGTH, BODY),
    "a-304-with-a-length": (b"HTTP/1.1 304 Not Modified\r\n" + TYPE + LENGTH, b""),
    "http-2-in-the-line": (b"HTTP/2.0 200 OK\r\n" + TYPE + LENGTH, BODY),
    "http-1.0-and-chunked": (b"HTTP/1.0 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n", chunks(BODY)),
    "a-bad-chunk": (b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n", b"zz\r\n" + BODY),
    "a-trailer": (b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n", chunks(BODY)[:-2] + b"X-T: 1\r\n\r\n"),
    "a-head-beyond-the-buffer": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH + b"X-A: " + b"a" * 20000 + b"\r\n", BODY),
    "a-head-without-an-end": (b"HTTP/1.1 200 OK\r\n" + TYPE + LENGTH[:-2], b""),
    "nothing": (b"", b""),
    "gzip-coded-twice": (
        b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Encoding: gzip, gzip\r\nContent-Length: %d\r\n" % len(gzipped(gzipped(BODY))),
        gzipped(gzipped(BODY)),
    ),
    "gzip-on-two-lines": (
        b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Encoding: gzip\r\n" * 2 + b"Content-Length: %d\r\n" % len(gzipped(gzipped(BODY))),
        gzipped(gzipped(BODY)),
    ),
}


def seen(nginx, path, accept):
    """The status and the bytes, if any."""
    try:
        response = nginx.get(path, accept)
    except (Truncated, Malformed, ConnectionResetError) as failure:
        return type(failure).__name__
    body = response.body
    if response.coding == "gzip" and path == "/on":
        body = gunzip(body)
    return response.status, body


@pytest.mark.parametrize("name", RESPONSES)
def test_malformed_head_is_handled_as_without_sszip(nginx, origin, name):
    head, body = RESPONSES[name]
    origin.answers([head + b"\r\n" + body if head else b"", CLOSE])
    for accept in ("gzip", None):
        with_sszip, without = seen(nginx, "/on", accept), seen(nginx, "/off", accept)
        assert with_sszip == without or is_reported_as_502(with_sszip, without)


def is_reported_as_502(with_sszip, without):
    """Whether a 502 replaces a truncated response, which is the purpose of buffering."""
    return with_sszip[0] == 502 and without == "Truncated"


def test_body_with_two_gzip_codings_is_sent_unchanged(nginx, origin):
    head, body = RESPONSES["gzip-coded-twice"]
    origin.answers([head + b"\r\n" + body, CLOSE])
    response = nginx.get("/on", accept=None)
    assert response.coding == "gzip, gzip"
    assert gzip.decompress(gzip.decompress(response.body)) == BODY


@pytest.mark.parametrize("accept", ["gzip", None])
@pytest.mark.parametrize("count", [1, 5, 100])
def test_repeated_accept_encoding_reaches_the_node_once(nginx, origin, count, accept):
    """The node gets one Accept-Encoding, whatever the client repeats."""
    origin.answers([RESPONSES["names-in-capitals"][0] + b"\r\n" + BODY, CLOSE])
    headers = [("Accept-Encoding", "br")] * count + [("X-Other", "1")]
    response = nginx.get("/on", accept, headers=headers)
    assert response.coding == accept
    assert origin.last().all("Accept-Encoding") == ["identity"]
    assert origin.last().all("X-Other") == ["1"]

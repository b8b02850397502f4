"""A node's trailers. nginx before 1.27.2 drops them all; later versions pass them where
proxy_pass_trailers is on, to clients that send `TE: trailers`."""

import pytest

from harness import bodies
from harness.client import gunzip, request_bytes
from harness.http2 import Http2Client
from harness.nginx import version
from harness.recorded_nodes import BODY
from harness.origin import CLOSE, answer, chunked
from harness.response_stream import StreamReader

PASSED = version() >= (1, 27, 2)

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_h2@ http2;
    proxy_http_version 1.1;
    @trailers@
    sszip on;
    sszip_hold 64k 60s;
    location / { proxy_pass http://@origin_unix@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin_unix@; }
    location /off { sszip off; proxy_pass http://@origin_unix@; }
}
""".replace("@trailers@", 'proxy_pass_trailers on; proxy_set_header TE "trailers"; proxy_set_header Connection "te";' if PASSED else "")


HEADERS = [("Accept-Encoding", "gzip"), ("TE", "trailers"), ("Connection", "te")]


def trailed(body, announced):
    head, *_ = answer(framing="chunked", headers=[("Trailer", "X-Checksum")] if announced else [])
    return [head, *chunked([body], last=False), b"0\r\nX-Checksum: 12ab\r\n\r\n", CLOSE]


def send(nginx, path):
    with nginx.connect() as connection:
        connection.send(request_bytes(path, headers=HEADERS))
        stream = StreamReader(connection, connection.read_head())
        stream.finish()
    return stream


@pytest.mark.parametrize("path", ["/", "/stream", "/unbuffered", "/off"])
@pytest.mark.parametrize("body", [b"{}", BODY, bodies.json(300000)], ids=len)
def test_announced_trailers_follow_the_body(nginx, origin, path, body):
    """Trailers follow the compressed body as they would follow the plain one: a response that
    announces them is not buffered for a length, which would exclude them."""
    origin.answers(trailed(body, announced=True))
    stream = send(nginx, path)
    assert (stream.body, stream.chunked) == (body, True)
    assert stream.head.coding == (None if path == "/off" else "gzip")
    assert stream.trailers == (["X-Checksum: 12ab"] if PASSED else [])


@pytest.mark.parametrize("path", ["/", "/stream", "/unbuffered", "/off"])
@pytest.mark.parametrize("body", [BODY, bodies.json(300000)], ids=len)
def test_unannounced_trailers_follow_streams_only(nginx, origin, path, body):
    """Trailers follow a stream. A buffered body has its length when they arrive; they are
    dropped, as RFC 9110, 6.5.1 allows."""
    origin.answers(trailed(body, announced=False))
    stream = send(nginx, path)
    assert stream.body == body
    assert stream.chunked == (path != "/" or body is not BODY)
    assert stream.trailers == (["X-Checksum: 12ab"] if PASSED and stream.chunked else [])


@pytest.mark.parametrize("path", ["/", "/unbuffered"])
@pytest.mark.parametrize("accept", ["gzip", None])
def test_trailers_follow_http2_streams(nginx, origin, path, accept):
    origin.answers(trailed(BODY, announced=True))
    with Http2Client(nginx.ports["port_h2"]) as client:
        stream = client.fetch(path, accept)
        client.finish(stream)
    body = bytes(client.bodies[stream])
    assert (gunzip(body) if accept else body) == BODY
    assert client.trailers.get(stream, {}) == ({"x-checksum": "12ab"} if PASSED else {})

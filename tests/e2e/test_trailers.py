"""A node's trailers. nginx before 1.27.2 drops them all; later ones pass them
where proxy_pass_trailers says so, to clients that say `TE: trailers`."""

import pytest

from harness import bodies
from harness.client import request_bytes
from harness.nginx import version
from harness.nodes import BODY
from harness.origin import CLOSE, answer, chunked
from harness.stream import Reading

PASSED = version() >= (1, 27, 2)

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    @trailers@
    sszip on;
    location / { sszip_hold 64k 60s; proxy_pass http://@origin_unix@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin_unix@; }
    location /off { sszip off; proxy_pass http://@origin_unix@; }
}
""".replace("@trailers@", 'proxy_pass_trailers on; proxy_set_header TE "trailers"; proxy_set_header Connection "te";' if PASSED else "")


def trailed(body):
    head, *_ = answer(framing="chunked", headers=[("Trailer", "X-Checksum")])
    return [head, *chunked([body], last=False), b"0\r\nX-Checksum: 12ab\r\n\r\n", CLOSE]


@pytest.mark.parametrize("path", ["/", "/stream", "/unbuffered", "/off"])
@pytest.mark.parametrize("body", [BODY, bodies.json(300000)], ids=len)
def test_trailers_follow_a_stream(nginx, origin, path, body):
    """Behind the coded body as they would be behind the plain one. A body
    that was held has a length, and so no place for them."""
    origin.answers(trailed(body))
    with nginx.connect() as connection:
        headers = [("Accept-Encoding", "gzip"), ("TE", "trailers"), ("Connection", "te")]
        connection.send(request_bytes(path, headers=headers))
        stream = Reading(connection, connection.read_head())
        assert stream.finish() == body
    assert stream.chunked == (path != "/" or body is not BODY)
    assert stream.trailers == (["X-Checksum: 12ab"] if PASSED and stream.chunked else [])

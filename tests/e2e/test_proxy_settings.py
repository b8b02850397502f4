"""The proxy_* settings that operators use, and headers that they add."""

import socket
import threading

import pytest

from harness import bodies
from harness.client import request_bytes
from harness.recorded_nodes import BODY, geth, plain
from harness.origin import CLOSE, RESET, CloseWithoutResponse, WaitFor, answer
from harness.response_stream import open_stream

CONFIG = """
upstream two { server @origin@ max_fails=0; server @origin_unix@ max_fails=0; }
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    location / { proxy_pass http://@origin@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin@; }
    location /unbuffered-upload { proxy_request_buffering off; proxy_pass http://@origin@; }
    location /temp-file { aio threads; aio_write on; proxy_buffers 2 4k; proxy_busy_buffers_size 4k; proxy_temp_file_write_size 8k; proxy_pass http://@origin@; }
    location /small-buffers { proxy_buffer_size 2k; proxy_buffers 2 2k; proxy_busy_buffers_size 2k; proxy_pass http://@origin@; }
    location /no-temp-file { proxy_max_temp_file_size 0; proxy_buffers 4 4k; proxy_pass http://@origin@; }
    location /large-buffers { proxy_buffers 16 256k; proxy_busy_buffers_size 1m; proxy_pass http://@origin@; }
    location /next { proxy_next_upstream error timeout http_500 invalid_header non_idempotent; proxy_pass http://two; }
    location /slow { limit_rate 200k; proxy_pass http://@origin@; }
    location /fields {
        add_header X-Mode "any" always;
        add_header X-Length $sent_http_content_length always;
        expires 1h;
        etag on;
        proxy_hide_header X-Hidden;
        proxy_pass http://@origin@;
    }
    location /charset { charset utf-8; proxy_pass http://@origin@; }
    location /ignored { proxy_ignore_client_abort on; proxy_pass http://@origin@; }
}
"""


@pytest.mark.parametrize("path", ["/unbuffered", "/temp-file", "/small-buffers", "/no-temp-file", "/large-buffers"])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("accept", ["gzip", None])
@pytest.mark.parametrize("size", [100, 30000, 1000000])
def test_response_is_right_with_any_proxy_buffers(nginx, origin, path, framing, accept, size):
    origin.answers(plain(bodies.json(size), framing=framing))
    response = nginx.get(path, accept)
    assert response.decoded == bodies.json(size)
    if response.coding == "gzip" and response.mode == "oneshot":
        assert response.framing == "length"
    elif response.coding == "gzip":
        assert (response.mode, response.framing) == ("stream", "chunked")
        assert path == "/unbuffered" or framing != "length"
    else:
        assert accept is None or size == 100


@pytest.mark.parametrize("path", ["/unbuffered", "/"])
@pytest.mark.parametrize("type", ["text/event-stream", "application/json"])
def test_events_arrive_before_the_next_one_is_sent(nginx, origin, path, type):
    """The client has each event before the node sends the next one; with buffers only where
    the node disables them."""
    seen = [threading.Event() for _ in range(5)]
    script = answer(type=type, framing="chunked", headers=[("X-Accel-Buffering", "no")] if path == "/" else [])
    script.pop()  # the last chunk
    for number, event in enumerate(seen):
        data = b"data: %d\n\n" % number
        script += [b"%x\r\n%b\r\n" % (len(data), data), WaitFor(event)]
    origin.answers([*script, b"0\r\n\r\n"])
    with nginx.connect() as connection:
        stream = open_stream(connection, path)
        assert (stream.head.status, stream.head.coding, stream.chunked) == (200, "gzip", True)
        for number, event in enumerate(seen):
            assert stream.until(9 * (number + 1)).endswith(b"data: %d\n\n" % number)
            event.set()
        assert stream.finish() == b"".join(b"data: %d\n\n" % number for number in range(5))


@pytest.mark.parametrize("accept", ["gzip", None])
def test_upload_arrives_when_request_buffering_is_off(nginx, origin, accept):
    origin.answers(geth())
    upload = bodies.json(300000)
    response = nginx.post("/unbuffered-upload", upload, accept)
    assert origin.last().body == upload
    assert response.decoded == BODY
    chunks = b"".join(b"%x\r\n%b\r\n" % (1000, upload[at : at + 1000]) for at in range(0, 300000, 1000)) + b"0\r\n\r\n"
    response = nginx.post("/unbuffered-upload", chunks, accept, headers=[("Transfer-Encoding", "chunked")])
    assert origin.last().body == upload
    assert origin.last().header("Accept-Encoding") == "identity"
    assert response.decoded == BODY


@pytest.mark.parametrize("accept", ["gzip", None])
def test_early_response_is_compressed_before_the_upload_ends(nginx, origin, accept):
    origin.early = True
    origin.answers([*answer(BODY, headers=[("Connection", "close")]), CloseWithoutResponse()])
    upload = bodies.json(100000)
    headers = [("Accept-Encoding", accept)] if accept else []
    request = request_bytes("/unbuffered-upload", method="POST", headers=headers, body=upload)
    with nginx.connect() as connection:
        connection.send(request[:50000])
        response = connection.read()
    assert (response.status, response.coding, response.decoded) == (200, accept, BODY)


class TestNextUpstream:
    @pytest.mark.parametrize(
        "first",
        [[CLOSE], [RESET], answer(BODY, status=500), [b"HTTP/1.1 200 OK\r\nContent-", CLOSE]],
        ids=["closed", "reset", "500", "half-a-head"],
    )
    def test_next_upstream_is_used_when_the_first_one_fails(self, nginx, origin, first):
        origin.answers(lambda request: first if len(origin.requests) == 1 else geth()(request))
        response = nginx.post("/next")
        assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)
        assert [request.header("Accept-Encoding") for request in origin.requests] == ["identity", "identity"]

    def test_next_upstream_is_not_used_after_a_response_head(self, nginx, origin):
        origin.answers(lambda request: answer(BODY, cut_at=100) if len(origin.requests) == 1 else geth()(request))
        response = nginx.post("/next")
        assert response.status == 502
        assert len(origin.requests) == 1


def test_response_is_compressed_with_limit_rate(nginx, origin):
    body = bodies.random(60000) + bodies.json(60000)
    origin.answers(plain(body))
    response = nginx.get("/slow")
    assert (response.coding, response.framing, response.decoded) == ("gzip", "length", body)


class TestFields:
    def test_headers_are_added_and_hidden(self, nginx, origin):
        origin.answers(plain(headers=[("X-Hidden", "1"), ("ETag", '"a"'), ("Cache-Control", "private")]))
        response = nginx.get("/fields")
        assert response.header("X-Mode") == "any"
        assert response.header("X-Hidden") is None
        assert response.header("ETag") == 'W/"a"'
        assert response.decoded == BODY

    def test_headers_are_added_to_an_error(self, nginx, origin):
        origin.answers(plain(status=500))
        response = nginx.get("/fields")
        assert (response.status, response.header("X-Mode"), response.decoded) == (500, "any", BODY)

    def test_headers_are_added_when_the_node_truncates_its_response(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=5))
        response = nginx.get("/fields")
        assert (response.status, response.header("X-Mode")) == (502, "any")

    def test_charset_is_added_to_a_compressed_response(self, nginx, origin):
        origin.answers(plain(bodies.text(5000), type="text/plain"))
        response = nginx.get("/charset")
        assert response.header("Content-Type") == "text/plain; charset=utf-8"
        assert response.decoded == bodies.text(5000)

    def test_long_header_lists_are_kept(self, nginx, origin):
        """The header list is longer than one part of nginx's list."""
        fields = [(f"X-{number}", "v" * 20) for number in range(80)]
        origin.answers(plain(headers=[*fields, ("Vary", "Origin"), ("ETag", '"a"')]))
        response = nginx.get("/large-buffers", headers=[(f"X-{number}", "w") for number in range(60)])
        assert [line for line in response.headers if line[0].startswith("X-")] == fields
        assert (response.header("Vary"), response.header("ETag")) == ("Origin, Accept-Encoding", 'W/"a"')
        assert len([line for line in origin.last().head.split(b"\r\n") if line.startswith(b"X-")]) == 60
        assert origin.last().header("Accept-Encoding") == "identity"


def test_request_of_a_client_that_left_is_finished(nginx, origin):
    go = threading.Event()
    script = answer(BODY)
    origin.answers([script[0], script[1][:100], WaitFor(go), script[1][100:]])
    connection = nginx.connect()
    connection.send(request_bytes("/ignored", headers=[("Accept-Encoding", "gzip")]))
    nginx.wait_for(lambda: origin.requests, "the node's request")
    connection.socket.shutdown(socket.SHUT_RDWR)
    connection.close()
    go.set()
    origin.answers(geth())
    assert nginx.get("/ignored").decoded == BODY


def test_half_closed_client_gets_its_response(nginx, origin):
    """`printf ... | nc`: the client shuts its sending side down."""
    origin.answers(geth())
    with nginx.connect() as connection:
        connection.send(request_bytes("/ignored", headers=[("Accept-Encoding", "gzip")]))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read().decoded == BODY

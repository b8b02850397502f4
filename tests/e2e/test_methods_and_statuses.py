"""HEAD, 1xx, 304 and error pages, where nginx itself changes the node's response."""

import re

import pytest

from harness.client import Truncated, request_bytes
from harness.recorded_nodes import BODY, geth
from harness.origin import CLOSE, answer, head

PAGE = b'{"error":"' + b"not here, " * 300 + b'"}'
SORRY = b'{"error":"' + b"the node is away, " * 300 + b'"}'

CONFIG = """
types { application/json json; text/html html; }
server {
    listen 127.0.0.1:@port@;
    root @prefix@/www;
    proxy_http_version 1.1;
    proxy_intercept_errors off;
    sszip on;
    location / { proxy_pass http://@origin@; }
    location /off { sszip off; proxy_pass http://@origin@; }
    location /files/ { }
    location /intercept/ {
        proxy_intercept_errors on;
        error_page 404 /files/404.json;
        error_page 503 =200 @fallback;
        proxy_pass http://@origin@;
    }
    location /fallback/static/ { error_page 502 /files/502.json; proxy_pass http://@origin@; }
    location /fallback/named/ { error_page 502 = @fallback; proxy_pass http://@origin@; }
    location /fallback/uri/ { error_page 502 = /again; proxy_pass http://@origin@; }
    location @fallback { proxy_pass http://@origin_unix@; }
    location /text/ { return 200 "short"; }
    location /error/ { return 500; }
}
"""
OPTIONS = {"files": {"www/files/404.json": PAGE, "www/files/502.json": SORRY, "www/files/a.json": BODY}}


class TestHead:
    def test_response_to_head_of_the_node_has_a_weak_etag_and_no_length(self, nginx, origin):
        origin.answers(answer(BODY, method="HEAD", headers=[("ETag", '"a"')]))
        response = nginx.head("/")
        assert (response.status, response.length, response.body) == (200, None, b"")
        assert response.header("ETag") == 'W/"a"'
        assert origin.last().method == "HEAD"
        assert response.mode == "head"

    def test_response_to_head_of_a_file_has_a_length_in_identity_only(self, nginx, origin):
        assert nginx.head("/files/a.json").length is None
        assert nginx.head("/files/a.json", accept=None).length == len(BODY)

    def test_response_to_head_has_the_headers_of_get(self, nginx, origin):
        """The headers are equal, except those that depend on the encoder."""
        for accept in ("gzip", None):
            fields = []
            for send in (nginx.get, nginx.head):
                response = send("/files/a.json", accept)
                fields.append(
                    sorted(
                        line
                        for line in response.headers
                        if line[0].lower() not in ("date", "content-length", "content-encoding")
                    )
                )
            assert fields[0] == fields[1]

    def test_connection_is_kept_after_head(self, nginx, origin):
        origin.answers(lambda request: answer(BODY, method=request.method))
        with nginx.connect() as connection:
            for method in ("HEAD", "GET", "HEAD", "HEAD", "GET"):
                response = connection.exchange("/", method=method, headers=[("Accept-Encoding", "gzip")])
                assert response.status == 200
                assert response.decoded == (BODY if method == "GET" else b"")


class TestInterim:
    """Versions of nginx treat 1xx responses differently; with sszip each treats them as
    without it."""

    @pytest.mark.parametrize(
        "interim",
        [
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 102 Processing\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            b"garbage\r\n\r\n",
        ],
        ids=["100", "102", "103", "103-100", "101-unrequested", "garbage"],
    )
    def test_interim_response_of_the_node_is_handled_as_without_sszip(self, nginx, origin, interim):
        body = b'{"result":"0x1"}'
        origin.answers([interim + b"".join(answer(body)), CLOSE])
        with_sszip, without = (self.raw(nginx, path) for path in ("/", "/off"))
        assert with_sszip == without

    def raw(self, nginx, path):
        with nginx.connect() as connection:
            connection.send(request_bytes(path, headers=[("Accept-Encoding", "gzip"), ("Connection", "close")]))
            received = b""
            while piece := connection.socket.recv(65536):
                received += piece
        received = re.sub(rb"Date: [^\r]*\r\n", b"", received)
        return received.replace(b"Vary: Accept-Encoding\r\n", b"")

    def test_expect_continue_of_the_client_is_answered(self, nginx, origin):
        origin.answers(geth())
        call = b'{"jsonrpc":"2.0","id":1,"method":"x"}'
        with nginx.connect() as connection:
            connection.send(
                request_bytes(
                    "/",
                    method="POST",
                    headers=[("Accept-Encoding", "gzip"), ("Expect", "100-continue"), ("Content-Length", str(len(call)))],
                )
            )
            interim = connection.read_head()
            assert (interim.status, interim.headers) == (100, [])
            connection.send(call)
            final = connection.read()
        assert (final.status, final.coding, final.framing) == (200, "gzip", "length")
        assert final.decoded == BODY
        assert origin.last().body == call


class TestConditional:
    def test_weak_etag_matches_at_the_node(self, nginx, origin):
        def node(request):
            # RFC 9110, 13.1.2: If-None-Match compares weakly
            if '"abc"' in (request.header("If-None-Match") or ""):
                return answer(status=304, framing="none", headers=[("ETag", '"abc"')])
            return answer(BODY, headers=[("ETag", '"abc"')])

        origin.answers(node)
        tag = nginx.get("/").header("ETag")
        assert tag == 'W/"abc"'
        again = nginx.get("/", headers=[("If-None-Match", tag)])
        assert (again.status, again.body, again.coding) == (304, b"", None)
        assert again.mode == "status"

    def test_weak_etag_matches_in_nginx(self, nginx, origin):
        first = nginx.get("/files/a.json")
        assert first.coding == "gzip"
        assert first.header("ETag").startswith('W/"')
        again = nginx.get("/files/a.json", headers=[("If-None-Match", first.header("ETag"))])
        assert (again.status, again.coding, again.length) == (304, None, None)
        assert again.mode == "status"

    def test_304_is_sent_when_the_date_matches(self, nginx, origin):
        first = nginx.get("/files/a.json")
        again = nginx.get("/files/a.json", headers=[("If-Modified-Since", first.header("Last-Modified"))])
        assert again.status == 304

    def test_200_is_sent_when_the_etag_differs(self, nginx, origin):
        response = nginx.get("/files/a.json", headers=[("If-None-Match", 'W/"other"')])
        assert (response.status, response.decoded) == (200, BODY)


class TestErrorPage:
    def test_error_page_of_the_node_is_compressed(self, nginx, origin):
        origin.answers(answer(PAGE, status=404))
        response = nginx.get("/")
        assert (response.status, response.coding, response.decoded) == (404, "gzip", PAGE)

    def test_file_that_replaces_an_error_page_is_compressed(self, nginx, origin):
        origin.answers(answer(BODY, status=404))
        response = nginx.get("/intercept/")
        assert (response.status, response.coding, response.framing) == (404, "gzip", "length")
        assert response.decoded == PAGE
        assert nginx.get("/intercept/", accept=None).body == PAGE

    def test_response_of_a_fallback_node_is_compressed(self, nginx, origin):
        origin.answers(lambda request: answer(SORRY, status=503) if len(origin.requests) % 2 else answer(BODY))
        response = nginx.get("/intercept/")
        assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)
        assert origin.last().header("Accept-Encoding") == "identity"

    def test_error_page_is_a_file_when_the_node_truncates_its_response(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=10000))
        response = nginx.get("/fallback/static/")
        assert (response.status, response.decoded) == (502, SORRY)

    @pytest.mark.parametrize("path", ["/fallback/named/", "/fallback/uri/"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    @pytest.mark.parametrize("cut_at", [None, 0, 10000])
    def test_fallback_node_is_used_when_the_node_truncates_its_response(self, nginx, origin, path, accept, cut_at):
        """The buffered head is dropped, and a second upstream request starts within the
        event of the first one."""

        def node(request):
            if len(origin.requests) % 2 == 0:
                return answer(SORRY)
            return [CLOSE] if cut_at is None else answer(BODY, cut_at=cut_at)

        origin.answers(node)
        if cut_at is not None and accept is None:
            # the head was not buffered: the client sees the truncation
            with pytest.raises(Truncated):
                nginx.get(path, accept)
            return
        response = nginx.get(path, accept)
        assert (response.status, response.decoded) == (200, SORRY)

    def test_502_is_sent_when_the_node_closes_the_connection(self, nginx, origin):
        origin.answers([CLOSE])
        response = nginx.get("/")
        assert (response.status, response.coding) == (502, None)

    def test_error_page_of_nginx_is_sent_uncompressed(self, nginx, origin):
        assert nginx.get("/error/").status == 500
        response = nginx.get("/text/")
        assert response.body == b"short"


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"]
)
def test_responses_to_all_methods_are_compressed(nginx, origin, method):
    origin.answers(geth())
    response = nginx.get("/", method=method, body=b"{}")
    assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)
    assert origin.last().method == method


def test_response_without_content_keeps_its_headers(nginx, origin):
    origin.answers([head(204, [("ETag", '"a"'), ("X-Node", "n"), ("Content-Type", "application/json")])])
    response = nginx.get("/")
    assert (response.status, response.body, response.header("ETag")) == (204, b"", '"a"')
    assert response.header("X-Node") == "n"

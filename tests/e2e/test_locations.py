"""Sources of responses in nginx other than a plain proxy_pass: files, return, named and
nested locations, if, X-Accel-Redirect, variables, upstreams."""

import pytest

from harness import bodies
from harness.recorded_nodes import BODY, geth
from harness.origin import answer
from harness.scgi import ScgiNode

LARGE = bodies.json(3000000)
TEXT = '{"status":"' + "synced " * 300 + '"}'

CONFIG = (
    """
types { application/json json; image/png png; }
upstream nodes { server @origin@; keepalive 2; }
server {
    listen 127.0.0.1:@port@;
    root @prefix@/www;
    default_type application/json;
    sszip on;

    location /files/ { }
    location /files-sendfile/ { alias @prefix@/www/files/; sendfile on; }
    location /files-aio/ { alias @prefix@/www/files/; aio threads; }
    location /files-directio/ { alias @prefix@/www/files/; directio 512; output_buffers 1 32k; }
    location /index/ { autoindex on; autoindex_format json; alias @prefix@/www/many/; }
    location /return { return 200 '@text@'; }
    location /return-var { return 200 '$arg_text@text@'; }
    location /empty { return 200 ""; }
    location /redirect { return 302 /files/a.json; }
    location /rewrite { rewrite ^ /files/a.json last; }
    location /try { try_files /nowhere @node; }
    location @node { proxy_pass http://@origin@; }
    location /accel { proxy_pass http://@origin@; }
    location /protected/ { internal; alias @prefix@/www/files/; }
    location /protected-off/ { internal; sszip off; alias @prefix@/www/files/; }
    location /if {
        if ($arg_where = file) { rewrite ^ /files/a.json last; }
        if ($arg_where = node) { proxy_pass http://@origin@; }
        if ($arg_where = compressed) { sszip off; proxy_pass http://@origin@; }
    }
    location /limited { limit_except POST { deny all; } proxy_pass http://@origin@; }
    location /variable { set $node @origin@; proxy_pass http://$node; }
    location /upstream { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://nodes; }
    location /outer {
        sszip off;
        location /outer/inner { sszip on; sszip_min_length 5k; proxy_pass http://@origin@; }
        proxy_pass http://@origin@;
    }
    location /inherits {
        sszip_min_length 5k;
        location /inherits/inner { sszip_comp_level 6; proxy_pass http://@origin@; }
    }
    location /status { default_type text/plain; stub_status; }
}
server {
    listen 127.0.0.1:@port_off@;
    location / { proxy_pass http://@origin@; }
}
""".replace("@text@", TEXT)
)
OPTIONS = {
    "files": {
        "www/files/a.json": BODY,
        "www/files/large.json": LARGE,
        "www/files/small.json": bodies.json(1000),
        "www/files/a.png": BODY,
        "www/files/empty.json": b"",
        **{f"www/many/{number:03}": b"" for number in range(100)},
    }
}


@pytest.mark.parametrize("accept", ["gzip", None])
class TestFiles:
    @pytest.mark.parametrize("where", ["/files/", "/files-sendfile/", "/files-aio/", "/files-directio/"])
    @pytest.mark.parametrize("name, content", [("a.json", BODY), ("large.json", LARGE), ("small.json", bodies.json(1000)), ("empty.json", b"")])
    def test_json_file_is_compressed_above_the_minimum_length(self, nginx, origin, where, name, content, accept):
        response = nginx.get(where + name, accept)
        assert (response.status, response.framing) == (200, "length")
        assert response.decoded == content
        assert response.header("Vary") == "Accept-Encoding"
        is_compressed = accept and len(content) >= 1024
        assert response.coding == ("gzip" if is_compressed else None)
        assert response.header("Accept-Ranges") == (None if is_compressed else "bytes")

    def test_png_file_is_sent_uncompressed(self, nginx, origin, accept):
        response = nginx.get("/files/a.png", accept)
        assert (response.coding, response.body, response.header("Vary")) == (None, BODY, None)

    def test_log_has_the_accept_encoding_of_the_client(self, nginx, origin, accept):
        accept = accept and "br, gzip;q=0.5"
        assert nginx.get("/files/a.json", accept).logged["accept_encoding"] == (accept or "")

    def test_directory_listing_is_complete(self, nginx, origin, accept):
        response = nginx.get("/index/", accept)
        assert response.status == 200
        assert response.decoded.count(b'"name"') == 100


@pytest.mark.parametrize("accept", ["gzip", None])
class TestReturn:
    def test_text_of_return_is_compressed(self, nginx, origin, accept):
        for path in ("/return", "/return-var"):
            response = nginx.get(path, accept)
            assert response.coding == (accept and "gzip")
            assert (response.framing, response.decoded) == ("length", TEXT.encode())

    def test_empty_return_is_sent_uncompressed(self, nginx, origin, accept):
        response = nginx.get("/empty", accept)
        assert (response.coding, response.length, response.body) == (None, 0, b"")

    def test_redirect_of_return_is_sent(self, nginx, origin, accept):
        assert nginx.get("/redirect", accept).status == 302

    def test_stub_status_is_sent(self, nginx, origin, accept):
        assert b"Active connections" in nginx.get("/status", accept).body


class TestRedirectedInside:
    def test_rewritten_request_for_a_file_is_compressed(self, nginx, origin):
        response = nginx.get("/rewrite")
        assert (response.coding, response.decoded) == ("gzip", BODY)

    def test_try_files_to_a_named_location_is_compressed(self, nginx, origin):
        origin.answers(geth())
        response = nginx.get("/try")
        assert (response.coding, response.framing, response.decoded) == ("gzip", "length", BODY)
        assert origin.last().header("Accept-Encoding") == "identity"

    @pytest.mark.parametrize("first", [b"", b"x" * 20000], ids=["without-a-body", "with-a-body"])
    def test_x_accel_redirect_to_a_file_is_compressed(self, nginx, origin, first):
        origin.answers(answer(first, headers=[("X-Accel-Redirect", "/protected/a.json")]))
        response = nginx.get("/accel")
        assert (response.coding, response.framing, response.decoded) == ("gzip", "length", BODY)
        assert response.mode == "oneshot"

    def test_x_accel_redirect_to_a_location_with_sszip_off_is_sent_uncompressed(self, nginx, origin):
        origin.answers(answer(headers=[("X-Accel-Redirect", "/protected-off/a.json")]))
        response = nginx.get("/accel")
        assert (response.coding, response.body) == (None, BODY)
        assert response.mode == "off"

    def test_x_accel_redirect_to_a_named_location_is_compressed(self, nginx, origin):
        origin.answers(answer(headers=[("X-Accel-Redirect", "@node")]), "/accel")
        script = iter([answer(headers=[("X-Accel-Redirect", "@node")]), geth()])

        def node(request):
            step = next(script)
            return step(request) if callable(step) else step

        origin.answers(node, "/accel")
        response = nginx.get("/accel")
        assert (response.coding, response.decoded) == ("gzip", BODY)
        assert origin.last().header("Accept-Encoding") == "identity"


class TestProxied:
    @pytest.mark.parametrize("path", ["/if?where=node", "/variable", "/upstream", "/inherits/inner"])
    def test_response_is_compressed_wherever_proxy_pass_is_set(self, nginx, origin, path):
        origin.answers(geth())
        response = nginx.get(path)
        assert (response.coding, response.framing, response.decoded) == ("gzip", "length", BODY)
        assert origin.last().header("Accept-Encoding") == "identity"

    def test_file_selected_by_if_is_served(self, nginx, origin):
        assert nginx.get("/if?where=file").decoded == BODY
        assert nginx.get("/if?where=else").status == 404

    def test_sszip_off_inside_if_is_honoured(self, nginx, origin):
        origin.answers(geth())
        response = nginx.get("/if?where=compressed")
        assert (response.framing, response.mode) == ("chunked", "off")
        assert origin.last().header("Accept-Encoding") == "gzip"

    def test_limit_except_is_honoured(self, nginx, origin):
        origin.answers(geth())
        assert nginx.get("/limited").status == 403
        response = nginx.post("/limited")
        assert (response.coding, response.decoded) == ("gzip", BODY)
        assert origin.last().header("Accept-Encoding") == "identity"


class TestInheritance:
    def test_location_may_switch_sszip_off(self, nginx, origin):
        origin.answers(geth())
        response = nginx.get("/outer")
        assert (response.framing, response.decoded) == ("chunked", BODY)
        assert response.mode == "off"

    def test_inner_location_may_switch_sszip_on(self, nginx, origin):
        origin.answers(geth())
        assert nginx.get("/outer/inner").mode == "oneshot"
        origin.answers(geth(bodies.json(4000)))
        assert nginx.get("/outer/inner").mode == "too-small"

    def test_inner_location_inherits_unset_directives(self, nginx, origin):
        origin.answers(geth(bodies.json(5000)))
        assert nginx.get("/inherits/inner").mode == "too-small"

    def test_sszip_is_off_by_default(self, nginx, origin):
        origin.answers(geth())
        response = nginx.get("/", port="port_off")
        assert (response.framing, response.mode) == ("chunked", "off")
        assert origin.last().header("Accept-Encoding") == "gzip"


@pytest.mark.parametrize("accept", ["gzip, br", None])
def test_scgi_upstream_gets_accept_encoding_identity(start_nginx, accept):
    node = ScgiNode(BODY)
    nginx = start_nginx(
        f"""server {{
            listen 127.0.0.1:@port@;
            sszip on;
            location / {{
                scgi_param REQUEST_METHOD $request_method;
                scgi_param SEEN $http_accept_encoding;
                scgi_pass {node.address};
            }}
        }}"""
    )
    response = nginx.get("/", accept)
    assert (response.coding, response.framing) == ("gzip" if accept else None, "length")
    assert response.decoded == BODY
    assert node.requests[0]["HTTP_ACCEPT_ENCODING"] == "identity"
    assert node.requests[0]["SEEN"] == (accept or "")
    node.close()

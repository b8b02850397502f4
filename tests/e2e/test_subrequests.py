"""Responses of several parts: auth_request, mirror, SSI, addition, sub_filter. The parts must
arrive in identity, whichever node sends them."""

import threading

import pytest

from harness.client import Truncated
from harness.recorded_nodes import BODY, geth, plain
from harness.origin import WaitFor, answer

PART = b"<p>" + b"a part of the page, " * 200 + b"</p>"
PAGE = b"<html>" + b"text " * 500 + b'<!--# include virtual="/part" -->' + b"more " * 500 + b"</html>"
COMPOSED = PAGE.replace(b'<!--# include virtual="/part" -->', PART)

CONFIG = """
log_format parts '$uri $sszip_mode';
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    sszip_types *;
    location / { proxy_pass http://@origin@; }
    location /part { log_subrequest on; access_log @prefix@/parts.log parts; proxy_pass http://@origin@; }
    location /guarded { auth_request /auth; proxy_pass http://@origin@; }
    location = /auth {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://@origin@;
    }
    location /mirrored { mirror /copy; proxy_pass http://@origin@; }
    location = /copy { internal; proxy_pass http://@origin@/copy; }
    location /page { ssi on; proxy_pass http://@origin@; }
    location /page-gzip { ssi on; gzip on; proxy_pass http://@origin@; }
    location /echo { ssi on; default_type text/html; return 200 '<!--# include virtual="/part" --><!--# include virtual="/small" -->'; }
    location /framed {
        add_before_body /part;
        add_after_body /part;
        addition_types *;
        proxy_pass http://@origin@;
    }
    location /changed {
        sub_filter '"jsonrpc":"2.0"' '"jsonrpc":"3.0"';
        sub_filter '"hash":"0x0' '"h":"0';
        sub_filter_once off;
        sub_filter_types application/json;
        proxy_pass http://@origin@;
    }
    location /unchanged { sub_filter 'not in there' 'x'; sub_filter_types *; proxy_pass http://@origin@; }
}
"""


@pytest.fixture(autouse=True)
def page(origin):
    origin.answers(geth(PAGE, type="text/html"), "/page")
    origin.answers(geth(PAGE, type="text/html"), "/page-gzip")
    origin.answers(geth(PART, type="text/html"), "/part")
    origin.answers(geth(b"<i>small</i>", type="text/html"), "/small")


class TestAuthRequest:
    def test_request_that_auth_request_allows_is_compressed(self, nginx, origin):
        origin.answers(geth(b'{"ok":true}' * 300), "/auth")
        origin.answers(geth(), "/guarded")
        response = nginx.post("/guarded")
        assert (response.status, response.coding, response.framing) == (200, "gzip", "length")
        assert response.decoded == BODY
        assert response.mode == "oneshot"

    def test_request_is_allowed_by_a_204(self, nginx, origin):
        origin.answers(answer(status=204, framing="none"), "/auth")
        origin.answers(geth(), "/guarded")
        assert nginx.post("/guarded").decoded == BODY

    @pytest.mark.parametrize("status", [401, 403])
    def test_request_that_auth_request_denies_does_not_reach_the_node(self, nginx, origin, status):
        origin.answers(answer(b'{"no":true}' * 300, status=status), "/auth")
        response = nginx.post("/guarded")
        assert response.status == status
        assert origin.received("/guarded") == []

    def test_truncated_response_to_auth_request_is_handled(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=100), "/auth")
        origin.answers(geth(), "/guarded")
        response = nginx.post("/guarded")
        assert response.status in (200, 500)
        if response.status == 200:
            assert response.decoded == BODY


def test_mirrored_request_is_compressed(nginx, origin):
    origin.answers(geth(), "/mirrored")
    origin.answers(geth(), "/copy")
    for _ in range(10):
        response = nginx.post("/mirrored")
        assert (response.coding, response.framing, response.decoded) == ("gzip", "length", BODY)


@pytest.mark.parametrize("accept", ["gzip", None])
@pytest.mark.parametrize("path", ["/page", "/page-gzip"])
class TestServerSideIncludes:
    def test_ssi_include_is_inserted(self, nginx, origin, path, accept):
        response = nginx.get(path, accept)
        assert response.decoded == COMPOSED
        assert origin.last("/part").header("Accept-Encoding") == "identity"

    def test_compressed_page_is_sent_without_includes(self, nginx, origin, path, accept):
        """A compressed page can't have includes; it arrives readable."""
        origin.answers(answer(PAGE, type="text/html", coding="gzip"), path)
        if accept:
            assert nginx.get(path, accept).decoded == PAGE


def test_included_part_is_not_compressed_itself(nginx, origin):
    assert nginx.get("/page").decoded == COMPOSED
    modes = (nginx.prefix / "parts.log").read_text().split("\n")[:-1]
    assert set(modes) == {"/part subrequest"}


@pytest.mark.parametrize("accept", ["gzip", None])
def test_ssi_includes_of_a_static_response_are_inserted(nginx, origin, accept):
    assert nginx.get("/echo", accept).decoded == PART + b"<i>small</i>"


@pytest.mark.parametrize("accept", ["gzip", None])
def test_addition_frames_the_body(nginx, origin, accept):
    origin.answers(geth(BODY), "/framed")
    for _ in range(5):
        assert nginx.get("/framed", accept).decoded == PART + BODY + PART


class TestBodyAfterSlowSubrequest:
    """The node has responded, or failed, before the part in front of its body is there: its
    end is queued while the subrequest's flushes pass."""

    HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PART)

    @pytest.fixture(autouse=True)
    def slow_part(self, origin):
        """The part pauses for longer than the buffering window and the flush interval."""
        answered = threading.Event()

        def main(script):
            def respond(request):
                threading.Timer(0.2, answered.set).start()
                return script

            origin.answers(respond, "/framed")

        origin.answers([self.HEAD, PART[:100], WaitFor(answered), PART[100:2000], PART[2000:]], "/part")
        return main

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_body_is_complete_when_the_part_before_it_is_slow(self, nginx, slow_part, accept):
        slow_part(answer(BODY))
        assert nginx.get("/framed", accept).decoded == PART + BODY + PART

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_truncated_body_is_visible_when_the_part_before_it_is_slow(self, nginx, slow_part, accept):
        slow_part(answer(BODY, cut_at=10000))
        with pytest.raises(Truncated):
            nginx.get("/framed", accept)


@pytest.mark.parametrize("accept", ["gzip", None])
class TestSubFilter:
    def test_sub_filter_changes_the_body(self, nginx, origin, accept):
        origin.answers(geth())
        response = nginx.get("/changed", accept)
        changed = BODY.replace(b'"jsonrpc":"2.0"', b'"jsonrpc":"3.0"').replace(b'"hash":"0x0', b'"h":"0')
        assert response.decoded == changed
        assert changed != BODY
        assert origin.last().header("Accept-Encoding") == "identity"

    def test_sub_filter_without_a_match_leaves_the_body(self, nginx, origin, accept):
        origin.answers(plain())
        assert nginx.get("/unchanged", accept).decoded == BODY

"""HTTP versions, framing and many responses on one connection."""

import random

import pytest

from harness import bodies
from harness.client import Truncated, gunzip, request_bytes
from harness.recorded_nodes import BODY, geth, plain
from harness.origin import CLOSE, answer, head, scattered

pytestmark = pytest.mark.bare

CONFIG = """
upstream kept { server @origin@; keepalive 4; }
server {
    listen 127.0.0.1:@port@;
    sszip on;
    sszip_hold 64k 60s;
    location /by-1.0 { proxy_pass http://@origin@; }
    location /by-1.1 { proxy_http_version 1.1; proxy_pass http://@origin@; }
    location /kept { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://kept; }
    location /nothing { return 204; }
}
"""
GZIP = [("Accept-Encoding", "gzip")]


class TestVersions:
    @pytest.mark.parametrize("node", ["1.0", "1.1"])
    @pytest.mark.parametrize("path", ["/by-1.0", "/by-1.1"])
    def test_response_is_compressed_for_any_http_version_of_the_node(self, nginx, origin, path, node):
        origin.answers(answer(BODY, version=node))
        response = nginx.get(path)
        assert (response.coding, response.framing, response.decoded) == ("gzip", "length", BODY)

    def test_http_1_0_client_keeps_its_connection(self, nginx, origin):
        origin.answers(plain())
        with nginx.connect() as connection:
            for _ in range(3):
                response = connection.exchange("/by-1.0", version="1.0", headers=[*GZIP, ("Connection", "keep-alive")])
                assert (response.coding, response.framing, response.body) == (None, "length", BODY)

    def test_http_1_0_client_gets_a_body_of_unknown_length_until_close(self, nginx, origin):
        origin.answers(plain(framing="chunked"))
        response = nginx.get("/by-1.1", version="1.0")
        assert (response.framing, response.body) == ("close", BODY)

    def test_gzip_of_the_node_is_decoded_for_an_http_1_0_client(self, nginx, origin):
        origin.answers(plain(coding="gzip"))
        response = nginx.get("/by-1.0", accept=None, version="1.0")
        assert (response.coding, response.framing, response.body) == (None, "length", BODY)


class TestDelimitedByClose:
    def test_body_delimited_by_close_is_streamed_compressed(self, nginx, origin):
        origin.answers(answer(BODY, framing="close", version="1.0"))
        response = nginx.get("/by-1.0")
        assert (response.framing, response.decoded) == ("chunked", BODY)
        assert response.mode == "stream"

    def test_closed_json_is_sent_with_a_length(self, nginx, origin):
        """A truncated body would not be valid JSON."""
        body = bodies.object(20000)
        origin.answers(answer(body, framing="close", version="1.0"))
        response = nginx.get("/by-1.0")
        assert (response.mode, response.framing, response.decoded) == ("oneshot", "length", body)

    def test_body_delimited_by_close_is_sent_without_a_length(self, nginx, origin):
        """A truncated body is not distinguishable from a complete one."""
        origin.answers(answer(BODY[:12345], framing="close"))
        response = nginx.get("/by-1.1")
        assert response.length is None
        assert response.decoded == BODY[:12345]


class TestCut:
    """A response that the node truncates is never completed."""

    def test_truncated_body_with_a_length_is_a_502_when_the_head_is_buffered(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=20000))
        response = nginx.get("/by-1.1")
        assert (response.status, response.coding) == (502, None)
        assert response.mode == "cut"

    def test_truncated_body_with_a_length_is_truncated_when_the_head_was_sent(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=20000))
        with pytest.raises(Truncated):
            nginx.get("/by-1.1", accept=None)

    def test_truncated_chunked_body_is_a_502_when_the_head_is_buffered(self, nginx, origin):
        origin.answers(answer(BODY, framing="chunked", cut_at=20000))
        response = nginx.get("/by-1.1")
        assert (response.status, response.coding, response.mode) == (502, None, "cut")

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_truncated_chunked_body_is_truncated_when_the_head_was_sent(self, nginx, origin, accept):
        origin.answers(answer(bodies.json(200000), framing="chunked", cut_at=150000))
        with pytest.raises(Truncated):
            nginx.get("/by-1.1", accept)

    def test_connection_of_the_client_is_kept_after_a_502(self, nginx, origin):
        """The next request on the client's connection receives its response."""
        with nginx.connect() as connection:
            for number in range(6):
                origin.answers(answer(BODY, cut_at=100) if number % 2 else plain())
                response = connection.exchange("/kept", headers=GZIP)
                assert response.status == (502 if number % 2 else 200)
                if number % 2 == 0:
                    assert response.decoded == BODY


class TestWrongLengths:
    def test_bytes_beyond_the_content_length_are_dropped(self, nginx, origin):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", "20000")]), BODY, CLOSE])
        response = nginx.get("/by-1.1")
        assert response.decoded == BODY[:20000]

    def test_bytes_beyond_the_content_length_in_the_first_read_are_dropped(self, nginx, origin):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", "2000")]) + BODY[:2500], CLOSE])
        response = nginx.get("/by-1.1")
        assert response.decoded == BODY[:2000]

    @pytest.mark.parametrize("value", ["-1", "20x", "99999999999999999999"])
    def test_invalid_content_length_is_a_502_or_unknown(self, nginx, origin, value):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", value)]), BODY, CLOSE])
        response = nginx.get("/by-1.1")
        if response.status != 502:
            # nginx 1.22 treats the length as absent
            assert (response.mode, response.length, response.decoded) == ("stream", None, BODY)


class TestKeepAlive:
    KINDS = [
        dict(body=bodies.json(30000)),
        dict(body=bodies.json(100)),
        dict(body=b""),
        dict(body=bodies.random(5000)),
        dict(body=bodies.json(400000)),
        dict(body=bodies.json(30000), framing="chunked"),
        dict(body=bodies.json(30000), coding="gzip"),
        dict(body=bodies.json(30000), type="image/png"),
        dict(body=bodies.json(5000), status=500),
        dict(body=bodies.json(5000), headers=[("Cache-Control", "no-transform")]),
        dict(body=b"", status=204, framing="none"),
    ]

    def test_responses_of_all_kinds_alternate_on_one_connection(self, nginx, origin):
        origin.answers(lambda request: answer(**self.KINDS[int(request.target.partition("=")[2])]))
        with nginx.connect() as connection:
            for first in range(len(self.KINDS)):
                for second in range(len(self.KINDS)):
                    for kind in (first, second):
                        self.exchange(connection, kind, GZIP if (first + second) % 3 else [])

    def exchange(self, connection, kind, headers):
        response = connection.exchange(f"/kept?kind={kind}", headers=headers)
        assert response.status == self.KINDS[kind].get("status", 200)
        assert response.decoded == self.KINDS[kind]["body"]

    def test_responses_of_one_kind_repeat_on_one_connection(self, nginx, origin):
        origin.answers(geth())
        with nginx.connect() as connection:
            for _ in range(500):
                response = connection.exchange("/kept", headers=GZIP)
                assert response.framing == "length"
            assert response.decoded == BODY

    def test_upstream_connection_is_reused(self, nginx, origin):
        origin.answers(geth())
        nginx.get("/kept")
        before = origin.connections
        for _ in range(20):
            assert nginx.get("/kept").decoded == BODY
        assert origin.connections == before

    def test_upstream_connection_is_not_reused_after_truncation(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=1000))
        assert nginx.get("/kept").status == 502
        origin.answers(geth())
        assert nginx.get("/kept").decoded == BODY


class TestPipelining:
    def test_pipelined_responses_are_in_order(self, nginx, origin):
        sizes = [30000, 100, 400000, 0, 1024, 5000, 300000, 1023]
        origin.answers(lambda request: answer(bodies.json(int(request.target.partition("=")[2]))))
        requests = b"".join(request_bytes(f"/kept?size={size}", headers=GZIP) for size in sizes)
        with nginx.connect() as connection:
            connection.send(requests)
            for size in sizes:
                assert connection.read().decoded == bodies.json(size)

    def test_pipelined_requests_may_be_split_anywhere(self, nginx, origin):
        origin.answers(lambda request: answer(bodies.json(3000), split=scattered(len(origin.requests))))
        requests = b"".join(
            request_bytes("/kept", method=method, headers=GZIP, body=b"{}" if method == "POST" else None)
            for method in ("GET", "POST", "GET", "POST")
        )
        chance = random.Random(7)
        for _ in range(20):
            cut = chance.randrange(1, len(requests))
            with nginx.connect() as connection:
                connection.send(requests[:cut])
                connection.send(requests[cut:])
                for _ in range(4):
                    assert connection.read().decoded == bodies.json(3000)

    def test_pipelined_requests_of_all_kinds_are_answered(self, nginx, origin):
        origin.answers(lambda request: answer(BODY, method=request.method))
        with nginx.connect() as connection:
            connection.send(
                request_bytes("/kept", headers=GZIP)
                + request_bytes("/nothing")
                + request_bytes("/kept", method="HEAD", headers=GZIP)
                + request_bytes("/kept")
                + request_bytes("/kept", headers=GZIP)
            )
            assert connection.read().decoded == BODY
            assert connection.read().status == 204
            assert connection.read("HEAD").length is None
            assert connection.read().body == BODY
            assert connection.read().decoded == BODY


def test_slow_client_gets_the_whole_response(nginx, origin):
    """The response waits in the module's buffer while the client's window is closed."""
    body = bodies.random(200000) + bodies.json(800000)
    origin.answers(answer(body))
    with nginx.connect(receive_buffer=4096) as connection:
        connection.send(request_bytes("/kept", headers=GZIP))
        head_ = connection.read_head()
        coded = connection.take(head_.length)
    assert head_.coding == "gzip"
    assert gunzip(coded) == body

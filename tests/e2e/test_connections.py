"""Versions, framing and many answers on one connection."""

import random

import pytest

from harness import bodies
from harness.client import Truncated, gunzip, request_bytes
from harness.nodes import BODY, geth, plain
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
    def test_the_nodes_version_does_not_matter(self, nginx, origin, path, node):
        origin.answers(answer(BODY, version=node))
        response = nginx.get(path)
        assert (response.coding, response.framing, response.decoded) == ("gzip", "length", BODY)

    def test_a_1_0_client_keeps_its_connection(self, nginx, origin):
        origin.answers(plain())
        with nginx.connect() as connection:
            for _ in range(3):
                response = connection.exchange("/by-1.0", version="1.0", headers=[*GZIP, ("Connection", "keep-alive")])
                assert (response.coding, response.framing, response.body) == (None, "length", BODY)

    def test_a_1_0_client_gets_an_unknown_length_until_close(self, nginx, origin):
        origin.answers(plain(framing="chunked"))
        response = nginx.get("/by-1.1", version="1.0")
        assert (response.framing, response.body) == ("close", BODY)

    def test_a_1_0_clients_unreadable_gzip_is_inflated(self, nginx, origin):
        origin.answers(plain(coding="gzip"))
        response = nginx.get("/by-1.0", accept=None, version="1.0")
        assert (response.coding, response.framing, response.body) == (None, "length", BODY)


class TestDelimitedByClose:
    def test_a_whole_one_arrives(self, nginx, origin):
        origin.answers(answer(BODY, framing="close", version="1.0"))
        response = nginx.get("/by-1.0")
        assert (response.framing, response.decoded) == ("chunked", BODY)
        assert response.mode == "stream"

    def test_json_that_closes_gets_a_length(self, nginx, origin):
        """Cut short it would not be JSON."""
        body = bodies.object(20000)
        origin.answers(answer(body, framing="close", version="1.0"))
        response = nginx.get("/by-1.0")
        assert (response.mode, response.framing, response.decoded) == ("oneshot", "length", body)

    def test_it_never_gets_a_length(self, nginx, origin):
        """nginx can't tell an end from a cut here; nor can we."""
        origin.answers(answer(BODY[:12345], framing="close"))
        response = nginx.get("/by-1.1")
        assert response.length is None
        assert response.decoded == BODY[:12345]


class TestCut:
    """A response cut short by the node is never completed."""

    def test_with_a_length_and_the_head_held(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=20000))
        response = nginx.get("/by-1.1")
        assert (response.status, response.coding) == (502, None)
        assert response.mode == "cut"

    def test_with_a_length_and_the_head_gone(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=20000))
        with pytest.raises(Truncated):
            nginx.get("/by-1.1", accept=None)

    def test_in_chunks_and_the_head_held(self, nginx, origin):
        origin.answers(answer(BODY, framing="chunked", cut_at=20000))
        response = nginx.get("/by-1.1")
        assert (response.status, response.coding, response.mode) == (502, None, "cut")

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_in_chunks_and_the_head_gone(self, nginx, origin, accept):
        origin.answers(answer(bodies.json(200000), framing="chunked", cut_at=150000))
        with pytest.raises(Truncated):
            nginx.get("/by-1.1", accept)

    def test_on_a_kept_connection(self, nginx, origin):
        """The next request on the client's connection is answered."""
        with nginx.connect() as connection:
            for number in range(6):
                origin.answers(answer(BODY, cut_at=100) if number % 2 else plain())
                response = connection.exchange("/kept", headers=GZIP)
                assert response.status == (502 if number % 2 else 200)
                if number % 2 == 0:
                    assert response.decoded == BODY


class TestWrongLengths:
    def test_more_than_promised_is_cut_off(self, nginx, origin):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", "20000")]), BODY, CLOSE])
        response = nginx.get("/by-1.1")
        assert response.decoded == BODY[:20000]

    def test_more_than_promised_in_one_piece(self, nginx, origin):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", "2000")]) + BODY[:2500], CLOSE])
        response = nginx.get("/by-1.1")
        assert response.decoded == BODY[:2000]

    @pytest.mark.parametrize("value", ["-1", "20x", "99999999999999999999"])
    def test_a_length_that_is_none(self, nginx, origin, value):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", value)]), BODY, CLOSE])
        response = nginx.get("/by-1.1")
        if response.status != 502:
            # nginx 1.22 takes it for no length at all
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

    def test_every_kind_after_every_other(self, nginx, origin):
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

    def test_many_of_one_kind(self, nginx, origin):
        origin.answers(geth())
        with nginx.connect() as connection:
            for _ in range(500):
                response = connection.exchange("/kept", headers=GZIP)
                assert response.framing == "length"
            assert response.decoded == BODY

    def test_the_nodes_connection_is_used_again(self, nginx, origin):
        origin.answers(geth())
        nginx.get("/kept")
        before = origin.connections
        for _ in range(20):
            assert nginx.get("/kept").decoded == BODY
        assert origin.connections == before

    def test_the_nodes_connection_is_not_used_again_after_a_cut(self, nginx, origin):
        origin.answers(answer(BODY, cut_at=1000))
        assert nginx.get("/kept").status == 502
        origin.answers(geth())
        assert nginx.get("/kept").decoded == BODY


class TestPipelining:
    def test_answers_come_in_order(self, nginx, origin):
        sizes = [30000, 100, 400000, 0, 1024, 5000, 300000, 1023]
        origin.answers(lambda request: answer(bodies.json(int(request.target.partition("=")[2]))))
        requests = b"".join(request_bytes(f"/kept?size={size}", headers=GZIP) for size in sizes)
        with nginx.connect() as connection:
            connection.send(requests)
            for size in sizes:
                assert connection.read().decoded == bodies.json(size)

    def test_split_anywhere(self, nginx, origin):
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

    def test_kinds_mixed(self, nginx, origin):
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


def test_a_slow_reader_gets_everything(nginx, origin):
    """The answer waits in our buffer while the client's window is shut."""
    body = bodies.random(200000) + bodies.json(800000)
    origin.answers(answer(body))
    with nginx.connect(receive_buffer=4096) as connection:
        connection.send(request_bytes("/kept", headers=GZIP))
        head_ = connection.read_head()
        coded = connection.take(head_.length)
    assert head_.coding == "gzip"
    assert gunzip(coded) == body

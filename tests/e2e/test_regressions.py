"""Regressions of other modules at this position in nginx."""

import random
import threading

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.recorded_nodes import BODY, plain
from harness.origin import CLOSE, WaitFor, answer, byte_chunks, scattered
from harness.response_stream import open_stream
from harness.nginx_state import wait_until_idle

pytestmark = pytest.mark.bare

GZIP = [("Accept-Encoding", "gzip")]

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    sszip_hold 64k 60s;
    location / { proxy_pass http://@origin_unix@; }
    location /level-2 { sszip_comp_level 2; proxy_pass http://@origin@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin_unix@; }
    location /busy { proxy_buffer_size 1k; proxy_buffers 2 1k; proxy_busy_buffers_size 1k; proxy_pass http://@origin_unix@; }
    location /sub {
        proxy_buffering off;
        sub_filter '"number"' '"n"';
        sub_filter_once off;
        sub_filter_types application/json;
        proxy_pass http://@origin_unix@;
    }
    location /gzip { gzip on; gzip_types application/json; proxy_pass http://@origin_unix@; }
    location /return { default_type text/plain; return 200 "@text@"; }
}
""".replace("@text@", "x" * 3000)


class TestPartialUpstream:
    """ngx_brotli #20, zstd-nginx-module PR 23: an endless loop when the upstream's body ends
    early; the worker occupies a core."""

    @pytest.mark.parametrize("path", ["/", "/unbuffered", "/busy", "/gzip"])
    @pytest.mark.parametrize("framing", ["length", "chunked"])
    @pytest.mark.parametrize("cut_at", [0, 1, 1023, 1024, 8192, 29999])
    def test_worker_is_idle_after_a_truncated_response(self, nginx, origin, path, framing, cut_at):
        origin.answers(answer(BODY, framing=framing, cut_at=cut_at, split=scattered(cut_at)))
        try:
            assert nginx.get(path).status == 502
        except Truncated:
            # an unbuffered head is sent at once
            assert path == "/unbuffered"
        wait_until_idle(nginx)


class TestTruncation:
    """ngx_brotli #81, zstd-nginx-module PR 49: bodies that end at a border of a buffer lose
    their tail, first seen at 131072 bytes."""

    @pytest.mark.parametrize("path", ["/", "/unbuffered", "/busy"])
    @pytest.mark.parametrize("power", range(10, 22))
    def test_bodies_around_powers_of_two_are_complete(self, nginx, origin, path, power):
        for size in (2**power - 1, 2**power, 2**power + 1):
            body = bodies.json(size)
            origin.answers(plain(body))
            response = nginx.get(path)
            assert len(response.decoded) == size
            assert response.decoded == body

    @pytest.mark.parametrize("size", [131071, 131072, 131073, 262144, 262145])
    def test_incompressible_bodies_are_complete(self, nginx, origin, size):
        body = bodies.random(size // 2) + bodies.json(size - size // 2)
        origin.answers(plain(body))
        assert nginx.get("/").decoded == body

    @pytest.mark.parametrize("border", [4096, 8192, 16384, 32768, 65536])
    def test_bodies_whose_compressed_length_fills_a_buffer_are_complete(self, nginx, origin, border):
        """The output ends at a border and next to it: each random byte makes the compressed
        body one byte longer."""
        noise = bodies.random(66100)

        def compressed_length(count, shift):
            body = noise[shift : shift + count] + b"0" * 3000
            origin.answers(plain(body))
            # igzip's output, at level 1, grows in steps
            response = nginx.get("/level-2")
            assert (response.coding, response.decoded) == ("gzip", body)
            return len(response.body)

        lengths = set()
        for shift in range(100):  # other noise when a length is skipped
            count = border - 300
            count += border - compressed_length(count, shift)
            lengths |= {compressed_length(count + spare, shift) for spare in range(-2, 3)}
            if lengths >= {border - 1, border, border + 1}:
                return
        raise AssertionError(f"no body whose coded length is {border}: {sorted(lengths)}")


class TestFlush:
    """Buffers that flush, are last, are both, or are neither and empty: none of them may end
    a body early or be lost."""

    def test_body_is_complete_when_one_buffer_is_flush_and_last(self, nginx, origin):
        """Unbuffered, nginx marks the final piece flush and last (zstd)."""
        origin.answers(plain(split=scattered(3, 20)))
        for _ in range(5):
            assert nginx.get("/unbuffered").decoded == BODY

    def test_body_is_complete_when_every_byte_is_flushed(self, nginx, origin):
        body = bodies.json(2000)
        origin.answers(answer(body, split=byte_chunks))
        assert nginx.get("/unbuffered").decoded == body

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_unbuffered_pieces_arrive_at_once(self, nginx, origin, accept):
        """myguard's zstd #38: with proxy_buffering off nothing arrived until the end. Each
        piece must arrive at once, decodable."""
        got = [threading.Event() for _ in range(4)]
        head, *_ = answer(framing="chunked")
        script = [head]
        for number, event in enumerate(got):
            script += [b"5\r\npart%d\r\n" % number, WaitFor(event)]
        origin.answers([*script, b"0\r\n\r\n"])
        with nginx.connect() as connection:
            stream = open_stream(connection, "/unbuffered", accept)
            assert stream.head.coding == accept
            for number, event in enumerate(got):
                assert stream.until(5 * (number + 1)).endswith(b"part%d" % number)
                event.set()
            assert stream.finish() == b"part0part1part2part3"

    @pytest.mark.parametrize("accept", ["gzip", None])
    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    def test_body_is_complete_with_sync_buffers_of_sub_filter(self, nginx, origin, accept, framing):
        """ngx_brotli #116: sub_filter sends sync buffers, which restarted the encoder in the
        middle of a body."""
        origin.answers(plain(framing=framing, split=scattered(11, 30)))
        for _ in range(5):
            assert nginx.get("/sub", accept).decoded == BODY.replace(b'"number"', b'"n"')

    def test_empty_chunked_body_is_sent(self, nginx, origin):
        origin.answers(plain(b"", framing="chunked"))
        for path in ("/", "/unbuffered", "/gzip"):
            assert nginx.get(path).decoded == b""

    def test_body_is_complete_when_the_node_pauses_after_the_head(self, nginx, origin):
        go = threading.Event()
        head, body = answer(BODY)
        origin.answers([head, WaitFor(go), body])
        for path in ("/", "/unbuffered"):
            go.clear()
            with nginx.connect() as connection:
                connection.send(request_bytes(path, headers=GZIP))
                nginx.wait_for(lambda path=path: origin.received(path), "the node's request")
                go.set()
                assert connection.read().decoded == BODY


class TestFewBuffers:
    """A buffered body must release the upstream's buffers, or two of 1 KB stay full and the
    upstream waits for ever."""

    def test_body_larger_than_all_buffers_is_complete(self, nginx, origin):
        body = bodies.json(2000000)
        origin.answers(plain(body))
        response = nginx.get("/busy")
        assert (response.coding, response.decoded) == ("gzip", body)

    def test_body_in_pieces_of_random_length_is_complete(self, nginx, origin):
        chance = random.Random(2)
        body = bodies.json(50000)
        for seed in range(20):
            origin.answers(plain(body, split=scattered(seed, chance.randrange(1, 200))))
            assert nginx.get("/busy").decoded == body


def test_vary_is_sent_to_clients_with_and_without_gzip(nginx, origin):
    """ngx_brotli #44, #78, #97: a downstream cache sent the compressed variant to all
    clients."""
    origin.answers(plain(headers=[("Vary", "Origin")]))
    for accept in ("gzip", None, "br", "gzip;q=0"):
        assert nginx.get("/", accept).header("Vary") == "Origin, Accept-Encoding"


def test_body_is_compressed_once_when_gzip_is_on(nginx, origin):
    """ngx_brotli #50: brotli and gzip both compressed one body."""
    for coding in (None, "gzip"):
        origin.answers(plain(coding=coding))
        response = nginx.get("/gzip")
        assert response.all("Content-Encoding") == ["gzip"]
        assert response.decoded == BODY


def test_response_with_no_transform_is_sent_unchanged(nginx, origin):
    """nginx #1709: gzip ignores the directive."""
    origin.answers(plain(headers=[("Cache-Control", "no-transform"), ("ETag", '"a"')]))
    response = nginx.get("/")
    assert (response.coding, response.body, response.header("ETag")) == (None, BODY, '"a"')


def test_response_in_memory_is_compressed(nginx, origin):
    """Without upstream and file, a buffer is last in the first call."""
    response = nginx.get("/return")
    assert (response.coding, response.framing, response.decoded) == ("gzip", "length", b"x" * 3000)


def test_response_is_complete_at_its_length_before_the_node_closes(nginx, origin):
    """All bytes have arrived, the end of the stream has not: nginx knows the length, so that
    the response must not wait for the node to close."""
    go = threading.Event()
    origin.answers([*answer(BODY), WaitFor(go), CLOSE])
    for path in ("/", "/unbuffered", "/busy"):
        assert nginx.get(path).decoded == BODY
    go.set()

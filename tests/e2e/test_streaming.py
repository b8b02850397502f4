"""Bodies that are compressed as a stream: no byte is buffered when the node flushes, none is
lost at a border, and the stream ends when the node's body does."""

import random
import subprocess
import threading

import pytest

from harness import bodies, decoders
from harness.client import Truncated, gunzip, request_bytes
from harness.http2 import Http2Client
from harness.recorded_nodes import BODY
from harness.origin import CLOSE, WaitFor, answer, chunked, scattered
from harness.response_stream import open_stream
from tiers import alternate, times

GZIP = [("Accept-Encoding", "gzip")]
PATHS = ["/", "/unbuffered", "/level-2", "/level-3", "/one-buffer", "/small-buffers", "/large-buffers"]

CONFIG = """
upstream kept { server @origin_unix@; keepalive 4; }
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    sszip on;
    sszip_hold 0;
    location / { proxy_pass http://kept; }
    location /unbuffered { proxy_buffering off; proxy_pass http://kept; }
    location /level-2 { sszip_stream_level 2; proxy_pass http://kept; }
    location /level-3 { sszip_stream_level 3; proxy_pass http://kept; }
    location /one-buffer { sszip_buffers 1 1k; proxy_pass http://kept; }
    location /small-buffers { sszip_buffers 3 64; proxy_buffering off; proxy_pass http://kept; }
    location /large-buffers { sszip_buffers 2 512k; proxy_buffers 8 128k; proxy_busy_buffers_size 256k; proxy_pass http://kept; }
    location /hold { sszip_hold 64k 60s; proxy_pass http://kept; }
    location /hold/unbuffered { sszip_hold 64k 60s; proxy_buffering off; proxy_pass http://kept; }
    location /capped { sszip_max_oneshot 20k; proxy_pass http://kept; }
    location /none { sszip_memory 0; proxy_pass http://kept; }
    location /some { sszip_memory 1500k; sszip_hold 16m 60s; proxy_pass http://kept; }
    location /sub {
        sub_filter '"number"' '"n"';
        sub_filter_once off;
        sub_filter_types application/json;
        proxy_pass http://kept;
    }
    location /sub/unbuffered {
        proxy_buffering off;
        sub_filter '"number"' '"n"';
        sub_filter_once off;
        sub_filter_types application/json;
        proxy_pass http://kept;
    }
    location /ssi { ssi on; ssi_types application/json; proxy_pass http://kept; }
    location /rate { limit_rate 500k; proxy_pass http://kept; }
    location /gzip { gzip on; gzip_types application/json; proxy_pass http://kept; }
    location /close { proxy_http_version 1.0; proxy_pass http://@origin_unix@; }
}
server {
    listen 127.0.0.1:@port_h2@ http2;
    proxy_http_version 1.1;
    sszip on;
    sszip_hold 0;
    location / { proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin_unix@; }
}
"""


def stepwise(pieces):
    """A node that sends each piece when its gate opens."""
    gates = [threading.Event() for _ in pieces]
    script = answer(framing="chunked")[:1]
    for piece, gate in zip(pieces, gates, strict=True):
        script += [*chunked([piece], last=False), WaitFor(gate)]
    return [*script, b"0\r\n\r\n"], gates


def test_igzip_is_used(nginx, origin):
    """The set-up script installs libisal2."""
    origin.answers(answer(BODY, framing="chunked"))
    assert nginx.get("/").mode == "stream"
    assert loaded(nginx, b"/libisal.so.2")


def loaded(nginx, library):
    (worker,) = nginx.workers()
    with open(f"/proc/{worker}/maps", "rb") as maps:
        return any(line.rstrip().find(library) >= 0 for line in maps)


class TestSizes:
    @pytest.mark.parametrize("power, path", alternate([0, 4, 10, 12, 13, 14, 15, 16, 17, 18, 20, 21], PATHS))
    def test_bodies_around_powers_of_two_are_complete(self, nginx, origin, path, power):
        """zstd-nginx-module PR 49: a tail lost at 131072 bytes."""
        for size in (2**power - 1, 2**power, 2**power + 1):
            body = bodies.json(size)
            origin.answers(answer(body, framing="chunked", split=scattered(size, 30)))
            response = nginx.get(path)
            assert len(response.decoded) == size
            assert response.decoded == body

    @pytest.mark.parametrize(
        "size, path", alternate([4095, 8191, 8192, 8193, 32768, 65535, 131071, 131072, 131073, 500000], PATHS)
    )
    def test_incompressible_body_is_streamed(self, nginx, origin, path, size):
        origin.answers(answer(bodies.random(size), framing="chunked"))
        response = nginx.get(path)
        assert (response.mode, response.decoded) == ("stream", bodies.random(size))

    @pytest.mark.parametrize("size", [20481, 65536, 131072, 1000000])
    def test_body_beyond_max_oneshot_is_streamed(self, nginx, origin, size):
        origin.answers(answer(bodies.json(size), headers=[("ETag", '"a"'), ("Accept-Ranges", "bytes")]))
        response = nginx.get("/capped")
        assert (response.mode, response.framing, response.decoded) == ("stream", "chunked", bodies.json(size))
        assert (response.header("ETag"), response.header("Accept-Ranges")) == ('W/"a"', None)
        assert response.header("Vary") == "Accept-Encoding"
        assert float(response.logged["ratio"]) == pytest.approx(size / len(response.body), abs=0.02)


class TestFlush:
    @pytest.mark.parametrize("path", ["/unbuffered", "/hold/unbuffered", "/small-buffers"])
    def test_pieces_arrive_before_the_next_one_is_sent(self, nginx, origin, path):
        chance = random.Random(9)
        body = bodies.json(200000)
        cuts = [0, 1, 2, *sorted(chance.sample(range(3, len(body)), 30)), len(body)]
        script, gates = stepwise([body[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)])
        origin.answers(script)
        with nginx.connect() as connection:
            stream = open_stream(connection, path)
            for end, gate in zip(cuts[1:], gates, strict=True):
                assert stream.until(end) == body[:end]
                gate.set()
            assert stream.finish() == body

    @pytest.mark.parametrize("path", ["/", "/hold"])
    def test_events_arrive_when_the_node_disables_buffering(self, nginx, origin, path):
        """Events are not delayed in a location with buffers, when the node sends
        X-Accel-Buffering, as nodes with events do."""
        events = [b"event: head\ndata: {\"slot\":\"%d\"}\n\n" % number for number in range(20)]
        script, gates = stepwise(events)
        script[0] = answer(type="text/event-stream", framing="chunked", headers=[("X-Accel-Buffering", "no")])[0]
        origin.answers(script)
        with nginx.connect() as connection:
            stream = open_stream(connection, path)
            assert (stream.head.coding, stream.head.length) == ("gzip", None)
            for number, gate in enumerate(gates):
                so_far = b"".join(events[: number + 1])
                assert stream.until(len(so_far)) == so_far
                gate.set()
            assert stream.finish() == b"".join(events)

    @pytest.mark.parametrize("split", [lambda body: [body], scattered(3, 20)], ids=["whole", "pieces"])
    def test_body_is_complete_when_last_piece_and_end_are_one_read(self, nginx, origin, split):
        """The node's last piece and its end arrive in one read."""
        script = answer(BODY, framing="chunked", split=split)
        script[-2:] = [b"".join(script[-2:])]
        origin.answers(script)
        for path in PATHS:
            assert nginx.get(path).decoded == BODY

    def test_body_is_complete_when_it_is_one_read(self, nginx, origin):
        origin.answers([b"".join(answer(BODY[:3000], framing="chunked"))])
        for path in PATHS:
            assert nginx.get(path).decoded == BODY[:3000]

    def test_body_is_complete_when_every_byte_is_flushed(self, nginx, origin):
        origin.answers(answer(BODY[:2000], framing="chunked", split=lambda body: [body[i : i + 1] for i in range(len(body))]))
        for path in ("/unbuffered", "/small-buffers"):
            assert nginx.get(path).decoded == BODY[:2000]

    @pytest.mark.parametrize("path", ["/sub", "/sub/unbuffered"])
    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    def test_body_is_complete_with_sync_buffers_of_sub_filter(self, nginx, origin, path, framing):
        """ngx_brotli #116: sync buffers restarted the encoder."""
        body = bodies.json(200000)
        origin.answers(answer(body, framing=framing, split=scattered(11, 60)))
        for _ in range(3):
            response = nginx.get(path)
            assert (response.mode, response.decoded) == ("stream", body.replace(b'"number"', b'"n"'))

    @pytest.mark.parametrize("size", [3000, 131072, 700000])
    def test_page_with_ssi_is_streamed(self, nginx, origin, size):
        body = bodies.json(size // 2) + b"<!--# echo var='nothing' default='' -->" + bodies.text(size // 2)
        origin.answers(answer(body, framing="chunked", split=scattered(5, 30)))
        response = nginx.get("/ssi")
        assert response.coding == "gzip"
        assert response.decoded == bodies.json(size // 2) + bodies.text(size // 2)


class TestMemory:
    def test_body_is_sent_in_identity_without_memory_for_an_encoder(self, nginx, origin):
        origin.answers(answer(BODY, framing="chunked", headers=[("ETag", '"a"')]))
        response = nginx.get("/none")
        assert (response.mode, response.coding, response.body) == ("memory", None, BODY)
        assert response.header("ETag") == '"a"'

    def test_body_is_streamed_with_memory_for_an_encoder_only(self, nginx, origin):
        body = bodies.json(5000000)
        origin.answers(answer(body, framing="chunked"))
        response = nginx.get("/some")
        assert (response.mode, response.decoded) == ("stream", body)


class TestCut:
    @pytest.mark.parametrize("path", ["/", "/unbuffered"])
    def test_truncated_http2_stream_is_reset(self, nginx, origin, path):
        """curl reports RST_STREAM; other streams continue."""
        body = bodies.json(100000)
        origin.answers(lambda request: answer(body, framing="chunked", cut_at=60000 if "cut" in request.target else None))
        url = f"http://127.0.0.1:{nginx.ports['port_h2']}{path}"
        command = ["curl", "-sS", "--compressed", "--http2-prior-knowledge"]
        done = subprocess.run([*command, f"{url}?cut"], capture_output=True)
        assert done.returncode != 0
        assert len(done.stdout) <= 60000
        done = subprocess.run([*command, url], capture_output=True)
        assert (done.returncode, done.stdout) == (0, body)

    @pytest.mark.parametrize("path", ["/", "/unbuffered"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_truncated_http2_streams_do_not_affect_others(self, nginx, origin, path, accept):
        """RFC 9113, 8.1.1: a truncated stream is reset; END_STREAM would mark it as
        complete."""
        body = bodies.json(100000)
        cut = [answer(framing="chunked")[0], *chunked([body[:60000]], last=False), CLOSE]
        origin.answers(lambda request: cut if "cut" in request.target else answer(body, framing="chunked"))
        with Http2Client(nginx.ports["port_h2"]) as client:
            streams = [client.fetch(f"{path}?{'cut' if number % 3 == 0 else 'whole'}", accept) for number in range(12)]
            client.finish(*streams)
        for number, stream in enumerate(streams):
            assert client.heads[stream][":status"] == "200"
            assert (stream in client.resets) == (number % 3 == 0)
            if number % 3 and accept:
                assert gunzip(bytes(client.bodies[stream])) == body
            elif number % 3:
                assert client.bodies[stream] == body
            elif accept:
                with pytest.raises(Truncated):
                    gunzip(bytes(client.bodies[stream]))
            else:
                assert body.startswith(client.bodies[stream])

    @pytest.mark.parametrize("path", PATHS)
    def test_truncated_body_is_visibly_truncated(self, nginx, origin, path):
        chance = random.Random(path)
        for _ in range(times(6, 15)):
            body = bodies.json(chance.randrange(70000, 300000))
            origin.answers(answer(body, framing="chunked", split=scattered(1, 20), cut_at=chance.randrange(len(body))))
            try:
                # truncated before the head was sent: an error
                assert nginx.get(path).status == 502
            except Truncated:
                pass


class TestConnections:
    def test_response_to_head_has_no_body_and_keeps_the_connection(self, nginx, origin):
        origin.answers(answer(method="HEAD", framing="chunked"))
        for path in PATHS:
            with nginx.connect() as connection:
                response = connection.exchange(path, method="HEAD", headers=GZIP)
                assert (response.status, response.length, response.body) == (200, None, b"")
                assert connection.exchange(path, method="HEAD", headers=GZIP).status == 200

    @pytest.mark.parametrize("path", ["/", "/unbuffered"])
    def test_http_1_0_client_gets_identity_until_close(self, nginx, origin, path):
        """gzip_http_version excludes HTTP/1.0; the body ends at the close."""
        origin.answers(answer(BODY, framing="chunked"))
        response = nginx.get(path, version="1.0")
        assert (response.mode, response.framing, response.body) == ("host-policy", "close", BODY)

    def test_responses_of_all_kinds_alternate_on_one_connection(self, nginx, origin):
        chance = random.Random(4)
        kinds = {
            "/hold?kind=oneshot": dict(body=BODY, framing="chunked"),
            "/hold?kind=stream": dict(body=bodies.json(200000), framing="chunked"),
            "/unbuffered?kind=stream": dict(body=bodies.json(3000), framing="chunked"),
            "/?kind=identity": dict(body=bodies.json(200000), framing="chunked", type="image/png"),
            "/?kind=small": dict(body=b"{}", framing="length"),
            "/?kind=empty": dict(body=b"", framing="chunked"),
            "/capped?kind=large": dict(body=bodies.json(300000)),
        }
        origin.answers(lambda request: answer(**kinds[request.target], split=scattered(chance.random(), 8)))
        with nginx.connect() as connection:
            for _ in range(times(80, 150)):
                target = chance.choice(list(kinds))
                response = connection.exchange(target, headers=GZIP)
                assert response.decoded == kinds[target]["body"]
                if "?kind=oneshot" in target or "?kind=small" in target:
                    assert response.framing == "length"
                elif "?kind=empty" not in target:
                    assert response.framing == "chunked"

    def test_pipelined_streams_are_in_order(self, nginx, origin):
        kinds = {
            "/hold?a": answer(BODY, framing="chunked"),
            "/unbuffered?b": answer(bodies.json(100000), framing="chunked", split=scattered(1)),
            "/?c": answer(BODY, framing="chunked", type="image/png"),
            "/capped?d": answer(bodies.json(300000)),
        }
        expected = [BODY, bodies.json(100000), BODY, bodies.json(300000)] * 5
        origin.answers(lambda request: kinds[request.target])
        with nginx.connect() as connection:
            connection.send(b"".join(request_bytes(target, headers=GZIP) for target in list(kinds) * 5))
            for body in expected:
                assert connection.read().decoded == body

    def test_trailers_are_not_part_of_the_body(self, nginx, origin):
        """nginx drops a node's trailers; the compressed body ends before them."""
        head, body, last = answer(BODY, framing="chunked")
        origin.answers([head, body, b"0\r\nX-Checksum: 1\r\n\r\n"])
        for path in ("/", "/unbuffered", "/hold"):
            assert nginx.get(path).decoded == BODY

    def test_stream_is_complete_with_limit_rate(self, nginx, origin):
        body = bodies.random(100000)
        origin.answers(answer(body, framing="chunked"))
        assert nginx.get("/rate").decoded == body

    def test_stream_is_compressed_once_when_gzip_is_on(self, nginx, origin):
        origin.answers(answer(bodies.json(200000), framing="chunked", split=scattered(2)))
        response = nginx.get("/gzip")
        assert response.all("Content-Encoding") == ["gzip"]
        assert (response.mode, response.decoded) == ("stream", bodies.json(200000))

    def test_concurrent_http2_streams_are_complete(self, nginx, origin):
        origin.answers(lambda request: answer(bodies.json(int(request.path[1:])), framing="chunked", split=scattered(7)))
        with Http2Client(nginx.ports["port_h2"], window=20000) as client:
            streams = {client.fetch(f"/{1000 + 7919 * number}"): 1000 + 7919 * number for number in range(40)}
            client.finish(*streams)
            for stream, size in streams.items():
                assert gunzip(bytes(client.bodies[stream])) == bodies.json(size)
                assert client.heads[stream]["content-encoding"] == "gzip"
                assert "content-length" not in client.heads[stream]


@pytest.mark.parametrize(
    "size, path",
    alternate([1, 1024, 32768, 65537, 131072, 1000000, 3000000], ["/", "/unbuffered", "/level-2", "/level-3"]),
)
def test_decoders_read_streams(nginx, origin, decoder_processes, path, size, tmp_path):
    body = bodies.json(size)
    origin.answers(answer(body, framing="chunked", split=scattered(size, 25)))
    response = nginx.get(path)
    assert response.mode in ("stream", "too-small")
    if response.coding:
        for decode in (decoders.gzip_command, gunzip, *decoder_processes.values()):
            assert decode(response.body) == body
    done = subprocess.run(
        ["curl", "-sS", "--fail", "--compressed", f"http://127.0.0.1:{nginx.port}{path}"], capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, body)

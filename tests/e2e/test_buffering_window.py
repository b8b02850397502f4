"""The buffering window: a response of unknown length that ends within it is handled as one
with a length; beyond it the response is a stream. Times are 0 or far too long, so that no
test depends on the machine's speed."""

import math
import random
import threading
import zlib

import pytest

from harness import bodies, cases
from harness.client import Truncated
from harness.response_checks import CALL, check_body
from harness.recorded_nodes import BODY
from harness.origin import CLOSE, WaitFor, answer, chunked
from harness.response_stream import open_stream
from test_cases_nginx import directives
from tiers import row_id, rows_with_divisions

def can_come_in_pieces(case):
    return (
        # 204 and 304 have no body, and no end to delimit
        case.response["status"] not in (204, 304)
        # it is known to be too small only when it is buffered, which takes memory
        and case.name != "memory: the small answer beside it needs none"
        # rows about the length itself
        and case.name != "framing: trailers announced beside a length"
        and not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in case.response["headers"])
    )


ROWS = [case for case in cases.load("nginx") if can_come_in_pieces(case)]
WITHOUT_HOLD = [case for case in ROWS if "hold" not in case.config]
# Modes of bodies that were buffered, and so have a length.
BUFFERED_MODES = {"oneshot", "inflate", "too-small", "not-smaller"}
# Modes of rows that are streamed without a window.
STREAMED = BUFFERED_MODES - {"inflate"}

LOCATIONS = {}
for row in ROWS:
    for hold in ("16m 60s", "0"):
        LOCATIONS.setdefault((tuple(sorted(row.config.items())), hold), f"/config-{len(LOCATIONS)}/")

CONFIG = (
    """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    proxy_buffer_size 4k;
    proxy_buffers 8 4k;
    sszip on;
    sszip_hold 64k 60s;
    location / { proxy_pass http://@origin_unix@; }
    location /never { sszip_hold 0; proxy_pass http://@origin_unix@; }
    location /no-time { sszip_hold 64k 0; proxy_pass http://@origin_unix@; }
    location /soon { sszip_hold 64k 1ms; proxy_pass http://@origin_unix@; }
    location /large { sszip_hold 1m 60s; proxy_pass http://@origin_unix@; }
    location /capped { sszip_hold 1m 60s; sszip_max_oneshot 20k; proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin_unix@; }
"""
    + "".join(
        f"location {path} {{ {directives({'hold': hold, **dict(config)})} proxy_pass http://@origin_unix@; }}\n"
        for (config, hold), path in LOCATIONS.items()
    )
    + "}"
)


def pieces(seed, most=40):
    """Pieces of 1 byte to 64 KB, of every order of magnitude."""

    def split(body):
        chance = random.Random(seed)
        at, cut = 0, []
        while at < len(body) and len(cut) < most:
            size = int(2 ** chance.uniform(0, 16))
            cut.append(body[at : at + size])
            at += size
        return cut + [body[at:]] if at < len(body) else cut

    return split


def paused(script):
    """Pauses between the pieces, so that nginx has nothing to read."""
    for step in script:
        yield step
        yield WaitFor(threading.Event(), 0.001)


def play(nginx, origin, case, hold, arrival):
    """Runs a row with the node's body in chunks, or until the close if the row is about
    that."""
    most, pause = ARRIVALS[arrival]
    seed = zlib.crc32(f"{case.name}{most}".encode())
    script = answer(
        case.plain,
        status=case.response["status"],
        headers=[tuple(line) for line in case.response["headers"]],
        type=None,
        framing="close" if case.response["framing"] == "close" else "chunked",
        coding=case.response.get("coding"),
        cut_at=case.response.get("cut_at"),
        split=pieces(seed, most),
        method=case.request["method"],
    )
    origin.answers(list(paused(script)) if pause else script)
    return nginx.get(
        LOCATIONS[(tuple(sorted(case.config.items())), hold)],
        accept=None,
        method=case.request["method"],
        version=case.request["version"],
        headers=[tuple(line) for line in case.request["headers"]],
        body=CALL if case.request["method"] == "POST" else None,
    )


def judge(case, response, mode, is_buffered):
    assert response.status == case.expect["status"]
    if mode is not None:
        assert response.mode == mode
    check_body(case, response)
    if case.request["method"] != "HEAD" and response.status == 200 and not case.is_encoded_by_node:
        # (a buffered body that could not be decoded has a length as well)
        unframed = "close" if case.request["version"] == "1.0" else "chunked"
        assert response.framing == ("length" if is_buffered else unframed)
    for name, value in case.expect.get("headers", []):
        if name != "Content-Length":
            assert response.header(name) == value, name
    for name in case.expect.get("absent", []):
        assert response.all(name) == [], name


ROWS_AGAIN = pytest.mark.carried("the parity table: the core decides its rows")
# The number of the node's pieces, and whether it pauses between them.
ARRIVALS = {"pieces": (40, False), "pauses": (6, True)}


@ROWS_AGAIN
@pytest.mark.parametrize("case, arrival", rows_with_divisions(ROWS, list(ARRIVALS)), ids=row_id)
def test_chunked_row_equals_the_row_with_a_length_in_a_large_window(nginx, origin, case, arrival):
    """The results are equal if the window is large enough."""
    response = play(nginx, origin, case, "16m 60s", arrival)
    is_buffered = response.mode in BUFFERED_MODES and (case.response["framing"] == "length" or case.expect["length"] == "exact")
    judge(case, response, case.expect.get("mode"), is_buffered)


@ROWS_AGAIN
@pytest.mark.parametrize("case, arrival", rows_with_divisions(WITHOUT_HOLD, list(ARRIVALS), first=1), ids=row_id)
def test_chunked_row_is_streamed_without_a_window(nginx, origin, case, arrival):
    """A body that would be compressed whole is compressed as a stream, whether small or
    incompressible; a body that can't be compressed is sent unchanged."""
    mode = case.expect.get("mode")
    if mode == "cut" and not case.is_encoded_by_node:
        with pytest.raises(Truncated):
            play(nginx, origin, case, "0", arrival)
        return
    response = play(nginx, origin, case, "0", arrival)
    if mode in STREAMED:
        assert (response.mode, response.framing, response.coding) == ("stream", "chunked", case.streamed_coding)
        assert response.decoded == case.plain
    else:
        judge(case, response, mode, mode == "inflate")


class TestBytes:
    @pytest.mark.parametrize("path, border", [("/", 65536), ("/large", 1048576), ("/capped", 20480)])
    @pytest.mark.parametrize("split", [lambda body: [body], pieces(1), pieces(2)], ids=["whole", "pieces", "others"])
    def test_body_is_buffered_up_to_the_limit_and_streamed_beyond(self, nginx, origin, path, border, split):
        for size in (border - 1, border):
            origin.answers(answer(bodies.json(size), framing="chunked", split=split))
            response = nginx.get(path)
            assert (response.mode, response.framing) == ("oneshot", "length")
            assert response.decoded == bodies.json(size)
        origin.answers(answer(bodies.json(border + 1), framing="chunked", split=split))
        response = nginx.get(path)
        assert (response.mode, response.framing) == ("stream", "chunked")
        assert response.decoded == bodies.json(border + 1)

    @pytest.mark.parametrize("path", ["/", "/never", "/large", "/soon"])
    def test_empty_body_is_sent_with_any_window(self, nginx, origin, path):
        origin.answers(answer(b"", framing="chunked"))
        response = nginx.get(path)
        assert response.decoded == b""

    def test_body_is_streamed_at_once_when_the_window_is_zero(self, nginx, origin):
        go = threading.Event()
        head, *_ = answer(framing="chunked")
        origin.answers([head + chunked([BODY[:3000]], last=False)[0], WaitFor(go), *chunked([BODY[3000:]])])
        with nginx.connect() as connection:
            stream = open_stream(connection, "/never")
            assert (stream.head.coding, stream.chunked) == ("gzip", True)
            assert stream.until(3000) == BODY[:3000]
            go.set()
            assert stream.finish() == BODY

    def test_body_is_streamed_at_the_first_byte_beyond_the_window(self, nginx, origin):
        """Without end, flush or time-out, the first byte beyond the window suffices (and one
        proxy buffer, which nginx keeps until it is full)."""
        go = threading.Event()
        body = bodies.json(65537 + 4096)
        head, *_ = answer(framing="chunked")
        origin.answers([head, *chunked([body], last=False), WaitFor(go), b"0\r\n\r\n"])
        with nginx.connect() as connection:
            stream = open_stream(connection, "/")
            assert (stream.head.coding, stream.chunked) == ("gzip", True)
            go.set()
            assert stream.finish() == body


class TestTime:
    @pytest.mark.parametrize("path", ["/soon", "/no-time"])
    @pytest.mark.parametrize("first", [1, 1000, 30000, 65536])
    def test_bytes_are_sent_when_the_node_pauses_longer_than_the_window(self, nginx, origin, path, first):
        """The client receives head and first bytes while the node pauses, and can decode
        them; later bytes likewise. nginx itself keeps a proxy buffer until it is full, so that
        its bytes may be missing."""
        body = bodies.json(300000)
        cuts = [0, first, first + 1, first + 5000, 200000, len(body)]
        gates = [threading.Event() for _ in cuts[1:]]
        script = answer(framing="chunked")[:1]
        for start, end, gate in zip(cuts[:-1], cuts[1:], gates, strict=True):
            script += [*chunked([body[start:end]], last=False), WaitFor(gate)]
        origin.answers([*script, b"0\r\n\r\n"])
        with nginx.connect() as connection:
            stream = open_stream(connection, path)
            for end, gate in zip(cuts[1:], gates, strict=True):
                assert stream.until(max(1, end - 4096)) == body[: max(1, end - 4096)]
                gate.set()
            assert stream.finish() == body

    def test_head_is_sent_when_the_node_pauses_after_it(self, nginx, origin):
        go = threading.Event()
        head, *body = answer(BODY, framing="chunked")
        origin.answers([head, WaitFor(go), *body])
        with nginx.connect() as connection:
            stream = open_stream(connection, "/soon")
            assert stream.head.coding == "gzip"
            go.set()
            assert stream.finish() == BODY

    def test_body_with_a_length_is_buffered_beyond_the_window(self, nginx, origin):
        """The window is for unknown lengths only."""
        head, body = answer(BODY)
        origin.answers([head, body[:100], WaitFor(threading.Event(), 0.03), body[100:]])
        response = nginx.get("/soon")
        assert (response.mode, response.framing, response.decoded) == ("oneshot", "length", BODY)

    def test_client_without_gzip_is_not_delayed(self, nginx, origin):
        go = threading.Event()
        head, *_ = answer(framing="chunked")
        origin.answers([head + chunked([BODY[:3000]], last=False)[0], WaitFor(go), *chunked([BODY[3000:]])])
        with nginx.connect() as connection:
            stream = open_stream(connection, "/", accept=None)
            assert stream.until(3000) == BODY[:3000]
            go.set()
            assert stream.finish() == BODY


class TestCut:
    @pytest.mark.parametrize("path", ["/", "/large"])
    @pytest.mark.parametrize("cut_at", [0, 1, 1023, 20000])
    def test_truncation_in_the_window_is_a_502(self, nginx, origin, path, cut_at):
        origin.answers(answer(BODY, framing="chunked", cut_at=cut_at))
        response = nginx.get(path)
        assert (response.status, response.coding, response.mode) == (502, None, "cut")

    @pytest.mark.parametrize("path", ["/never", "/soon", "/unbuffered", "/"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_truncation_after_the_head_is_visible(self, nginx, origin, path, accept):
        """The client receives the bytes that arrived, and no end."""
        go = threading.Event()
        body = bodies.json(100000)
        head, *_ = answer(framing="chunked")
        origin.answers([head, *chunked([body], last=False), WaitFor(go), CLOSE])
        uri = nginx.uri(path)
        with nginx.connect() as connection:
            stream = open_stream(connection, uri, accept)
            if path != "/":  # there the encoder may keep its bytes for 60 s
                stream.until(len(body) if path == "/unbuffered" else len(body) - 4096)
            go.set()
            with pytest.raises(Truncated):
                stream.finish()
        if accept:
            assert nginx.logged(uri)["mode"] == "cut"

    @pytest.mark.parametrize("cut", range(0, 100000, 7919))
    def test_truncated_body_beyond_max_oneshot_is_visibly_truncated(self, nginx, origin, cut):
        origin.answers(answer(bodies.json(100000), cut_at=cut))
        with pytest.raises(Truncated):
            nginx.get("/capped")


class TestDelimitedByClose:
    @pytest.mark.parametrize("size", [1024, 20000, 65536])
    @pytest.mark.parametrize("split", [lambda body: [body], pieces(3)], ids=["whole", "pieces"])
    def test_closed_json_is_sent_with_a_length(self, nginx, origin, size, split):
        body = bodies.object(size)
        origin.answers(answer(body, framing="close", split=split))
        response = nginx.get("/")
        assert (response.mode, response.framing, response.decoded) == ("oneshot", "length", body)

    @pytest.mark.parametrize("missing", [1, 2, 1000])
    def test_unclosed_json_is_streamed(self, nginx, origin, missing):
        body = bodies.object(20000)[:-missing]
        origin.answers(answer(body, framing="close"))
        response = nginx.get("/")
        assert (response.mode, response.framing, response.decoded) == ("stream", "chunked", body)

    @pytest.mark.parametrize("size", [1, 100, 1023])
    def test_small_body_delimited_by_close_is_sent_chunked(self, nginx, origin, size):
        body = bodies.json(size)
        origin.answers(answer(body, framing="close"))
        response = nginx.get("/")
        assert (response.mode, response.framing, response.body) == ("too-small", "chunked", body)

    @pytest.mark.parametrize("size", [65537, 200000])
    def test_json_beyond_the_window_is_streamed(self, nginx, origin, size):
        body = bodies.object(size)
        origin.answers(answer(body, framing="close", split=pieces(4)))
        response = nginx.get("/")
        assert (response.mode, response.framing, response.decoded) == ("stream", "chunked", body)


def test_generated_pieces_have_every_order_of_magnitude():
    sizes = [len(piece) for seed in range(20) for piece in pieces(seed)(bytes(1000000))[:-1]]
    assert {int(math.log2(size)) for size in sizes} == set(range(16))

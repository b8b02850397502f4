"""HTTP/2 clients: many streams on one connection, large bodies, small windows, and reset
streams."""

import random
import subprocess

import pytest

from harness import bodies
from harness.http2 import Http2Client
from harness.recorded_nodes import geth
from harness.origin import answer

pytestmark = pytest.mark.bare

CONFIG = """
server {
    listen 127.0.0.1:@port@ http2;
    http2_max_concurrent_streams 256;
    proxy_buffers 16 64k;
    proxy_busy_buffers_size 128k;
    sszip on;
    location / { proxy_pass http://@origin@; }
}
"""


def by_size(request):
    return geth(bodies.json(int(request.path[1:])))(request)


@pytest.mark.parametrize("compressed", [["--compressed"], []])
@pytest.mark.parametrize("size", [100, 1024, 30000, 300000, 3000000])
def test_curl_reads_responses_over_http2(nginx, origin, size, compressed):
    origin.answers(by_size)
    command = ["curl", "-sS", "--fail", "--http2-prior-knowledge", *compressed]
    done = subprocess.run([*command, f"http://127.0.0.1:{nginx.port}/{size}"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == bodies.json(size)


def test_concurrent_streams_get_their_own_responses(nginx, origin):
    origin.answers(by_size)
    sizes = [1024 + 997 * number for number in range(100)]
    with Http2Client(nginx.port) as client:
        streams = {client.fetch(f"/{size}", "gzip" if size % 2 else None): size for size in sizes}
        client.finish(*streams)
        for stream, size in streams.items():
            client.check_response(stream, bodies.json(size), "gzip" if size % 2 else None)


@pytest.mark.parametrize("window", [1, 100, 16383, 65535])
def test_responses_are_complete_with_small_windows(nginx, origin, window):
    origin.answers(by_size)
    size = 3000 if window == 1 else 400000
    with Http2Client(nginx.port, window) as client:
        streams = [client.fetch(f"/{size}") for _ in range(3)]
        client.finish(*streams)
        for stream in streams:
            client.check_response(stream, bodies.json(size))


def test_closed_window_blocks_its_own_stream_only(nginx, origin):
    origin.answers(by_size)
    with Http2Client(nginx.port, window=0) as client:
        shut = client.fetch("/400000")
        while shut not in client.heads:
            client.step()
        opened = client.fetch("/30000")
        client.h2.increment_flow_control_window(1000000, opened)
        client.flush()
        client.finish(opened)
        client.check_response(opened, bodies.json(30000))
        assert client.bodies[shut] == b""
        client.h2.increment_flow_control_window(1000000, shut)
        client.flush()
        client.finish(shut)
        client.check_response(shut, bodies.json(400000))


def test_other_streams_are_complete_when_some_are_reset(nginx, origin):
    """Some of the streams are reset at any moment; the others are complete."""
    origin.answers(by_size)
    chance = random.Random(11)
    with Http2Client(nginx.port, window=20000) as client:
        for _ in range(15):
            streams = {client.fetch(f"/{size}"): size for size in (1500, 30000, 300000, 700000)}
            reset_streams = set(chance.sample(sorted(streams), 2))
            for _ in range(chance.randrange(4)):
                client.step()
            for stream in reset_streams - client.ended:
                client.reset(stream)
            whole = set(streams) - reset_streams
            client.finish(*whole)
            for stream in whole:
                client.check_response(stream, bodies.json(streams[stream]))


def test_response_to_head_has_no_length_and_no_body(nginx, origin):
    origin.answers(answer(bodies.json(30000), method="HEAD"))
    with Http2Client(nginx.port) as client:
        stream = client.fetch("/", method="HEAD")
        client.finish(stream)
        assert client.heads[stream].get("content-length") is None
        assert client.bodies[stream] == b""


def test_truncated_response_is_a_502_on_its_stream_only(nginx, origin):
    origin.answers(lambda request: answer(bodies.json(30000), cut_at=5000) if request.path == "/cut" else by_size(request))
    with Http2Client(nginx.port) as client:
        cut, whole = client.fetch("/cut"), client.fetch("/30000")
        client.finish(cut, whole)
        assert client.heads[cut][":status"] == "502"
        client.check_response(whole, bodies.json(30000))

"""A buffer that the encoder has read belongs to its owner again, who may refill it while the
encoder still has output of the old bytes. The stream filter once read such a buffer again:
pieces of the body changed places, with nginx's default buffers too. The fault takes a slow
client and small buffers."""

import random

import pytest

from harness import bodies
from harness.origin import answer, scattered
from harness.response_stream import open_stream

pytestmark = pytest.mark.bare

CONFIG = """
server {
    listen 127.0.0.1:@port@ sndbuf=4k;
    proxy_http_version 1.1;
    proxy_buffers 4 4k;
    proxy_busy_buffers_size 4k;
    proxy_buffer_size 4k;
    sszip on;
    sszip_hold 0;
    location /small { output_buffers 4 1k; sszip_buffers 2 1k; proxy_pass http://@origin_unix@; }
    location /default { proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; sszip_buffers 2 1k; proxy_pass http://@origin_unix@; }
}
"""


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


NOISE = bodies.random(65536)
TEXT = bodies.json(3000)


def mixed(seed):
    """A body, half compressible and half not: its output comes in bursts."""
    chance = random.Random(seed)
    parts = []
    for _ in range(400):
        at = chance.randrange(50000)
        parts += [TEXT[: chance.randrange(3000)], NOISE[at : at + chance.randrange(3000)]]
    return b"".join(parts)


@pytest.mark.parametrize("path", ["/small", "/default", "/unbuffered"])
@pytest.mark.parametrize("seed", range(8))
def test_body_is_in_order_when_buffers_are_recycled(nginx, origin, path, seed):
    body = mixed(seed)
    origin.answers(answer(body, framing="chunked", split=scattered(seed, 50)))
    with nginx.connect(receive_buffer=2048) as connection:
        assert open_stream(connection, path).finish() == body

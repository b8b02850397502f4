"""A gzip answer of a megabyte that decodes to hundreds: the worker's memory stays bounded."""

import json
import threading
import zlib

import pytest

from harness.nginx import peak
from harness.origin import answer
from harness.rpc import call

pytestmark = pytest.mark.bare

CONFIG = """
sszip on;
sszip_cache on;
sszip_memory 64m;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location /short/ { sszip_cache_namespace short; sszip_cache_max_entry 1m; proxy_pass http://@origin@; }
    location / { sszip_cache_namespace x; sszip_cache_max_entry 512m; sszip_max_oneshot 512m; proxy_pass http://@origin@; }
}
"""

JSON = [("Content-Type", "application/json")]
BOUND = (64 + 32) * 1024  # KiB


def bomb(length):
    """A result of so many zeros, of three bytes in a thousand."""
    coder = zlib.compressobj(9, wbits=31)
    zeros = b"0" * (1 << 20)
    parts = [coder.compress(b'{"jsonrpc":"2.0","id":1,"result":"0x')]
    parts += [coder.compress(zeros) for _ in range(length >> 20)]
    return b"".join([*parts, coder.compress(b'"}'), coder.flush()])


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG, workers=1)


@pytest.mark.parametrize("path", ["/short/", "/"])
@pytest.mark.parametrize("accept", ["gzip", None])
def test_gzip_answers_stay_within_memory(nginx, origin, path, accept):
    body = bomb(400 << 20)
    origin.answers(answer(body, headers=[("Content-Encoding", "gzip")]))
    (worker,) = nginx.workers()
    before = peak(worker)

    def ask(number):
        fields = JSON + ([("Accept-Encoding", accept)] if accept else [])
        params = json.dumps(["0x%040x" % number, "0x1"])
        with nginx.connect() as connection:
            response = connection.exchange(path, method="POST", headers=fields, body=call("eth_getCode", params))
        assert response.body == body

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert peak(worker) - before <= BOUND

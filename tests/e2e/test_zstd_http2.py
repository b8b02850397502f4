"""zstd over TLS and HTTP/2 with five workers: misses, hits and streams that share connections."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import bodies
from harness.copied_configs import certificate
from harness.decoders import zstandard_stream, zstandard_whole
from harness.http2 import Http2Client
from harness.origin import answer, scattered
from harness.rpc import Node, call
from tiers import times

CONFIG = """
sszip on;
sszip_zstd on;
proxy_http_version 1.1;
proxy_buffers 16 64k;
proxy_busy_buffers_size 128k;
add_header X-Worker $pid;
server {
    listen 127.0.0.1:@port@ ssl http2 reuseport;
    ssl_certificate @prefix@/chain.pem;
    ssl_certificate_key @prefix@/key.pem;
    location /cached { sszip_cache on; proxy_pass http://@origin@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin@; }
    location / { proxy_pass http://@origin@; }
}
"""
BROWSER = "gzip, deflate, br, zstd"
CLIENTS = 8
ROUNDS = times(3, 10)
# the longest is compressed on a thread if it is no stream
SIZES = [1500, 40_000, 600_000]
RESULTS = [b'"0x%b"' % bodies.json(size).hex().encode() for size in (1500, 5000, 20_000, 60_000)]


@pytest.fixture(scope="module")
def nginx(start_nginx, tmp_path_factory):
    chain, key = certificate(tmp_path_factory.mktemp("certificate"))
    return start_nginx(CONFIG, workers=5, files={"chain.pem": chain, "key.pem": key})


@pytest.fixture
def node(origin):
    results = {"eth_getBlockByHash": lambda params: RESULTS[int(params[0], 16)]}
    calls = Node(results, newline=b"")

    def respond(request):
        if request.method == "POST":
            return calls(request)
        size = int(request.path.rpartition("/")[2])
        framing = "chunked" if request.path.startswith("/stream") else "length"
        return answer(bodies.json(size), framing=framing, split=scattered(size))

    origin.answers(respond)
    return calls


def assert_zstd(client, stream, content, has_length):
    """The response is in zstd, as a package for Python decodes it."""
    head, body = client.heads[stream], bytes(client.bodies[stream])
    assert stream not in client.resets
    assert (head[":status"], head["content-encoding"], head["vary"]) == ("200", "zstd", "Accept-Encoding")
    assert head.get("content-length") == (str(len(body)) if has_length else None)
    decode = zstandard_whole if has_length else zstandard_stream
    assert decode(body) == content


def exchange_rounds(port, number):
    """Sends rounds of concurrent requests on one connection; returns its worker. The calls of all
    rounds are the same, except for their ids."""
    with Http2Client(port, tls=True) as client:
        for turn in range(ROUNDS):
            expected = {}
            for block, result in enumerate(RESULTS):
                id = (number * ROUNDS + turn) * len(RESULTS) + block
                body = call("eth_getBlockByHash", f'["0x{block:064x}",true]', id=str(id))
                stream = client.fetch("/cached", BROWSER, method="POST", body=body)
                expected[stream] = (b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result), True)
            calls = list(expected)
            for size in SIZES:
                expected[client.fetch(f"/{size}", BROWSER)] = (bodies.json(size), True)
                expected[client.fetch(f"/stream/{size}", BROWSER)] = (bodies.json(size), False)
            client.finish(*expected)
            for stream, (content, has_length) in expected.items():
                assert_zstd(client, stream, content, has_length)
            for stream in calls:
                # the worker has stored the responses of its first round
                assert turn == 0 or "; hit" in client.heads[stream]["cache-status"]
        return client.heads[stream]["x-worker"]


def test_concurrent_misses_hits_and_streams_over_tls_are_decodable(nginx, node):
    with ThreadPoolExecutor(CLIENTS) as pool:
        workers = set(pool.map(lambda number: exchange_rounds(nginx.port, number), range(CLIENTS)))
    assert len(workers) > 1
    # at most once in each worker
    assert len(RESULTS) <= node.count() <= len(RESULTS) * len(workers)

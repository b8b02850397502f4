"""Long answers are stored before they are read strictly: what turns out to be
no answer reaches its own client, as the node sent it, and nobody else."""

import itertools

import pytest

from harness import bodies
from harness.rpc import Node, call

CONFIG = """
sszip on;
sszip_cache on;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { sszip_cache_namespace $arg_chain; proxy_pass http://@origin@; }
    location /alone { sszip_thread_pool off; sszip_cache_namespace $arg_chain; proxy_pass http://@origin@; }
}
"""

BY_HASH = '["0x' + "ab" * 32 + '",true]'
_chains = itertools.count()


def data(length):
    return b'"0x' + bodies.json(length // 2).hex().encode() + b'"'


@pytest.fixture(params=["/", "/alone"])
def path(request):
    return f"{request.param}?chain={next(_chains)}"


# read by the event loop, and by a thread
@pytest.mark.parametrize("length", [20_000, 600_000])
@pytest.mark.parametrize("accept", ["gzip", None])
@pytest.mark.parametrize(
    "spoilt",
    [
        lambda good: good + b',"error":{}',
        lambda good: good + b',"id":"2"',
        lambda good: b"[" + good + b"}]",
        lambda good: b'["\xff",' + good + b"]",
        lambda good: b'["\n",' + good + b"]",
    ],
)
def test_what_is_no_answer(nginx, origin, path, length, accept, spoilt):
    sent = spoilt(data(length))
    node = Node({"eth_getBlockByHash": sent})
    origin.answers(node)
    for n in range(1, 5):
        got = nginx.post(path, call("eth_getBlockByHash", BY_HASH, str(n)), accept)
        assert got.status == 200 and node.count() == n
        # long ones, too, after a look-up beside the loop that came to nothing
        assert (got.coding, got.header("Vary")) == (accept, "Accept-Encoding")
        assert got.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (n, sent)
    # the node has come to its senses: what is stored of it now is an answer
    node.results["eth_getBlockByHash"] = data(length)
    bodies_sent = [
        nginx.post(path, call("eth_getBlockByHash", BY_HASH, str(n)), accept).decoded
        for n in range(5, 10)
    ]
    expected = [b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (n, data(length)) for n in range(5, 10)]
    assert bodies_sent == expected
    assert node.count() <= 6


@pytest.mark.parametrize("length", [20_000, 600_000])
def test_the_first_hit_is_one(nginx, origin, path, length):
    node = Node({"eth_getBlockByHash": data(length)})
    origin.answers(node)
    for n, accept in enumerate(["gzip", "gzip", None, "gzip", None], 1):
        got = nginx.post(path, call("eth_getBlockByHash", BY_HASH, str(n)), accept)
        assert got.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (n, data(length))
        assert got.coding == ("gzip" if accept else None)
    assert node.count() == 1

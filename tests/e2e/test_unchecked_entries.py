"""Long responses are stored before they are read strictly: an invalid one reaches its
own client unchanged, and no other client."""

import itertools

import pytest

from harness import bodies
from harness.rpc import Node, call
from harness.stands import hit as is_hit

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
def test_invalid_long_response_is_sent_to_its_client_only(nginx, origin, path, length, accept, spoilt):
    sent = spoilt(data(length))
    node = Node({"eth_getBlockByHash": sent})
    origin.answers(node)
    for n in range(1, 5):
        got = nginx.post(path, call("eth_getBlockByHash", BY_HASH, str(n)), accept)
        assert got.status == 200 and node.count() == n
        # long ones, too, after a lookup off the event loop without a result
        assert (got.coding, got.header("Vary")) == (accept, "Accept-Encoding")
        assert got.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (n, sent)
    # the node's responses are valid again: what is stored now is a response
    node.results["eth_getBlockByHash"] = data(length)
    numbers = itertools.count(5)

    def is_valid_response_a_hit():
        n = next(numbers)
        got = nginx.post(path, call("eth_getBlockByHash", BY_HASH, str(n)), accept)
        assert got.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (n, data(length))
        return is_hit(got)

    # a thread stores a long response after its client has it
    nginx.wait_for(is_valid_response_a_hit, "the valid response to be stored")
    count = node.count()
    assert is_valid_response_a_hit() and node.count() == count


@pytest.mark.parametrize("length", [20_000, 600_000])
def test_first_hit_of_an_unchecked_entry_is_sent(nginx, origin, path, length):
    node = Node({"eth_getBlockByHash": data(length)})
    origin.answers(node)
    for n, accept in enumerate(["gzip", "gzip", None, "gzip", None], 1):
        got = nginx.post(path, call("eth_getBlockByHash", BY_HASH, str(n)), accept)
        assert got.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (n, data(length))
        assert got.coding == ("gzip" if accept else None)
    assert node.count() == 1

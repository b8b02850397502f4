"""The owner's messages are read in portions: other clients of the worker are served in
between, whatever the length of an entry."""

import random

import pytest

from harness.owner import Owner, wait_until_linked
from harness.rpc import Node, call


pytestmark = pytest.mark.bare

# bytes that a worker reads before it serves other connections
MOST = 256 << 10

# 24 MiB of hexadecimal digits: compressed, half of that
LENGTH = 24 << 20

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
sszip_cache_max_entry 64m;
# which has no room for it: each look-up asks the owner
sszip_cache_memory 1m;
sszip_cache_owner unix:@socket@;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
}
"""

BLOCK = '["0x' + "ab" * 32 + '",true]'


@pytest.fixture
def owner():
    owner = Owner(max_size="256m", memory="128m", max_entry="64m").start()
    yield owner
    owner.close()


def test_long_entry_of_the_owner_is_read_in_limited_portions(start_nginx, origin, owner, preload):
    result = b'"0x' + random.Random(7).randbytes(LENGTH // 2).hex().encode() + b'"'
    node = Node({"eth_getBlockByHash": result})
    origin.answers(node)
    config = CONFIG.replace("@socket@", owner.socket)
    first = start_nginx(config)
    wait_until_linked(first, owner)
    assert len(first.post("/", call("eth_getBlockByHash", BLOCK)).decoded) > LENGTH
    first.wait_for(lambda: owner.status()["memory"]["entries"], "the owner to have it")

    # the hot tier has no room for the entry: each lookup is sent to the owner
    second = start_nginx(config, environment=preload.environment)
    wait_until_linked(second, owner)
    (worker,) = second.workers()

    def hit():
        """The worker waits for the owner of a busy machine."""
        with preload.reading(worker, patience=20):
            answer = second.post("/", call("eth_getBlockByHash", BLOCK, "2"))
        assert answer.decoded == b'{"jsonrpc":"2.0","id":2,"result":%b}\n' % result
        return answer.header("Cache-Status").startswith("sszip; hit")

    second.wait_for(hit, "a hit")
    # the whole entry came over this connection, and events of the owner's stream; bytes that
    # came while others were served may be an event of their own
    assert preload["total"] > LENGTH // 2
    assert preload["longest"] <= 2 * MOST + (16 << 10)

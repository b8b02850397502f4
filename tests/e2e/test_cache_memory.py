"""sszip_cache_memory limits the hot tier of a worker under any load."""

import random

import pytest

from harness.nginx import resident
from harness.rpc import Node, call
from harness.nginx_state import SLACK
from tiers import times

pytestmark = [pytest.mark.bare, pytest.mark.memory]

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_memory 8m;
sszip_cache_namespace all;
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    location / { proxy_pass http://@origin@; }
}
"""
MEMORY = 8 << 10  # KiB
# about 20 KB each when compressed: 30 MB in all, or 60
REQUESTS = times(1500, 3000)


def block(number):
    return f'["0x{number:064x}",true]'


def result(params):
    chance = random.Random(params[0])
    return b'"0x' + chance.randbytes(20000).hex().encode() + b'"'


def send(nginx, number):
    response = nginx.post("/", call("eth_getBlockByHash", block(number)))
    assert response.decoded.count(b"0x") == 1
    return response.header("Cache-Status")


def test_memory_of_the_hot_tier_is_limited(nginx, origin):
    node = Node({"eth_getBlockByHash": result})
    origin.answers(node)
    for number in range(50):
        send(nginx, number)
    before = resident(nginx.workers()[0])
    for number in range(REQUESTS):
        send(nginx, number)
    grown = resident(nginx.workers()[0]) - before
    assert grown < 2 * MEMORY * SLACK, f"{grown} KiB"
    # the newest entries are there, and no more than fit
    assert send(nginx, REQUESTS - 1).startswith("sszip; hit")
    hits = sum(send(nginx, number).startswith("sszip; hit") for number in range(0, REQUESTS, REQUESTS // 100))
    assert 0 < hits < 50


def test_popular_entries_stay_when_many_others_are_requested_once(nginx, origin):
    """A scan of old blocks does not evict popular entries."""
    node = Node({"eth_getBlockByHash": result})
    origin.answers(node)
    wanted = range(10**6, 10**6 + 20)
    for _ in range(3):
        for number in wanted:
            send(nginx, number)
    for number in range(2 * 10**6, 2 * 10**6 + times(600, 1000)):
        send(nginx, number)
    hits = sum(send(nginx, number).startswith("sszip; hit") for number in wanted)
    assert hits > len(wanted) // 2

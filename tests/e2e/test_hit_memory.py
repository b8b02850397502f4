"""Clients that do not read long hits: sszip_memory limits the bytes that are decoded for
them."""

import pytest

from harness.client import request_bytes
from harness.nginx import resident
from harness.rpc import Node, call
from harness.nginx_state import SLACK, wait_until_stable

pytestmark = [pytest.mark.bare, pytest.mark.memory]

CLIENTS = 40
LONG = 15 << 20

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
sszip_memory 32m;
sszip_cache_memory 8m;
proxy_buffering on;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location = /status { sszip off; stub_status; }
}
"""

# the hot tier, the decoded bytes, and some for nginx
MOST = (8 + 32 + 40) << 10


def block(number):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id=str(number))


@pytest.fixture
def stored(nginx, origin):
    """Stored responses that are short when compressed."""
    node = Node({"eth_getBlockByHash": lambda params: b'"%b%b"' % (params[0].encode(), b"a" * LONG)})
    origin.answers(node)
    for number in range(12):
        nginx.post("/", block(number))
    node.received_calls.clear()
    return node


def stall(nginx, bodies):
    """Clients that send requests and don't read."""
    clients = []
    for body in bodies:
        client = nginx.connect(receive_buffer=4096)
        client.send(request_bytes("/", method="POST", headers=[("Content-Type", "application/json")], body=body))
        clients.append(client)
    # each client has the head of its response
    for client in clients:
        assert client.read_head().status == 200
    return clients


@pytest.mark.parametrize("load", ["one answer", "some answers", "a batch"])
def test_memory_is_limited_when_clients_do_not_read_long_hits(nginx, stored, load):
    (worker,) = nginx.workers()
    before = resident(worker)
    bodies = {
        "one answer": [block(1)] * CLIENTS,
        "some answers": [block(n % 12) for n in range(CLIENTS)],
        "a batch": [b"[%b]" % b",".join(block(n) for n in range(12))] * 4,
    }[load]
    clients = stall(nginx, bodies)
    grown = resident(worker) - before
    assert grown < MOST * SLACK, f"{grown} KiB"
    if load == "one answer":
        assert stored.count() == 0
    for client in clients:
        client.close()
    wait_until_stable(nginx)
    # memory is free again for later requests, and all entries are still stored
    stored.received_calls.clear()
    for number in range(12):
        answer = nginx.post("/", block(number), accept=None)
        assert len(answer.decoded) > LONG
        assert answer.header("Cache-Status").startswith("sszip; hit"), number
    assert stored.count() == 0

"""Clients that read nothing of long stored answers: sszip_memory bounds what
is decoded for them."""

import pytest

from harness.client import request_bytes
from harness.nginx import resident
from harness.rpc import Node, call
from harness.watch import SLACK, settled

pytestmark = pytest.mark.bare

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

# what is kept, what is decoded, and some for nginx
MOST = (8 + 32 + 40) << 10


def block(number):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id=str(number))


@pytest.fixture
def stored(nginx, origin):
    """Answers whose coded form is short."""
    node = Node({"eth_getBlockByHash": lambda params: b'"%b%b"' % (params[0].encode(), b"a" * LONG)})
    origin.answers(node)
    for number in range(12):
        nginx.post("/", block(number))
    node.asked.clear()
    return node


def stall(nginx, bodies):
    """Clients that ask and don't read."""
    clients = []
    for body in bodies:
        client = nginx.connect(receive_buffer=4096)
        client.send(request_bytes("/", method="POST", headers=[("Content-Type", "application/json")], body=body))
        clients.append(client)
    # each has the head of its answer
    for client in clients:
        assert client.read_head().status == 200
    return clients


@pytest.mark.parametrize("what", ["one answer", "some answers", "a batch"])
def test_they_take_no_more_than_there_is(nginx, stored, what):
    (worker,) = nginx.workers()
    before = resident(worker)
    bodies = {
        "one answer": [block(1)] * CLIENTS,
        "some answers": [block(n % 12) for n in range(CLIENTS)],
        "a batch": [b"[%b]" % b",".join(block(n) for n in range(12))] * 4,
    }[what]
    clients = stall(nginx, bodies)
    grown = resident(worker) - before
    assert grown < MOST * SLACK, f"{grown} KiB"
    if what == "one answer":
        assert stored.count() == 0
    for client in clients:
        client.close()
    settled(nginx)
    # it is there again for the next ones, and all that was stored is
    stored.asked.clear()
    for number in range(12):
        answer = nginx.post("/", block(number), accept=None)
        assert len(answer.decoded) > LONG
        assert answer.header("Cache-Status").startswith("sszip; hit"), number
    assert stored.count() == 0

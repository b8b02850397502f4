"""Coalesced requests for a response that can't be stored: the node gets one request, and
the last client waits for at most two consecutive responses of the node, the one in flight
and the next."""

import json
import threading
import time

import pytest

from harness.guards import GUARD_SECONDS
from harness.owner import owner_of
from harness.rpc import Node, call
from harness.nginx_state import waiting_requests

CLIENTS = 60

# The node's latency in seconds.
NODE = 0.5

HASH = '"0x' + "ab" * 32 + '"'

CONFIG = """
sszip on;
sszip_cache on;
@store@
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport backlog=1024;
    location / { sszip_cache_namespace herd; proxy_pass http://@origin@; }
    location /batches { sszip_cache_namespace batches; proxy_pass http://@origin@; }
    location /varies { sszip_cache_namespace varies; proxy_pass http://@origin@; }
    location /never { sszip_cache_namespace never; sszip_cache_valid nothing 0; proxy_pass http://@origin@; }
    location = /sszip-status { sszip_status on; }
}
"""

REVERT = b'{"code":3,"message":"execution reverted","data":"0x08c379a0"}'


class SlowNode(Node):
    """Delays each response, the first ones until all clients have sent their requests. A
    request that arrives after a response of the first turn is of the second, and so on:
    `turns` has the turn of each request."""

    def __init__(self, results):
        super().__init__(results)
        self.all_sent = threading.Event()
        self.turns = []
        self._ended = 0
        self._turns = threading.Lock()

    def __call__(self, request):
        with self._turns:
            turn = self._ended + 1
            self.turns.append(turn)
        self.all_sent.wait(GUARD_SECONDS)
        time.sleep(NODE)
        answer = super().__call__(request)
        with self._turns:
            self._ended = max(self._ended, turn)
        return answer

    def body(self, call, raw_id):
        if call["method"] == "eth_call":
            return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (raw_id or json.dumps(call["id"]).encode(), REVERT)
        return super().body(call, raw_id)


@pytest.fixture(scope="module", params=[(1, ""), (1, "own"), (2, "own")], ids=["one worker", "one worker, a store", "two workers, a store"])
def run(start_nginx, request):
    workers, store = request.param
    store = store and "sszip_cache_path @prefix@/cache max_size=64m memory=32m;"
    nginx = start_nginx(CONFIG.replace("@store@", store), workers=workers)
    if store:
        owner = owner_of(nginx)
        pids = {str(pid) for pid in nginx.workers()}
        nginx.wait_for(lambda: pids <= owner.pids(), "the workers to reach the owner")
    nginx.most = 2 if workers == 1 else 2 + workers
    return nginx


def send_coalesced(nginx, node, path, calls):
    """The responses to coalesced requests."""
    start = threading.Barrier(len(calls))
    answers = [None] * len(calls)

    def send(n):
        with nginx.connect() as connection:
            start.wait(GUARD_SECONDS)
            answers[n] = connection.exchange(
                path, method="POST", headers=[("Content-Type", "application/json")], body=calls[n]
            )

    before = len(node.turns)
    threads = [threading.Thread(target=send, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    # each request is at the node or a follower: none comes late, as a hit
    nginx.wait_for(
        lambda: len(node.turns) - before + waiting_requests(nginx) == len(calls), "all clients' requests"
    )
    node.all_sent.set()
    for thread in threads:
        thread.join()
    return answers


def test_coalesced_batches_reach_the_node_once(run, origin):
    node = SlowNode({"eth_getTransactionReceipt": b"null", "eth_gasPrice": b'"0x7"'})
    origin.answers(node)
    batch = b"[" + call("eth_gasPrice", id="1") + b"," + call("eth_getTransactionReceipt", f"[{HASH}]", "2") + b"]"
    for answer in send_coalesced(run, node, "/batches", [batch] * CLIENTS):
        results = {one["id"]: one["result"] for one in json.loads(answer.decoded)}
        assert results == {1: "0x7", 2: None}
    # batches take no leases: each process sends its own request
    assert len(node.turns) <= run.most
    assert max(node.turns) <= 2


@pytest.mark.parametrize("path", ["/", "/never"])
@pytest.mark.parametrize("method, params", [("eth_getTransactionReceipt", f"[{HASH}]"), ("eth_call", '[{"to":"0xaa"},"latest"]')])
def test_coalesced_calls_reach_the_node_once_when_the_response_is_not_stored(run, origin, path, method, params):
    node = SlowNode({"eth_getTransactionReceipt": b"null"})
    origin.answers(node)
    calls = [call(method, params, str(n)) for n in range(CLIENTS)]
    for n, answer in enumerate(send_coalesced(run, node, path, calls)):
        message = json.loads(answer.decoded)
        assert message["id"] == n
        if method == "eth_call":
            assert answer.decoded == b'{"jsonrpc":"2.0","id":%d,"error":%b}%b' % (n, REVERT, b"\n")
        else:
            assert message["result"] is None
    assert node.count() <= run.most
    assert max(node.turns) <= 2


def test_coalesced_calls_reach_the_node_once_when_the_response_varies(run, origin):
    """The node sends `Vary: Origin`, as geth does for CORS."""
    node = SlowNode({"eth_getBlockByHash": b'{"number":"0x7"}'})
    node.options = {"headers": [("Vary", "Origin"), ("Access-Control-Allow-Origin", "*")]}
    origin.answers(node)
    calls = [call("eth_getBlockByHash", f"[{HASH},false]", str(n)) for n in range(CLIENTS)]
    for n, answer in enumerate(send_coalesced(run, node, "/varies", calls)):
        message = json.loads(answer.decoded)
        assert (message["id"], message["result"]["number"]) == (n, "0x7")
    assert node.count() <= run.most - 1

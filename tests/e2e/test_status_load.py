"""Counters of 100,000 requests (9,000 in `make test`) equal the node's own count."""

import json
import random
import threading

import pytest

from harness import client
from harness.client import Connection, request_bytes
from harness.load import Load
from harness.replay import ReplayNode, calls
from harness.status import read_status
from test_status import methods
from tiers import times

pytestmark = pytest.mark.once("it is the core that counts; test_status tries it on each nginx")

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_valid immutable 1h;
sszip_cache_valid tip 1s;
sszip_cache_namespace main;
server {
    listen 127.0.0.1:@port@ reuseport;
    keepalive_requests 1000000;
    location / { proxy_http_version 1.1; proxy_pass http://%s; }
    location = /status { sszip_status on; }
}
"""
ALL = times(9_000, 100_000)
CLIENTS = 6
AT_ONCE = 25
JSON = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]


class Sent:
    """The requests of the clients."""

    def __init__(self):
        self.requests = 0
        self.calls = {}
        self.lock = threading.Lock()

    def add(self, methods):
        with self.lock:
            self.requests += 1
            for method in methods:
                self.calls[method] = self.calls.get(method, 0) + 1


def random_request(chance, known):
    """A request, and the methods that it calls."""
    kind = chance.random()
    if kind < 0.05:
        return request_bytes("/eth/v1/node/version", headers=JSON), []
    if kind < 0.1:
        call = b'{"jsonrpc":"2.0","id":1,"method":"sszip_%d","params":[]}' % chance.randrange(10**6)
        return request_bytes("/", method="POST", headers=JSON, body=call), ["other"]
    picked = chance.choices(known, k=1 if kind < 0.8 else chance.randrange(2, 9))
    bodies = [
        json.dumps(json.loads(call.body) | {"id": number}).encode()
        for number, call in enumerate(picked)
    ]
    body = bodies[0] if kind < 0.8 else b"[" + b",".join(bodies) + b"]"
    request = request_bytes("/", method="POST", headers=JSON, body=body)
    return request, [call.method for call in picked]


def work(port, seed, known, number, sent):
    chance = random.Random(seed)
    with Connection(port, timeout=120) as connection:
        for _ in range(number // AT_ONCE):
            requests = [random_request(chance, known) for _ in range(AT_ONCE)]
            connection.send(b"".join(request for request, _ in requests))
            for _, methods in requests:
                assert connection.read().status in (200, 404)
                sent.add(methods)


def test_counters_equal_the_counts_of_clients_and_node_under_load(start_nginx):
    # short calls, and some whose responses are compressed
    known = [call for call in calls() if call.body and len(call.body) < 2000]
    known = [call for call in known if not call.method.startswith(("debug_", "trace_"))]
    sent = Sent()
    node = ReplayNode()
    try:
        nginx = start_nginx(CONFIG % node.address, workers=4)
        failed = []

        def worker(*arguments):
            try:
                work(nginx.port, *arguments)
            except BaseException as error:
                failed.append(error)
                raise

        for turn in range(3):
            number = ALL // 3 // CLIENTS
            threads = [
                threading.Thread(target=worker, args=(turn * CLIENTS + client, known, number, sent))
                for client in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failed
            # while the other clients continue
            chain = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'
            response = client.fetch(nginx.port, "/", method="POST", headers=JSON, body=chain)
            result = json.loads(response.decoded)
            expected = json.dumps(result, separators=(",", ":")).encode()
            sent.add(["eth_chainId"])
            with Load(nginx.port, [(("/", JSON, chain), expected)], clients=3) as load:
                nginx.reload()
            assert not load.faults, load.faults[:3]
            for _ in range(load.answered):
                sent.add(["eth_chainId"])

        nginx.wait_for(lambda: read_status(nginx)["requests"] >= sent.requests, "all to be counted")
        now, stats = read_status(nginx), node.stats()
    finally:
        node.stop()
    assert sent.requests > 0.95 * ALL and now["requests"] == sent.requests
    assert now["node"]["requests"] == stats["requests"]
    counted = methods(now)
    called = {}
    for method, number in sent.calls.items():
        known = method if method in counted else "other"
        called[known] = called.get(known, 0) + number
    assert {method: number for method, (number, _) in counted.items()} == called
    fetched = {method: count for method, count in stats["methods"].items() if method in counted}
    for method, (number, hits) in counted.items():
        if method != "other":
            assert number - hits == fetched.get(method, 0), method
    assert now["hits"] > 0.3 * sent.requests and now["batches"]["requests"] > 0.1 * sent.requests

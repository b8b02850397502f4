"""A route with `status`: the counters of all workers equal the requests that the node got."""

import threading

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from harness import client
from harness.envoy import route
from harness.owner import wait_until_linked
from harness.rpc import Node, call
from harness.status import read_status
from test_status import LONG, RESULTS, block, methods

SETTINGS = {"cache": True, "cache_namespace": "main", "cache_valid": ["immutable 1h", "tip 1h"]}


def routes(settings):
    return [route("/status", {"status": True}), route("/", settings)]


def test_counters_equal_the_counts_of_clients_and_node(start_envoy, origin):
    envoy = start_envoy(routes(SETTINGS), workers=4)
    node = Node(RESULTS)
    origin.answers(node)

    def load(seed):
        for number in range(100):
            parts = [block(number % 9 + seed, "1"), call("eth_chainId", id="2"), block(number % 9, "3")]
            body = b"[" + b",".join(parts) + b"]" if number % 3 == 0 else parts[number % 3]
            assert envoy.post("/", body).status == 200

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    now = envoy.wait_for(lambda: (all := read_status(envoy))["requests"] >= 600 and all, "all to be counted")
    assert now["requests"] == 600 and now["node"]["requests"] == len(origin.requests)
    for method, (calls, hits) in methods(now).items():
        assert calls - hits == node.count(method)
    assert now["microseconds"]["hit"]["count"] + now["microseconds"]["miss"]["count"] == 600
    response = client.fetch(envoy.port, "/status?format=prometheus")
    families = text_string_to_metric_families(response.decoded.decode())
    found = {sample.name: sample.value for family in families for sample in family.samples}
    assert found["sszip_requests_total"] == 600
    page = client.fetch(envoy.port, "/status")
    assert page.header("Content-Type") == "text/html; charset=utf-8" and b"<title>sszip" in page.decoded
    assert client.fetch(envoy.port, "/status", method="POST", body=b"x").status == 405
    assert client.fetch(envoy.port, "/status?format=x").status == 400


def test_status_includes_the_owner(start_envoy, origin, daemon):
    envoy = start_envoy(routes(SETTINGS), settings={"cache_owner": f"unix:{daemon.socket}"})
    wait_until_linked(envoy, daemon)
    origin.answers(Node({"eth_getBlockByHash": LONG}))
    envoy.post("/", block(77))
    envoy.wait_for(lambda: read_status(envoy)["owner"].get("memory", {}).get("entries"), "the owner to have it")


"""Identical calls right after a start whose response varies by a header: the node gets one
request for each variant, since followers look up again when `Vary` is known (decision 131)."""

import itertools
import json
import threading

import pytest

from harness.client import Connection
from harness.envoy import route
from harness.guards import GUARD_SECONDS
from harness.rpc import Node, call

HOSTS = ("native", "wasm")
CLIENTS = 200
PLACES = 5
# workers of the module are threads with one vary table; each sandbox has a table of its own
WORKERS = {"native": 4, "wasm": 1}
_places = itertools.count()


class GatedNode(Node):
    """A node that responds when all clients have sent their requests."""

    def __init__(self, results):
        super().__init__(results)
        self.all_have_sent = threading.Event()
        self.options = {"headers": [("Vary", "Origin"), ("Access-Control-Allow-Origin", "*")]}

    def __call__(self, request):
        self.all_have_sent.wait(GUARD_SECONDS)
        return super().__call__(request)


@pytest.fixture(scope="module")
def envoy(host, start_envoy):
    routes = [
        route(f"/{place}/", {"cache_namespace": f"place-{place}"}) for place in range(2 * PLACES)
    ]
    settings = {"cache": True}
    return start_envoy(routes, settings=settings, workers=WORKERS[host])


def followers(envoy):
    return sum(envoy.stats(r"sszip\.cache\.waiting$").values())


def count_upstream_requests(envoy, origin, place, origins):
    """The node's count after CLIENTS sent requests to an unused route."""
    node = GatedNode({"eth_getBlockByHash": b'{"number":"0x7"}'})
    origin.answers(node)
    params = '["0x' + "ab" * 32 + '",false]'
    faults = []

    def upstream_requests():
        return len(origin.received(f"/{place}/"))

    def send(number):
        headers = [("Content-Type", "application/json")]
        if (name := origins[number % len(origins)]) is not None:
            headers.append(("Origin", name))
        try:
            with Connection(envoy.port, timeout=60) as connection:
                body = call("eth_getBlockByHash", params, str(number))
                response = connection.exchange(f"/{place}/", method="POST", headers=headers, body=body)
            reply = json.loads(response.decoded)
            assert (reply["id"], reply["result"]["number"]) == (number, "0x7")
        except Exception as error:  # raised below
            faults.append(repr(error))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        # each request is at the node or a follower: none comes late, as a hit
        envoy.wait_for(lambda: upstream_requests() or faults, "the leader", 60)
        envoy.wait_for(lambda: upstream_requests() + followers(envoy) >= CLIENTS or faults, "all clients' requests", 60)
    finally:
        node.all_have_sent.set()
        for thread in threads:
            thread.join()
    assert not faults, faults
    return node.count()


@pytest.mark.parametrize(
    "origins", [[None], ["https://a", "https://b", None]], ids=["one", "variants"]
)
def test_coalesced_calls_reach_the_node_once_for_each_variant(envoy, origin, origins):
    counts = []
    for _ in range(PLACES):
        counts.append(count_upstream_requests(envoy, origin, next(_places) % (2 * PLACES), origins))
        # on a machine that is busy for longer than lookups wait, the node gets more requests
        if counts[-1] == len(origins):
            break
    assert counts[-1] == len(origins), counts

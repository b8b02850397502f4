"""The most frequent keys in the status report, from samples of the requests of all workers."""

import pytest

from harness.rpc import Node, call
from harness.stands import cache_key
from harness.status import read_status

# the proxy-wasm filter has no status page
pytestmark = pytest.mark.hosts("nginx", "native")

JSON = ("Content-Type", "application/json")
BODY = call("eth_chainId")


@pytest.fixture(scope="module")
def server(start_server):
    return start_server({"/status": {"status": True}, "/": {"cache": True, "cache_namespace": "main"}})


def test_frequent_key_is_reported_with_its_method_and_hits(server, origin):
    origin.answers(Node({"eth_chainId": b'"0x1"'}))
    with server.connect() as connection:
        for _ in range(640):
            assert connection.exchange("/", method="POST", headers=[JSON], body=BODY).status == 200
    response = server.fetch("/", BODY, headers=[("Cache-Control", "only-if-cached")])
    key = cache_key(response)
    server.wait_for(lambda: read_status(server)["requests"] >= 640, "all to be counted")
    keys = read_status(server)["keys"]
    assert keys["sampled"] == 16
    (top,) = keys["top"]
    assert (top["key"], top["method"]) == (key, "eth_chainId")
    assert keys["samples"] == top["samples"]
    # 640 / 16, as far as chance allows
    assert 10 <= top["samples"] <= 100
    # the first request is a miss
    assert top["samples"] - 1 <= top["hits"] <= top["samples"]

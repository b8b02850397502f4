"""`verify` in realistic Envoys: in the shapes of test_published.py and in the configurations that
operators copy, with TLS, pools and several chains, and while listeners, routes and clusters
change."""

import json

import pytest

from harness import client
from harness.envoy import Envoy, route
from harness.load import Load
from harness.nginx import free_port
from harness.rpc import Node, call
from test_configs_envoy import Running, port
from test_published import KEY, is_hit, other, shape
from test_reloads import Dynamic
from tiers import times

# pytest finds the fixtures by these names
__all__ = ["other", "shape"]

HOSTS = ("native",)
RESULT = b'{"number":"0x1","x":"%b"}' % (b"0123456789" * 2000)
HEADERS = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]


def block(number, id="1"):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id)


def batch(*numbers):
    return b"[" + b",".join(block(number, str(number)) for number in numbers) + b"]"


def verdict_counts(envoy, at="/status"):
    return json.loads(client.fetch(getattr(envoy, "port", envoy), f"{at}?format=json").decoded)["verified"]


def test_hits_of_a_pool_are_verified(shape, origin, other):
    """Two nodes, and keys in paths: each hit is fetched again from one of the nodes, and a
    difference is logged."""
    nodes = [Node({"eth_getBlockByHash": RESULT}) for _ in range(2)]
    for place, node in zip((origin, other), nodes, strict=True):
        place.answers(node)
    typed = shape.filter_of(verify="100%")
    envoy = shape("pool", node=origin.port, other=other.port, sszip=json.dumps({"name": "sszip", "typed_config": typed}))
    count = lambda: sum(node.count() for node in nodes)  # noqa: E731
    for body in (block(1), block(2), batch(1, 2)):
        envoy.wait_for(lambda body=body: is_hit(envoy.fetch(KEY, body)), "a hit")
        before = count()
        got = envoy.fetch(KEY, body)
        assert is_hit(got)
        assert json.loads(RESULT)["x"] in got.decoded.decode()
        envoy.wait_for(lambda before=before: count() > before, "a node to receive another request")
    assert "a hit differs from the node's response" not in envoy.error_log()
    envoy.expect("a hit differs from the node's response")
    for node in nodes:
        node.results["eth_getBlockByHash"] = RESULT.replace(b'"0x1"', b'"0x2"')
    assert b'"0x2"' not in envoy.fetch(KEY, batch(1, 2)).decoded

    def is_logged():
        envoy.fetch(KEY, block(1))
        return "a hit differs from the node's response: eth_getBlockByHash, key " in envoy.error_log()

    envoy.wait_for(is_logged, "the line")


@pytest.fixture
def rpc(origin):
    """configs/envoy/rpc.yaml, with `verify` and a status page."""
    local = free_port()
    page = f"""
  - name: local
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {local} }} }}
    filter_chains: [{{ filters: [{{ name: http, typed_config: @local@ }}] }}]
  clusters:"""
    typed = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "local",
        "route_config": {"virtual_hosts": [{"name": "local", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 404}, **only_of_route({"status": True})},
        ]}]},
        "http_filters": [
            {"name": "sszip", "typed_config": Envoy.filter_of({})},
            {"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}},
        ],
    }  # fmt: skip
    running = Running("native", "rpc.yaml", {
        "address: 0.0.0.0, port_value: 443 ": "address: 127.0.0.1, port_value: @port@ ",
        "/etc/letsencrypt/live/example.org/fullchain.pem": "@prefix@/certificate.pem",
        "/etc/letsencrypt/live/example.org/privkey.pem": "@prefix@/key.pem",
        port(8545): port(origin.port),
        "cache: true\n": "cache: true\n                  verify: 100%\n",
        "\n  clusters:": page.replace("@local@", json.dumps(typed)),
    })  # fmt: skip
    running.local = local
    yield running
    running.stop()


def only_of_route(settings):
    """The settings of a route, as harness.envoy makes them."""
    return {"typed_per_filter_config": route("/", settings)["typed_per_filter_config"]}


def test_hits_are_verified_behind_tls_with_rates_and_a_policy(rpc, origin):
    node = Node({"eth_getBlockByHash": RESULT, "eth_chainId": b'"0x1"'})
    origin.answers(node)
    for number in (1, 2):
        rpc.send("/", block(number))
    for body in (block(1), batch(1, 2), batch(1, 3)):
        rpc.until_hit(lambda: rpc.send("/", block(1)))
        got = rpc.send("/", body, headers=HEADERS[1:])
        assert b'"0x1"' in got.decoded

    def verdicts():
        rpc.send("/", block(1))
        return verdict_counts(rpc.local, "/")

    rpc.envoy.wait_for(lambda: verdicts().get("same", 0) > 5, "hits to be verified")
    assert verdict_counts(rpc.local, "/").keys() == {"same"}
    # a denied call is no hit, and is not verified
    denied = call("debug_traceBlock", id="5")
    got = json.loads(rpc.send("/", b"[" + denied + b"," + block(1, "6") + b"]").decoded)
    assert {one["id"]: "error" in one for one in got} == {5: True, 6: False}
    assert node.count("debug_traceBlock") == 0
    rpc.envoy.expect("a hit differs from the node's response")
    node.results["eth_getBlockByHash"] = RESULT.replace(b'"0x1"', b'"0x2"')
    rpc.envoy.wait_for(lambda: verdicts().get("different"), "it to be seen")


def test_verdicts_are_right_while_listeners_routes_and_clusters_change(origin):
    """No response is lost or wrong, and no verdict either."""
    node = Node({"eth_getBlockByHash": RESULT, "eth_syncing": b"false"})
    origin.answers(node)
    envoy = Dynamic(origin, workers=3)
    envoy.options = ["--drain-time-s", "1", "--drain-strategy", "immediate"]
    envoy.routes["virtual_hosts"][0]["routes"].insert(0, route("/status", {"status": True}))
    envoy.publish("rds")
    envoy.settings(cache=True, cache_namespace="main", verify="100%")
    envoy.start()
    try:
        envoy.wait_for(lambda: is_up(envoy), "the listener")
        body = b'{"jsonrpc":"2.0","id":%d,"result":' + RESULT + b"}"
        one = [(("/", HEADERS, block(number)), body % 1 + b"\n") for number in (1, 2)]
        # all entries are stored by then
        for number in (1, 2):
            envoy.wait_for(lambda number=number: is_hit(envoy.fetch("/", block(number))), "a hit")
        both = [(("/", HEADERS, batch(1, 2)), b"[" + body % 1 + b"," + body % 2 + b"]")]
        # a new filter learns the router's upstream head from a forwarded request
        syncing = [(("/", HEADERS, call("eth_syncing")), b'{"jsonrpc":"2.0","id":1,"result":false}\n')]
        with Load(envoy.port, one + syncing + both, clients=4) as load:
            for number in range(times(6, 12)):
                before, answered = envoy.updates(), load.answered
                [
                    lambda number=number: envoy.settings(cache=True, cache_namespace="main", verify="100%", min_length=number + 1),
                    lambda: envoy.publish("rds"),
                    lambda: envoy.publish("cds"),
                ][number % 3]()
                envoy.wait_for(lambda before=before: envoy.updates() > before, "the update")
                envoy.wait_for(lambda answered=answered: load.answered > answered + 20, "answers")
        assert not load.faults, load.faults[:3]
        envoy.wait_for(lambda: verdict_counts(envoy).get("same", 0) > 50, "hits to be verified")
        # background requests of a removed filter are aborted
        assert verdict_counts(envoy).keys() <= {"same", "unanswered"}
        assert "a hit differs from the node's response" not in envoy.error_log()
        envoy.expect("a hit differs from the node's response")
        node.results["eth_getBlockByHash"] = RESULT.replace(b'"0x1"', b'"0x2"')

        def verdicts():
            envoy.fetch("/", block(1))
            return verdict_counts(envoy)

        envoy.wait_for(lambda: verdicts().get("different"), "it to be seen")
    finally:
        envoy.stop()


def is_up(envoy):
    try:
        return client.fetch(envoy.port, "/status?format=json").status == 200
    except OSError:
        return False

"""Entries belong to the route and node of their response: no other route sends them, whichever
property of the request selects it in Envoy."""

import copy
import json
import random

import pytest

from harness.client import Connection
from harness.envoy import Envoy, cluster, route
from harness.nginx import free_port
from harness.origin import Origin, answer
from harness.rpc import call
from harness.sandbox import WasmEnvoy
from tiers import times

HOSTS = ("native", "wasm")

# no call of a class by chain: the node would get it for headers that were not seen before
CALL = call("eth_getBlockByHash", f'["0x{7:064x}",false]')


def echo_node(name):
    """A node that returns the properties of a request, GET or call."""

    def respond(request):
        place = [
            name,
            request.target.split("?")[0],
            request.header("Host"),
            request.header("X-Added"),
        ]
        body = json.dumps(place)
        if request.method == "POST":
            body = '{"jsonrpc":"2.0","id":1,"result":%s}' % json.dumps(body)
        return answer(body.encode(), headers=[("Cache-Control", "max-age=60")])

    return respond


@pytest.fixture(scope="module")
def other_origin(tmp_path_factory):
    origin = Origin(tmp_path_factory.mktemp("other"))
    yield origin
    origin.close()


def to(name, match, cluster="node", **more):
    """A route of that name; with `only`, for requests with the header `x-to`."""
    if only := match.pop("only", None):
        match["headers"] = [{"name": "x-to", "string_match": {"exact": only}}]
    found = route("/", None, cluster, **more)
    return {**found, "name": name, "match": match}


def added(value):
    return [{"header": {"key": "x-added", "value": value}}]


def routes_of(one):
    """Routes with the same names and other effects for each `one`."""
    regex = {"pattern": {"regex": "^/(.*)$"}, "substitution": f"/regex-{one}/\\1"}
    weighted = {
        "header_name": "x-random",
        "clusters": [{"name": "node", "weight": 50}, {"name": "other", "weight": 50}],
    }
    by_weight = to("weighted", {"prefix": "/", "only": "weighted"}, timeout="0s")
    del by_weight["route"]["cluster"]
    by_weight["route"]["weighted_clusters"] = weighted
    subset = {"filter_metadata": {"envoy.lb": {"stage": "other"}}}
    with_field = to("added", {"prefix": "/", "only": "added"})
    with_field["request_headers_to_add"] = added(one)
    return [
        to("prefix", {"prefix": "/", "only": "prefix"}, prefix_rewrite=f"/prefix-{one}/"),
        to("regex", {"prefix": "/", "only": "regex"}, regex_rewrite=regex),
        to("host", {"prefix": "/", "only": "host"}, host_rewrite_literal=f"host-{one}"),
        to("other cluster", {"prefix": "/", "only": "cluster"}, "other"),
        to("subset", {"prefix": "/", "only": "subset"}, "both", metadata_match=subset),
        to("all of it", {"prefix": "/", "only": "both"}, "both"),
        by_weight,
        with_field,
        to("plain", {"prefix": "/"}),
    ]


def expected(one, host, target, way):
    """The node's response to a request that was routed this way."""
    node, added_field = "node", None
    match way:
        case "prefix":
            target = f"/prefix-{one}{target}"
        case "regex":
            target = f"/regex-{one}{target}"
        case "host":
            host = f"host-{one}"
        case "cluster" | "subset" | "99":
            node = "other"
        case "added":
            added_field = one
    return [node, target, host, added_field]


WAYS = ["prefix", "regex", "host", "cluster", "subset", "both", "0", "99", "added", ""]


def fields(way):
    if way.isdigit():
        return [("x-to", "weighted"), ("x-random", way)]
    return [("x-to", way)] if way else []


def both(*origins):
    """A cluster of a node with `stage`, and of one that is its default."""
    made = cluster("both", {"pipe": {"path": str(origins[0].path)}})
    ends = [
        {
            "endpoint": {"address": {"pipe": {"path": str(origin.path)}}},
            "metadata": {"filter_metadata": {"envoy.lb": {"stage": stage}}},
        }
        for origin, stage in zip(origins, ["node", "other"], strict=True)
    ]
    made["load_assignment"]["endpoints"] = [{"lb_endpoints": ends}]
    made["lb_subset_config"] = {
        "fallback_policy": "DEFAULT_SUBSET",
        "default_subset": {"stage": "node"},
        "subset_selectors": [{"keys": ["stage"]}],
    }
    return made


@pytest.fixture(scope="module")
def envoy(host, session_origin, other_origin):
    clusters = [
        cluster("other", {"pipe": {"path": str(other_origin.path)}}),
        both(session_origin, other_origin),
    ]
    envoy = {"native": Envoy, "wasm": WasmEnvoy}[host](
        routes_of("a"),
        origin=session_origin,
        settings={"cache": True},
        clusters=clusters,
        workers=2,
    )
    listeners = envoy.configuration["static_resources"]["listeners"]

    def manager(listener):
        return listener["filter_chains"][0]["filters"][0]["typed_config"]

    hosts = [
        {"name": f"host {one}", "domains": domains, "routes": routes_of(one)}
        for one, domains in [("a", ["a.test"]), ("b", ["b.test"]), ("c", ["*"])]
    ]
    manager(listeners[0])["route_config"]["virtual_hosts"] = hosts
    other = copy.deepcopy(listeners[0])
    other["name"] = "other"
    envoy.other_port = free_port()
    other["address"]["socket_address"]["port_value"] = envoy.other_port
    for host in manager(other)["route_config"]["virtual_hosts"]:
        host["routes"] = routes_of("d")
    listeners.append(other)
    yield envoy.start()
    envoy.stop()


def send(port, host, target, way, method):
    headers = [("Accept-Encoding", "gzip"), *fields(way)]
    body = None
    if method == "POST":
        headers.append(("Content-Type", "application/json"))
        body = CALL
    with Connection(port) as connection:
        return connection.exchange(target, method=method, headers=headers, body=body, host=host)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_hit_is_a_response_of_the_same_route_and_node(host, envoy, origin, other_origin, method):
    origin.answers(echo_node("node"))
    other_origin.answers(echo_node("other"))
    places = [(envoy.port, "a.test", "a"), (envoy.port, "b.test", "b"), (envoy.port, "c.test", "c")]
    places.append((envoy.other_port, "a.test", "d"))
    lookups = [(*place, target, way) for place in places for target in ("/", "/x") for way in WAYS]
    chance, hits, rounds = random.Random(7), 0, times(2, 3)
    for _ in range(rounds):
        chance.shuffle(lookups)
        for port, host, one, target, way in lookups:
            response = send(port, host, target, way, method)
            reply = json.loads(response.decoded)
            if method == "POST":
                reply = json.loads(reply["result"])
            assert reply == expected(one, host, target, way), (one, way)
            hits += response.header("Cache-Status").startswith("sszip; hit")
    assert hits == (rounds - 1) * len(lookups)


def nameless(prefix, settings=None):
    found = route(prefix, settings)
    del found["name"]
    return found


def matched(name, value, settings=None):
    """A route for requests with this value of a header."""
    found = route("/", settings)
    found["match"]["headers"] = [{"name": name, "string_match": {"exact": value}}]
    return found


@pytest.fixture(scope="module")
def default_envoy(start_envoy):
    """An Envoy whose filter only enables the cache, with a virtual host for each test."""
    polygon = matched("target-service-id", "polygon", {"cache_namespace": "polygon"})
    routes = {
        "nameless.test": [nameless("/named", {"cache_namespace": "named"}), nameless("/")],
        "put.test": [matched(":method", "PUT"), route("/")],
        "chains.test": [polygon, route("/", {"cache_namespace": "mainnet"})],
        "keyed.test": [route("/", {"cache_namespace": "keyed", "cache_credentials": "key target-service-id"})],
    }
    hosts = [{"name": name, "domains": [name], "routes": its} for name, its in routes.items()]
    return start_envoy([], settings={"cache": True}, http={"route_config": {"virtual_hosts": hosts}})


def test_route_without_a_name_bypasses_the_cache(default_envoy, origin):
    envoy = default_envoy
    origin.answers(echo_node("node"))

    def send(path):
        return envoy.fetch(path, CALL, host="nameless.test").header("Cache-Status")

    statuses = [send("/x") for _ in range(3)]
    assert statuses == ["sszip; fwd=bypass; detail=namespace"] * 3
    statuses = [send("/named") for _ in range(2)]
    assert statuses[0] == "sszip; fwd=miss" and statuses[1].startswith("sszip; hit")
    lines = [line for line in envoy.error_log().splitlines() if "has no name" in line]
    assert len(lines) == 1 and 'cluster "node"' in lines[0] and "[warning]" in lines[0]


@pytest.fixture(scope="module")
def named_envoy(start_envoy):
    """An Envoy whose filter sets the namespace of all routes."""
    closed = {"match": {"path": "/closed"}, "direct_response": {"status": 403}}
    away = {"match": {"path": "/away"}, "redirect": {"path_redirect": "/open"}}
    named = {"name": "closed", **closed, "match": {"path": "/named"}}
    routes = [
        closed,
        named,
        away,
        route("/open"),
        route("/a", prefix_rewrite="/x"),
        route("/b", {"cache_namespace": "other"}),
        route("/c"),
    ]
    return start_envoy(routes, settings={"cache": True, "cache_namespace": "mainnet"})


def test_routes_of_one_namespace_share_entries(named_envoy, origin):
    shared = call("eth_getBlockByHash", f'["0x{8:064x}",false]')
    origin.answers(echo_node("node"))
    for path, hits in [("/a", False), ("/c", True), ("/b", False), ("/a", True), ("/b", True)]:
        response = named_envoy.post(path, shared)
        assert response.header("Cache-Status").startswith("sszip; hit") == hits, path


def test_route_without_a_cluster_never_sends_a_hit(named_envoy, origin):
    """A named route neither: filters that run for a route have not run for this one."""
    envoy = named_envoy
    origin.answers(echo_node("node"))
    envoy.fetch("/open", CALL)
    assert envoy.fetch("/open", CALL).header("Cache-Status").startswith("sszip; hit")
    for path, status in (("/closed", 403), ("/named", 403), ("/away", 301), ("/none", 404)):
        response = envoy.fetch(path, CALL)
        assert (response.status, response.body) == (status, b""), path
        assert response.header("Cache-Status") is None, path
    assert len(origin.received()) == 1 and "has no name" not in envoy.error_log()


def test_put_on_another_route_invalidates_the_entry_of_get(default_envoy, origin):
    origin.answers(echo_node("node"))
    with default_envoy.connect() as connection:

        def send(method, target):
            body = None if method == "GET" else b"x"
            return connection.exchange(target, method=method, body=body, host="put.test")

        for target in ("/thing", "/other"):
            send("GET", target)
            assert send("GET", target).header("Cache-Status").startswith("sszip; hit")
        assert send("PUT", "/thing").status == 200
        assert send("GET", "/other").header("Cache-Status").startswith("sszip; hit")
        assert send("GET", "/thing").header("Cache-Status") == "sszip; fwd=miss"


@pytest.mark.parametrize("way", ["routes", "key"])
def test_chains_are_kept_apart_when_a_request_header_chooses_them(default_envoy, origin, way):
    """As in docs/recipes.md: a route for each value of the header, or the header in the key."""

    def by_header(request):
        chain = {"eth": b"0x1", "polygon": b"0x89"}[request.header("target-service-id")]
        return answer(b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % chain)

    envoy = default_envoy
    name = {"key": "keyed.test", "routes": "chains.test"}[way]
    origin.answers(by_header)

    def send(chain):
        headers = [("Content-Type", "application/json"), ("target-service-id", chain)]
        with envoy.connect() as connection:
            return connection.exchange("/", method="POST", headers=headers, body=CALL, host=name)

    for chain, result in (("eth", b"0x1"), ("polygon", b"0x89"), ("eth", b"0x1")):
        assert result in send(chain).body
        envoy.wait_for(lambda chain=chain: "sszip; hit" in send(chain).header("Cache-Status"), "a hit")
        assert result in send(chain).body

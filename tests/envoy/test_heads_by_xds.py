"""Head sources and fleets whose filters and routes are added and removed while Envoy runs; and the
store, which does not change."""

import contextlib

import pytest

from harness.chain import Chain
from harness.nginx import free_port
from harness.origin import answer
from harness.owner import Client, owner_of, wait_until_open
from harness.rpc import Node
from test_reloads import Dynamic, is_up
from test_store_life import LARGE, hits, wait_until_linked


@pytest.fixture(scope="module")
def chain():
    chain = Chain()
    yield chain
    chain.stop()


@pytest.fixture
def dynamic(origin, chain):
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(lambda request: node(request) if request.body else answer(b"{}"))
    envoy = Dynamic(origin, workers=2)
    envoy.options = ["--drain-time-s", "1", "--drain-strategy", "immediate"]
    envoy.store = {"cache": True, "cache_path": f"{envoy.prefix}/cache max_size=64m"}
    envoy.head = f"http://{chain.address} interval=100ms"
    envoy.settings(**envoy.store, cache_namespace="main")
    envoy.start()
    envoy.wait_for(lambda: is_up(envoy), "the listener")
    wait_until_linked(envoy)
    yield envoy
    envoy.stop()


def followed(envoy):
    """The namespaces whose chains the owner follows; `None`: the owner is starting."""
    owner = Client(envoy.prefix / "cache/owner.sock")
    with contextlib.suppress(OSError, AssertionError, ValueError):
        return {one["name"] for one in owner.status()["chains"]}


def await_followed(envoy, *names):
    envoy.wait_for(lambda: followed(envoy) == set(names), f"{names} to be followed")


def test_head_of_a_removed_filter_is_not_followed(dynamic):
    main = {**dynamic.store, "cache_namespace": "main"}
    assert followed(dynamic) == set() and hits(dynamic, range(3)) == 0
    # the owner restarts
    dynamic.wait_for(lambda: owner_of(dynamic).status()["memory"]["entries"] == 3, "the owner to have the entries")
    dynamic.settings(**main, cache_head=[dynamic.head, f"{dynamic.head} namespace=side"])
    await_followed(dynamic, "main", "side")
    # an updated listener with the same head and without the other
    dynamic.settings(**main, cache_head=dynamic.head, comp_level=3)
    await_followed(dynamic, "main")
    dynamic.settings(**main)
    await_followed(dynamic)
    dynamic.settings(**main, cache_head=f"{dynamic.head} finality=depth:3")
    await_followed(dynamic, "main")
    dynamic.settings(**main)
    await_followed(dynamic)
    wait_until_open(dynamic)
    # entries that were stored before are there
    assert hits(dynamic, range(3)) == 3


def test_head_of_a_removed_route_is_not_followed(dynamic):
    dynamic.settings(**dynamic.store, cache_namespace="main", cache_head=dynamic.head)
    await_followed(dynamic, "main")
    dynamic.set_route_settings(cache_namespace="side", cache_head=dynamic.head)
    await_followed(dynamic, "main", "side")
    dynamic.set_route_settings(cache_namespace="other", cache_head=dynamic.head)
    await_followed(dynamic, "main", "other")
    # the route's head is in the filter's namespace, once it had a request
    dynamic.set_route_settings(cache_head=f"{dynamic.head} finality=depth:3")
    await_followed(dynamic, "main")
    assert dynamic.get("/").status == 200
    await_followed(dynamic, "main")
    dynamic.set_route_settings(cache_head="off")
    dynamic.settings(**dynamic.store, cache_namespace="main")
    await_followed(dynamic)


def test_head_of_a_route_is_followed_after_its_filter_is_replaced(dynamic):
    dynamic.set_route_settings(cache_head=dynamic.head)
    dynamic.wait_for(lambda: dynamic.get("/").status == 200 and followed(dynamic), "the route")
    dynamic.settings(**dynamic.store, cache_namespace="other")

    def moves():
        dynamic.get("/")
        return followed(dynamic) == {"other"}

    dynamic.wait_for(moves, "the other filter's namespace to be followed in its place")


def test_change_of_the_store_is_rejected_until_a_restart(dynamic):
    """The error names the remedy, and Envoy continues with the present store."""
    wait_until_linked(dynamic)
    assert hits(dynamic, range(3)) == 0
    dynamic.expect(r"gRPC config|Error adding/updating listener|dynamic_modules|has one store")
    for path in (f"{dynamic.prefix}/another", f"{dynamic.prefix}/cache max_size=65m"):
        before = dynamic.refused()
        dynamic.settings(cache=True, cache_namespace="main", cache_path=path)
        dynamic.wait_for(lambda before=before: dynamic.refused() > before, "the refusal")
        log = dynamic.error_log()
        assert f"is at unix:{dynamic.prefix}/cache/owner.sock: \"cache_path\" and" in log
        assert "restart it (a hot restart is enough)" in log
        assert hits(dynamic, range(3)) == 3
    # what a worker has stored is lost with it until the owner has it
    dynamic.wait_for(lambda: owner_of(dynamic).status()["memory"]["entries"] == 3, "the owner to have the entries")
    dynamic.end()
    dynamic.start()
    dynamic.wait_for(lambda: is_up(dynamic), "the listener")
    wait_until_open(dynamic)
    assert hits(dynamic, range(3)) == 3


def used_fleet(envoy):
    """The server of the owner's fleet, or none; `None` also while the owner is starting."""
    owner = Client(envoy.prefix / "cache/owner.sock")
    with contextlib.suppress(OSError, AssertionError, ValueError):
        return owner.status().get("fleet", {}).get("endpoint", "none")


def await_used_fleet(envoy, name):
    envoy.wait_for(lambda: used_fleet(envoy) == name, f"{name} to be used")


def test_another_fleet_is_rejected_while_a_filter_uses_one(dynamic):
    """Another server is refused; the owner restarts with other parameters, and without a fleet."""
    dynamic.expect(r"gRPC config|Error adding/updating listener|dynamic_modules|fleet")
    main = {**dynamic.store, "cache_namespace": "main", "cache_head": dynamic.head}
    first = f"redis://127.0.0.1:{free_port()}"
    dynamic.settings(**main, cache_fleet=first)
    await_used_fleet(dynamic, first)
    before = dynamic.refused()
    dynamic.settings(**main, cache_fleet="redis://127.0.0.1:1")
    dynamic.wait_for(lambda: dynamic.refused() > before, "the refusal")
    assert f'a process has one fleet, {first} with the prefix "sszip": "cache_fleet" can\'t set another one' in dynamic.error_log()
    assert used_fleet(dynamic) == first
    updates = dynamic.updates()
    dynamic.settings(**main, cache_fleet=f"{first} timeout=5ms")
    dynamic.wait_for(lambda: dynamic.updates() > updates, "the update")
    await_used_fleet(dynamic, first)
    dynamic.settings(**main)
    await_used_fleet(dynamic, "none")

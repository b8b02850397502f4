"""A fleet in a Redis Cluster: values and the purge stream are on several nodes, and slots move between
them."""

import random
import types

import pytest
from certificates import Certificates
from cluster_sharing import assert_shared_with, wait_until_all_are_shared
from documented_acl import documented_rules
from fleet_load import FleetLoad
from fleet_status import assert_confirmed
from machines import balance, receipts, share, wait_until_sharing_after_a_loss
from resp_client import ErrorReply
from servers import PREFIX, wait_until

from harness.nginx import free_port
from tiers import by_tier

METHOD = "eth_getBlockReceipts"
STREAM, OWNERS = f"{PREFIX}:purges", f"{PREFIX}:owners"
# Slots that move while clients send requests.
MOVED_SLOTS = by_tier(4, 60)


def new_fleet(world, timeout="200ms", **options):
    """Two machines with one node, and a cluster between them."""
    cluster = world.cluster(**options)
    chain = world.chain(final_blocks=60)
    a, b = (world.machine(chain, cluster.url, timeout=timeout) for _ in range(2))
    return types.SimpleNamespace(cluster=cluster, a=a, b=b, final=chain.final)


@pytest.fixture(scope="module")
def fleet(file_world):
    """A cluster of three primaries, for all tests of the file that leave them in order."""
    return new_fleet(file_world, timeout="900ms")


@pytest.fixture(scope="module")
def numbers(fleet):
    """Final blocks, each for one call."""
    return iter(range(fleet.final, 0, -1))


def balances(numbers, count):
    return [balance(next(numbers)) for _ in range(count)]


def fences(fleet):
    return fleet.a.fleet.fences + fleet.b.fleet.fences


def assert_hits(machine, *calls):
    """Checks that responses are hits of the fleet."""
    hits_before = machine.fleet.hits
    assert machine.requested(*calls) == 0
    assert machine.fleet.hits == hits_before + len(calls)


def test_values_are_spread_over_the_nodes(fleet, numbers):
    calls = balances(numbers, 30)
    names = share(fleet.a, fleet.cluster, *calls)
    assert {fleet.cluster.primary_of(name).port for name in names} == {node.port for node in fleet.cluster.nodes}
    assert_hits(fleet.b, *calls)


def test_purge_covers_the_values_of_all_nodes(fleet, numbers):
    cluster, a, b = fleet.cluster, fleet.a, fleet.b
    purged = [receipts(next(numbers)) for _ in range(12)]
    (other,) = balances(numbers, 1)
    names = share(a, cluster, *purged, other)
    assert len({cluster.primary_of(name) for name in names}) > 1
    assert_confirmed(a.purge(method=METHOD), owners=2)
    before = b.fleet.not_servable("purged")
    assert b.requested(*purged) == len(purged)
    assert b.fleet.not_servable("purged") == before + len(purged)
    assert_hits(b, other)


# slots that move


def target_of(cluster, slot):
    """A node that does not have the slot."""
    return next(node for node in cluster.primaries() if node is not cluster.primary_of_slot(slot))


def test_values_of_a_slot_that_moves_are_hits_and_are_replaced(fleet, numbers):
    cluster, a, b = fleet.cluster, fleet.a, fleet.b
    body = receipts(next(numbers))
    (name,) = share(a, cluster, body)
    key, slot = a.key(body), cluster.slot_of(name)
    target = target_of(cluster, slot)
    with cluster.moving_slot(slot, target) as source:
        redirections = source.errors("ASK")
        assert_hits(b, body)
        assert source.errors("ASK") > redirections
        assert_confirmed(a.purge(key=key), owners=2)
        assert share(a, cluster, body) == [name]
        assert_hits(b, body)
    assert cluster.primary_of(name) is target
    assert_confirmed(b.purge(key=key), owners=2)
    assert share(a, cluster, body) == [name]
    assert name in target.value_names() and name not in source.value_names()
    assert_hits(b, body)


@pytest.mark.parametrize("name", [STREAM, OWNERS])
def test_purges_are_confirmed_while_a_slot_of_them_moves(fleet, numbers, name):
    cluster, a, b = fleet.cluster, fleet.a, fleet.b
    body = receipts(next(numbers))
    fences_before = fences(fleet)
    share(a, cluster, body)
    assert_hits(b, body)
    slot = cluster.slot_of(name)
    with cluster.moving_slot(slot, target_of(cluster, slot)) as source:
        redirections = source.errors("ASK")
        assert_confirmed(a.purge(method=METHOD), owners=2)
        assert source.errors("ASK") > redirections
        assert b.requested(body) == 1
    assert_confirmed(b.purge(method=METHOD), owners=2)
    # the stream has lost no record
    assert fences(fleet) == fences_before
    share(a, cluster, body)
    assert_hits(b, body)


def test_responses_are_right_while_slots_move(fleet):
    cluster = fleet.cluster
    dice = random.Random(1)
    fences_before = fences(fleet)
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        names = sorted(cluster.value_names())
        for name in [STREAM, OWNERS, *dice.sample(names, min(MOVED_SLOTS, len(names)))]:
            slot = cluster.slot_of(name)
            with cluster.moving_slot(slot, target_of(cluster, slot)) as source:
                if name == STREAM:
                    redirections = source.errors("ASK")
                    wait_until(lambda n=redirections, node=source: node.errors("ASK") > n + 5, "polls of the stream")
                load.wait_for_responses(20)
            load.wait_for_responses(20)
        load.wait_for_hits()
    assert load.faults == []
    assert fences(fleet) == fences_before
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()
    assert_confirmed(fleet.a.purge(everything=True), owners=2)
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()


# nodes that lose their keys, and connections that end


def test_flush_of_the_node_with_the_stream_costs_one_cold_fleet(fleet, numbers):
    cluster, a, b = fleet.cluster, fleet.a, fleet.b
    calls = balances(numbers, 8)
    share(a, cluster, *calls)
    fences_before, position = fences(fleet), max(a.position, b.position)
    assert cluster.primary_of(STREAM).execute("FLUSHALL") == "OK"
    a.wait_for(lambda: fences(fleet) > fences_before, "a fence")
    wait_until_sharing_after_a_loss((a, b), position)
    # values of the other nodes are older than the fence
    assert b.requested(*calls) == len(calls)
    (later,) = balances(numbers, 1)
    share(a, cluster, later)
    assert_hits(b, later)


def test_flush_of_another_node_costs_only_its_values(fleet, numbers):
    cluster, a, b = fleet.cluster, fleet.a, fleet.b
    calls = balances(numbers, 24)
    names = share(a, cluster, *calls)
    node = cluster.primary_without(STREAM)
    lost = [body for body, name in zip(calls, names, strict=True) if cluster.primary_of(name) is node]
    assert 0 < len(lost) < len(calls)
    fences_before = fences(fleet)
    assert node.execute("FLUSHALL") == "OK"
    assert b.requested(*calls) == len(lost)
    assert fences(fleet) == fences_before


@pytest.mark.thorough("connections of one server are killed in `make test`")
def test_responses_are_right_while_clients_of_all_nodes_are_killed(fleet):
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        for _ in range(20):
            fleet.b.wait_until_used()
            fleet.cluster.disconnect_clients()
            load.wait_for_responses(60)
        load.wait_for_hits()
    assert load.faults == []


FORBIDDEN = ["CLUSTER NODES", "CLUSTER FAILOVER", "CLUSTER RESET", "MIGRATE 127.0.0.1 1 x 0 1", "KEYS *", "DEL sszip:purges"]


@pytest.mark.parametrize("command", FORBIDDEN)
def test_user_of_the_owners_has_no_other_commands_of_a_cluster(fleet, command):
    node = fleet.cluster.nodes[0]
    with node.connect_as_owner() as client, pytest.raises(ErrorReply, match="NOPERM"):
        client.execute(*command.split())
    node.forget_denied_commands()


# clusters of their own


@pytest.mark.thorough("the file's own cluster is in `make test`")
def test_url_may_name_nodes_that_are_not_reachable(world):
    cluster = world.cluster()
    chain = world.chain()
    machines = [
        world.machine(chain, cluster.url_of(*ports))
        for ports in ([free_port(), cluster.nodes[1].port], [cluster.nodes[2].port])
    ]
    share(machines[0], cluster, balance(chain.final))
    assert_hits(machines[1], balance(chain.final))


@pytest.mark.thorough("permissions of one server are in `make test`")
def test_log_names_a_permission_that_is_missing(world):
    """The rules of one server are not sufficient for a cluster."""
    cluster = world.cluster(primaries=1)
    denied = sorted(set(documented_rules("cluster|slots")) - set(documented_rules()))
    for node in cluster.nodes:
        node.set_rules(*(rule.replace("+", "-") for rule in denied))
    machine = world.machine(world.chain(), cluster.url, is_used=False)
    machine.wait_for(lambda: "NOPERM" in machine.owner.log() or "permission" in machine.owner.log(), "a log line")
    assert not machine.fleet.is_used
    machine.assert_right(balance(machine.chain.final))
    for node in cluster.nodes:
        node.set_rules(*denied)
    machine.wait_until_used()
    for node in cluster.nodes:
        node.forget_denied_commands()


@pytest.mark.thorough("TLS of one server is in `make test`")
def test_nodes_of_a_cluster_are_used_over_tls(world, tmp_path):
    certificates = Certificates(tmp_path / "certificates")
    cluster = world.cluster(tls=certificates)
    chain = world.chain()
    a, b = (world.machine(chain, cluster.url, ca=str(certificates.ca)) for _ in range(2))
    calls = [balance(chain.final - n) for n in range(30)]
    names = share(a, cluster, *calls)
    assert len({cluster.primary_of(name) for name in names}) == 3
    assert_hits(b, *calls)
    assert_confirmed(a.purge(everything=True), owners=2)


REPLIES = {
    "not the protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "announced string of 10 GB": b"$9999999999\r\n",
    "nested arrays": b"*1\r\n" * 10_000,
    "endless line": b"+" * 200_000,
    "pushed messages": b">2\r\n+message\r\n+x\r\n" * 100,
    "redirection to a port without a node": b"-MOVED 1 127.0.0.1:1\r\n",
    "redirection to another host": b"-ASK 1 192.0.2.1:6379\r\n",
}


def assert_shared_after_a_fault(world, has_stream, begin_fault):
    """Checks responses during a fault of the proxy in front of a node, and that entries are shared
    after the fault. Connections that the fault has stalled remain stalled."""
    fleet = new_fleet(world, has_proxies=True)
    cluster = fleet.cluster
    node = cluster.primary_of(STREAM) if has_stream else cluster.primary_without(STREAM)
    proxy = cluster.proxies[cluster.nodes.index(node)]
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        begin_fault(proxy)
        load.wait_for_responses(500)
        proxy.forward()
        load.wait_for_hits()
    assert load.faults == []
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()
    wait_until_all_are_shared(fleet)
    calls = [balance(fleet.final, account) for account in range(10**6, 10**6 + 12)]
    share(fleet.a, cluster, *calls)
    assert_shared_with(fleet.b, calls)


@pytest.mark.thorough("replies of one server are replaced in `make test`")
@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("has_stream", [True, False])
def test_responses_are_right_while_a_node_sends_invalid_replies(world, reply, has_stream):
    assert_shared_after_a_fault(world, has_stream, lambda proxy: proxy.replace_replies(REPLIES[reply]))


@pytest.mark.thorough("one server is silent in `make test`")
@pytest.mark.parametrize("has_stream", [True, False])
def test_sharing_resumes_when_connections_to_a_node_remain_silent(world, has_stream):
    assert_shared_after_a_fault(world, has_stream, lambda proxy: proxy.stall())

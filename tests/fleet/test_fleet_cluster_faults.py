"""Nodes of a Redis Cluster that fail: all responses are right, and entries are shared again as soon as a
replica has replaced the primary, or the cluster serves again."""

import types

import pytest
from cluster_sharing import assert_shared_with, wait_until_all_are_shared
from fleet_load import FleetLoad
from fleet_status import assert_confirmed
from machines import balance, receipts, share
from servers import PREFIX, wait_until

METHOD = "eth_getBlockReceipts"
STREAM = f"{PREFIX}:purges"
# Responses under load while the cluster does not serve.
RESPONSES = 600

pytestmark = pytest.mark.thorough("failovers of a cluster take seconds; one server fails in `make test`")


def new_fleet(world, **options):
    """Two machines with one node, and a cluster between them."""
    cluster = world.cluster(**options)
    chain = world.chain(final_blocks=50)
    a, b = (world.machine(chain, cluster.url) for _ in range(2))
    return types.SimpleNamespace(cluster=cluster, a=a, b=b, final=chain.final)


@pytest.fixture
def fleet(world):
    """A cluster whose three primaries have a replica each."""
    return new_fleet(world, replicas=1)


def primary(fleet, has_stream):
    """A primary with or without the purge stream."""
    return fleet.cluster.primary_of(STREAM) if has_stream else fleet.cluster.primary_without(STREAM)


def assert_shared_at(fleet, node):
    """Checks that values of a node are stored and used, as soon as connections have been replaced."""
    wait_until_all_are_shared(fleet)
    calls = [balance(fleet.final, account) for account in range(10**6, 10**6 + 24)]
    names = share(fleet.a, fleet.cluster, *calls)
    at_node = [body for body, name in zip(calls, names, strict=True) if fleet.cluster.primary_of(name) is node]
    assert at_node
    assert_shared_with(fleet.b, at_node)


def assert_in_order(fleet):
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()
    assert_confirmed(fleet.a.purge(everything=True), owners=2)


FAILURES = {"killed": lambda node: node.kill(), "stopped": lambda node: node.pause()}
RETURNS = {"killed": lambda node: node.start(), "stopped": lambda node: node.resume()}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("has_stream", [True, False])
def test_sharing_resumes_when_a_replica_has_replaced_a_primary(fleet, failure, has_stream):
    former = primary(fleet, has_stream)
    replica = fleet.cluster.replica_of(former)
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        FAILURES[failure](former)
        wait_until(lambda: replica.is_primary, "a failover")
        fleet.cluster.wait_until_serving()
        fleet.cluster.keep_primaries()
        load.wait_for_hits()
        load.wait_for_responses(100)
    assert load.faults == []
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()
    assert_shared_at(fleet, replica)
    with FleetLoad(fleet.a, fleet.b) as load:
        RETURNS[failure](former)
        wait_until(lambda: former.role == "slave", "the former primary to be a replica")
        load.wait_for_responses(100)
    assert load.faults == []
    assert_in_order(fleet)


@pytest.mark.parametrize("has_stream", [True, False])
def test_sharing_continues_during_a_planned_failover(fleet, has_stream):
    former = primary(fleet, has_stream)
    replica = fleet.cluster.replica_of(former)
    fences_before = fleet.a.fleet.fences + fleet.b.fleet.fences
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        assert replica.execute("CLUSTER", "FAILOVER") == "OK"
        wait_until(lambda: former.role == "slave" and replica.is_primary, "the failover")
        load.wait_for_hits()
    assert load.faults == []
    assert_shared_at(fleet, replica)
    # the replica has received all records before
    assert fleet.a.fleet.fences + fleet.b.fleet.fences == fences_before
    assert_in_order(fleet)


@pytest.mark.parametrize("failure", FAILURES)
def test_purge_during_a_failover_is_not_lost(fleet, failure):
    a, b = fleet.a, fleet.b
    body = receipts(fleet.final)
    share(a, fleet.cluster, body)
    assert b.requested(body) == 0
    key = b.key(body)
    assert b.has_entry(key)
    former = primary(fleet, has_stream=True)
    replica = fleet.cluster.replica_of(former)
    FAILURES[failure](former)
    reply = a.purge(method=METHOD)["fleet"]
    # a failover may end while the purge waits; the other owner may not have noticed it
    assert reply.get("pending") is True or reply["owners"] == 2, reply
    wait_until(lambda: replica.is_primary, "a failover")
    b.wait_for(lambda: not b.has_entry(key), "the purge to be in effect on the other machine")
    # the workers receive it after the owner has purged
    b.wait_for(lambda: b.requested(body) == 1, "the purge to be in effect in the workers")
    RETURNS[failure](former)
    assert_in_order(fleet)


def test_owner_that_restarts_after_a_failover_finds_the_new_primary(fleet):
    former = fleet.cluster.nodes[0]
    assert fleet.cluster.url.split("//")[1].startswith(f"127.0.0.1:{former.port},")
    replica = fleet.cluster.replica_of(former)
    former.kill()
    wait_until(lambda: replica.is_primary, "a failover")
    fleet.cluster.wait_until_serving()
    for machine in (fleet.a, fleet.b):
        machine.restart_owner()
        machine.wait_until_used()
    assert_shared_at(fleet, replica)


def test_loss_of_a_replica_has_no_effect(fleet):
    replica = fleet.cluster.replica_of(primary(fleet, has_stream=True))
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        replica.kill()
        others = fleet.cluster.running_nodes()
        wait_until(lambda: all(_has_failed(replica, node) for node in others), "the nodes to notice the loss")
        load.wait_for_hits()
        assert fleet.b.fleet.is_used
    assert load.faults == []
    assert_in_order(fleet)


def _has_failed(node, observer):
    return any(id == node.id and b"fail" in flags for id, flags, _ in observer.known_nodes())


@pytest.mark.parametrize("has_stream", [True, False])
def test_responses_are_right_while_the_cluster_is_down(world, has_stream):
    """A primary without a replica is lost: the other nodes reply CLUSTERDOWN."""
    fleet = new_fleet(world)
    lost = primary(fleet, has_stream)
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        lost.kill()
        others = fleet.cluster.running_nodes()
        wait_until(lambda: not any(node.is_serving() for node in others), "the cluster to be down")
        for machine in (fleet.a, fleet.b):
            machine.wait_until_unused()
        hits_before = fleet.b.fleet.hits
        load.wait_for_responses(RESPONSES)
        assert fleet.b.fleet.hits == hits_before
        lost.start()
        fleet.cluster.wait_until_serving()
        load.wait_for_hits()
    assert load.faults == []
    assert_shared_at(fleet, lost)
    assert_in_order(fleet)


def test_sharing_resumes_after_a_restart_of_all_nodes(world):
    """All connections of a client end at the same time."""
    fleet = new_fleet(world)
    nodes = fleet.cluster.nodes
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        for node in nodes:
            node.kill()
        for machine in (fleet.a, fleet.b):
            machine.wait_until_unused()
        load.wait_for_responses(RESPONSES)
        for node in nodes:
            node.start()
        fleet.cluster.wait_until_serving()
        load.wait_for_hits()
    assert load.faults == []
    assert_in_order(fleet)


def test_connections_to_nodes_that_do_not_respond_end(world):
    """Attempts to connect that time out leave no connections."""
    fleet = new_fleet(world, has_proxies=True)
    proxies = fleet.cluster.proxies
    limit = max(proxy.open_connections for proxy in proxies) + 4
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        for proxy in proxies:
            proxy.stall()
        end = sum(proxy.connections for proxy in proxies) + 30
        fleet.a.wait_for(lambda: sum(proxy.connections for proxy in proxies) >= end, "attempts to connect")
        fleet.a.wait_for(lambda: all(proxy.open_connections <= limit for proxy in proxies), "connections to end")
        for proxy in proxies:
            proxy.forward()
        load.wait_for_hits()
    assert load.faults == []
    assert_in_order(fleet)

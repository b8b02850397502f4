"""A fleet in Valkey: one server, a cluster, and Sentinels."""

import signal
import types

import pytest
from fleet_status import assert_confirmed
from machines import balance, receipts, share, wait_until_shared_again, wait_until_sharing_after_a_loss
from sentinel_servers import DOWN_AFTER
from valkey import VALKEY_SERVER

METHOD = "eth_getBlockReceipts"

pytestmark = [
    pytest.mark.thorough("Redis is in `make test`"),
    pytest.mark.skipif(not VALKEY_SERVER, reason="there is no valkey-server; run scripts/setup test-all"),
]


def single_server(world):
    redis = world.redis(command=[VALKEY_SERVER])
    return redis, redis.url, {}


def cluster(world):
    cluster = world.cluster(command=[VALKEY_SERVER])
    return cluster, cluster.url, {}


def sentinel(world):
    group = world.sentinels(command=[VALKEY_SERVER])
    return group.nodes[0], group.url, world.sentinel_settings()


@pytest.fixture(params=[single_server, cluster, sentinel], ids=lambda new_servers: new_servers.__name__)
def fleet(world, request):
    """Two machines with one node, and servers between them."""
    servers, url, settings = request.param(world)
    chain = world.chain()
    a, b = (world.machine(chain, url, **settings) for _ in range(2))
    return types.SimpleNamespace(servers=servers, a=a, b=b, final=chain.final)


def test_server_is_valkey(world):
    assert "valkey_version" in world.redis(command=[VALKEY_SERVER]).info("server")


def test_entries_are_shared_and_purged(fleet):
    a, b = fleet.a, fleet.b
    calls = [receipts(fleet.final - n) for n in range(6)]
    share(a, fleet.servers, *calls)
    hits_before = b.fleet.hits
    assert b.requested(*calls) == 0
    assert b.fleet.hits == hits_before + len(calls)
    assert_confirmed(a.purge(method=METHOD), owners=2)
    assert b.requested(*calls) == len(calls)
    share(b, fleet.servers, balance(fleet.final))
    assert a.requested(balance(fleet.final)) == 0


def test_owner_that_was_down_drops_purged_entries(fleet):
    a, b = fleet.a, fleet.b
    body = receipts(fleet.final)
    share(a, fleet.servers, body)
    assert b.requested(body) == 0
    # it writes its memory to the disk
    b.owner.kill(signal.SIGTERM)
    reply = a.purge(method=METHOD)["fleet"]
    assert (reply["owners"], reply["confirmed"]) == (2, 1), reply
    b.owner.start()
    b.wait_until_ready()
    b.wait_until_used()
    assert b.requested(body) == 1


def test_lost_stream_costs_one_fence(world):
    redis, url, _ = single_server(world)
    chain = world.chain()
    a, b = (world.machine(chain, url) for _ in range(2))
    share(a, redis, receipts(chain.final))
    fences_before, position = a.fleet.fences + b.fleet.fences, max(a.position, b.position)
    assert redis.execute("FLUSHALL") == "OK"
    a.wait_for(lambda: a.fleet.fences + b.fleet.fences > fences_before, "a fence")
    wait_until_sharing_after_a_loss((a, b), position)
    share(a, redis, balance(chain.final))
    assert b.requested(balance(chain.final)) == 0


def test_sharing_resumes_after_a_failover(world):
    group = world.sentinels(replicas=1, command=[VALKEY_SERVER])
    chain = world.chain()
    a, b = (world.machine(chain, group.url, **world.sentinel_settings()) for _ in range(2))
    former = group.primary()
    share(a, former, balance(chain.final))
    group.set_down_after(DOWN_AFTER)
    former.kill()
    group.wait_for_failover(former)
    primary = group.primary()
    a.wait_for(lambda: primary.owner_connections() >= 4, "the owners to connect to the new primary")
    for machine in (a, b):
        machine.wait_until_used()
    wait_until_shared_again(a, b, primary)

"""Servers and networks that fail: all responses are right, requests continue, and the fleet is used
again when the fault has ended."""

import contextlib
import itertools
import re
import types

import pytest
from fleet_load import FleetLoad
from fleet_status import assert_confirmed
from machines import balance, share
from servers import PASSWORD

from harness.nginx import free_port
from tiers import by_tier

# Responses under load in each phase of a fault.
RESPONSES = by_tier(300, 2_000)


def new_fleet(world, **settings):
    """Two machines behind one proxy. Their breakers were never open: a breaker that opens again and
    again stays open for longer."""
    redis = world.redis()
    proxy = world.proxy(redis)
    chain = world.chain(final_blocks=50)
    a, b = (world.machine(chain, proxy.url, **settings) for _ in range(2))
    return types.SimpleNamespace(redis=redis, proxy=proxy, chain=chain, a=a, b=b)


@pytest.fixture
def fleet(world):
    """A fleet with timeouts that a fault exceeds soon, and a busy machine sometimes."""
    return new_fleet(world, timeout="200ms")


@pytest.fixture
def patient_fleet(world):
    """A fleet for faults that the server reports at once."""
    return new_fleet(world)


# faults: each is a context in which it is in effect


@contextlib.contextmanager
def killed_server(fleet):
    fleet.redis.kill()
    yield
    fleet.redis.start()


@contextlib.contextmanager
def stopped_server(fleet):
    fleet.redis.pause()
    yield
    fleet.redis.resume()


@contextlib.contextmanager
def wrong_password(fleet):
    fleet.redis.set_rules(f"<{PASSWORD}", ">another-password")
    fleet.redis.disconnect_clients()
    yield
    fleet.redis.set_rules("<another-password", f">{PASSWORD}")
    fleet.redis.forget_denied_commands()


def denied(*commands):
    @contextlib.contextmanager
    def denied(fleet):
        fleet.redis.set_rules(*(f"-{command}" for command in commands))
        yield
        fleet.redis.set_rules(*(f"+{command}" for command in commands))
        fleet.redis.forget_denied_commands()

    return denied


@contextlib.contextmanager
def read_only_replica(fleet):
    # of a primary that is not reachable: its own data stay
    assert fleet.redis.execute("REPLICAOF", "127.0.0.1", free_port()) == "OK"
    yield
    assert fleet.redis.execute("REPLICAOF", "NO", "ONE") == "OK"


@contextlib.contextmanager
def full_memory(fleet):
    assert fleet.redis.execute("CONFIG", "SET", "maxmemory", 1) == "OK"
    yield
    assert fleet.redis.execute("CONFIG", "SET", "maxmemory", 64 << 20) == "OK"


def proxy_fault(name, *arguments):
    @contextlib.contextmanager
    def proxy_fault(fleet):
        getattr(fleet.proxy, name)(*arguments)
        yield
        fleet.proxy.forward()

    return proxy_fault


# Faults after which lookups do not query the fleet.
UNUSABLE = {
    "killed": killed_server,
    "stopped": stopped_server,
    "slow": proxy_fault("delay", 1.0),
    "stalled": proxy_fault("stall", 0),
    "stalled in a reply": proxy_fault("stall", 700),
    "dropped": proxy_fault("drop"),
    "reset": proxy_fault("reset"),
    "refused": proxy_fault("refuse"),
    "not the protocol": proxy_fault("replace_replies", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "announced string of 10 GB": proxy_fault("replace_replies", b"$9999999999\r\n"),
    "announced array of 10^9": proxy_fault("replace_replies", b"*1000000000\r\n"),
    "nested arrays": proxy_fault("replace_replies", b"*1\r\n" * 10_000),
    "endless line": proxy_fault("replace_replies", b"+" * 200_000),
    "big number": proxy_fault("replace_replies", b"(" + b"9" * 60_000 + b"\r\n"),
    "pushed messages": proxy_fault("replace_replies", b">2\r\n+message\r\n+x\r\n" * 100),
    "loading": proxy_fault("replace_replies", b"-LOADING Redis is loading the dataset in memory\r\n"),
    "wrong password": wrong_password,
    "NOPERM for lookups": denied("get"),
    "NOPERM for the stream": denied("xread", "xrange"),
}
# Faults after which only stores fail, or nothing but the stream.
PARTIAL = {
    "NOPERM for stores": denied("set"),
    "read-only replica": read_only_replica,
    "full memory": full_memory,
}
# Of these some values are received all the same.
INCOMPLETE = {"stalled in a reply"}
# Lookups in flight, whose values arrive after the fault has begun.
IN_FLIGHT = 3
REPRESENTATIVE_FAULTS = ["killed", "stopped", "slow", "stalled in a reply", "announced string of 10 GB", "wrong password", "NOPERM for lookups"]


@pytest.mark.parametrize("fault", by_tier(REPRESENTATIVE_FAULTS, list(UNUSABLE)))
def test_responses_are_right_while_the_fleet_is_unusable(fleet, fault):
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        with UNUSABLE[fault](fleet):
            fleet.b.wait_until_unused()
            hits_before = fleet.b.fleet.hits
            load.wait_for_responses(RESPONSES)
            assert fault in INCOMPLETE or fleet.b.fleet.hits <= hits_before + IN_FLIGHT
        load.wait_for_hits()
    assert load.faults == []
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()


@pytest.mark.parametrize("fault", by_tier(["full memory"], list(PARTIAL)))
def test_responses_are_right_while_stores_fail(fleet, fault):
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        with PARTIAL[fault](fleet):
            failed_before = fleet.a.fleet.failed_stores
            fleet.a.wait_for(lambda: fleet.a.fleet.failed_stores > failed_before, "a store to fail")
            load.wait_for_responses(RESPONSES)
        load.wait_for_hits()
    assert load.faults == []


@pytest.mark.parametrize("fault", by_tier(["full memory"], list(PARTIAL)))
def test_stored_values_are_served_while_stores_fail(patient_fleet, fault):
    fleet = patient_fleet
    final = fleet.chain.final
    calls = [balance(final, n) for n in range(1, 9)]
    share(fleet.a, fleet.redis, *calls)
    accounts = itertools.count(100)
    with PARTIAL[fault](fleet):
        failed_before = fleet.a.fleet.failed_stores

        def has_failed():
            fleet.a.fetch(balance(final, next(accounts)))
            return fleet.a.fleet.failed_stores > failed_before

        fleet.a.wait_for(has_failed, "a store to fail")
        assert fleet.b.fleet.is_used
        assert fleet.b.requested(*calls) == 0
    names = fleet.redis.value_names()

    def is_stored():
        fleet.a.fetch(balance(final, next(accounts)))
        return fleet.redis.value_names() - names

    fleet.a.wait_for(is_stored, "a store to be written")


OPENED_BY_TIMEOUTS = r"lookup connection: not used for at least .*: no reply in time;"


def late_replies_open_the_breaker(fleet):
    """Delays replies until lookups do not query the fleet, and returns whether the breaker of lookups has opened. On
    a busy machine the purges may be unknown before five lookups have timed out, and no further ones query it."""
    fleet.b.wait_until_used()
    with proxy_fault("delay", 1.0)(fleet):
        fleet.b.wait_until_unused()
        return fleet.b.fleet.breakers[0] != "closed"


def test_breakers_open_by_timeouts_and_close_again(fleet):
    with FleetLoad(fleet.a, fleet.b) as load:
        fleet.b.wait_for(lambda: late_replies_open_the_breaker(fleet), "the breaker of lookups to open")
        fleet.b.wait_for(lambda: re.search(OPENED_BY_TIMEOUTS, fleet.b.owner.log()), "the reason")
        assert fleet.b.fleet.lookups("timeout") >= 5
        fleet.b.wait_for(lambda: fleet.b.fleet.breakers[0] == "closed", "the breaker of lookups to close")
        load.wait_for_hits()
    assert load.faults == []


def test_entries_are_not_queued_while_stores_are_not_sent(fleet):
    final = fleet.chain.final
    with stopped_server(fleet):
        # the polls of the purge stream open the breaker
        fleet.a.wait_for(lambda: not fleet.a.fleet.stores_values, "the connection of stores not to be used")
        fleet.a.wait_for(lambda: fleet.a.fleet.json["queue_bytes"] == 0, "the queue of stores to be empty")
        stores_before = fleet.a.fleet.json["stores"]
        assert fleet.a.requested(*(balance(final, n) for n in range(1, 21))) == 20
        assert fleet.a.fleet.json["stores"] == stores_before
    # the owner's probe closes the breaker, without a store or a lookup
    fleet.a.wait_for(lambda: fleet.a.fleet.stores_values, "the connection of stores to be used")
    fleet.a.wait_until_used()
    share(fleet.a, fleet.redis, balance(final, 21))


@pytest.mark.parametrize("distance", by_tier([1021], [61, 1021, 30_011]))
def test_responses_are_right_while_bytes_are_flipped(fleet, distance):
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        with proxy_fault("flip", distance)(fleet):
            load.wait_for_responses(RESPONSES)
        load.wait_for_hits()
    assert load.faults == []


def test_responses_are_right_while_clients_are_killed(fleet):
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        for _ in range(by_tier(10, 60)):
            # the connections are open again
            fleet.b.wait_until_used()
            fleet.redis.disconnect_clients()
            load.wait_for_responses(RESPONSES // 10)
        load.wait_for_hits()
    assert load.faults == []


def test_responses_are_right_while_values_are_flushed_and_purged(fleet):
    with FleetLoad(fleet.a, fleet.b) as load:
        for machine in (fleet.a, fleet.b) * by_tier(2, 10):
            load.wait_for_hits()
            fleet.redis.execute("FLUSHALL")
            load.wait_for_responses(RESPONSES // 4)
            machine.wait_until_used()
            assert machine.purge(method="eth_getBalance")["generation"] > 0
        load.wait_for_hits()
    assert load.faults == []
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()
    assert_confirmed(fleet.a.purge(everything=True), owners=2)


def test_memory_of_an_owner_is_bounded_while_a_server_does_not_respond(fleet):
    """Lookups and stores that wait for a server are dropped beyond a number."""
    with FleetLoad(fleet.a, fleet.b, clients=6) as load:
        load.wait_for_hits()
        with stopped_server(fleet):
            load.wait_for_responses(RESPONSES)
            assert fleet.a.fleet.json["queue_bytes"] <= 32 << 20
        load.wait_for_hits()
        fleet.a.wait_for(lambda: fleet.a.fleet.json["queue_bytes"] < 1 << 20, "the queue of stores to be written")
    assert load.faults == []

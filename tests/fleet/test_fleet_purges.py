"""Purges reach all owners of a fleet, also those that were cut off, and values that were stored
before them are not used."""

import signal

import pytest
from fleet_status import assert_confirmed, confirmations
from machines import balance, receipts, share, wait_until_sharing_after_a_loss

METHOD = "eth_getBlockReceipts"


@pytest.fixture(scope="module")
def trio(file_world):
    """Two machines with one node, and the redis-server between them; for all tests of the file
    that change no more than entries."""
    redis = file_world.redis()
    chain = file_world.chain(final_blocks=60)
    return file_world.machine(chain, redis.url), file_world.machine(chain, redis.url), redis


@pytest.fixture(scope="module")
def numbers(trio):
    """Final blocks, each for one test."""
    a, _, _ = trio
    return iter(range(a.chain.final, 0, -2))


SCOPES = {
    "everything": lambda machine, number: {"everything": True},
    "namespace": lambda machine, number: {"namespace": machine.namespace},
    "method": lambda machine, number: {"method": METHOD},
    "method of a namespace": lambda machine, number: {"method": METHOD, "namespace": machine.namespace},
    "blocks": lambda machine, number: {"namespace": machine.namespace, "blocks": [number, number]},
    "key": lambda machine, number: {"key": machine.key(receipts(number))},
}
# of these an entry of another method and block is not covered
LIMITED = {"method", "method of a namespace", "blocks", "key"}


@pytest.mark.parametrize("name", SCOPES)
def test_purge_of_one_owner_is_in_effect_on_another(trio, numbers, name):
    a, b, redis = trio
    number = next(numbers)
    purged, other = receipts(number), balance(number - 1)
    share(a, redis, purged, other)
    assert b.requested(purged, other) == 0
    assert_confirmed(a.purge(**SCOPES[name](a, number)), owners=2)
    for machine in (a, b):
        machine.wait_until_used()
    # the value in the fleet is older than the purge
    assert b.requested(purged) == 1
    assert b.requested(other) == (0 if name in LIMITED else 1)


@pytest.mark.parametrize("name", SCOPES)
def test_value_that_was_stored_before_a_purge_is_not_used(trio, numbers, name):
    a, b, redis = trio
    number = next(numbers)
    # only the first machine has ever had the entry
    (value_name,) = share(a, redis, receipts(number))
    assert_confirmed(b.purge(**SCOPES[name](a, number)), owners=2)
    for machine in (a, b):
        machine.wait_until_used()
    assert value_name in redis.value_names()
    before = b.fleet.not_servable("purged")
    assert b.requested(receipts(number)) == 1
    assert b.fleet.not_servable("purged") == before + 1


def test_entry_that_was_fetched_after_a_purge_is_shared(trio, numbers):
    a, b, redis = trio
    body = receipts(next(numbers))
    share(a, redis, body)
    assert_confirmed(b.purge(method=METHOD), owners=2)
    share(a, redis, body)
    assert b.requested(body) == 0


def test_response_that_was_requested_before_a_purge_is_not_shared(trio, numbers):
    a, b, redis = trio
    number = next(numbers)
    body = receipts(number)
    before = a.chain.count(METHOD)
    a.chain.do({"hold": {"method": METHOD, "ms": 600_000}})
    with a.server.connect() as slow:
        slow.send(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        a.wait_for(lambda: a.chain.count(METHOD) > before, "the node to receive the request")
        assert_confirmed(b.purge(method=METHOD), owners=2)
        names = redis.value_names()
        a.chain.do({"hold": {"method": METHOD, "ms": 0}})
        assert slow.read("POST").status == 200
    # a later store passes the queue after it
    (later,) = share(a, redis, balance(number, 7))
    assert redis.value_names() == names | {later}
    assert b.requested(body) == 1


def cut_pair(world, cut):
    """Two machines with an entry in common; the one with the number `cut` uses a proxy."""
    redis = world.redis()
    chain = world.chain()
    proxy = world.proxy(redis)
    urls = [redis.url, redis.url]
    urls[cut] = proxy.url
    # the default: the counter of an owner that is cut off does not change meanwhile
    a, b = (world.machine(chain, url, purge_wait="2s") for url in urls)
    body = receipts(chain.final)
    share(a, redis, body)
    assert b.requested(body) == 0
    return a, b, redis, proxy, body


@pytest.mark.parametrize("fault", ["refuse", "stall", "drop"])
def test_owner_that_is_cut_off_drops_purged_entries_when_it_is_back(world, fault):
    a, b, redis, proxy, body = cut_pair(world, cut=1)
    getattr(proxy, fault)()
    b.wait_until_unused()
    a.wait_for(lambda: confirmations(a.purge(method=METHOD)) == (2, 1, 1), "a purge that the other owner does not confirm")
    # the fleet is not used: a value that may be purged is a miss
    shared = balance(a.chain.final, 3)
    share(a, redis, shared)
    hits_before = b.fleet.hits
    assert b.requested(shared) == 1
    assert b.fleet.hits == hits_before
    proxy.forward()
    b.wait_until_used()
    b.wait_for_position(a.position)
    assert b.requested(body) == 1
    later = balance(a.chain.final, 4)
    share(a, redis, later)
    assert b.requested(later) == 0
    a.wait_for(lambda: confirmations(a.purge(method=METHOD))[:2] == (2, 2), "a purge that both owners confirm")


@pytest.mark.parametrize("restarted", [False, True])
def test_purge_of_an_owner_that_is_cut_off_is_published_when_it_is_back(world, restarted):
    a, b, redis, proxy, body = cut_pair(world, cut=0)
    key = b.key(body)
    assert b.has_entry(key)
    proxy.refuse()
    a.wait_until_unused()
    reply = a.purge(method=METHOD)["fleet"]
    assert reply["pending"] is True and reply["error"]
    # in effect on this machine
    assert a.requested(body) == 1
    assert b.requested(body) == 0
    if restarted:
        a.restart_owner()
    position = b.position
    proxy.forward()
    a.wait_until_used()
    for machine in (a, b):
        machine.wait_for_position(position + 1)
    assert not b.has_entry(key)
    assert b.requested(body) == 1


def test_owner_that_was_down_drops_purged_entries_from_its_disk(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url, purge_wait="2s"), world.machine(chain, redis.url)
    body = receipts(chain.final)
    share(b, redis, body)
    # it writes its memory to the disk
    b.owner.kill(signal.SIGTERM)
    a.wait_for(lambda: confirmations(a.purge(method=METHOD))[1] == 1, "a published purge")
    b.owner.start()
    b.wait_until_ready()
    b.wait_until_used()
    assert b.requested(body) == 1


def test_entries_on_disk_outlive_a_restart_without_a_purge(world):
    redis = world.redis()
    chain = world.chain()
    a = world.machine(chain, redis.url)
    body = receipts(chain.final)
    share(a, redis, body)
    # of another method: the stream has a record that the owner must not apply to all entries
    assert_confirmed(a.purge(method="eth_getLogs"), owners=1)
    key = a.key(body)
    a.owner.kill(signal.SIGTERM)
    a.owner.start()
    a.wait_until_ready()
    a.wait_until_used()
    assert a.has_entry(key)


def test_values_of_before_a_flush_are_not_used(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    calls = [receipts(chain.final), receipts(chain.final - 1)]
    share(a, redis, *calls)
    values = redis.values()
    fences_before = a.fleet.fences + b.fleet.fences
    position = max(a.position, b.position)
    assert redis.execute("FLUSHALL") == "OK"
    a.wait_for(lambda: a.fleet.fences + b.fleet.fences > fences_before, "a fence")
    wait_until_sharing_after_a_loss((a, b), position)
    # as if a failover had brought back an older state of the values only
    for name, value in values.items():
        redis.execute("SET", name, value)
    for body in calls:
        assert b.requested(body) == 1
    # the fleet is used as before
    later = balance(chain.final)
    share(a, redis, later)
    assert b.requested(later) == 0
    assert_confirmed(a.purge(everything=True), owners=2)


def test_fleet_is_used_again_after_a_restart_of_the_server(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    body = receipts(chain.final)
    share(a, redis, body)
    values = redis.values()
    position = max(a.position, b.position)
    redis.kill()
    for machine in (a, b):
        machine.wait_until_unused()
    redis.start()
    wait_until_sharing_after_a_loss((a, b), position)
    for name, value in values.items():
        redis.execute("SET", name, value)
    assert b.requested(body) == 1
    later = balance(chain.final)
    share(a, redis, later)
    assert b.requested(later) == 0


# records of a stream that other programs have written
RECORDS = {
    "unknown": ["x", "y"],
    "empty scope": ["k", "purge", "o", "0" * 16, "u", "0" * 32, "s", "{}"],
    "hostile": ["k", "\xff" * 300, "s", "[" * 10_000],
}


@pytest.mark.parametrize("name", RECORDS)
def test_invalid_record_of_the_stream_purges_all_entries_once(world, name):
    """The record may have been a purge of any entries."""
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    shared, own = receipts(chain.final), balance(chain.final, 9)
    share(a, redis, shared)
    b.assert_right(own)
    redis.execute("XADD", "sszip:purges", "*", *RECORDS[name])
    # the record is read: a purge after it is confirmed
    assert_confirmed(a.purge(key="0" * 64), owners=2)
    for machine in (a, b):
        machine.wait_until_used()
    assert b.requested(shared) == 1
    assert b.requested(own) == 1
    later = receipts(chain.final - 1)
    share(a, redis, later)
    assert b.requested(later) == 0
    assert b.requested(own) == 0


def test_stream_of_the_future_is_not_used_until_it_is_removed(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    redis.execute("XADD", "sszip:purges", f"{2**64 - 2}-0", "x", "y")
    for machine in (a, b):
        machine.wait_until_unused()
        machine.assert_right(receipts(chain.final))
    assert "sszip:purges" in a.owner.log()
    redis.execute("DEL", "sszip:purges")
    for machine in (a, b):
        machine.wait_until_used()
    later = receipts(chain.final - 1)
    share(a, redis, later)
    assert b.requested(later) == 0


def test_owners_are_counted_after_a_loss_and_a_restart(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)

    def counts(machine):
        """The numbers of owners that the machine reports until both are counted."""
        seen = set()
        machine.wait_for(lambda: seen.add(count := machine.fleet.json["stream"]["owners"]) or count == 2, "both owners")
        return seen

    # this owner knows both
    assert_confirmed(a.purge(method="eth_getLogs"), owners=2)
    fences_before = a.fleet.fences + b.fleet.fences
    assert redis.execute("FLUSHALL") == "OK"
    a.wait_for(lambda: a.fleet.fences + b.fleet.fences > fences_before, "a fence")
    # the table lacks the other one for a moment
    b.restart_owner()
    assert counts(a) | counts(b) <= {None, 2}

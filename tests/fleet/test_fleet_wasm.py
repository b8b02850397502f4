"""Machines with Envoy's proxy-wasm filter, whose owner is a daemon with a fleet."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from fleet_status import assert_confirmed
from machines import balance, receipts, share

from harness.client import fetch
from harness.rpc import call
from harness.stands import hit
from tiers import by_tier

METHOD = "eth_getBlockReceipts"
ADDRESS = '"0xdac17f958d2ee523a2206206994597c13d831ec7"'
# calls whose responses depend on the head
TIP = [
    call("eth_gasPrice"),
    call("eth_getBlockReceipts", '["latest"]'),
    call("eth_getBalance", f'[{ADDRESS},"latest"]'),
]
thorough = pytest.mark.thorough("a process of Envoy's for each")


@pytest.fixture(scope="module")
def trio(file_world):
    """nginx on one machine, Envoy with the filter on another, and the redis-server between them."""
    redis = file_world.redis()
    chain = file_world.chain(final_blocks=60)
    return file_world.machine(chain, redis.url), file_world.machine(chain, redis.url, "wasm"), redis


@pytest.fixture(scope="module")
def numbers(trio):
    """Final blocks, each for one test."""
    a, _, _ = trio
    return iter(range(a.chain.final, 0, -3))


def test_entry_of_nginx_is_a_hit_in_the_sandbox_of_another_machine(trio, numbers):
    a, b, redis = trio
    number = next(numbers)
    calls = [receipts(number), balance(number), balance(number, 2)]
    share(a, redis, *calls)
    hits_before = b.fleet.hits
    assert b.requested(*calls) == 0
    assert b.fleet.hits == hits_before + len(calls)
    # from its own memory, or from the daemon's
    for _ in range(3):
        assert b.requested(*calls) == 0
    assert b.fleet.hits == hits_before + len(calls)


def test_entry_of_a_sandbox_is_a_hit_in_nginx_on_another_machine(trio, numbers):
    a, b, redis = trio
    number = next(numbers)
    calls = [receipts(number), balance(number)]
    share(b, redis, *calls)
    hits_before = a.fleet.hits
    assert a.requested(*calls) == 0
    assert a.fleet.hits == hits_before + len(calls)


def test_members_of_a_batch_in_a_sandbox_are_fleet_hits(trio, numbers):
    a, b, redis = trio
    number = next(numbers)
    calls = [call("eth_getBalance", f'["0x{n:040x}","0x{number:x}"]', str(n)) for n in range(100, 112)]
    share(a, redis, *calls[:8])
    before, hits_before = b.chain.count("eth_getBalance"), b.fleet.hits
    responses = json.loads(b.fetch(b"[" + b",".join(calls) + b"]").decoded)
    results = {response["id"]: response["result"] for response in responses}
    assert [results[n] for n in range(100, 112)] == b.chain.honest(*calls)
    assert b.fleet.hits == hits_before + 8
    # the node has received the four that are not shared
    assert b.chain.count("eth_getBalance") == before + 4


@pytest.mark.parametrize("is_shared_only", [True, False], ids=["value", "entry"])
def test_purged_entry_is_not_served_by_a_sandbox_of_another_machine(trio, numbers, is_shared_only):
    """The sandbox has the entry in its memory, or only the fleet has a value of it."""
    a, b, redis = trio
    number = next(numbers)
    purged, other = receipts(number), balance(number)
    share(a, redis, purged, other)
    if not is_shared_only:
        # repeated: the sandbox has it in its own memory
        assert [b.requested(purged) for _ in range(3)] == [0, 0, 0]
    assert_confirmed(a.purge(method=METHOD), owners=2)
    assert b.requested(purged) == 1
    assert b.requested(other) == 0


def test_purge_by_a_route_of_a_sandbox_reaches_another_machine(trio, numbers):
    a, b, redis = trio
    body = receipts(next(numbers))
    share(b, redis, body)
    assert a.requested(body) == 0
    position = a.position
    response = fetch(b.server.port, f"/purge?method={METHOD}", method="POST", body=b"")
    assert response.status == 200, response.body
    a.wait_for_position(position + 1)
    assert a.requested(body) == 1


def test_lookups_of_unshareable_calls_in_a_sandbox_do_not_query_the_fleet(trio, numbers):
    a, b, redis = trio
    head, number = b.chain.head, next(numbers)
    before = b.fleet.lookups()
    # repeated, also as a batch: the owner is queried, and the fleet is not
    for body in TIP:
        b.assert_right(body)
        b.wait_for(lambda body=body: hit(b.fetch(body)), f"a hit: {body}")
    batch = b"[" + b",".join([call("eth_getBalance", f'["0x{n:040x}","latest"]', str(n)) for n in range(8)]) + b"]"
    assert len(json.loads(b.fetch(batch).decoded)) == 8
    assert b.fleet.lookups() == before
    assert head == b.chain.head
    # a shareable one does query it
    b.assert_right(balance(number))
    assert b.fleet.lookups() == before + 1


@thorough
def test_lookups_of_calls_with_credentials_in_the_key_do_not_query_the_fleet(world):
    redis = world.redis()
    chain = world.chain()
    a = world.machine(chain, redis.url)
    keyed = {"cache_credentials": "key X-Api-Key"}
    b = world.new_machine(chain, world.settings(redis.url), "wasm", filter_settings=keyed).start()
    b.wait_for(lambda: b.fleet.is_used, "the fleet to be used")
    calls = [receipts(chain.final), balance(chain.final)]
    names = set(share(a, redis, *calls))
    for body in calls:
        b.assert_right(body)
        # the owner of the second machine has the entry
        b.wait_for(lambda body=body: hit(b.fetch(body)), f"a hit: {body}")
    b.wait_for(lambda: b.owner.status()["fills"]["kept"] >= len(calls), "the entries at the owner")
    assert b.fleet.lookups() == 0
    # the queue of stores has an order: of its own entries none is stored
    assert redis.value_names() == names
    assert b.fleet.stores() == 0


@thorough
@pytest.mark.parametrize("kind", ["nginx", "envoy", "wasm"])
def test_entries_and_purges_reach_all_sandboxes_of_another_machine(world, kind):
    redis = world.redis()
    chain = world.chain()
    a = world.machine(chain, redis.url, kind)
    b = world.new_machine(chain, world.settings(redis.url), "wasm", workers=3).start().wait_until_used()
    body = receipts(chain.final)
    share(a, redis, body)
    # the kernel assigns connections to the three workers
    assert [b.requested(body) for _ in range(24)] == [0] * 24
    assert_confirmed(a.purge(method=METHOD), owners=2)
    assert b.requested(body) == 1
    # the owner receives the entry a moment later
    b.wait_for(lambda: sum(b.requested(body) for _ in range(24)) == 0, "hits in all sandboxes")


@thorough
def test_coalesced_requests_of_sandboxes_query_the_fleet_once(world):
    redis = world.redis()
    chain = world.chain()
    a = world.machine(chain, redis.url)
    b = world.new_machine(chain, world.settings(redis.url), "wasm", workers=3).start().wait_until_used()
    calls = [balance(chain.final - n, n + 1) for n in range(by_tier(4, 20))]
    share(a, redis, *calls)
    before, hits_before = chain.count("eth_getBalance"), b.fleet.hits
    honest = chain.honest(*calls)
    with ThreadPoolExecutor(max_workers=12) as clients:
        for body, result in zip(calls, honest, strict=True):
            assert list(clients.map(b.result, [body] * 12)) == [result] * 12
    assert chain.count("eth_getBalance") == before
    assert b.fleet.hits == hits_before + len(calls)


@thorough
def test_sandbox_uses_the_fleet_again_after_a_restart_of_its_daemon(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url, "wasm")
    calls = [receipts(chain.final), receipts(chain.final - 1)]
    share(a, redis, *calls)
    assert b.requested(calls[0]) == 0
    b.restart_owner()
    b.wait_until_used()
    assert b.requested(calls[1]) == 0
    assert_confirmed(a.purge(method=METHOD), owners=2)
    # the entry of before the restart is in the sandbox, or in the store
    assert b.requested(calls[0]) == 1
    assert b.requested(calls[1]) == 1


@thorough
def test_responses_of_a_sandbox_are_right_while_the_fleet_is_slow(world):
    redis = world.redis()
    proxy = world.proxy(redis)
    chain = world.chain(final_blocks=60)
    a = world.machine(chain, redis.url)
    b = world.machine(chain, proxy.url, "wasm", timeout="500ms")
    calls = [balance(chain.final - n, n + 1) for n in range(30)]
    share(a, redis, *calls)
    proxy.delay(1.0)
    b.assert_right(*calls[:15])
    b.wait_until_unused()
    b.assert_right(*calls[15:])
    proxy.forward()
    b.wait_until_used()
    later = receipts(chain.final)
    share(a, redis, later)
    assert b.requested(later) == 0

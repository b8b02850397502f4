"""Entries that machines share, and entries that they must not share."""

import json

import pytest
from machines import balance, receipts, share

from harness.client import fetch
from harness.rpc import call
from harness.stands import hit

ADDRESS = '"0xdac17f958d2ee523a2206206994597c13d831ec7"'
TIP = [
    call("eth_gasPrice"),
    call("eth_getBlockReceipts", '["latest"]'),
    call("eth_getBalance", f'[{ADDRESS},"latest"]'),
    call("eth_call", f'[{{"to":{ADDRESS},"data":"0x70a08231"}},"latest"]'),
]


@pytest.fixture
def pair(world):
    """Two machines with one node, and the redis-server between them."""
    redis = world.redis()
    chain = world.chain()
    return world.machine(chain, redis.url), world.machine(chain, redis.url), redis


def test_final_entry_of_one_machine_is_a_hit_on_another(pair):
    a, b, redis = pair
    final = a.chain.final
    calls = [*(receipts(final - n) for n in range(8)), *(balance(final - n, n + 1) for n in range(8))]
    names = share(a, redis, *calls)
    assert len(set(names)) == len(calls)
    hits_before = b.fleet.hits
    assert b.requested(*calls) == 0
    assert b.fleet.hits == hits_before + len(calls)
    # from its own tiers from then on
    redis.kill()
    assert b.requested(*calls) == 0
    redis.start()


def test_fleet_hit_is_as_compressed_as_the_entry_of_the_first_machine(pair):
    a, b, redis = pair
    calls = [receipts(a.chain.final - n) for n in range(10)]
    body = max(calls, key=lambda call: len(json.dumps(a.chain.honest(call))))
    share(a, redis, body)
    responses = [machine.fetch(body) for machine in (a, b)]
    assert all(hit(response) and response.coding == "gzip" for response in responses)
    assert responses[0].decoded == responses[1].decoded


def test_members_of_a_batch_are_fleet_hits(pair):
    a, b, redis = pair
    numbers = range(a.chain.final - 12, a.chain.final)
    calls = [call("eth_getBlockReceipts", f'["0x{number:x}"]', str(number)) for number in numbers]
    share(a, redis, *calls[:8])
    # no worker splits a batch before a response has shown that no other filter changes bodies
    for _ in range(16):
        assert b.fetch(call("eth_syncing", "[]")).status == 200
    before = b.chain.count("eth_getBlockReceipts")
    batch = b"[" + b",".join(calls) + b"]"
    responses = json.loads(b.fetch(batch).decoded)
    results = {response["id"]: response["result"] for response in responses}
    assert [results[number] for number in numbers] == b.chain.honest(*calls)
    # the node has received the four that are not shared
    assert b.chain.count("eth_getBlockReceipts") == before + 4


def test_entries_that_depend_on_the_head_are_not_shared(pair):
    a, b, redis = pair
    head = a.chain.head
    # their results name no block
    young = [balance(head), balance(head - 1), balance(head - 2)]
    for body in TIP + young:
        a.wait_for(lambda body=body: hit(a.fetch(body)), f"a hit: {body}")
    # the queue of stores has an order: these would be stored before
    (name,) = share(a, redis, receipts(a.chain.final))
    assert redis.value_names() == {name}
    for body in TIP + young:
        assert b.requested(body) > 0, body


def test_hits_of_the_head_continue_after_a_fleet_hit(pair):
    """The owner of the second machine started later: its epochs are higher."""
    a, b, redis = pair
    for body in TIP:
        a.wait_for(lambda body=body: hit(a.fetch(body)), f"a hit: {body}")
    body = balance(a.chain.final)
    share(b, redis, body)
    hits_before = a.fleet.hits
    assert a.requested(body) == 0
    assert a.fleet.hits == hits_before + 1
    methods = [json.loads(body)["method"] for body in TIP]
    requests_before = [a.chain.count(method) for method in methods]
    # of each worker
    for _ in range(8):
        assert all(hit(a.fetch(body)) for body in TIP)
        a.assert_right(*TIP)
    assert [a.chain.count(method) for method in methods] == requests_before


def test_owner_with_lower_finality_does_not_serve_an_entry(world):
    redis = world.redis()
    ahead, behind = world.chain(final_blocks=40), world.chain(final_blocks=10)
    assert ahead.final > behind.final
    a, b = world.machine(ahead, redis.url), world.machine(behind, redis.url)
    # the result of a balance names no block
    between, shared = behind.final + 5, behind.final - 5
    share(a, redis, balance(between), balance(between + 1), balance(shared))
    assert b.requested(balance(shared)) == 0
    before = b.fleet.not_servable("not_final")
    assert b.requested(balance(between)) == 1
    assert b.fleet.not_servable("not_final") == before + 1
    # its node reports the finality
    behind.do({"finalize": ahead.final}, {"extend": 1})
    b.wait_until_ready()
    assert b.requested(balance(between + 1)) == 0


def test_owner_without_finality_does_not_serve_an_entry(pair):
    a, b, redis = pair
    calls = [receipts(a.chain.final), receipts(a.chain.final - 1)]
    share(a, redis, *calls)
    b.chain.do({"finality": False})
    b.wait_for(lambda: b.owner.status()["chains"][0]["final"] is None, "finality to be unknown")
    assert b.requested(calls[0]) == 1
    b.chain.do({"finality": True})
    b.wait_until_ready()
    assert b.requested(calls[1]) == 0


def test_entries_of_another_chain_are_not_served(world):
    redis = world.redis()
    chains = world.chain(), world.chain("--seed", "9")
    assert chains[0].honest(call("eth_chainId")) == chains[1].honest(call("eth_chainId"))
    a, b = (world.machine(chain, redis.url) for chain in chains)
    calls = [receipts(n) for n in range(90, 94)]
    names = share(a, redis, *calls)
    before = b.fleet.not_servable("other_chain")
    for body in calls:
        assert b.requested(body) == 1
    assert b.fleet.not_servable("other_chain") == before + len(calls)
    # machines of both chains use the same names
    assert share(b, redis, receipts(100)) and redis.value_names() >= set(names)
    a.assert_right(*calls)


def test_namespace_of_a_wrong_chain_is_not_shared(world):
    redis = world.redis()
    chain, other = world.chain(), world.chain()
    a, b = world.machine(chain, redis.url), world.machine(other, redis.url)
    calls = [receipts(n) for n in range(90, 94)]
    share(a, redis, *calls)
    other.do({"replace": {"seed": 7, "chain_id": 5}})
    b.wait_for(lambda: b.owner.status()["chains"][0]["state"] == "wrong-chain", "the wrong chain")
    names = redis.value_names()
    for body in calls:
        b.assert_right(body)
        b.assert_right(body)
    assert redis.value_names() == names


def test_machine_with_an_empty_store_fills_by_demand(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    calls = [receipts(chain.final - n) for n in range(20)]
    share(a, redis, *calls)
    a.close()
    assert b.requested(*calls) == 0
    # another request stores them on its own disk
    b.wait_for(lambda: [b.fetch(body) for body in calls] and b.owner.status()["stores"]["done"] > 0, "a store")


@pytest.mark.parametrize("kinds", [("nginx", "envoy"), ("envoy", "nginx"), ("envoy", "daemon")], ids="-".join)
def test_entry_of_one_host_is_a_hit_on_another(world, kinds):
    redis = world.redis()
    chain = world.chain()
    a, b = (world.machine(chain, redis.url, kind) for kind in kinds)
    calls = [*(receipts(chain.final - n) for n in range(4)), balance(chain.final)]
    share(a, redis, *calls)
    before = b.fleet.hits
    assert b.requested(*calls) == 0
    assert b.fleet.hits == before + len(calls)


@pytest.mark.parametrize("kinds", [("nginx", "envoy"), ("envoy", "nginx")], ids="-".join)
def test_purge_of_a_route_reaches_other_machines(world, kinds):
    redis = world.redis()
    chain = world.chain()
    a, b = (world.machine(chain, redis.url, kind) for kind in kinds)
    body = receipts(chain.final)
    share(a, redis, body)
    assert b.requested(body) == 0
    response = fetch(a.server.port, "/purge?method=eth_getBlockReceipts", method="POST", body=b"")
    assert response.status == 200, response.body
    # a request reaches the node: the other machine has the entry no more, and does not use the value
    b.wait_for(lambda: b.requested(body) == 1, "the purge to be in effect on the other machine")

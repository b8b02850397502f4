"""Entries about blocks that are not final: shared by the hash of their block."""

from machines import balance, receipts, share

from harness.rpc import call


def transaction_count_by_hash(chain, number):
    (header,) = chain.honest(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
    return call("eth_getBlockTransactionCountByHash", f'["{header["hash"]}"]')


def test_unfinalized_entry_is_a_hit_on_a_machine_with_the_same_block(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    calls = [receipts(chain.head - 1), receipts(chain.head - 6), transaction_count_by_hash(chain, chain.head - 2)]
    share(a, redis, *calls)
    hits_before = b.fleet.hits
    assert [b.requested(body) for body in calls] == [0, 0, 0]
    assert b.fleet.hits == hits_before + len(calls)


def test_entry_from_another_machine_ends_with_a_reorg_of_its_block(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    replaced, unchanged = receipts(chain.head - 1), receipts(chain.head - 5)
    share(a, redis, replaced, unchanged)
    assert b.requested(replaced, unchanged) == 0
    chain.do({"reorg": {"depth": 3, "length": 4}})
    for machine in (a, b):
        machine.wait_until_ready()
    before = b.fleet.not_servable("other_branch")
    assert b.requested(replaced) == 1
    assert b.fleet.not_servable("other_branch") == before + 1
    assert b.requested(unchanged) == 0


def test_entry_of_another_branch_is_not_used(world):
    redis = world.redis()
    chains = world.chain(), world.chain()
    assert chains[0].head == chains[1].head
    a, b = (world.machine(chain, redis.url) for chain in chains)
    branch, both = receipts(chains[0].head), receipts(chains[0].head - 5)
    chains[0].do({"reorg": {"depth": 3, "length": 4}})
    a.wait_until_ready()
    share(a, redis, branch, both)
    before = b.fleet.not_servable("other_branch")
    assert b.requested(branch) == 1
    assert b.fleet.not_servable("other_branch") == before + 1
    # the block below the branches is the same
    assert b.requested(both) == 0
    a.assert_right(branch, both)


def test_machine_whose_node_lags_does_not_use_blocks_above_its_head(world):
    redis = world.redis()
    ahead, behind = world.chain(), world.chain()
    a, b = world.machine(ahead, redis.url), world.machine(behind, redis.url)
    ahead.do({"extend": 3})
    a.wait_until_ready()
    by_hash = transaction_count_by_hash(ahead, ahead.head - 1)
    share(a, redis, receipts(ahead.head - 1), by_hash)
    before = b.fleet.not_servable("unknown_block")
    for body in (receipts(ahead.head - 1), by_hash):
        # its own node does not have the block
        b.assert_right(body)
    assert b.fleet.not_servable("unknown_block") == before + 2


def test_state_of_an_unfinalized_block_is_not_shared(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    body = balance(chain.head - 1)
    a.wait_for(lambda: a.requested(body) == 0, "a hit")
    (name,) = share(a, redis, receipts(chain.head - 1))
    assert redis.value_names() == {name}
    assert b.requested(body) == 1

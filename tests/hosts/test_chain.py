"""Storage, lifetime and removal of entries while the owner follows a chain that the test changes."""

import json
import time

import pytest

from harness.chain import ADDRESS, TIP, calls_for_block, calls_for_transactions
from harness.chain_checks import OPERATOR_METHODS, check_operator_methods, check_replaced_blocks
from harness.client import request_bytes
from harness.rpc import call
from harness.stands import STANDS, hit
from tiers import by_tier, times

pytestmark = [
    # sandboxes follow a chain with both other hosts in test_shared_wasm
    pytest.mark.hosts("nginx", "native"),
    pytest.mark.once("the owner follows, one library for every nginx; how workers hear of it test_cache_head tries on each"),
]

REORGS = [(1, 0), (1, 1), (2, -1), (2, 0), (2, 1), (3, 4), (7, -1), (7, 0), (7, 1), (8, 8)]


@pytest.fixture
def stand(host):
    with STANDS[host]() as stand:
        yield stand


def test_method_rows_of_the_operator_expire_as_built_in_methods_do(host):
    with STANDS[host](methods=OPERATOR_METHODS) as stand:
        check_operator_methods(stand)


@pytest.mark.parametrize(("depth", "by"), by_tier([(1, 0), (2, -1), (7, 1)], REORGS))
def test_entries_of_replaced_blocks_are_removed_by_a_reorg(stand, depth, by):
    check_replaced_blocks(stand, depth, by)


def test_receipts_are_current_when_a_reorg_moves_their_transactions(stand):
    bodies = [body for number in range(195, 201) for body in calls_for_transactions(stand.chain, number)]
    stand.assert_right_results(bodies)
    before = stand.chain.honest(*bodies)
    stand.change({"reorg": {"depth": 6, "length": 8}})
    stand.assert_right_results(bodies)
    after = stand.chain.honest(*bodies)
    assert sum(one != other for one, other in zip(before, after, strict=True)) > len(bodies) // 2
    # a transaction that was pending or dropped may be included later
    for _ in range(4):
        stand.change({"extend": 1})
        stand.assert_right_results(bodies)


def test_orphaned_block_is_a_hit_by_its_hash(stand):
    (block,) = stand.chain.honest(call("eth_getBlockByNumber", '["0xc8",false]'))
    hash = block["hash"]
    anywhere = [
        call("eth_getBlockByHash", f'["{hash}",true]'),
        call("eth_getBlockReceipts", f'["{hash}"]'),
        call("eth_getBalance", f'[{ADDRESS},{{"blockHash":"{hash}"}}]'),
        call("eth_getLogs", f'[{{"blockHash":"{hash}"}}]'),
    ]
    canonical = [call("eth_getBalance", f'[{ADDRESS},{{"blockHash":"{hash}","requireCanonical":true}}]')]
    stand.assert_right_results(anywhere + canonical)
    requests_before = stand.chain.count("eth_getBlockReceipts")
    stand.change({"reorg": {"depth": 2, "length": 2}})
    stand.assert_right_results(anywhere + canonical)
    assert stand.chain.count("eth_getBlockReceipts") == requests_before


def test_response_of_before_a_reorg_is_not_stored(stand):
    method = "eth_getBlockReceipts"
    body = call(method, '["0xc8"]')
    stand.delay(method)
    requests_before = stand.chain.count(method)
    with stand.nginx.connect() as slow:
        slow.send(request_bytes("/", method="POST", body=body, headers=[("Content-Type", "application/json")]))
        stand.nginx.wait_for(lambda: stand.chain.count(method) > requests_before, "the node to receive a request")
        (old,) = stand.chain.honest(body)
        # a purge would have the late response refused
        stand.change({"reorg": {"depth": 3, "length": 4}}, wait_for_workers=False)
        stand.release(method)
        assert json.loads(slow.read("POST").decoded)["result"] == old
    stand.wait_for_workers()
    stand.assert_right_results([body])


def test_tip_entries_expire_with_the_head(stand):
    stand.assert_right_results(TIP)
    assert all(hit(stand.fetch(body)) for body in TIP)
    for _ in range(5):
        stand.change({"extend": 1})
        stand.assert_right_results(TIP)


def test_head_never_decreases_for_a_client(host):
    """The chain grows, and is reorganised without getting shorter."""
    with STANDS[host]("--chain-slot-ms", 40) as stand, stand.nginx.connect() as connection:
        seen, kinds, due = 0, 0, 0
        headers = [("Content-Type", "application/json")]
        until = time.monotonic() + 120
        while kinds <= 100 or seen <= 250:
            assert time.monotonic() < until, f"{kinds} hits, and the head is {seen}"
            if time.monotonic() > due:
                due = time.monotonic() + 0.4
                stand.chain.do({"reorg": {"depth": 2, "length": 2}})
            for body, number in [
                (TIP[0], lambda result: int(result, 16)),
                (TIP[2], lambda result: int(result["number"], 16)),
            ]:
                response = connection.exchange("/", method="POST", headers=headers, body=body)
                now = number(json.loads(response.decoded)["result"])
                if hit(response):
                    kinds += 1
                    assert now >= seen
                seen = max(seen, now)


def test_node_gets_few_requests_when_clients_poll_the_head(stand):
    before = {body: stand.chain.count(json.loads(body)["method"]) for body in TIP[:2]}
    for _ in range(times(200, 500)):
        for body in TIP[:2]:
            stand.fetch(body)
    for body, count in before.items():
        assert stand.chain.count(json.loads(body)["method"]) - count <= 2


def test_stored_entries_are_sent_while_the_node_is_unreachable(stand):
    stand.change({"finalize": 150}, {"extend": 1})
    stand.wait_for_final(150)
    bodies = calls_for_block(150) + calls_for_block(200)
    expected = stand.chain.honest(*bodies)
    stand.assert_right_results(bodies)
    for how in (True, "close"):
        stand.chain.do({"down": how})
        stand.follows("unreachable")
        assert stand.status["final"] is None
        assert [stand.result(body) for body in bodies] == expected
        stand.change({"down": False})
        stand.wait_for_final(150)

"""Storage, lifetime and removal of entries: a real nginx follows a chain that the test
changes."""

import contextlib
import json
import time

import pytest

from harness import client
from harness.chain import ADDRESS, calls_for_transactions
from harness.client import request_bytes
from harness.owner import wait_until_linked
from harness.rpc import call
from harness.stands import Stand, hit
from test_store_life import end
from tiers import by_tier, times

pytestmark = [
    pytest.mark.once("the owner follows, one library for every nginx; how workers hear of it test_cache_head tries on each"),
]

def test_status_reports_head_age_and_reorgs():
    with Stand() as stand:
        for _ in range(4):
            # the follower knows the blocks that it has seen itself
            stand.change({"extend": 1})
        head = stand.chain.head
        assert stand.status["last_reorgs"] == [] and stand.status["head_age"] >= 0
        stand.change({"reorg": {"depth": 3, "length": 4}})
        (reorg,) = stand.status["last_reorgs"]
        assert (reorg["from"], reorg["blocks"]) == (head - 2, 3) and 0 <= reorg["age"] < 60
        stand.nginx.wait_for(lambda: stand.status["head_age"] > 1, "the head to grow old")
        stand.change({"reorg": {"depth": 1, "length": 2}})
        first, second = stand.status["last_reorgs"]
        assert first["blocks"] == 1 and second["from"] == reorg["from"]
        assert first["age"] < second["age"]


def at(number):
    """Calls that name a block by its number."""
    block = f'"0x{number:x}"'
    return [
        call("eth_getBlockByNumber", f"[{block},true]"),
        call("eth_getBlockByNumber", f"[{block},false]"),
        call("eth_getBlockReceipts", f"[{block}]"),
        call("eth_getBlockTransactionCountByNumber", f"[{block}]"),
        call("eth_getTransactionByBlockNumberAndIndex", f'[{block},"0x0"]'),
        call("eth_getUncleCountByBlockNumber", f"[{block}]"),
        call("eth_getBalance", f"[{ADDRESS},{block}]"),
        call("eth_getBalance", f'[{ADDRESS},{{"blockNumber":{block}}}]'),
        call("eth_getCode", f"[{ADDRESS},{block}]"),
        call("eth_getTransactionCount", f"[{ADDRESS},{block}]"),
        call("eth_getStorageAt", f'[{ADDRESS},"0x0",{block}]'),
        call("eth_call", f'[{{"to":{ADDRESS},"data":"0x70a08231"}},{block}]'),
        call("eth_feeHistory", f'["0x2",{block},[]]'),
        call("eth_getLogs", f'[{{"fromBlock":"0x{number - 3:x}","toBlock":{block}}}]'),
        call("debug_traceBlockByNumber", f'[{block},{{"tracer":"callTracer"}}]'),
        call("trace_block", f"[{block}]"),
    ]


TIP = [
    call("eth_blockNumber"),
    call("eth_gasPrice"),
    call("eth_getBlockByNumber", '["latest",false]'),
    call("eth_getBlockReceipts", '["latest"]'),
    call("eth_getBalance", f"[{ADDRESS}]"),
    call("eth_getBalance", f'[{ADDRESS},"latest"]'),
    call("eth_call", f'[{{"to":{ADDRESS},"data":"0x70a08231"}},"latest"]'),
    call("eth_getLogs", '[{"fromBlock":"latest"}]'),
    call("eth_getBlockByNumber", '["safe",false]'),
    call("eth_getBlockByNumber", '["finalized",false]'),
]


# Method rows of an operator for methods that sszip does not know.
THEIRS = [
    "acme_blockAt block=p[1] block=result.number",
    "acme_headNumber block=result",
    "acme_logs range=p[0]",
    "acme_price class=tip",
    "acme_receiptOf block=result.receipt.blockNumber",
]
THEIR_TIP = [
    call("acme_headNumber"),
    call("acme_price"),
    call("acme_blockAt", '[{},"latest"]'),
    call("acme_logs", '[{"fromBlock":"latest"}]'),
]


def theirs_at(chain, number):
    (block,) = chain.honest(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
    return [
        call("acme_blockAt", f'[{{"with":1}},"0x{number:x}"]'),
        call("acme_logs", f'[{{"fromBlock":"0x{number - 3:x}","toBlock":"0x{number:x}","with":1}}]'),
        *(call("acme_receiptOf", f'["{transaction}"]') for transaction in block["transactions"][:3]),
    ]


def test_method_rows_of_the_operator_expire_as_built_in_methods_do():
    with Stand(methods=THEIRS) as stand:

        def become_hits(bodies):
            for body in bodies:
                stand.nginx.wait_for(lambda body=body: hit(stand.fetch(body)), f"a hit: {body}")

        stand.chain.do({"finalize": 150})
        stand.change({"extend": 1})
        stand.wait_for_final(150)
        final, young = theirs_at(stand.chain, 150), theirs_at(stand.chain, 200)
        stand.assert_right_results(final + young + THEIR_TIP)
        become_hits(final + young + THEIR_TIP)
        # a new head
        for _ in range(3):
            stand.change({"extend": 1})
            stand.assert_right_results(THEIR_TIP)
            become_hits(final + young + THEIR_TIP)
        before = stand.chain.honest(*young)
        stand.change({"reorg": {"depth": 9, "length": 11}})
        after = stand.chain.honest(*young)
        assert all(one != other for one, other in zip(before, after, strict=True))
        stand.assert_right_results(final + young + THEIR_TIP)
        become_hits(final)


def test_method_rows_of_the_operator_have_the_classes_of_built_in_methods():
    with Stand(methods=THEIRS) as stand:
        stand.chain.do({"finalize": 150})
        stand.change({"extend": 1})
        stand.wait_for_final(150)
        final, young = theirs_at(stand.chain, 150), theirs_at(stand.chain, 200)
        assert {stand.class_of(body) for body in final} == {"immutable"}
        assert {stand.class_of(body) for body in young} == {"unfinalized"}
        assert {stand.class_of(body) for body in THEIR_TIP} <= {"tip", "nothing"}
        requests_before = stand.chain.count("acme_blockAt")
        for body in (final[0], young[0]):
            assert hit(stand.fetch(body)), body
        assert stand.chain.count("acme_blockAt") == requests_before
        assert client.fetch(stand.nginx.port, "/purge?method=acme_blockAt", method="POST").status == 200
        assert not hit(stand.fetch(final[0]))
        assert hit(stand.fetch(final[1]))


def test_final_entries_stay_and_others_are_removed_with_their_block():
    with Stand() as stand:
        stand.chain.do({"finalize": 150})
        stand.change({"extend": 1})
        stand.wait_for_final(150)
        final, young = at(150) + calls_for_transactions(stand.chain, 150), at(200) + calls_for_transactions(stand.chain, 200)
        stand.assert_right_results(final + young)
        for body in final + young:
            assert hit(stand.fetch(body)), body
        assert {stand.class_of(body) for body in final} == {"immutable"}
        assert {stand.class_of(body) for body in young} == {"unfinalized"}
        requests_before = stand.chain.count()
        # the depth of a reorganisation, and the length of the new branch
        for depth, length in [(1, 1), (2, 3), (3, 1), (40, 45)]:
            stand.change({"extend": 3}, {"reorg": {"depth": 3 + depth, "length": 3 + length}})
            stand.assert_right_results(young)
        assert stand.chain.count() > requests_before
        requests_before = stand.chain.count("eth_getBlockByNumber"), stand.chain.count("eth_getTransactionReceipt")
        for body in final:
            assert hit(stand.fetch(body)), body
        # the follower requests blocks, and no client does
        assert stand.chain.count("eth_getTransactionReceipt") == requests_before[1]


REORGS = [(1, 0), (1, 1), (2, -1), (2, 0), (2, 1), (7, -1), (7, 0), (7, 1)]


@pytest.mark.parametrize(("depth", "by"), by_tier([(1, 0), (2, -1), (7, 1)], REORGS))
def test_entries_of_replaced_blocks_are_removed_by_a_reorg(depth, by):
    with Stand() as stand:
        # the follower knows the blocks since its start
        stand.change({"extend": 12})
        head = stand.chain.head
        heights = range(head - depth - 2, head + 1)
        bodies = TIP + [body for number in heights for body in at(number) + calls_for_transactions(stand.chain, number)]
        stand.assert_right_results(bodies)
        stand.change({"reorg": {"depth": depth, "length": depth + by}})
        # entries below the reorganisation are unchanged
        for body in at(head - depth):
            assert hit(stand.fetch(body)), body
        stand.assert_right_results(bodies)


def test_receipts_are_current_when_a_reorg_moves_their_transactions():
    with Stand() as stand:
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


def test_orphaned_block_is_a_hit_by_its_hash():
    with Stand() as stand:
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


def test_response_of_before_a_reorg_is_not_stored():
    with Stand() as stand:
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


def test_tip_entries_expire_with_the_head():
    with Stand() as stand:
        stand.assert_right_results(TIP)
        assert all(hit(stand.fetch(body)) for body in TIP)
        for _ in range(5):
            stand.change({"extend": 1})
            stand.assert_right_results(TIP)


def test_head_never_decreases_for_a_client():
    """The chain grows, and is reorganised without getting shorter."""
    with Stand("--chain-slot-ms", 40) as stand, stand.nginx.connect() as connection:
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


def test_node_gets_few_requests_when_clients_poll_the_head():
    with Stand() as stand:
        before = {body: stand.chain.count(json.loads(body)["method"]) for body in TIP[:2]}
        for _ in range(times(200, 500)):
            for body in TIP[:2]:
                stand.fetch(body)
        for body, count in before.items():
            assert stand.chain.count(json.loads(body)["method"]) - count <= 2


def test_entries_are_not_final_while_the_node_is_syncing_or_lagging():
    with Stand() as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)
        old = at(140)
        stand.assert_right_results(old)
        for command, undo, state in [
            ({"syncing": True}, {"syncing": False}, "syncing"),
            ({"lag": 3}, {"lag": 0}, "lagging"),
            ({"finality": False}, {"finality": True}, "following"),
            ({"unfinalize": 120}, {"finalize": 150}, "following"),
        ]:
            stand.change(command, state=state)
            stand.nginx.wait_for(lambda: stand.status["final"] is None, f"no finality: {command}")
            stand.wait_for_workers()
            # stored entries are sent
            assert all(hit(stand.fetch(body)) for body in old)
            number = {"syncing": 139, "lag": 138, "finality": 137, "unfinalize": 136}[next(iter(command))]
            new = at(number)
            stand.assert_right_results(new)
            stand.change(undo)
            stand.wait_for_final(150)
            # the block was not known to be final when the request was sent to the node
            assert {stand.class_of(body) for body in new} == {"unfinalized"}, command


def test_stored_entries_are_sent_while_the_node_is_unreachable():
    with Stand() as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)
        bodies = at(150) + at(200)
        expected = stand.chain.honest(*bodies)
        stand.assert_right_results(bodies)
        for how in (True, "close"):
            stand.chain.do({"down": how})
            stand.follows("unreachable")
            assert stand.status["final"] is None
            assert [stand.result(body) for body in bodies] == expected
            stand.change({"down": False})
            stand.wait_for_final(150)


@pytest.mark.parametrize("restarted", [False, True])
def test_cache_is_not_used_while_the_node_has_the_wrong_chain(restarted):
    with Stand() as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)
        bodies = [call("eth_chainId"), *TIP, *at(100), *at(200)]
        stand.assert_right_results(bodies)
        stand.assert_right_results(bodies)
        if restarted:
            end(stand.nginx, 15)
            stand.chain.do({"replace": {"seed": 7, "chain_id": 5}})
            stand.nginx.start()
            wait_until_linked(stand.nginx)
            stand.follows("wrong-chain")
        else:
            stand.change({"replace": {"seed": 7, "chain_id": 5}}, state="wrong-chain")
        for _ in range(2):
            stand.assert_right_results(bodies)
            assert not any(hit(stand.fetch(body)) for body in bodies)

        def lines():
            log = stand.nginx.error_log().splitlines()
            return [line for line in log if "[error]" in line and "another chain" in line]

        # the owner's log is written once a second
        stand.nginx.wait_for(lines, "a line in the log")
        assert len(lines()) == 1
        stand.nginx.expect(r"another chain|chain id")
        # the namespace is reset to the new chain on purpose
        assert client.fetch(stand.nginx.port, "/purge?namespace=main", method="POST").status == 200
        stand.follows()
        stand.assert_right_results(bodies)
        assert all(hit(stand.fetch(body)) for body in TIP)


def test_finality_follows_the_configured_depth():
    with Stand(head="http://%s interval=100ms finality=depth:50") as stand:
        stand.change({"finality": False}, {"extend": 1})
        stand.wait_for_final(151)
        bodies = at(151) + at(152)
        stand.assert_right_results(bodies)
        stand.assert_right_results(bodies)
        # a deeper reorganisation than the rule allows: its entries are removed, on disk too
        stand.change({"reorg": {"depth": 60, "length": 62}})
        stand.assert_right_results(bodies)
        with contextlib.suppress(AssertionError):
            stand.nginx.check()
        stand.nginx.expect(r"\[error\]")


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_new_head_is_known_at_once_with_a_websocket_head_source(scheme):
    with Stand(head=f"{scheme}://%s/ interval=20s") as stand:
        if scheme == "http":
            return
        for _ in range(3):
            stand.assert_right_results(TIP)
            stand.change({"extend": 1})
            stand.assert_right_results(TIP)


def test_beacon_responses_expire_by_slot():
    with Stand(head="http://%s api=beacon interval=100ms") as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)

        def pages(*ids):
            return [
                page % id
                for id in ids
                for page in ("/eth/v2/beacon/blocks/%s", "/eth/v1/beacon/headers/%s", "/eth/v1/beacon/blocks/%s/root")
            ]

        def right(targets):
            for target in targets:
                response = stand.page(target)
                assert json.loads(response.decoded) == stand.chain.honest_page(target), target

        final, young, moving = pages(150), pages(200), pages("head")
        for _ in range(2):
            right(final + young + moving)
        assert all(hit(stand.page(target)) for target in final + young + moving)
        stand.change({"reorg": {"depth": 3, "length": 3}})
        right(final + young + moving)
        assert all(hit(stand.page(target)) for target in final)


def test_trace_is_final_when_the_block_of_its_transaction_is():
    with Stand() as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)

        def trace(number):
            (block,) = stand.chain.honest(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
            return call("debug_traceTransaction", f'["{block["transactions"][0]}",{{"tracer":"callTracer"}}]')

        final, young = trace(149), trace(195)
        stand.assert_right_results([final, young])
        stand.nginx.wait_for(lambda: stand.class_of(final) == "immutable", "the receipt")
        assert stand.class_of(young) == "unfinalized"
        stand.change({"reorg": {"depth": 8, "length": 9}})
        stand.assert_right_results([final, young])
        assert stand.class_of(final) == "immutable"

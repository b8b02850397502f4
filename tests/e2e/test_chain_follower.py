"""The chain follower of a real nginx: its status, finality, states of the node, and head sources."""

import contextlib
import json

import pytest

from harness import client
from harness.chain import TIP, calls_for_block, calls_for_transactions
from harness.chain_checks import OPERATOR_METHODS, OPERATOR_TIP, operator_calls_for_block
from harness.owner import wait_until_linked
from harness.rpc import call
from harness.stands import LOWER_HEAD_IS_NOT_ACCEPTED, Stand, hit
from test_store_life import end

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


def test_method_rows_of_the_operator_have_the_classes_of_built_in_methods():
    with Stand(methods=OPERATOR_METHODS) as stand:
        stand.chain.do({"finalize": 150})
        stand.change({"extend": 1})
        stand.wait_for_final(150)
        final, young = operator_calls_for_block(stand.chain, 150), operator_calls_for_block(stand.chain, 200)
        assert {stand.class_of(body) for body in final} == {"immutable"}
        assert {stand.class_of(body) for body in young} == {"unfinalized"}
        assert {stand.class_of(body) for body in OPERATOR_TIP} <= {"tip", "nothing"}
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
        final, young = calls_for_block(150) + calls_for_transactions(stand.chain, 150), calls_for_block(200) + calls_for_transactions(stand.chain, 200)
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


def test_entries_are_not_final_while_the_node_is_syncing_or_lagging():
    with Stand(times=LOWER_HEAD_IS_NOT_ACCEPTED) as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)
        old = calls_for_block(140)
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
            new = calls_for_block(number)
            stand.assert_right_results(new)
            stand.change(undo)
            stand.wait_for_final(150)
            # the block was not known to be final when the request was sent to the node
            assert {stand.class_of(body) for body in new} == {"unfinalized"}, command


@pytest.mark.parametrize("restarted", [False, True])
def test_cache_is_not_used_while_the_node_has_the_wrong_chain(restarted):
    with Stand() as stand:
        stand.change({"finalize": 150}, {"extend": 1})
        stand.wait_for_final(150)
        bodies = [call("eth_chainId"), *TIP, *calls_for_block(100), *calls_for_block(200)]
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
        bodies = calls_for_block(151) + calls_for_block(152)
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

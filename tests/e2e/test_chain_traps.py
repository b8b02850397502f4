"""Mistakes of other caches, each as a request whose response must equal the node's,
twice, and be stored or not."""

import threading

import pytest

from harness.chain import ADDRESS, Chain, calls_for_transactions
from harness.rpc import call
from harness.stands import LOWER_HEAD_IS_NOT_ACCEPTED, Stand, hit
from harness.nginx_state import wait_for_followers

pytestmark = [
    pytest.mark.once("the owner follows, one library for every nginx; how workers hear of it test_cache_head tries on each"),
]

FINAL, HEAD = 150, 200


@pytest.fixture(scope="module")
def stand():
    with Stand() as stand:
        stand.change({"finalize": FINAL})
        stand.wait_for_final(FINAL)
        yield stand


def hash_of(stand, number):
    (block,) = stand.chain.honest(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
    return block["hash"]


def logs(first, last):
    return call("eth_getLogs", f'[{{"fromBlock":"0x{first:x}","toBlock":"0x{last:x}"}}]')


def balance(block):
    return call("eth_getBalance", f"[{ADDRESS},{block}]")


# The call, and the class of its entry; None: the response is not stored.
CASES = {
    # block references
    "number 0": (call("eth_getBlockByNumber", '["0x0",false]'), "immutable"),
    "state of block 0": (balance('"0x0"'), "immutable"),
    "an object with a number": (balance('{"blockNumber":"0x96"}'), "immutable"),
    "an object with a number that is not final": (balance('{"blockNumber":"0x97"}'), "unfinalized"),
    "earliest": (call("eth_getBlockByNumber", '["earliest",false]'), "unfinalized"),
    "the last final block": (balance('"0x96"'), "immutable"),
    "the first that is not": (balance('"0x97"'), "unfinalized"),
    "finalized": (balance('"finalized"'), "tip"),
    "safe": (balance('"safe"'), "tip"),
    "latest": (balance('"latest"'), "tip"),
    "no block": (call("eth_getBalance", f"[{ADDRESS}]"), "tip"),
    "pending": (balance('"pending"'), None),
    "a decimal string": (balance('"150"'), None),
    "a bare number": (balance("150"), None),
    "a leading zero": (balance('"0x096"'), None),
    "an object with both": (balance('{"blockNumber":"0x96","blockHash":"0x%064d"}' % 1), None),
    "an empty object": (balance("{}"), None),
    # beyond the head
    "a block to come": (call("eth_getBlockByNumber", '["0xffff",false]'), "tip"),
    "the state of a block to come": (balance('"0xffff"'), None),
    "the receipts of a block to come": (call("eth_getBlockReceipts", '["0xffff"]'), "tip"),
    # ranges
    "a final range": (logs(100, FINAL), "immutable"),
    "a range that crosses the final block": (logs(FINAL - 5, FINAL + 1), "unfinalized"),
    "a range up to the head": (logs(HEAD - 5, HEAD), "unfinalized"),
    "a range beyond the head": (logs(HEAD - 5, HEAD + 1), "tip"),
    "a range that is upside down": (logs(100, 99), None),
    "a range without an end": (call("eth_getLogs", '[{"fromBlock":"0xc0"}]'), "tip"),
    "a range up to latest": (call("eth_getLogs", '[{"fromBlock":"0xc0","toBlock":"latest"}]'), "tip"),
    "a range without a beginning": (call("eth_getLogs", '[{"toBlock":"0x96"}]'), "tip"),
    # null and empty: stored no longer than the head stays the same
    "no such block": (call("eth_getBlockByHash", '["0x%064d",false]' % 7), "tip"),
    "no such transaction": (call("eth_getTransactionByHash", '["0x%064d"]' % 7), None),
    "no such receipt": (call("eth_getTransactionReceipt", '["0x%064d"]' % 7), "tip"),
    "no such index": (call("eth_getTransactionByBlockNumberAndIndex", '["0x64","0xffff"]'), "tip"),
    "zero is an answer": (call("eth_getUncleCountByBlockNumber", '["0x64"]'), "immutable"),
    "logs of nobody": (
        call("eth_getLogs", f'[{{"fromBlock":"0x64","toBlock":"0x65","address":"0x{7:040x}"}}]'),
        "unfinalized",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_response_is_correct_and_has_the_expected_class(stand, name):
    body, expected = CASES[name]
    for _ in range(3):
        stand.assert_right_results([body])
    assert hit(stand.fetch(body)) == (expected is not None)
    assert stand.class_of(body) == expected


def test_empty_code_and_zero_balance_are_stored(stand):
    answers = {}
    for n in range(1, 60):
        body = call("eth_getCode", f'["0x{n:040x}","0x64"]')
        answers[stand.result(body)] = body
        body = call("eth_getBalance", f'["0x{n:040x}","0x64"]')
        answers[stand.result(body)] = body
    for empty in ("0x", "0x0"):
        assert hit(stand.fetch(answers[empty])) and stand.class_of(answers[empty]) == "immutable"


def test_responses_by_hash_are_immutable_unless_canonical_is_required(stand):
    final, young = hash_of(stand, 100), hash_of(stand, 190)
    for hash in (final, young):
        for body in (
            call("eth_getBlockByHash", f'["{hash}",false]'),
            balance(f'{{"blockHash":"{hash}"}}'),
            call("eth_getBlockReceipts", f'[{{"blockHash":"{hash}"}}]'),
            call("eth_getLogs", f'[{{"blockHash":"{hash}"}}]'),
        ):
            stand.assert_right_results([body])
            assert stand.class_of(body) == "immutable", body
    # the block is canonical only as long as there is no other
    canonical = call("eth_getBlockReceipts", f'[{{"blockHash":"{young}","requireCanonical":true}}]')
    stand.assert_right_results([canonical])
    assert stand.class_of(canonical) == "unfinalized"
    for body in calls_for_transactions(stand.chain, 100):
        stand.assert_right_results([body])
        assert stand.class_of(body) == "immutable", body


def test_response_is_not_stored_when_the_head_moves_after_the_lookup():
    with Stand() as stand:
        method = "eth_getBalance"
        stand.delay(method)
        body = balance('"latest"')
        (before,) = stand.chain.honest(body)
        answers = []
        asker = threading.Thread(target=lambda: answers.append(stand.result(body)))
        asker.start()
        stand.nginx.wait_for(lambda: stand.chain.count(method), "the node to receive a request")
        # a purge would have the late response refused
        stand.change({"extend": 1}, wait_for_workers=False)
        stand.release(method)
        asker.join()
        assert answers == [before]
        stand.wait_for_workers()
        stand.assert_right_results([body])


def test_followers_of_before_a_new_head_share_the_response_of_their_leader():
    with Stand(workers=1) as stand:
        method = "eth_getBalance"
        body = balance('"latest"')
        number = call("eth_blockNumber")
        old_number = stand.result(number)
        assert hit(stand.fetch(number))
        stand.delay(method)
        (before,) = stand.chain.honest(body)
        requests_before = stand.chain.count(method)
        answers = {"before": [], "after": []}

        def send(when):
            answers[when].append(stand.result(body))

        early = [threading.Thread(target=send, args=["before"]) for _ in range(20)]
        for thread in early:
            thread.start()
        wait_for_followers(stand.nginx, 19)
        # a purge would end their wait; the stored head shows when the worker knows the new one
        stand.change({"extend": 1}, wait_for_workers=False)
        stand.nginx.wait_for(lambda: stand.result(number) != old_number, "the worker to know")
        (after,) = stand.chain.honest(body)
        late = threading.Thread(target=send, args=["after"])
        late.start()
        wait_for_followers(stand.nginx, 20)
        stand.release(method)
        for thread in [*early, late]:
            thread.join()
        assert answers["after"] == [after], (before, after)
        assert answers["before"] == [before] * 20
        assert stand.chain.count(method) - requests_before == 2


def test_responses_of_another_branch_are_detected_by_their_hashes():
    followed = Chain()
    try:
        with Stand(head=f"http://{followed.address} interval=100ms") as stand:
            # the same commands make the same blocks; the follower knows those since
            # its start
            for _ in range(3):
                followed.do({"extend": 1})
                stand.change({"extend": 1})
            assert followed.state["head"] == stand.chain.state["head"]
            stand.chain.do({"reorg": {"depth": 2, "length": 2}})
            other = [
                call("eth_getBlockByNumber", '["0xcb",false]'),
                call("eth_getBlockByNumber", '["latest",true]'),
                call("eth_getBlockReceipts", '["0xca"]'),
                call("trace_block", '["0xcb"]'),
                *calls_for_transactions(stand.chain, 203),
            ]
            same = [call("eth_getBlockByNumber", '["0xc9",false]'), *calls_for_transactions(stand.chain, 200)]
            for _ in range(3):
                stand.assert_right_results(other + same)
            assert [body for body in other if hit(stand.fetch(body))] == []
            assert all(hit(stand.fetch(body)) for body in same)
    finally:
        followed.stop()


@pytest.mark.parametrize("delay", ["1h", "100ms"])
def test_cut_range_of_a_lagging_node_is_final_only_when_repeated_after_the_delay(delay):
    has = 129
    followed = Chain()
    head = f"http://{followed.address} interval=100ms; sszip_cache_valid unfinalized 200ms"
    times = f"confirmation_delay={delay.replace('1h', '3600s')}"
    try:
        with Stand(head=head, workers=1, times=times) as stand:
            followed.do({"finalize": FINAL})
            stand.wait_for_final(FINAL)
            (everything,) = stand.chain.honest(logs(100, FINAL))
            # addresses with logs on the node, with logs that it misses, and none in the last block
            whose = {log["address"]: set() for log in everything}
            for log in everything:
                whose[log["address"]].add(int(log["blockNumber"], 16))
            rare = [
                address
                for address, blocks in whose.items()
                if min(blocks) <= has < max(blocks) < FINAL
            ]
            both = [
                logs(100, FINAL),
                call(
                    "eth_getLogs",
                    f'[{{"fromBlock":"0x64","toBlock":"0x{FINAL:x}","address":"{rare[0]}"}}]',
                ),
            ]
            if delay == "1h":
                # the node that responds is not the one that is followed
                stand.chain.do({"lag": HEAD - has})
                for body, whole in zip(both, stand.chain.honest(*both), strict=True):
                    cut = stand.result(body)
                    assert cut and len(cut) < len(whole) and cut == whole[: len(cut)]
                    assert stand.class_of(body) == "unfinalized"
                stand.chain.do({"lag": 0})
            whole, sparse = both
            # a truncated result is stored for a moment
            honest = stand.chain.honest(*both)
            stand.nginx.wait_for(lambda: [stand.result(body) for body in both] == honest, "all logs")
            # a log of its last block proves that the node has that block
            assert stand.class_of(whole) == "immutable"
            if delay == "1h":
                requests_before = stand.chain.count("eth_getLogs")

                def is_repeated():
                    stand.assert_right_results([sparse])
                    return stand.chain.count("eth_getLogs") >= requests_before + 3

                stand.nginx.wait_for(is_repeated, "the node to repeat it")
                assert stand.class_of(sparse) == "unfinalized"
            else:
                stand.nginx.wait_for(
                    lambda: stand.class_of(sparse) == "immutable", "the answer to be confirmed"
                )
            stand.assert_right_results(both)
    finally:
        followed.stop()


def test_responses_of_a_lagging_node_are_removed_when_it_catches_up():
    with Stand(times=LOWER_HEAD_IS_NOT_ACCEPTED) as stand:
        stand.change({"extend": 5})
        bodies = [balance('"latest"'), call("eth_gasPrice"), call("eth_blockNumber")]
        stand.change({"lag": 3}, state="lagging")
        before = [stand.result(body) for body in bodies for _ in range(2)]
        stand.change({"lag": 0})
        stand.assert_right_results(bodies)
        assert before[::2] != stand.chain.honest(*bodies)

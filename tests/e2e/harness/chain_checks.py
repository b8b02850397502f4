"""Checks of a stand of any host while its chain changes."""

from .chain import TIP, calls_for_block, calls_for_transactions
from .rpc import call
from .stands import hit

# Method rows of an operator for methods that sszip does not know.
OPERATOR_METHODS = [
    "acme_blockAt block=p[1] block=result.number",
    "acme_headNumber block=result",
    "acme_logs range=p[0]",
    "acme_price class=tip",
    "acme_receiptOf block=result.receipt.blockNumber",
]
OPERATOR_TIP = [
    call("acme_headNumber"),
    call("acme_price"),
    call("acme_blockAt", '[{},"latest"]'),
    call("acme_logs", '[{"fromBlock":"latest"}]'),
]


def operator_calls_for_block(chain, number):
    (block,) = chain.honest(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
    return [
        call("acme_blockAt", f'[{{"with":1}},"0x{number:x}"]'),
        call("acme_logs", f'[{{"fromBlock":"0x{number - 3:x}","toBlock":"0x{number:x}","with":1}}]'),
        *(call("acme_receiptOf", f'["{transaction}"]') for transaction in block["transactions"][:3]),
    ]


def check_operator_methods(stand):
    """Checks that entries of an operator's methods expire as entries of built-in methods do."""

    def become_hits(bodies):
        for body in bodies:
            stand.nginx.wait_for(lambda body=body: hit(stand.fetch(body)), f"a hit: {body}")

    stand.chain.do({"finalize": 150})
    stand.change({"extend": 1})
    stand.wait_for_final(150)
    final, young = operator_calls_for_block(stand.chain, 150), operator_calls_for_block(stand.chain, 200)
    stand.assert_right_results(final + young + OPERATOR_TIP)
    become_hits(final + young + OPERATOR_TIP)
    # a new head
    for _ in range(3):
        stand.change({"extend": 1})
        stand.assert_right_results(OPERATOR_TIP)
        become_hits(final + young + OPERATOR_TIP)
    before = stand.chain.honest(*young)
    stand.change({"reorg": {"depth": 9, "length": 11}})
    after = stand.chain.honest(*young)
    assert all(one != other for one, other in zip(before, after, strict=True))
    stand.assert_right_results(final + young + OPERATOR_TIP)
    become_hits(final)


def check_replaced_blocks(stand, depth, by):
    """Checks that a reorganisation removes the entries of the `depth` blocks that it replaces, and no
    others. The new branch is longer by `by` blocks."""
    # the follower knows the blocks since its start
    stand.change({"extend": 12})
    head = stand.chain.head
    heights = range(head - depth - 2, head + 1)
    bodies = TIP + [body for number in heights for body in calls_for_block(number) + calls_for_transactions(stand.chain, number)]
    stand.assert_right_results(bodies)
    stand.change({"reorg": {"depth": depth, "length": depth + by}})
    # entries below the reorganisation are unchanged
    for body in calls_for_block(head - depth):
        assert hit(stand.fetch(body)), body
    stand.assert_right_results(bodies)

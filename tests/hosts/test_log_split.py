"""sszip_logs_split: a range of logs is assembled of pieces, each of which the node receives once."""

import pytest

from harness.rpc import call
from harness.stands import hit, stand_of_host

pytestmark = [
    pytest.mark.once("the core decides; test_log_split_requests tries nginx's subrequests on each"),
    pytest.mark.hosts("nginx", "native"),
]

LOGS = "eth_getLogs"
PROOF = "eth_getBlockTransactionCountByNumber"
FINAL = 150


def logs(first, last):
    return call(LOGS, f'[{{"fromBlock":"0x{first:x}","toBlock":{last}}}]')


def number(block):
    return f'"0x{block:x}"'


def test_assembled_ranges_equal_the_nodes_and_their_pieces_are_stored(host):
    with stand_of_host(host, interval="100ms", settings={"logs_split": "10 concurrent=3"}) as stand:
        stand.change({"finalize": FINAL})
        stand.wait_for_final(FINAL)
        # Envoy's filter records what the router changes, from a request that reaches the node
        stand.result(call("eth_gasPrice"))
        stand.assert_right_results([logs(3, number(149))])
        # 3 to 9, and 14 whole pieces
        assert stand.chain.count(LOGS) == 15
        assert stand.chain.count(PROOF) == 30
        assert stand.class_of(logs(3, number(149))) == "immutable"
        for first in range(10, 150, 10):
            assert stand.class_of(logs(first, number(first + 9))) == "immutable"
        # the stored pieces, and the rest
        ranges = [logs(first, last) for first in (20, 27) for last in (number(131), number(160), '"latest"')]
        stand.assert_right_results(ranges)
        stand.assert_right_results(ranges)
        fetched = stand.chain.count(LOGS)
        assert hit(stand.fetch(logs(40, number(119))))
        assert stand.chain.count(LOGS) == fetched


def test_rest_of_a_range_follows_the_head(host):
    with stand_of_host(host, interval="100ms", settings={"logs_split": "10 concurrent=3"}) as stand:
        stand.change({"finalize": FINAL})
        stand.wait_for_final(FINAL)
        stand.result(call("eth_gasPrice"))
        body = logs(100, '"latest"')
        for command in ({"extend": 2}, {"reorg": {"depth": 2, "length": 3}}, {"finalize": FINAL + 20}):
            stand.assert_right_results([body])
            stand.change(command)
        stand.assert_right_results([body])

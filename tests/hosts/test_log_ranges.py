"""sszip_logs_split: wide calls of eth_getLogs are split into aligned pieces, and final ones come from
the cache."""

import json
import random
import threading

import pytest

from harness.chain import Chain
from harness.client import Connection, request_bytes
from harness.log_ranges import (
    CHAIN, CONCURRENT, FINAL, HEAD, JSON, NO_BATCHES, PIECE, LogStand, batch_of, closed_gate, hex_ranges,
    is_piece_request, logs, new_filter, pause_for_unexpected_requests,
)  # fmt: skip
from harness.rpc import call
from tiers import times

pytestmark = pytest.mark.hosts("nginx", "native")

FIRST = 5
# the first block that is in no complete piece of final blocks
REST = (FINAL + 1) // PIECE * PIECE
HISTORY = logs(FIRST, '"latest"')


@pytest.fixture
def stand(host, origin):
    with LogStand(host, origin) as stand:
        yield stand


@pytest.fixture(scope="module")
def running_stand(host, session_origin):
    with LogStand(host, session_origin) as stand:
        yield stand


@pytest.fixture
def shared_stand(running_stand, origin):
    """A stand for tests that do not change its chain. It splits wide calls when a test begins."""
    stand = running_stand
    origin.answers(stand.node)

    def is_split():
        before = len(stand.node.bodies)
        stand.assert_equal_to_direct(logs(FIRST, '"latest"', new_filter(stand.chain)))
        return bool(stand.node.ranges(before))

    stand.server.wait_for(is_split, "a call to be split")
    stand.node.bodies.clear()
    yield stand
    stand.server.check()


def test_wide_range_is_fetched_in_aligned_pieces_with_the_rest_to_the_head(stand):
    stand.assert_equal_to_direct(HISTORY)
    rest = (f"0x{REST:x}", "latest")
    assert sorted(stand.node.ranges()) == sorted([*hex_ranges(FIRST, REST - 1), rest])
    assert stand.node.single_calls() == []


def test_final_pieces_are_not_fetched_again_when_the_chain_grows(stand):
    stand.assert_equal_to_direct(HISTORY)
    stand.change({"extend": 1})
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(HISTORY)
    assert stand.node.ranges(before) == [(f"0x{REST:x}", "latest")]
    # a range of final pieces only, which no client has requested
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(logs(PIECE, REST - 1))
    assert len(stand.node.bodies) == before


def test_range_that_ends_in_a_final_piece_is_fetched_to_its_own_end(stand):
    last = FINAL - 3
    stand.assert_equal_to_direct(logs(FIRST, last))
    assert sorted(stand.node.ranges()) == sorted(hex_ranges(FIRST, last))


def test_piece_is_a_hit_for_a_client_that_requests_its_range(stand):
    stand.assert_equal_to_direct(HISTORY)
    before = len(stand.node.bodies)
    response = stand.assert_equal_to_direct(logs(PIECE, 2 * PIECE - 1))
    assert "; hit" in response.header("Cache-Status")
    assert len(stand.node.bodies) == before


def test_same_call_is_a_hit_when_the_chain_has_not_changed(stand):
    stand.assert_equal_to_direct(HISTORY)
    before = len(stand.node.bodies)
    for accept in ("identity", "gzip", "zstd"):
        response = stand.fetch(HISTORY, accept)
        assert (response.coding or "identity") == accept
        assert response.decoded.rstrip() == stand.direct(HISTORY).rstrip()
        assert "; hit" in response.header("Cache-Status")
    assert len(stand.node.bodies) == before


def log_with_topics(stand):
    (found,) = stand.chain.honest(logs(FINAL - 20, FINAL))
    return next(log for log in found if log["topics"])


def test_filters_select_the_same_logs_as_at_the_node(stand):
    log = log_with_topics(stand)
    for more in (
        f',"address":"{log["address"]}"',
        f',"address":["{log["address"]}"],"topics":[]',
        f',"topics":["{log["topics"][0]}"]',
        f',"topics":[["{log["topics"][0]}"]]',
        ',"address":"0x0000000000000000000000000000000000000001"',
    ):
        before = len(stand.node.bodies)
        stand.assert_equal_to_direct(logs(FIRST, '"latest"', more))
        assert len(stand.node.ranges(before)) > 1


def test_pieces_are_fetched_with_limited_concurrency(stand):
    responses = []
    with closed_gate(stand.node) as gate:
        sender = threading.Thread(target=lambda: responses.append(stand.fetch(HISTORY)))
        sender.start()
        stand.server.wait_for(lambda: stand.node.in_flight == CONCURRENT, "the first pieces at the node")
        pause_for_unexpected_requests()
        assert len(stand.node.bodies) == CONCURRENT
        gate.set()
        sender.join()
    assert responses[0].decoded.rstrip() == stand.direct(HISTORY).rstrip()
    assert stand.node.most_in_flight == CONCURRENT


def test_coalesced_clients_receive_the_assembled_response_of_one_split(stand):
    bodies = [HISTORY.replace(b'"id":1', b'"id":%d' % n) for n in range(1, 9)]
    responses = {}

    def send(body):
        responses[body] = stand.fetch(body).decoded.rstrip()

    with closed_gate(stand.node) as gate:
        senders = [threading.Thread(target=send, args=(body,)) for body in bodies]
        for sender in senders:
            sender.start()
        stand.server.wait_for(lambda: stand.node.in_flight == CONCURRENT, "the first pieces at the node")
        gate.set()
        for sender in senders:
            sender.join()
    assert responses == {body: stand.direct(body).rstrip() for body in bodies}
    ranges = stand.node.ranges()
    assert len(ranges) == len(set(ranges)) and stand.node.single_calls() == []


@pytest.mark.parametrize("ends", ["close", "reset"])
def test_next_client_receives_the_whole_response_when_a_client_disconnects_during_a_split(stand, ends):
    dice = random.Random(1)
    topic = log_with_topics(stand)["topics"][0]
    for turn in range(times(4, 20)):
        call_body = logs(FIRST, '"latest"', f',"topics":[["{topic}","0x{turn:064x}"]]')
        with closed_gate(stand.node) as gate:
            connection = Connection(stand.server.port)
            connection.send(request_bytes("/", method="POST", headers=JSON, body=call_body))
            stand.server.wait_for(lambda: stand.node.in_flight, "a piece at the node")
            if dice.randrange(2):
                gate.set()
            {"close": connection.close, "reset": connection.reset}[ends]()
        stand.assert_equal_to_direct(call_body)
        stand.server.wait_for(lambda: stand.node.in_flight == 0, "the node's requests to end")
    stand.assert_equal_to_direct(HISTORY)


def test_response_is_one_of_a_node_when_a_node_behind_the_balancer_lags(host, origin):
    dice = random.Random(2)
    with LogStand(host, origin, lags=[HEAD - FINAL + 40]) as stand:
        (lagging,) = stand.lagging
        for _ in range(times(30, 200)):
            first = dice.randrange(FINAL)
            last = dice.choice(['"latest"', None, dice.randrange(first, HEAD + 5)])
            body = logs(first, last, dice.choice(["", ',"topics":[]']))
            expected = [stand.direct(body, chain).rstrip() for chain in (stand.chain, lagging)]
            assert stand.fetch(body).decoded.rstrip() in expected, body
        # an abandoned split is not repeated at once
        lagging.do({"lag": 0})
        stand.store_owner.purge(everything=True)
        for first in range(0, FINAL, 7):
            stand.assert_equal_to_direct(logs(first, '"latest"'))


def test_response_is_one_of_a_node_when_a_node_behind_the_balancer_has_another_chain(stand):
    stand.server.expect("another chain")
    other = Chain(*CHAIN, "--seed", 7, "--chain-id", 2)
    try:
        other.do({"finalize": FINAL})
        stand.node.chains = (stand.chain, other)
        dice = random.Random(5)
        for _ in range(times(30, 200)):
            body = logs(dice.randrange(FINAL - 3 * PIECE), dice.choice(['"latest"', FINAL - 2, HEAD]))
            expected = [stand.direct(body, chain).rstrip() for chain in stand.node.chains]
            assert stand.fetch(body).decoded.rstrip() in expected, body
    finally:
        other.stop()


@pytest.mark.parametrize("status", ["error", "truncated"])
def test_node_receives_the_whole_call_once_when_it_sends_no_piece(stand, status):
    if status == "error":
        stand.node.has_batches = False
    else:
        stand.server.expect("prematurely closed|upstream")
        stand.node.batch_cut = 40
    stand.assert_equal_to_direct(HISTORY)
    calls = stand.node.single_calls()
    assert [one["params"][0] for one in calls] == [{"fromBlock": f"0x{FIRST:x}", "toBlock": "latest"}]
    assert 1 <= len(stand.node.ranges()) <= CONCURRENT
    # the next call is not split
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(logs(FIRST + 1, '"latest"'))
    assert len(stand.node.bodies) == before + 1 and stand.node.ranges(before) == []
    assert NO_BATCHES not in stand.fetch(HISTORY).decoded


def test_response_is_of_the_new_branch_after_a_reorganisation(stand):
    stand.assert_equal_to_direct(HISTORY)
    for depth, length in ((3, 4), (10, 10), (20, 21)):
        stand.change({"reorg": {"depth": depth, "length": length}})
        before = len(stand.node.bodies)
        stand.assert_equal_to_direct(HISTORY)
        assert stand.node.ranges(before) == [(f"0x{REST:x}", "latest")]


def test_more_pieces_are_final_when_finality_advances(stand):
    stand.assert_equal_to_direct(HISTORY)
    stand.change({"extend": 1}, {"finalize": HEAD})
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(HISTORY)
    rest = (HEAD + 1) // PIECE * PIECE
    expected = [*hex_ranges(REST, rest - 1), (f"0x{rest:x}", "latest")]
    assert sorted(stand.node.ranges(before)) == sorted(expected)


def test_pieces_are_fetched_again_after_a_purge(stand):
    stand.assert_equal_to_direct(HISTORY)
    count = len(stand.node.ranges())
    stand.store_owner.purge(everything=True)
    # the purge also removes the identity of the chain, until the next poll
    stand.change({"extend": 1})
    stand.assert_equal_to_direct(HISTORY)
    assert len(stand.node.ranges()) == 2 * count


NUMBER_LIMIT = '"0x10000000000000000"'


@pytest.mark.parametrize(
    "first, last",
    [
        (FINAL, FIRST),
        ('"0x1"', NUMBER_LIMIT),
        (NUMBER_LIMIT, NUMBER_LIMIT),
        ('"0x1"', '"0xffffffffffffffff1"'),
        ('"0x1"', '"newest"'),
        ('"0x1"', '"0x"'),
        ('"0x"', '"0x64"'),
        ('"0xg"', '"0x64"'),
        ('"1"', '"100"'),
        ("1", "100"),
        ("[]", "{}"),
        ("true", '"0x64"'),
        ('"earliest"', '"0x64"'),
        ('"0x1"', '"pending"'),
        ('"latest"', '"latest"'),
        ('"0x1"', '"finalized"'),
    ],
)
def test_range_that_cannot_be_split_gets_the_response_of_the_node(shared_stand, first, last):
    body = logs(first, last)
    shared_stand.assert_equal_to_direct(body)
    assert shared_stand.node.bodies == [body]


@pytest.mark.parametrize(
    "params",
    [
        "[]",
        "{}",
        "[[]]",
        '[{"fromBlock":"0x1","toBlock":"0x64"},1]',
        '[{"fromBlock":"0x1","fromBlock":"0x2","toBlock":"0x64"}]',
        '[{"fromBlock":"0x1","toBlock":"0x64","limit":5}]',
        '[{"fromBlock":"0x1","toBlock":"0x64","blockHash":"0x%064x"}]' % 1,
        '[{"fromBlock":"0x1","toBlock":"0x64","address":"0x1"}]',
        '[{"fromBlock":"0x1","toBlock":"0x64","topics":["0x1"]}]',
        '[{"from\\u0042lock":"0x1","toBlock":"0x64"}]',
        '[{"fromBlock":"0x1"',
    ],
)
def test_filter_that_is_not_read_strictly_gets_the_response_of_the_node(shared_stand, params):
    body = call("eth_getLogs", params)
    shared_stand.assert_equal_to_direct(body)
    assert shared_stand.node.bodies == [body]


@pytest.mark.parametrize(
    "body",
    [
        # each batch has a range of its own: the stand stores the response to the range of another
        batch_of(logs(FIRST, '"latest"'), call("eth_sendRawTransaction", '["0x00"]', id="2")),
        # the head may have changed when the node responds to the other call
        batch_of(logs(FIRST + 1, '"latest"'), call("eth_blockNumber", id="2")),
        batch_of(logs(FIRST + 2, '"latest"'), call("eth_chainId", id="1")),
        call("trace_filter", '[{"fromBlock":"0x1","toBlock":"0x64"}]'),
        call("eth_newFilter", '[{"fromBlock":"0x1","toBlock":"0x64"}]'),
        logs(PIECE, 2 * PIECE - 1),
        logs(REST, '"latest"'),
    ],
    ids=["transaction", "head", "equal ids", "trace_filter", "eth_newFilter", "one piece", "no final piece"],
)
def test_other_request_is_sent_to_the_node_unsplit(shared_stand, body):
    assert shared_stand.fetch(body).decoded.rstrip() == shared_stand.direct(body).rstrip()
    assert shared_stand.node.bodies == [body]


def test_wide_calls_of_a_batch_are_assembled_and_the_node_receives_the_other_calls(stand):
    chain_id = call("eth_chainId", id="2")
    final = logs(PIECE, REST - 1, id="3")
    body = batch_of(HISTORY, chain_id, final)
    stand.assert_equal_to_direct(body)
    rest = (f"0x{REST:x}", "latest")
    assert sorted(stand.node.ranges()) == sorted([*hex_ranges(FIRST, REST - 1), rest])
    assert stand.node.client_requests() == [[json.loads(chain_id)]]
    # all responses are stored now
    before = len(stand.node.bodies)
    for accept in ("identity", "gzip", "zstd"):
        response = stand.fetch(body, accept)
        assert (response.coding or "identity") == accept
        assert response.decoded.rstrip() == stand.direct(body).rstrip()
    assert len(stand.node.bodies) == before
    # the rest of a longer chain is fetched again
    stand.change({"extend": 1})
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(body)
    assert stand.node.ranges(before) == [rest] and stand.node.client_requests(before) == []


def test_long_responses_of_a_batch_are_assembled_by_jobs(host, origin):
    # a job compresses more than 8 KiB at this level
    settings = {"logs_split": f"{PIECE} concurrent={CONCURRENT}", "comp_level": "12"}
    with LogStand(host, origin, settings=settings) as stand:
        chain_id = call("eth_chainId", id="2")
        body = batch_of(HISTORY, chain_id, logs(PIECE, REST - 1, id="3"))
        response = stand.assert_equal_to_direct(body)
        assert len(response.decoded) > 2 * 8 << 10
        assert stand.node.client_requests() == [[json.loads(chain_id)]]


def test_final_ranges_of_a_batch_are_assembled_before_a_call_for_the_head(stand):
    block_number = call("eth_blockNumber", id="2")
    body = batch_of(logs(FIRST, FINAL - 3), block_number)
    stand.assert_equal_to_direct(body)
    assert sorted(stand.node.ranges()) == sorted(hex_ranges(FIRST, FINAL - 3))
    assert stand.node.client_requests() == [[json.loads(block_number)]]


def test_coalesced_batches_receive_the_assembled_responses_of_one_split(stand):
    body = batch_of(HISTORY, logs(PIECE, REST - 1, id="2"))
    responses = []
    with closed_gate(stand.node) as gate:
        senders = [
            threading.Thread(target=lambda: responses.append(stand.fetch(body).decoded.rstrip())) for _ in range(8)
        ]
        for sender in senders:
            sender.start()
        stand.server.wait_for(lambda: stand.node.in_flight == CONCURRENT, "the first pieces at the node")
        gate.set()
        for sender in senders:
            sender.join()
    assert responses == [stand.direct(body).rstrip()] * len(senders)
    ranges = stand.node.ranges()
    assert len(ranges) == len(set(ranges)) and stand.node.client_requests() == []


def test_node_receives_the_whole_batch_once_when_it_sends_no_piece(stand):
    stand.node.change = lambda request, body: NO_BATCHES if is_piece_request(json.loads(request.body)) else body
    body = batch_of(HISTORY, logs(PIECE, REST - 1, id="2"), call("eth_chainId", id="3"))
    stand.assert_equal_to_direct(body)
    assert 1 <= len(stand.node.ranges()) <= CONCURRENT
    assert stand.node.client_requests() == [json.loads(body)]
    # the next batch is not split
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(batch_of(logs(FIRST + 1, '"latest"'), logs(FIRST + 2, FINAL, id="2")))
    assert len(stand.node.bodies) == before + 1


def test_range_is_not_split_by_default(host, origin):
    with LogStand(host, origin, settings={"logs_split": "off"}) as stand:
        stand.assert_equal_to_direct(HISTORY)
        assert stand.node.bodies == [HISTORY]


def test_range_of_more_than_a_hundred_pieces_is_assembled(host, origin):
    with LogStand(host, origin, settings={"logs_split": "1 concurrent=8"}) as stand:
        stand.assert_equal_to_direct(logs(FIRST, FINAL))
        assert len(stand.node.ranges()) == FINAL - FIRST + 1
        assert stand.node.most_in_flight <= 8 and stand.node.single_calls() == []
        before = len(stand.node.bodies)
        stand.assert_equal_to_direct(logs(FIRST + 1, FINAL - 1))
        assert len(stand.node.bodies) == before


def test_calls_of_a_batch_beyond_256_pieces_are_sent_to_the_node(host, origin):
    with LogStand(host, origin, settings={"logs_split": "1 concurrent=8"}) as stand:
        body = batch_of(logs(FIRST, FINAL), logs(FIRST, FINAL - 1, id="2"))
        stand.assert_equal_to_direct(body)
        assert len(stand.node.ranges()) == FINAL - FIRST + 1
        assert stand.node.client_requests() == [json.loads(body)[1:]]


def test_node_receives_the_whole_call_when_its_response_is_longer_than_an_entry(host, origin):
    settings = {"logs_split": f"{PIECE} concurrent={CONCURRENT}", "cache_max_entry": "20k"}
    with LogStand(host, origin, settings=settings) as stand:
        stand.assert_equal_to_direct(HISTORY)
        assert len(stand.node.single_calls()) == 1


def test_random_ranges_equal_the_responses_of_the_node_when_the_chain_changes(host, origin):
    dice = random.Random(3)
    with LogStand(host, origin, workers=3, settings={"logs_split": f"{PIECE} concurrent=4"}) as stand:
        for _ in range(times(6, 40)):
            changes = [{"extend": dice.randint(1, 3)}, {"reorg": {"depth": 2, "length": 3}}]
            stand.change(dice.choice(changes), {"finalize": dice.randint(stand.chain.final, stand.chain.head - 4)})
            for _ in range(20):
                first = dice.randrange(stand.chain.head)
                last = dice.choice(['"latest"', None, dice.randrange(first, stand.chain.head + 1)])
                more = dice.choice(["", ',"topics":[]', ',"address":[]'])
                stand.assert_equal_to_direct(logs(first, last, more))
            ranges = [logs(dice.randrange(FINAL), FINAL + n, id=str(n)) for n in range(3)]
            stand.assert_equal_to_direct(batch_of(*ranges))
        assert len(stand.node.ranges()) > 20

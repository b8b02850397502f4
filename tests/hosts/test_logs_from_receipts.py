"""sszip_logs_from_receipts: logs of a block are selected from its stored receipts, after the node's
own responses were equal to them."""

import json
import pathlib
import random

import pytest

from harness import client
from harness.chain import Chain
from harness.log_ranges import (
    FINAL, HEAD, JSON, LogStand, RelayNode, logs, permissive_blooms, random_filter, select_logs,
)  # fmt: skip
from harness.rpc import Node, call
from tiers import times

CORPUS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "corpus" / "execution" / "eth_getBlockReceipts"
# number of equal responses of the node before logs are selected from receipts
COMPARISONS = 16
# blocks whose logs are requested; more of them have logs than COMPARISONS
BLOCKS = range(1, 61)


def receipts_of(block):
    return call("eth_getBlockReceipts", f'["{block}"]')


def logs_of(block, more=""):
    return call("eth_getLogs", f'[{{"blockHash":"{block}"{more}}}]')


class Route:
    """A server whose only route has the setting, in front of a relay node."""

    def __init__(self, start_server, origin, node, places=None, general=None, **settings):
        origin.answers(node)
        self.node = node
        place = {"cache_namespace": "main", "logs_from_receipts": True, **settings}
        self.server = start_server({**(places or {}), "/": place}, {"cache": True, **(general or {})})

    def fetch(self, body):
        response = client.fetch(self.server.port, "/", method="POST", headers=JSON, body=body)
        assert response.status == 200, response.body
        return response

    def store(self, body):
        """Waits until the response is stored."""
        self.server.wait_for(lambda: "; hit" in (self.fetch(body).header("Cache-Status") or ""), "it to be stored")

    def verdicts(self):
        # Envoy counts verdicts with the next request of a client
        client.fetch(self.server.port, "/never/counts")
        return json.loads(client.fetch(self.server.port, "/status?format=json").decoded)["verified"]


def change_receipts(request, body):
    return permissive_blooms(body) if b"eth_getBlockReceipts" in request.body else body


def change_logs(request, body):
    """Responses with other white space than the logs in receipts have."""
    body = change_receipts(request, body)
    return body.replace(b'"logIndex"', b' "logIndex"') if b"eth_getLogs" in request.body else body


def change_logs_and_meaning(request, body):
    """Responses about logs that differ in more than white space."""
    body = change_receipts(request, body)
    return body.replace(b'"removed":false', b'"removed":true') if b"eth_getLogs" in request.body else body


@pytest.fixture
def chain():
    chain = Chain("--chain-length", HEAD)
    yield chain
    chain.stop()


@pytest.fixture
def node(chain):
    node = RelayNode(chain)
    node.change = change_receipts
    return node


def blocks_with_logs(chain):
    """The hashes of blocks, and their logs."""
    calls = [call("eth_getBlockByNumber", f'["0x{number:x}",false]') for number in BLOCKS]
    hashes = [block["hash"] for block in chain.honest(*calls)]
    found = zip(hashes, chain.honest(*map(logs_of, hashes)), strict=True)
    return [(block, block_logs) for block, block_logs in found if block_logs]


def log_requests(node):
    return [body for body in node.bodies if b"eth_getLogs" in body]


def direct(chain, body):
    return client.fetch(chain.port, "/", method="POST", headers=JSON, body=body).body.rstrip()


def establish_trust(route, blocks):
    """Requests logs until the node receives no call for them; returns the other blocks."""
    for number, (block, _) in enumerate(blocks):
        route.store(receipts_of(block))
        before = len(log_requests(route.node))
        route.fetch(logs_of(block))
        if len(log_requests(route.node)) == before:
            assert number >= COMPARISONS
            return blocks[number + 1 :]
    raise AssertionError("no logs were selected from receipts")


def test_node_receives_no_call_for_logs_after_equal_responses(start_server, origin, chain, node):
    route = Route(start_server, origin, node)
    rest = establish_trust(route, blocks_with_logs(chain))
    assert len(rest) > 20
    dice = random.Random(1)
    for block, block_logs in rest[:30]:
        route.store(receipts_of(block))
        before = len(log_requests(node))
        log = dice.choice(block_logs)
        for more in (
            "",
            f',"address":"{log["address"]}"',
            f',"address":["{log["address"]}","0x{1:040x}"]',
            f',"topics":["{log["topics"][0]}"]' if log["topics"] else "",
            f',"address":"0x{1:040x}"',
        ):
            body = logs_of(block, more)
            assert route.fetch(body).decoded.rstrip() == direct(chain, body), body
        assert len(log_requests(node)) == before


IS_LATER = pytest.param(False, id="later response", marks=pytest.mark.wasm_thorough("the core counts equal responses"))


@pytest.mark.parametrize("is_first", [pytest.param(True, id="first response"), IS_LATER])
def test_node_receives_all_calls_for_logs_after_a_different_response(start_server, origin, chain, node, is_first):
    blocks = blocks_with_logs(chain)
    route = Route(start_server, origin, node)
    route.server.expect("are not derived from receipts")
    for number, (block, _) in enumerate(blocks):
        is_different = number == (0 if is_first else COMPARISONS - 2)
        node.change = change_logs if is_different else change_receipts
        route.store(receipts_of(block))
        before = len(log_requests(node))
        body = logs_of(block)
        response = route.fetch(body).decoded.rstrip()
        assert response.replace(b' "logIndex"', b'"logIndex"') == direct(chain, body)
        assert (b' "logIndex"' in response) == is_different
        assert len(log_requests(node)) == before + 1


@pytest.mark.hosts("nginx", "native")
def test_logs_are_compared_again_after_a_purge(start_server, origin, chain, node):
    blocks = blocks_with_logs(chain)
    general = {"cache_path": "@prefix@/cache max_size=64m memory=32m"}
    route = Route(start_server, origin, node, {"/purge": {"cache_purge": True}}, general)
    rest = establish_trust(route, blocks)
    purged = client.fetch(route.server.port, "/purge?namespace=main", method="POST", body=b"")
    assert purged.status == 200, purged.body
    before = len(log_requests(node))
    for block, _ in rest[:COMPARISONS]:
        route.store(receipts_of(block))
        route.fetch(logs_of(block))
    assert len(log_requests(node)) == before + COMPARISONS


@pytest.mark.wasm_thorough("the core decides; hits from receipts are in the first test")
def test_logs_come_from_the_node_when_the_receipts_are_not_stored(start_server, origin, chain, node):
    route = Route(start_server, origin, node)
    rest = establish_trust(route, blocks_with_logs(chain))
    before = len(log_requests(node))
    for block, _ in rest[:5]:
        body = logs_of(block)
        assert route.fetch(body).decoded.rstrip() == direct(chain, body)
    assert len(log_requests(node)) == before + 5


@pytest.mark.hosts("nginx", "native")
def test_selected_logs_are_verified(start_server, origin, chain, node):
    places = {"/status": {"status": True}, "/never": {"cache_namespace": "never"}}
    route = Route(start_server, origin, node, places, verify="100%")
    blocks = blocks_with_logs(chain)
    # the node's requests show no trust: hits are verified by it
    compared, rest = blocks[: COMPARISONS + 4], blocks[COMPARISONS + 4 :]
    for block, _ in compared:
        route.store(receipts_of(block))
        route.fetch(logs_of(block))
    for block, _ in rest[:5]:
        route.store(receipts_of(block))
        route.fetch(logs_of(block))
    verified = [logs_of(block) for block, _ in rest[:5]]
    route.server.wait_for(lambda: set(verified) <= set(log_requests(node)), "the verification of the logs")
    assert route.verdicts().get("different", 0) == 0
    # a call that no client has sent: a response of the node would not be verified
    route.server.expect("a hit differs from the node's response")
    node.change = change_logs_and_meaning
    block, _ = rest[5]
    route.store(receipts_of(block))
    response = route.fetch(logs_of(block)).decoded.rstrip()
    assert response == direct(chain, logs_of(block))
    route.server.wait_for(lambda: route.verdicts().get("different", 0) >= 1, "the difference")


@pytest.mark.hosts("nginx", "native")
def test_logs_by_number_are_selected_only_of_final_blocks(host, origin):
    def receipts_at(number):
        return call("eth_getBlockReceipts", f'["0x{number:x}"]')

    with LogStand(host, origin, settings={"logs_from_receipts": True}) as stand:
        stand.node.change = change_receipts
        selected = []
        for number in [*range(1, 100), *range(FINAL + 1, HEAD)]:
            for _ in range(2):
                stand.fetch(receipts_at(number))
            before = len(log_requests(stand.node))
            stand.assert_equal_to_direct(logs(number, number))
            if len(log_requests(stand.node)) == before:
                selected.append(number)
        assert len(selected) > 30 and max(selected) <= FINAL


def recorded_receipts():
    """The receipts of recorded blocks, by the hashes of the blocks."""
    found = {}
    for path in sorted(CORPUS.glob("test_*.json")):
        for exchange in json.loads(path.read_text()):
            receipts = exchange["response"].get("result")
            if receipts and any(receipt["logs"] for receipt in receipts):
                found[receipts[0]["blockHash"]] = receipts
    return found


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.wasm_thorough("the core selects the logs")
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus beside the clone")
def test_logs_of_recorded_blocks_equal_those_of_a_reference_filter(start_server, origin):
    recorded = recorded_receipts()
    assert recorded
    node = Node(
        {
            "eth_getBlockReceipts": lambda params: compact(recorded[params[0]]),
            "eth_getLogs": lambda params: compact(select_logs(recorded[params[0]["blockHash"]], params[0])),
        }
    )
    route = Route(start_server, origin, node)
    for block in recorded:
        route.store(receipts_of(block))
    dice = random.Random(4)
    sent, different = set(), []
    for _ in range(times(400, 5000)):
        block = dice.choice(list(recorded))
        all_logs = select_logs(recorded[block], {})
        log_filter = {"blockHash": block, **random_filter(dice, all_logs)}
        body = call("eth_getLogs", compact([log_filter]).decode())
        sent.add(body)
        result = compact(select_logs(recorded[block], log_filter))
        if route.fetch(body).decoded.rstrip() != b'{"jsonrpc":"2.0","id":1,"result":%b}' % result:
            different.append(body)
    print(f"{len(sent)} calls, {node.count('eth_getLogs')} at the node, {len(different)} different")
    assert not different
    # the node answers until its responses were compared, and calls whose filters nodes read differently
    assert COMPARISONS <= node.count("eth_getLogs") < len(sent) / 2

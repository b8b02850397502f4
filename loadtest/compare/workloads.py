"""Responses of the nodes, and the workloads with them."""

import json
from dataclasses import dataclass, field


import http_client
import calls
from bodies import read_pairs, compact
from calls import Workload
from stack import ROOT

# Lengths of the bodies of Erigon's experiment: a block with its first transactions only, and one
# with all of them.
SMALL, LARGE = 30_000, 246_000
BULK = 5_000_000
BLOCK = "eth_getBlockByNumber"
TRACES = "trace_block"
# Methods for keys that were never requested, one per length, because the node finds their
# responses by the method alone. Their responses are stored whatever block they show, unlike those
# of eth_getBlockByHash, whose hash must be the requested one.
UNSEEN_SMALL, UNSEEN_LARGE, UNSEEN_BULK = (
    "eth_getUncleByBlockHashAndIndex", "eth_getBlockAccessListByBlockHash", "debug_traceBlockByHash"
)
PAGE = "/eth/v2/beacon/blocks/7109344"
RECORDED_PAGE = "beacon/block_capella_7109344.json"
SSZ_FIRST = "application/octet-stream;q=1,application/json;q=0.9"


@dataclass
class NodeSetup:
    """A node's options and folders, and its workloads."""

    options: list
    folders: list
    workloads: list = field(default_factory=list)
    source: str = ""


def save(folder, name, pairs):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(compact(pairs))


def results(pairs, method):
    return [
        pair
        for _, pair in pairs
        if isinstance(pair["request"], dict)
        and pair["request"]["method"] == method
        and pair["response"].get("result")
    ]


def nearest(pairs, size):
    return min(pairs, key=lambda p: abs(len(compact(p["response"])) - size))


def shortened(pair, size, params):
    """Returns a recorded block with as many of its transactions as make this length. A call by
    number changes the block's number too: a response about another block is not stored."""
    response = pair["response"]
    transactions, total = [], 0
    for one in response["result"]["transactions"]:
        if total >= size:
            break
        transactions.append(one)
        total += len(compact(one)) + 1
    changed = {"transactions": transactions} | ({"number": params[0]} if params else {})
    return {
        "request": pair["request"] | {"params": params},
        "response": response | {"result": response["result"] | changed},
    }


def still(work, corpus):
    """Returns a node whose responses never change: recorded ones, or the sample of the replay
    node if there is no corpus."""
    if not corpus.is_dir():
        return NodeSetup([], [], source="sample")
    pairs = read_pairs(corpus)
    by_method, added = calls.recorded_calls(pairs)
    blocks = [p for p in results(pairs, BLOCK) if p["request"]["params"][1:] == [True]]
    large = nearest(blocks, LARGE)
    small = shortened(large, SMALL, ["0x1", True])
    traces = max(results(pairs, TRACES), key=lambda p: len(compact(p["response"])))
    folder = work / "still"
    save(folder, "added.json", [*added, small, traces])
    wanted = {*calls.PROVIDER}
    save(folder, "recorded.json", [
        pair for _, pair in pairs
        if isinstance(pair["request"], dict) and pair["request"]["method"] in wanted
    ])
    options, page = [], corpus.parent / RECORDED_PAGE
    if page.is_file():
        value = json.loads(page.read_bytes())
        answer = {"version": value["version"], "execution_optimistic": False, "finalized": True}
        file = work / "block.json"
        file.write_bytes(compact(answer | {"data": value["data"]}))
        options = ["--beacon", "json", "--page", f"{PAGE}={file}"]
    recorded = [
        closed_over("block-30", "A block of 30 KB, new ids", [small]),
        closed_over("block-246", "A block of 246 KB, new ids", [large]),
        closed_over("trace", "trace_block of 1.1 MB, new ids", [traces]),
    ]
    return NodeSetup(
        options, [folder], recorded + mixed(by_method, small) + (ssz(PAGE) if options else []),
        "Recorded from Ethereum mainnet nodes (erigontech/rpc-tests, integration/mainnet).",
    )


def sampled(port):
    """Returns the same workloads for a node whose data is discovered: the sample, or any
    other."""
    with http_client.Peer("127.0.0.1", port) as peer:
        return workloads_of_node(peer)


def workloads_of_node(peer):
    by_method = calls.discovered(peer)
    blocks = by_method[BLOCK]
    sized = sorted(blocks, key=lambda c: len(peer.fetch(c.sent()).content))
    of = [
        Workload("block-30", "A short block, new ids", [sized[len(sized) // 3]]),
        Workload("block-246", "A long block, new ids", [sized[-1]]),
    ]
    head = "/eth/v2/beacon/blocks/head"
    pages = ssz(head) if peer.fetch(path=head).status == 200 else []
    return of + mixed_of(by_method, sized[len(sized) // 3]) + pages


def closed_over(name, title, pairs):
    of = [calls.call(p["request"]["method"], p["request"]["params"]) for p in pairs]
    return Workload(name, title, of)


def mixed(by_method, small):
    return mixed_of(by_method, calls.call(small["request"]["method"], small["request"]["params"]))


def mixed_of(by_method, small):
    of, order = calls.ordered(by_method)
    return [
        Workload("identity", "A block of 30 KB to a client that takes no gzip", [small], coding=""),
        Workload("mix", "A provider's mix, warm, new ids", of, order),
        Workload("batch", "Batches of 10 to 100 calls, as ethers makes them", calls.batches(by_method),
                 connections=16),
    ]


def ssz(path):
    return [
        Workload(
            "ssz", "A Beacon block as SSZ, of a node that has JSON only", [calls.get(path)],
            media=SSZ_FIRST,
            note="Who can't make SSZ sends the JSON, which Accept allows.",
        )
    ]


def unseen(work, corpus, port=None):
    """Returns a node that finds responses by the method alone, and workloads of keys that were
    never requested."""
    pairs = read_pairs(corpus) if corpus.is_dir() else sample(port)
    blocks = [p for p in results(pairs, BLOCK) if p["request"]["params"][1:] == [True]]
    block = nearest(blocks, LARGE)
    folder = work / "unseen"
    save(folder, "answers.json", [
        named(shortened(block, SMALL, []), UNSEEN_SMALL),
        named(block, UNSEEN_LARGE),
        named(bulk(pairs), UNSEEN_BULK),
    ])
    hash = calls.keyed_hash()
    hot = calls.call(UNSEEN_SMALL, ["0x" + "cd" * 32, "0x0"])
    return NodeSetup(["--lenient"], [folder], [
        Workload("cold-30", "Misses: blocks of 30 KB that nobody asked for before",
                 [calls.call(UNSEEN_SMALL, [hash, "0x0"])]),
        Workload("cold-246", "Misses: blocks of 246 KB that nobody asked for before",
                 [calls.call(UNSEEN_LARGE, [hash])]),
        Workload("large", "The same 30 KB over and over, while misses of 5 MB are under way", [hot],
                 connections=8),
        Workload("bulk", "Misses of 5 MB", [calls.call(UNSEEN_BULK, [hash])], connections=1),
    ])


def named(pair, method):
    return {"request": {"jsonrpc": "2.0", "id": 1, "method": method, "params": []},
            "response": pair["response"]}


def bulk(pairs):
    """Returns one array of different recorded results."""
    found, total = [], 0
    for _, pair in sorted(pairs, key=lambda p: -len(compact(p[1]["response"]))):
        if isinstance(pair["response"], dict) and pair["response"].get("result"):
            found.append(pair["response"]["result"])
            total += len(compact(found[-1]))
            if total >= BULK:
                break
    return {"request": {}, "response": {"jsonrpc": "2.0", "id": 1, "result": found}}


def sample(port):
    """Returns pairs of the replay node's sample, if nothing was recorded."""
    with http_client.Peer("127.0.0.1", port) as peer:
        found = calls.discovered(peer)
        pairs = []
        for method in (BLOCK, "debug_traceBlockByHash"):
            for one in found.get(method, []):
                answer = peer.fetch(one.sent()).value()
                pairs.append((method, {"request": json.loads(one.sent()), "response": answer}))
        return pairs


def witness(size):
    return NodeSetup(["--witness", size], [], [
        Workload("witness", f"debug_executionWitness of {size}B, one at a time",
                 [calls.call("debug_executionWitness", ["0x1406f40"])], connections=1)
    ])


def chain(transactions):
    """Returns a node with a chain that changes on command, equal for each server."""
    return NodeSetup(["--chain", "--chain-transactions", str(transactions), "--seed", "7"], [])


def following(port):
    with http_client.Peer("127.0.0.1", port) as peer:
        by_method = calls.discovered(peer)
    of, order = calls.ordered(by_method)
    return Workload("head", "A provider's mix, new ids, a new head each slot", of, order)


def audited(workload):
    """Returns the calls of an auditor, with those about the head more often than in the mix."""
    light = [c for c in workload.calls if not c.name.startswith("debug_")]
    heads = [c for c in light if b"latest" in c.body or c.name == "eth_blockNumber"]
    return [one for pair in zip(light, heads * len(light), strict=False) for one in pair]


CORPUS = ROOT.parent / "shared/corpus/execution"

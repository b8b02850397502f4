"""Bodies of the benchmark.

`bodies.json` lists ten per group of the recorded corpus; without a corpus the generated sample of
the replay node is used, chosen by size.
"""

import json
from pathlib import Path

from bodies import compact, load_pairs

HERE = Path(__file__).resolve().parent
GROUPS = {"30 KB": (25_000, 60_000), "300 KB": (200_000, 400_000)}
PER_GROUP = 10
BULK_BYTES = 5_000_000


def recorded(corpus, library, per_group):
    """Returns the listed bodies of the corpus; a wrong size is an error in the list."""
    chosen = []
    for group, names in json.loads((HERE / "bodies.json").read_text()).items():
        low, high = GROUPS[group]
        # A shortened run uses bodies from the whole list instead of its beginning.
        step = max(1, len(names) // per_group)
        for name in names[::step][:per_group]:
            body = library.add(name, load_pairs(corpus / name)[0], group)
            if not low <= body.size <= high:
                raise SystemExit(f"bodies.json: {name} has {body.size} bytes, group {group} {low} to {high}; correct the list")
            chosen.append(body)
    return chosen


def from_sample(pairs, library, per_group):
    """Returns the pairs of the sample whose sizes are in the groups, if there is no corpus."""
    chosen = []
    for group, (low, high) in GROUPS.items():
        fitting = [
            (name, pair)
            for name, pair in pairs
            if low <= len(compact(pair["response"])) <= high
        ]
        step = max(1, len(fitting) // per_group)
        chosen += [library.add(n, p, group) for n, p in fitting[::step][:per_group]]
        if not fitting:
            raise SystemExit(f"the sample has no body of {low} to {high} bytes (group {group})")
    return chosen


def small_body(library):
    pair = {
        "request": {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []},
        "response": {"jsonrpc": "2.0", "id": 1, "result": "0x1"},
    }
    return library.add("eth_chainId", pair, "small")


def bulk_body(pairs, library):
    """Returns a body of about 5 MB: different real results in one array, without duplicates."""
    results, total, seen = [], 0, set()
    large = sorted(pairs, key=lambda p: len(compact(p[1]["response"])), reverse=True)
    for _, pair in large:
        response = pair["response"]
        if not isinstance(response, dict) or "result" not in response:
            continue
        data = compact(response["result"])
        if data in seen or total + len(data) > BULK_BYTES * 1.1:
            continue
        seen.add(data)
        results.append(response["result"])
        total += len(data)
        if total >= BULK_BYTES:
            break
    pair = {
        "request": {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "eth_getLogs",
            "params": [{"fromBlock": "0x0", "toBlock": "latest"}],
        },
        "response": {"jsonrpc": "2.0", "id": 1, "result": results},
    }
    return library.add("5 MB of results in one", pair, "bulk")

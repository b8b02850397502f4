"""Calls of the cache suite: recorded calls with marks for numbers."""

import re

from bodies import Library, compact
from marked_calls import STORED_METHODS, Call, any_id, block_hash, written

BATCH = 10
BATCH_SIZES = {"1 KB": 1_000, "30 KB": 30_000, "300 KB": 300_000}
# Methods for batches: their responses are stored with any params.
STORABLE = re.compile(
    "eth_get(Balance|Block|Code|Storage)|debug_getRaw|debug_traceTransaction"
    "|trace_(block|replayTransaction|transaction)"
)


def singles(bodies, library, per_group):
    """Returns calls of each group, spread over its list, without recorded batches."""
    groups = {}
    for body in bodies:
        request = body.request.read_bytes()
        if request.startswith(b"{"):
            groups.setdefault(body.group, []).append((body, any_id(request)))
    return [
        Call.written(library, body.name, body.group, body.method, body.size, request)
        for of_group in groups.values()
        for body, request in of_group[:: max(1, len(of_group) // per_group)][:per_group]
    ]


def unique_calls(bodies, work, per_group):
    """Returns by group: calls for another block in each request, whose responses are stored, and the
    folder of a node that sends them. The responses are recorded ones of several methods."""
    groups = {}
    for body in bodies:
        responses = groups.setdefault(body.group, {})
        if isinstance(body.answer, dict) and len(responses) < per_group:
            responses.setdefault(body.method, body)
    found = {}
    for group, responses in groups.items():
        library = Library(work / "misses" / group.replace(" ", "-"))
        found[group] = library.pairs, [
            written(library, body.name, group, method, [block_hash()], body.answer)
            for method, body in zip(STORED_METHODS, responses.values(), strict=False)
        ]
    return found


def batches(pairs, library):
    """Returns by size: ten calls in one batch, and a call with a response of the same length."""
    found = sorted(storable(pairs), key=lambda one: (len(one[2]), one[0]))
    out = []
    for number, (group, size) in enumerate(BATCH_SIZES.items(), 1):
        nearest = sorted(found, key=lambda one: abs(len(one[2]) - size / BATCH))
        ten = nearest[:BATCH]
        for name, pair, _ in ten:
            library.add(f"{group} {name}", pair, group)
        requests = [
            any_id(compact(pair["request"]), str(n).encode())
            for n, (_, pair, _) in enumerate(ten)
        ]
        length = sum(len(answer) for _, _, answer in ten) + BATCH + 1
        name = f"{BATCH} answers, {group}"
        request = b"[" + b",".join(requests) + b"]"
        batch = Call.written(library, name, group, "batch", length, request)
        out.append((batch, call_of_length(length, nearest, library, group, number)))
    return out


def call_of_length(length, nearest, library, group, number):
    """Returns a call whose response contains the results of others, up to the length."""
    results, total = [], 0
    for _, pair, _ in nearest:
        result = pair["response"]["result"]
        more = len(compact(result)) + 1
        if abs(total + more - length) > abs(total - length):
            break
        results.append(result)
        total += more
    request = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs"}
    request["params"] = [{"fromBlock": "0x1", "toBlock": f"0x{number}"}]
    pair = {"request": request, "response": {"jsonrpc": "2.0", "id": 1, "result": results}}
    body = library.add(f"{group} one", pair, group)
    name = f"one answer, {group}"
    return Call.written(library, name, group, "eth_getLogs", body.size, any_id(compact(request)))


def storable(pairs):
    """Yields recorded calls whose result is stored, without duplicates."""
    seen = set()
    for name, pair in pairs:
        request, response = pair["request"], pair["response"]
        if not isinstance(request, dict) or not STORABLE.match(request["method"]):
            continue
        identity = compact([request["method"], request.get("params")])
        if identity in seen or b'"pending"' in identity or not isinstance(request.get("id"), int):
            continue
        seen.add(identity)
        if response.get("result"):
            yield name, pair, compact(response)

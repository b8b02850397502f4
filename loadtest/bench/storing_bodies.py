"""Calls of the store suite: responses that never change, under many keys."""

import random

from bodies import Library, compact
from caching_bodies import DIGITS, MARK, STORED_METHODS, block_hash, written

GROUP = "30 KB"
SIZE = 30_000
# Number of keys per call, many more than the smallest tier holds.
KEYS = 6_000
# First number of wrk's script and of `fill`; see post.lua.
FIRST = 100_000_000
# Methods whose recorded responses are used. They are sent to calls of STORED_METHODS, since logs and
# receipts are stored only under the hash of their block.
SOURCES = ("debug_getRawBlock", "debug_getRawReceipts", "eth_getBlockReceipts", "eth_getLogs")
# Length of hexadecimal digits of random bytes, which deflate halves.
LARGE_BYTES = 10_000_000
LARGE_METHOD = "debug_getRawBlock"
READ, UNREAD = "10 MB", "10 MB stored unread"


def calls(pairs, work, count):
    """Returns calls for a block hash, whose responses are stored, and the folder of a node that finds
    responses by the method."""
    library = Library(work / "by-hash")
    return library.pairs, [
        written(library, name, GROUP, method, [block_hash()], response)
        for method, (name, response) in zip(STORED_METHODS, nearest(pairs)[:count], strict=False)
    ]


def nearest(pairs):
    """Returns the recorded response of each method whose length is nearest to 30 KB, with its name,
    sorted by that difference."""
    found = {}
    for name, pair in pairs:
        request, response = pair["request"], pair["response"]
        if not isinstance(request, dict) or request["method"] not in SOURCES:
            continue
        if not response.get("result"):
            continue
        off = abs(len(compact(response)) - SIZE)
        best = found.get(request["method"])
        if best is None or off < best[0]:
            found[request["method"]] = off, name, response
    if not found:
        raise SystemExit("the recordings have none of the needed responses; add one of: " + ", ".join(SOURCES))
    ranked = sorted(found.values(), key=lambda one: one[0])
    return [(name, response) for _, name, response in ranked]


def large(work):
    """Yields calls whose entries take about 10 MB each: one that is checked strictly before it
    is stored, and one that the owner checks (decision 015). Each comes with the folder of a
    node."""
    result = "0x" + random.Random(1).randbytes(LARGE_BYTES).hex()
    params = [block_hash().replace(MARK.decode(), DIGITS.decode())]
    for name, response in (
        (READ, {"result": result, "id": 1, "jsonrpc": "2.0"}),
        (UNREAD, {"jsonrpc": "2.0", "id": 1, "result": result}),
    ):
        library = Library(work / name.replace(" ", "-"))
        call = written(library, name, name, LARGE_METHOD, params, response)
        yield library.pairs, call


def numbered(call, number):
    """Returns the request for a call's key with this number."""
    return call.request(b"%d" % (FIRST + number))

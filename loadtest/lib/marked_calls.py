"""Calls with marks, which wrk replaces by the number of each request, and calls whose responses
never change and are stored, under many keys."""

import re
from dataclasses import dataclass
from pathlib import Path

from bodies import Body, Library, compact

# Mark that wrk replaces with the digits of a request; see post.lua.
MARK = b"\1" * 9
DIGITS = b"123456789"
# Methods for misses, one per response, because the node finds responses by the method alone. Their
# responses are stored whatever block they show: the call names it by its hash, and the result need
# not. A response of eth_getBlockByHash, for example, must have the requested hash.
STORED_METHODS = (
    "eth_getBlockAccessListByBlockHash",
    "debug_getBlockRlpByHash",
    "debug_getModifiedAccountsByHash",
    "debug_intermediateRoots",
)
# First number of wrk's script, and of `numbered`; see post.lua.
FIRST = 100_000_000
# Group and length of the responses of stored calls.
GROUP, SIZE = "30 KB", 30_000
# Methods whose recorded responses are used. They are sent to calls of STORED_METHODS, since logs and
# receipts are stored only under the hash of their block.
SOURCES = ("debug_getRawBlock", "debug_getRawReceipts", "eth_getBlockReceipts", "eth_getLogs")


@dataclass
class Call:
    """A request with marks: a call under any id, or a batch of calls."""

    name: str
    group: str
    method: str
    size: int
    file: Path

    @classmethod
    def written(cls, library, name, group, method, size, request):
        file = library.requests / f"{re.sub(r'[^A-Za-z0-9]', '_', name)}.marked"
        file.write_bytes(request)
        return cls(name, group, method, size, file)

    def request(self, digits):
        return self.file.read_bytes().replace(MARK, digits)

    def fresh(self):
        """Returns a body for wrk with other digits in each request."""
        return Body(self.name, self.method, self.group, self.size, self.file)

    def same(self):
        """Returns a body for wrk with the same id in each request."""
        file = self.file.with_suffix(".same")
        file.write_bytes(self.request(DIGITS))
        return Body(self.name, self.method, self.group, self.size, file)

    def get(self):
        """Returns a GET for wrk of the file that is named like the request's."""
        path = f"/{self.file.stem}.json"
        return Body(self.name, self.method, self.group, self.size, None, path=path)


def any_id(request, suffix=b""):
    text, count = re.subn(rb'"id":\d+(?=[,}])', b'"id":' + MARK + suffix, request)
    if count != 1:
        raise SystemExit(f"the request has {count} numeric ids, expected 1: {request[:200]!r}")
    return text


def block_hash():
    """Returns the hash of a block that no node has, which ends in wrk's number."""
    return "0x" + "ab" * 27 + "c" + MARK.decode()


def written(library, name, group, method, params, response):
    """Returns a call whose params have marks; a node that finds responses by the method sends this
    response."""
    pair = {"request": {"jsonrpc": "2.0", "id": 1, "method": method, "params": []}}
    body = library.add(name, pair | {"response": response}, group)
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    text = any_id(compact(request).replace(rb"\u0001", b"\1"))
    return Call.written(library, name, group, method, body.size, text)


def stored_calls(pairs, work, count):
    """Returns calls for a block hash, whose responses of about 30 KB are stored, and the folder of a
    node that finds responses by the method."""
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


def numbered(call, number):
    """Returns the request for a call's key with this number."""
    return call.request(b"%d" % (FIRST + number))

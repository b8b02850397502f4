"""Long calls of the store suite, and the number of its keys."""

import random

from bodies import Library
from marked_calls import DIGITS, MARK, block_hash, written

# Number of keys per call, many more than the smallest tier holds.
KEYS = 6_000
# Length of hexadecimal digits of random bytes, which deflate halves.
LARGE_BYTES = 10_000_000
LARGE_METHOD = "debug_getRawBlock"
READ, UNREAD = "10 MB", "10 MB stored unread"


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

"""Results of JSON-RPC calls as SSZ, by the specifications' own code, for tests that
run in another Python: a line of JSON for each value of each type that is named.

results.py TYPE...
"""

import json
import random
import sys

import faster  # noqa: F401
from eth_consensus_specs.utils.ssz.ssz_typing import ByteList

# Of docs/transcoding.md.
ByteString = ByteList[2**30]

chance = random.Random(17)
STRINGS = [chance.randbytes(size) for size in (0, 1, 2, 31, 32, 55, 56, 300, 24_576, 300_000)]


def hex_of(octets):
    return "0x" + octets.hex()


def byte_strings():
    for octets in STRINGS:
        yield ByteString(octets), hex_of(octets)
    yield ByteString(b"\xab\xcd"), "0xABcd"


VALUES = {"ByteString": byte_strings}

for name in sys.argv[1:]:
    for value, result in VALUES[name]():
        line = {"type": name, "result": result, "ssz": value.encode_bytes().hex()}
        print(json.dumps(line))

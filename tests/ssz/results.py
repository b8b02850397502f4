"""Results of JSON-RPC calls as SSZ, by the specifications' own code, for tests that run in another
Python: a line of JSON for each form of each value of each type that is named.

results.py TYPE...
"""

import json
import random
import sys

import faster  # noqa: F401
import specs
from ssz_classes import ByteList, ByteVector, List, ProgressiveList, Uint8

# Types of docs/transcoding.md.
ByteString = ByteList[2**30]
ByteStrings = List[ByteString, 2**20]
ExecutionWitness = specs.container(
    "ExecutionWitness",
    state=ProgressiveList[ByteList[2**10]],
    codes=ProgressiveList[ByteList[2**16]],
    headers=List[ByteList[2**10], 256],
)
NewPayloadWithWitness = specs.container(
    "NewPayloadWithWitness",
    status=Uint8,
    latest_valid_hash=List[ByteVector[32], 1],
    validation_error=List[ByteList[1024], 1],
    witness=List[ExecutionWitness, 1],
)
ForkchoiceUpdatedWithWitness = specs.container(
    "ForkchoiceUpdatedWithWitness",
    payload_status=NewPayloadWithWitness,
    payload_id=List[ByteVector[8], 1],
)

chance = random.Random(17)
STRINGS = [chance.randbytes(size) for size in (0, 1, 2, 31, 32, 55, 56, 300, 24_576, 300_000)]


def hex_of(octets):
    return "0x" + bytes(octets).hex()


def rlp(item):
    """The RLP of an item, as in the yellow paper, appendix B."""
    if isinstance(item, list):
        return prefixed(0xC0, b"".join(map(rlp, item)))
    if isinstance(item, int):
        item = item.to_bytes((item.bit_length() + 7) // 8, "big")
    return item if len(item) == 1 and item[0] < 0x80 else prefixed(0x80, item)


def prefixed(base, content):
    if len(content) < 56:
        return bytes([base + len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([base + 55 + len(length)]) + length + content


def keccak(octets):
    """Keccak-256 (of 2011, with its own padding), with the permutation of FIPS 202."""
    rate, mask = 136, (1 << 64) - 1
    padded = bytearray(octets) + b"\x01"
    padded += bytes(-len(padded) % rate)
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]

    def turned(lane, by):
        by %= 64
        return (lane << by | lane >> (64 - by)) & mask

    for start in range(0, len(padded), rate):
        for n in range(rate // 8):
            at = start + 8 * n
            lanes[n % 5][n // 5] ^= int.from_bytes(padded[at : at + 8], "little")
        register = 1
        for _ in range(24):
            columns = [a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] for a in lanes]
            mixed = [columns[x - 1] ^ turned(columns[(x + 1) % 5], 1) for x in range(5)]
            lanes = [[lane ^ mixed[x] for lane in lanes[x]] for x in range(5)]
            x, y, current = 1, 0, lanes[1][0]
            for t in range(24):
                x, y = y, (2 * x + 3 * y) % 5
                current, lanes[x][y] = lanes[x][y], turned(current, (t + 1) * (t + 2) // 2)
            for y in range(5):
                row = [lanes[x][y] for x in range(5)]
                for x in range(5):
                    lanes[x][y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5])
            for j in range(7):
                register = (register << 1 ^ (register >> 7) * 0x171) % 256
                if register & 2:
                    lanes[0][0] ^= 1 << ((1 << j) - 1)
    return b"".join(lanes[n % 5][n // 5].to_bytes(8, "little") for n in range(4))


assert keccak(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"


def header(number):
    """A block's header, as RLP and as geth's object."""
    values = {
        "parentHash": chance.randbytes(32),
        "sha3Uncles": chance.randbytes(32),
        "miner": chance.randbytes(20),
        "stateRoot": chance.randbytes(32),
        "transactionsRoot": chance.randbytes(32),
        "receiptsRoot": chance.randbytes(32),
        "logsBloom": chance.randbytes(256),
        "difficulty": 0,
        "number": number,
        "gasLimit": 60_000_000,
        "gasUsed": chance.randrange(60_000_000),
        "timestamp": 1_700_000_000 + number,
        "extraData": chance.randbytes(number % 33),
        "mixHash": chance.randbytes(32),
        "nonce": bytes(8),
        "baseFeePerGas": 7,
        "withdrawalsRoot": chance.randbytes(32),
        "blobGasUsed": 0,
        "excessBlobGas": 131_072,
        "parentBeaconBlockRoot": chance.randbytes(32),
        "requestsHash": chance.randbytes(32),
    }
    encoded = rlp(list(values.values()))
    text = {name: hex(it) if isinstance(it, int) else hex_of(it) for name, it in values.items()}
    return encoded, {**text, "blockAccessListHash": None, "hash": hex_of(keccak(encoded))}


def witness(nodes, codes, headers):
    """The value, its RLP, and its headers as objects."""
    headers = [header(21_000_000 + number) for number in range(headers)]
    value = ExecutionWitness(
        state=[chance.randbytes(chance.choice((0, 1, 33, 55, 56, 113, 532))) for _ in range(nodes)],
        codes=[chance.randbytes(chance.choice((0, 1, 300, 24_576))) for _ in range(codes)],
        headers=[encoded for encoded, _ in headers],
    )
    # typed headers keep their prefixes
    listed = prefixed(0xC0, b"".join(encoded for encoded, _ in headers))
    parts = [listed, *(rlp([bytes(it) for it in field]) for field in (value.codes, value.state))]
    return value, parts, [text for _, text in headers]


WITNESSES = [witness(0, 0, 0), witness(1, 1, 1), witness(900, 40, 8)]


def byte_strings():
    for octets in STRINGS:
        yield ByteString(octets), hex_of(octets)
    yield ByteString(b"\xab\xcd"), "0xABcd"


def lists_of_byte_strings():
    for count in (0, 1, len(STRINGS)):
        yield ByteStrings(STRINGS[:count]), [hex_of(octets) for octets in STRINGS[:count]]
    yield ByteStrings([b""] * 3), ["0x"] * 3


def execution_witnesses():
    for value, _, headers in WITNESSES:
        fields = ("state", "codes", "headers")
        lists = {name: [hex_of(it) for it in getattr(value, name)] for name in fields}
        keys = [hex_of(chance.randbytes(size)) for size in (20, 32, 52)]
        # canonical
        yield value, lists
        # reth, Nethermind, Erigon, and another possible order
        yield value, {"state": lists["state"], "codes": lists["codes"], "keys": keys, "headers": lists["headers"]}
        yield value, {"headers": lists["headers"], "keys": [], "codes": lists["codes"], "state": lists["state"]}
        # geth
        yield value, {"headers": headers, "codes": lists["codes"], "state": lists["state"], "keys": None}


def payload_statuses():
    latest = chance.randbytes(32)
    valid = {"status": "VALID", "latestValidHash": hex_of(latest), "validationError": None}
    for value, parts, _ in WITNESSES:
        status = NewPayloadWithWitness(status=0, latest_valid_hash=[latest], witness=[value])
        keys = rlp([chance.randbytes(20), chance.randbytes(32)])
        # Nethermind, Besu and older geth; geth, ethrex
        for body in (parts, [*parts, rlp([])], [*parts, keys]):
            text = hex_of(prefixed(0xC0, b"".join(body)))
            yield status, {**valid, "witness": text}
            yield status, {"status": "VALID", "witness": text, "latestValidHash": hex_of(latest)}
    # geth, for a known payload
    yield NewPayloadWithWitness(status=0, latest_valid_hash=[latest]), valid
    yield NewPayloadWithWitness(status=0, latest_valid_hash=[latest]), {**valid, "witness": None}
    yield NewPayloadWithWitness(status=2), {"status": "SYNCING", "latestValidHash": None}
    yield (
        NewPayloadWithWitness(status=1, latest_valid_hash=[bytes(32)], validation_error=[b"bad \xc3\xa9" + b"x" * 1018]),
        {"status": "INVALID", "latestValidHash": hex_of(bytes(32)), "validationError": "bad \u00e9" + "x" * 2000},
    )
    yield NewPayloadWithWitness(status=1), {"status": "INVALID_BLOCK_HASH", "latestValidHash": None}


def forkchoice_updates():
    for status, text in payload_statuses():
        if len(text.get("witness") or "") > 100_000:
            continue
        yield ForkchoiceUpdatedWithWitness(payload_status=status), {"payloadStatus": text, "payloadId": None}
        identifier = chance.randbytes(8)
        value = ForkchoiceUpdatedWithWitness(payload_status=status, payload_id=[identifier])
        yield value, {"payloadId": hex_of(identifier), "payloadStatus": text}


VALUES = {
    "ByteString": byte_strings,
    "ByteStrings": lists_of_byte_strings,
    "ExecutionWitness": execution_witnesses,
    "NewPayloadWithWitness": payload_statuses,
    "ForkchoiceUpdatedWithWitness": forkchoice_updates,
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        for value, result in VALUES[name]():
            line = {"type": name, "result": result, "ssz": value.encode_bytes().hex()}
            print(json.dumps(line))

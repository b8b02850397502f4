"""Payloads that are submitted for their witness, by the specifications' own code, in the forms of
the Engine API over REST and over JSON-RPC, for tests that run in another Python: a line of JSON
for each.

calls: a submission, and the equivalent call.
statuses: the result of the call, and the response of the route.
"""

import json
import random

import faster  # noqa: F401
import results
import specs
import ssz_classes
import values
from results import hex_of, rlp
from ssz_classes import ByteList, ByteVector, List, Uint8, Uint64

FORKS = ["paris", "shanghai", "cancun", "prague", "osaka", "amsterdam"]
VERSIONS = {"paris": 1, "shanghai": 2, "cancun": 3, "prague": 4, "osaka": 4, "amsterdam": 5}
# forks whose payloads have a type of the consensus layer, by its fork names
CONSENSUS = {"paris": "bellatrix", "shanghai": "capella"}

# Types of execution-apis, src/engine/refactor-ssz.md.
Requests = List[ByteList[2**30], 2**8]
PayloadStatus = specs.container(
    "PayloadStatus",
    status=Uint8,
    latest_valid_hash=List[ByteVector[32], 1],
    validation_error=List[ByteList[1024], 1],
)
PayloadStatusWithWitness = specs.container(
    "PayloadStatusWithWitness",
    payload_status=PayloadStatus,
    witness=List[results.ExecutionWitness, 1],
)

chance = random.Random(29)


def payload_type(fork):
    known = specs.containers(CONSENSUS.get(fork, "deneb"), "mainnet")["ExecutionPayload"]
    if fork != "amsterdam":
        return known
    return specs.container(
        "ExecutionPayload",
        **ssz_classes.fields(known),
        block_access_list=ByteList[2**30],
        slot_number=Uint64,
    )


def envelope_type(fork):
    fields = {"payload": payload_type(fork)}
    if fork not in CONSENSUS:
        fields["parent_beacon_block_root"] = ByteVector[32]
    if fork in FORKS[3:]:
        fields["execution_requests"] = Requests
    return specs.container("ExecutionPayloadEnvelope", **fields)


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def json_of(value):
    """The value in JSON-RPC's form: numbers are quantities."""
    if isinstance(value, int):
        return hex(int(value))
    if isinstance(value, bytes | ByteList | ByteVector):
        return hex_of(value)
    if hasattr(value, "fields"):
        names = ssz_classes.fields(type(value))
        return {camel(name): json_of(getattr(value, name)) for name in names}
    return [json_of(one) for one in value]


def blob_transaction(hashes):
    before = [1, chance.randrange(9), 7, 8, 21_000, chance.randbytes(20), 0, chance.randbytes(80)]
    access = [[chance.randbytes(20), [chance.randbytes(32)]]]
    return b"\x03" + rlp([*before, access, 9, hashes, 1, chance.randbytes(32), chance.randbytes(32)])


def payloads(fork):
    """Payloads with the versioned hashes of their transactions."""
    ty = payload_type(fork)
    for number, mode in enumerate(values.MODES[:4] * 3):
        rng = random.Random(f"{fork}{number}")
        payload = values.value(rng, ty, mode)
        hashes = [chance.randbytes(32) for _ in range(number % 7)]
        if fork in CONSENSUS:
            hashes = []
        payload.transactions = [
            b"\x02" + rlp([1, 2, chance.randbytes(300)]),
            *(blob_transaction(hashes[n : n + 3]) for n in range(0, len(hashes), 3)),
            rlp([1, 2, 3]),
        ]
        yield payload, hashes
    # no transactions; and bytes that are no transaction, which the node must reject
    for transactions in ([], [b"\x03", b"\x03\xc0", b""], [b"\xaa" * 400_000]):
        payload = values.value(random.Random(fork), ty, values.MODES[0])
        payload.transactions = transactions
        yield payload, []


def calls():
    for fork in FORKS:
        ty = envelope_type(fork)
        for payload, hashes in payloads(fork):
            fields, params = {"payload": payload}, [json_of(payload)]
            if fork not in CONSENSUS:
                root = chance.randbytes(32)
                fields["parent_beacon_block_root"] = root
                params += [[hex_of(it) for it in hashes], hex_of(root)]
            if fork in FORKS[3:]:
                requests = [bytes([n]) + chance.randbytes(n * 90) for n in range(chance.randrange(4))]
                fields["execution_requests"] = requests
                params.append([hex_of(it) for it in requests])
            yield fork, VERSIONS[fork], ty(**fields), params


def statuses():
    for flat, result in results.payload_statuses():
        status = PayloadStatus(
            status=flat.status,
            latest_valid_hash=flat.latest_valid_hash,
            validation_error=flat.validation_error,
        )
        yield PayloadStatusWithWitness(payload_status=status, witness=flat.witness), result


if __name__ == "__main__":
    for fork, version, value, params in calls():
        line = {"kind": "call", "fork": fork, "version": version, "params": params}
        print(json.dumps({**line, "ssz": value.encode_bytes().hex()}))
    for value, result in statuses():
        line = {"kind": "status", "result": result, "ssz": value.encode_bytes().hex()}
        print(json.dumps(line))

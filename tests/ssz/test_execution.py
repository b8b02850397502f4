"""The execution layer's types, whose specification is no package: SSZ and roots are compared with
the specs' SSZ of the same types, JSON with JSON-RPC's form."""

import json

import pytest

import payloads
import results
import specs
from process import ProcessError
from results import ExecutionWitness
from ssz_classes import ByteList, ByteVector, List, Uint8

STATUS = ["VALID", "INVALID", "SYNCING", "ACCEPTED"]

PayloadStatus = specs.container(
    "PayloadStatus",
    status=Uint8,
    latest_valid_hash=List[ByteVector[32], 1],
    validation_error=List[ByteList[1024], 1],
)
PayloadStatusWithWitness = specs.container(
    "PayloadStatusWithWitness", payload_status=PayloadStatus, witness=List[ExecutionWitness, 1]
)
PayloadStatusWithWitnessAndKeys = specs.container(
    "PayloadStatusWithWitnessAndKeys",
    payload_status=PayloadStatus,
    witness=List[ExecutionWitness, 1],
    public_keys=List[ByteVector[65], 2**20],
)

NODES = [b"\xf8" + bytes(500), b"", b"\x80"]
WITNESS = ExecutionWitness(state=NODES, codes=[b"\x60\x00" * 9000], headers=[b"\xf9" * 600])
STATUSES = [
    ({"status": 0, "latest_valid_hash": [b"\x11" * 32], "validation_error": []}, None),
    ({"status": 1, "latest_valid_hash": [], "validation_error": [b""]}, ""),
    ({"status": 3, "validation_error": ['"\\\n\x00 é😀'.encode()]}, '"\\\n\x00 é😀'),
    ({"status": 2, "validation_error": [b"x" * 1024]}, "x" * 1024),
]


def hex_of(items):
    return ["0x" + bytes(item).hex() for item in items]


def witness_json(witness):
    return {name: hex_of(getattr(witness, name)) for name in ("state", "codes", "headers")}


def status_json(fields, error):
    latest = hex_of(fields.get("latest_valid_hash", []))
    return {
        "status": STATUS[fields["status"]],
        "latestValidHash": latest[0] if latest else None,
        "validationError": error,
    }


CASES = [
    (WITNESS, witness_json(WITNESS)),
    (ExecutionWitness(), {"state": [], "codes": [], "headers": []}),
]
for fields, error in STATUSES:
    status, text = PayloadStatus(**fields), status_json(fields, error)
    CASES.append((status, text))
    CASES.append(
        (
            PayloadStatusWithWitness(payload_status=status, witness=[WITNESS]),
            {"payloadStatus": text, "witness": witness_json(WITNESS)},
        )
    )
    CASES.append(
        (
            PayloadStatusWithWitnessAndKeys(
                payload_status=status, witness=[], public_keys=[b"\x04" * 65] * 3
            ),
            {"payloadStatus": text, "witness": None, "publicKeys": hex_of([b"\x04" * 65] * 3)},
        )
    )


@pytest.mark.parametrize("fork", [specs.FORKS[0], specs.FORKS[-1]])
@pytest.mark.parametrize(("value", "text"), CASES)
def test_values_have_the_ssz_json_and_root_of_the_specs(value, text, fork, walkers):
    about = {"fork": fork, "preset": "mainnet", "type": type(value).__name__}
    ssz = value.encode_bytes()
    walkers.request("check", ssz, **about)
    assert walkers.request("root", ssz, **about) == bytes(value.hash_tree_root())
    for piece in (1, 7, 100_000):
        assert json.loads(walkers.request("to_json", ssz, piece=piece, **about)) == text
        written = json.dumps(text).encode()
        assert walkers.request("to_ssz", written, piece=piece, **about) == ssz


RESULTS = [
    (name, value, result) for name, values in results.VALUES.items() for value, result in values()
]


@pytest.mark.parametrize(("name", "value", "result"), RESULTS)
def test_results_of_calls_have_the_ssz_and_root_of_the_specs(name, value, result, walkers):
    about = {"fork": specs.FORKS[0], "preset": "mainnet", "type": name}
    ssz = value.encode_bytes()
    walkers.request("check", ssz, **about)
    assert walkers.request("root", ssz, **about) == bytes(value.hash_tree_root())
    for piece in (13, 100_000):
        assert walkers.request("to_ssz", json.dumps(result).encode(), piece=piece, **about) == ssz
    text = walkers.request("to_json", ssz, piece=100_000, **about)
    assert walkers.request("to_ssz", text, piece=100_000, **about) == ssz


@pytest.mark.parametrize("case", list(payloads.calls()), ids=lambda case: case[0])
def test_submitted_payloads_have_the_ssz_json_and_root_of_the_specs(case, walkers):
    fork, _, value, params = case
    names = ["payload", None, "parentBeaconBlockRoot", "executionRequests"]
    text = {name: part for name, part in zip(names, params, strict=False) if name}
    # osaka's type is prague's
    name = "Prague" if fork == "osaka" else fork.capitalize()
    about = {"fork": specs.FORKS[0], "preset": "mainnet", "type": f"ExecutionPayloadEnvelope{name}"}
    ssz = value.encode_bytes()
    walkers.request("check", ssz, **about)
    assert walkers.request("root", ssz, **about) == bytes(value.hash_tree_root())
    for piece in (13, 100_000):
        assert json.loads(walkers.request("to_json", ssz, piece=piece, **about)) == text
        assert walkers.request("to_ssz", json.dumps(text).encode(), piece=piece, **about) == ssz


@pytest.mark.parametrize(
    "ssz",
    [
        # an invalid status
        PayloadStatus(status=4).encode_bytes(),
        # invalid text
        PayloadStatus(validation_error=[b"\xff"]).encode_bytes(),
        # two elements, where one is allowed
        b"\0" + (9).to_bytes(4, "little") + (9 + 64).to_bytes(4, "little") + bytes(64),
    ],
)
def test_invalid_statuses_are_rejected(ssz, walkers):
    with pytest.raises(ProcessError):
        walkers.request("check", ssz, fork="phase0", preset="mainnet", type="PayloadStatus")

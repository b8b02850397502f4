"""Payloads that are submitted for their witness, over REST or over JSON-RPC."""

import json

from .spec_vectors import values

ROUTE = "/engine/v1/payloads/witness"
OCTETS = "application/octet-stream"
PROBLEM = "application/problem+json"
# The status SYNCING, without a witness.
SYNCING = bytes.fromhex("08000000" + "11000000" + "02" + "09000000" * 2)
SYNCING_RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"status":"SYNCING","latestValidHash":null,"validationError":null}}'


def calls(cache_directory):
    """Payloads of every fork: `ssz` is the submission, `params` are the call's."""
    found = [value for value in values(cache_directory, "payloads.py") if value["kind"] == "call"]
    assert {value["fork"] for value in found} == {
        "paris",
        "shanghai",
        "cancun",
        "prague",
        "osaka",
        "amsterdam",
    }
    return found


def call_of(value, id=1):
    """The call with this payload."""
    method = f"engine_newPayloadWithWitnessV{value['version']}"
    return json.dumps(
        {"jsonrpc": "2.0", "id": id, "method": method, "params": value["params"]}
    ).encode()


def submission_of(value):
    """The headers of a submission of this payload."""
    return [("Content-Type", OCTETS), ("Eth-Execution-Version", value["fork"])]


def flat(nested):
    """The status with its witness in one container, which REST separates."""

    def number(at):
        return int.from_bytes(nested[at : at + 4], "little")

    status, witness = nested[8 : number(4)], nested[number(4) :]
    offsets = [int.from_bytes(status[n : n + 4], "little") + 4 for n in (1, 5)] + [len(status) + 4]
    return status[:1] + b"".join(it.to_bytes(4, "little") for it in offsets) + status[9:] + witness


def lists_of(ssz):
    """State, codes and headers of the witness in a status of the REST route."""

    def number(at):
        return int.from_bytes(ssz[at : at + 4], "little")

    begin = number(4)
    assert number(begin) == 4
    begin += 4
    ends = [number(begin + 4 * n) for n in range(3)] + [len(ssz) - begin]
    assert ends[0] == 12
    lists = []
    for at, end in zip(ends, ends[1:], strict=False):
        count = number(begin + at) // 4 if end > at else 0
        offsets = [number(begin + at + 4 * n) for n in range(count)] + [end - at]
        lists.append(
            [
                ssz[begin + at + a : begin + at + b]
                for a, b in zip(offsets, offsets[1:], strict=False)
            ]
        )
    return lists

"""What is asked on the wire, what it must be, and the client that asks."""

import json
import os
import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import transcoding
from stack import ROOT, pinned

BLOCK = "/eth/v2/beacon/blocks/head"
PUBLISH = "/eth/v2/beacon/blocks"
STATE = "/eth/v2/debug/beacon/states/head"
JSON = "application/json"
SSZ = "application/octet-stream"
EITHER = f"{SSZ};q=1.0,{JSON};q=0.9"
MB = 1_000_000
WITNESS, PAYLOAD_WITH_WITNESS = "debug_executionWitness", "engine_newPayloadWithWitnessV5"
VALID_HASH = re.compile(rb'"latestValidHash":"0x([0-9a-f]{64})"')
# Of a state's JSON, bytes of each validator with all that is about it, and of the rest.
VALIDATOR_BYTES, STATE_BYTES = 456, 5_800_000


class Client:
    """`ssz-bench wire`, a process for each request, so that its memory is its own."""

    def __init__(self, work, quick, say):
        say("building the client")
        profile = [] if quick else ["--release"]
        build = ["cargo", "build", "--locked", "--bin", "ssz-bench", *profile]
        subprocess.run(build, cwd=transcoding.PEERS, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", transcoding.PEERS / "target")
        self.binary = ROOT / target / ("debug" if quick else "release") / "ssz-bench"
        self.work, self.number = work, 0

    def start(self, core=None, **spec):
        self.number += 1
        file = self.work / f"spec-{self.number}.json"
        file.write_text(json.dumps(spec, default=str))
        command = pinned(core, [str(self.binary), "wire", str(file)])
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @staticmethod
    def result(process):
        out, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"the client: {errors.strip()}")
        return json.loads(out)

    def do(self, core=None, **spec):
        return self.result(self.start(core, **spec))


@dataclass(frozen=True)
class Large:
    """A large body: how it is asked for, and files with what it must be. `of`:
    its type, where the client has a struct of it."""

    kind: str
    megabytes: int
    requests: tuple
    json: Path
    ssz: Path
    of: str | None
    node: tuple

    def asked(self, media, accept=""):
        """The requests as the client takes them; the last is for the body."""
        common = [f"Accept-Encoding: {accept}"] if accept else []
        lines = [*common, f"Accept: {media}"]
        *first, last = self.requests
        plain = [{**r, "headers": [f"Accept: {JSON}"]} for r in first]
        return [*plain, {**last, "headers": lines}]


def block(client, corpus, work, most):
    """Files of a block, its path by its root, and whether it is a recorded one. By
    that name, and final, it is kept for as long as there is room."""
    to = work / "block"
    said = client.do(do="values", corpus=corpus, to=to, block=most)
    path = f"{PUBLISH}/0x{said['root']}"
    return to.with_suffix(".json"), to.with_suffix(".ssz"), path, said["recorded"]


def contents(client, corpus, work, most, blobs):
    """The same of a block with blobs, as it is published."""
    to = work / "contents"
    client.do(do="values", corpus=corpus, to=to, block=most, blobs=blobs)
    return to.with_suffix(".json"), to.with_suffix(".ssz")


def state(client, corpus, work, megabytes):
    to = work / f"state-{megabytes}"
    validators = max(100, (megabytes * MB - STATE_BYTES) // VALIDATOR_BYTES)
    client.do(do="values", corpus=corpus, to=to, validators=validators)
    json, ssz = to.with_suffix(".json"), to.with_suffix(".ssz")
    node = ("--page", f"{STATE}={json}")
    return Large("state", megabytes, ({"path": STATE},), json, ssz, "BeaconState", node)


def witness(work, megabytes, coupled):
    """`coupled`: with the payload, in one call; else the payload first."""
    to = work / f"{'coupled' if coupled else 'decoupled'}-{megabytes}"
    calls = (call(work, PAYLOAD_WITH_WITNESS),)
    if not coupled:
        calls = (call(work, "engine_newPayloadV5"), call(work, WITNESS))
    return Large(
        to.stem.partition("-")[0], megabytes, calls, to.with_suffix(".json"),
        to.with_suffix(".ssz"), None if coupled else "ExecutionWitness",
        ("--witness", f"{megabytes}M"),
    )


def call(work, method):
    folder = work / "calls"
    folder.mkdir(exist_ok=True)
    file = folder / f"{method}.json"
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": ["latest"]}
    file.write_text(json.dumps(request))
    return {"path": "/", "body": str(file)}


def record(client, node, body):
    """What the node itself sends is what all else is compared with; its SSZ comes
    from a typed peer."""
    if body.kind == "state":
        return
    to = f"127.0.0.1:{node.port}"

    def ask(requests, **spec):
        said = client.do(do="fetch", to=to, requests=requests, **spec)
        if said["status"] != 200:
            raise SystemExit(f"{body.kind}: the node answers {said['status']}")

    typed = {"decode": ["serde_json"], "ssz": body.ssz, "writes_ssz": True}
    typed["of"] = "ExecutionWitness"
    if body.of:
        ask(body.asked(JSON), write=body.json, **typed)
        return
    # of the same node and size it is the same witness
    ask(body.asked(JSON), write=body.json)
    ask([call(client.work, WITNESS)], **typed)
    with body.json.open("rb") as file:
        file.seek(-300, 2)
        block = VALID_HASH.search(file.read())[1]
    witness = body.ssz.read_bytes()
    body.ssz.write_bytes(with_payload(bytes.fromhex(block.decode()), witness))


def with_payload(block, witness):
    """NewPayloadWithWitness: VALID, the block's hash, no error, the witness; what
    is optional is a list of one."""
    hash_at = 1 + 3 * 4
    error_at = witness_at = hash_at + len(block)
    offsets = struct.pack("<III", hash_at, error_at, witness_at)
    return bytes([0]) + offsets + block + struct.pack("<I", 4) + witness

"""A payload's large witness between the Engine API over REST and over JSON-RPC
(`sszip_ssz_witness`), beside what the node says in its own way through a plain proxy_pass.

All processes are free on both cores, as of the other large answers.
"""

import json
import re
import struct
from dataclasses import dataclass

from load import cpu_ns
from memory import reset_peak, resident
from stack import MODULE, Coder, Nginx, Node
from wire_large import TCP, TO_A_FILE, UNIX, address, sszip, warm
from wire_large import PLAIN as PLAIN_ROWS
from wire_values import JSON, SSZ

ROUTE = "/engine/v1/payloads/witness"
METHOD = "engine_newPayloadWithWitnessV1"
LARGE_BUFFERS = PLAIN_ROWS[-1].coder.directives
# In hex, as the node says it.
STATUS = re.compile(rb'"latestValidHash":"0x([0-9a-f]{64})"')


@dataclass(frozen=True)
class Row:
    """`way`: what the client asks for; `expects`: the file with what it must be."""

    name: str
    way: str
    expects: str
    directives: str
    module: object = None

    @property
    def coder(self):
        return Coder(self.name, self.directives, "", module=self.module)


def bridge(way):
    return f"{sszip().directives} sszip_ssz_witness {way};"


METHOD_PLAIN, ROUTE_PLAIN = "the method's JSON, proxy_pass", "the route's SSZ, proxy_pass"
RPC, REST, REST_SSZ = "rpc: the route's SSZ", "rest: the method's JSON", "rest: its result as SSZ"
ROWS = [
    Row(METHOD_PLAIN, "method", "method", LARGE_BUFFERS),
    Row(ROUTE_PLAIN, "route", "route", LARGE_BUFFERS),
    Row(RPC, "route", "route", bridge("rpc"), MODULE),
    Row(REST, "method", "made", bridge("rest"), MODULE),
    Row(REST_SSZ, "method-ssz", "flat", bridge("rest"), MODULE),
]
# What the node of a row says in its own way.
BESIDE = {RPC: METHOD_PLAIN, REST: ROUTE_PLAIN, REST_SSZ: ROUTE_PLAIN}


def megabytes(quick):
    return 8 if quick else 300


def run(client, work, size, rounds, say):
    """Of so many megabytes of JSON."""
    folder = work / "bridge"
    folder.mkdir(exist_ok=True)
    requests = asks(folder)
    samples, complaints = [], []
    with Node(work, [work / "small"], core=None, options=["--witness", f"{size}M"]) as node:
        files = record(client, node, folder, requests)
        for transport in (TCP, UNIX):
            say(f"the bridge, {size} MB, {transport}")
            upstream = node.socket if transport == UNIX else node.port
            servers = {}
            try:
                for row in ROWS:
                    servers[row] = Nginx(work, row.name, upstream, {"/": row.coder}, core=None)
                for turn in range(rounds):
                    first = turn % len(ROWS)
                    for row in ROWS[first:] + ROWS[:first]:
                        said = fetch(client, servers[row], row, transport, requests, files)
                        samples.append({"row": row.name, "transport": transport, "round": turn} | said)
                for row, server in servers.items():
                    lines = server.complaints().splitlines()
                    if told := [line for line in lines if TO_A_FILE not in line]:
                        complaints.append([f"{row.name}, {transport}", "\n".join(told)[-2000:]])
            finally:
                for server in servers.values():
                    server.__exit__()
    sizes = {name: file.stat().st_size for name, file in files.items()}
    return {"megabytes": size, "samples": samples, "complaints": complaints} | sizes


def asks(folder):
    """An empty payload, submitted in each way."""
    call, payload = folder / "call.json", folder / "payload.ssz"
    zeros = {"stateRoot": 32, "receiptsRoot": 32, "logsBloom": 256, "prevRandao": 32, "parentHash": 32}
    zeros |= {"blockHash": 32, "feeRecipient": 20, "extraData": 0}
    params = {name: "0x" + "00" * length for name, length in zeros.items()} | {"transactions": []}
    params |= {name: "0x0" for name in ("blockNumber", "gasLimit", "gasUsed", "timestamp", "baseFeePerGas")}
    call.write_text(json.dumps({"jsonrpc": "2.0", "id": 1, "method": METHOD, "params": [params]}))
    # all that is of a fixed length, and two offsets: of the extra data and the transactions
    begin = 32 + 20 + 32 + 32 + 256 + 32 + 4 * 8
    end = begin + 4 + 32 + 32 + 4
    offset = struct.pack("<I", end)
    payload.write_bytes(struct.pack("<I", 4) + bytes(begin) + offset + bytes(64) + offset)
    method = {"path": "/", "body": str(call)}
    route = {"path": ROUTE, "body": str(payload), "media_type": SSZ}
    return {
        "method": {**method, "headers": [f"Accept: {JSON}"]},
        "method-ssz": {**method, "headers": [f"Accept: {SSZ}"]},
        "route": {**route, "headers": ["Eth-Execution-Version: paris"]},
    }


def record(client, node, folder, requests):
    """What the node says in each way, and what must come of that in the other."""
    files = {name: folder / f"{name}.body" for name in ("method", "route", "made", "flat")}
    for name in ("method", "route"):
        spec = {"requests": [requests[name]], "write": files[name]}
        said = client.do(do="fetch", to=f"127.0.0.1:{node.port}", **spec)
        if said["status"] != 200:
            raise SystemExit(f"the node answers {said}")
    files["flat"].write_bytes(flat(files["route"].read_bytes()))
    files["made"].write_bytes(without_keys(files["method"].read_bytes()))
    return files


def flat(nested):
    """NewPayloadWithWitness of a PayloadStatusWithWitness: the same parts, one container."""
    (witness,) = struct.unpack_from("<I", nested, 4)
    status = nested[8:witness]
    offsets = [offset + 4 for offset in struct.unpack_from("<II", status, 1)] + [len(status) + 4]
    return status[:1] + struct.pack("<III", *offsets) + status[9:] + nested[witness:]


def without_keys(answer):
    """The method's answer as it is made of the route's: the fourth list is empty."""
    block = STATUS.search(answer, max(0, len(answer) - 300))[1]
    begin = answer.index(b'"witness":"0x') + 13
    rlp = memoryview(answer)[begin : answer.index(b'"', begin)]
    at, lists = inside(rlp, 0)[0], []
    for _ in range(3):
        start, length = inside(rlp, at)
        lists.append(rlp[at : start + length])
        at = start + length
    length = sum(map(len, lists)) // 2 + 1
    size = (length.bit_length() + 7) // 8
    lead = bytes([0xF7 + size]) + length.to_bytes(size, "big")
    head = b'{"jsonrpc":"2.0","id":1,"result":{"status":"VALID","latestValidHash":"0x%b",' % block
    head += b'"validationError":null,"witness":"0x'
    return b"".join([head, lead.hex().encode(), *lists, b'c0"}}'])


def inside(rlp, at):
    """Where a long list of RLP in hex begins, and its length, in digits."""
    begin = at + 2 + 2 * (int(bytes(rlp[at : at + 2]), 16) - 0xF7)
    return begin, 2 * int(bytes(rlp[at + 2 : begin]), 16)


def fetch(client, server, row, transport, requests, files):
    warm(client, server, transport)
    before, _ = resident(server.worker)
    reset_peak(server.worker)
    spent = cpu_ns(server.worker)
    spec = {"requests": [requests[row.way]], "same_as": [files[row.expects]]}
    said = client.do(do="fetch", to=address(server, transport), **spec)
    after, peak = resident(server.worker)
    if said["status"] != 200:
        raise SystemExit(f"{row.name}: {said}")
    return said | {"growth": max(after, peak) - before, "cpu_ns": cpu_ns(server.worker) - spent}

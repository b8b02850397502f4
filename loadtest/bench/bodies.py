"""Bodies of the benchmark, and the folder from which the replay node serves them.

A body is one recorded pair of request and response. `bodies.json` lists ten per group of the
recorded corpus; without a corpus the generated sample of the replay node is used, chosen by
size. The node sends the compacted response, so sizes are of that, not of the indented file.
"""

import json
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from stack import REPLAY_NODE, Node

HERE = Path(__file__).resolve().parent
GROUPS = {"30 KB": (25_000, 60_000), "300 KB": (200_000, 400_000)}
PER_GROUP = 10
BULK_BYTES = 5_000_000
SAMPLE_FLOOR = 20_000


@dataclass
class Body:
    """A response to measure. `request` is the file that wrk sends; without one it sends a GET
    of `path`."""

    name: str
    method: str
    group: str
    size: int
    request: Path | None
    answer: object = None
    path: str = "/"


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load_pairs(file):
    return [p for p in json.loads(file.read_bytes()) if "response" in p]


def method_of(request):
    if isinstance(request, list):
        return f"batch of {len(request)}, {method_of(request[0])}"
    return request["method"]


class Library:
    """Work folder: the pairs that the replay node serves, and the requests that wrk sends."""

    def __init__(self, work):
        self.pairs = work / "pairs"
        self.requests = work / "requests"
        for folder in (self.pairs, self.requests):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    def add(self, name, pair, group):
        slug = name.replace("/", "_").removesuffix(".json")
        (self.pairs / f"{slug}.json").write_text(json.dumps([pair]))
        request = self.requests / f"{slug}.json"
        request.write_bytes(compact(pair["request"]))
        return Body(
            name=name.removesuffix(".json"),
            method=method_of(pair["request"]),
            group=group,
            size=len(compact(pair["response"])),
            request=request,
            answer=pair["response"],
        )


def recorded(corpus, library, per_group):
    """Returns the listed bodies of the corpus; a wrong size is an error in the list."""
    chosen = []
    for group, names in json.loads((HERE / "bodies.json").read_text()).items():
        low, high = GROUPS[group]
        # A shortened run uses bodies from the whole list instead of its beginning.
        step = max(1, len(names) // per_group)
        for name in names[::step][:per_group]:
            body = library.add(name, load_pairs(corpus / name)[0], group)
            if not low <= body.size <= high:
                raise SystemExit(f"bodies.json: {name} has {body.size} bytes, group {group} {low} to {high}; correct the list")
            chosen.append(body)
    return chosen


def sample_pairs(work):
    """Fetches the larger pairs of the generated sample from a replay node."""
    listing = subprocess.run(
        [REPLAY_NODE, "--list"], capture_output=True, text=True, check=True
    ).stdout
    pairs, seen = [], set()
    with Node(work, []) as node:
        for line in listing.splitlines():
            method, params, size = line.split("\t")
            # A block has the same response by number, by hash and by tag.
            if method == "GET" or int(size) < SAMPLE_FLOOR or (method, size) in seen:
                continue
            seen.add((method, size))
            request = {"jsonrpc": "2.0", "id": 1, "method": method}
            request["params"] = json.loads(params)
            posted = urllib.request.Request(
                f"http://127.0.0.1:{node.port}/",
                compact(request),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(posted, timeout=30) as reply:
                pair = {"request": request, "response": json.load(reply)}
            pairs.append((f"{method}/{len(pairs) + 1:02}", pair))
    return pairs


def from_sample(pairs, library, per_group):
    """Returns the pairs of the sample whose sizes are in the groups, if there is no corpus."""
    chosen = []
    for group, (low, high) in GROUPS.items():
        fitting = [
            (name, pair)
            for name, pair in pairs
            if low <= len(compact(pair["response"])) <= high
        ]
        step = max(1, len(fitting) // per_group)
        chosen += [library.add(n, p, group) for n, p in fitting[::step][:per_group]]
        if not fitting:
            raise SystemExit(f"the sample has no body of {low} to {high} bytes (group {group})")
    return chosen


def all_pairs(folder):
    return [
        (str(file.relative_to(folder)), pair)
        for file in sorted(folder.rglob("*.json"))
        for pair in load_pairs(file)
    ]


def small_body(library):
    pair = {
        "request": {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []},
        "response": {"jsonrpc": "2.0", "id": 1, "result": "0x1"},
    }
    return library.add("eth_chainId", pair, "small")


def bulk_body(pairs, library):
    """Returns a body of about 5 MB: different real results in one array, without duplicates."""
    results, total, seen = [], 0, set()
    large = sorted(pairs, key=lambda p: len(compact(p[1]["response"])), reverse=True)
    for _, pair in large:
        response = pair["response"]
        if not isinstance(response, dict) or "result" not in response:
            continue
        data = compact(response["result"])
        if data in seen or total + len(data) > BULK_BYTES * 1.1:
            continue
        seen.add(data)
        results.append(response["result"])
        total += len(data)
        if total >= BULK_BYTES:
            break
    pair = {
        "request": {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "eth_getLogs",
            "params": [{"fromBlock": "0x0", "toBlock": "latest"}],
        },
        "response": {"jsonrpc": "2.0", "id": 1, "result": results},
    }
    return library.add("5 MB of results in one", pair, "bulk")

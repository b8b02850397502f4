"""Pairs of request and response, and the folder from which the replay node serves them.

A pair is recorded, or of the generated sample of the replay node. The node sends the compacted
response, so sizes are of that, not of the indented file.
"""

import json
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from stack import REPLAY_NODE, Node

# Minimum size of a response of the sample that is used.
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


def read_pairs(folder):
    return [
        (str(file.relative_to(folder)), pair)
        for file in sorted(folder.rglob("*.json"))
        for pair in load_pairs(file)
    ]

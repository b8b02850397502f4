"""The sequences of the parity table (tests/cases/cache*.toml), with their
defaults filled in."""

import re
import time
import tomllib
import zlib
from dataclasses import dataclass

from . import zstd
from .cases import DIRECTORY, is_wanted
from .client import decoded
from .origin import CLOSE, answer, byte_chunks, encoded, scattered

_SEQUENCE = {"name", "why", "hosts", "config", "step"}
_STEP = {"pause", "method", "target", "headers", "body", "hex", "coding", "node", "expect"}
_NODE = {"status", "headers", "body", "hex", "coding", "framing", "cut_at"}
_EXPECT = {
    "cache",
    "status",
    "coding",
    "body",
    "hex",
    "headers",
    "absent",
    "forwarded",
    "upstream",
    "upstream_absent",
}


@dataclass
class Step:
    pause: float  # seconds
    method: str
    target: str
    headers: list
    body: bytes
    coding: str | None
    node: dict | None
    expect: dict

    @property
    def named_coding(self):
        """The coding that the node names for bytes that the row lists."""
        if not self.node or "hex" not in self.node:
            return None
        return dict(self.node["headers"]).get("Content-Encoding")

    def script(self, division):
        """The node's response, in pieces made by `division(head, rest)`."""
        steps = answer(
            self.node["body"],
            status=self.node["status"],
            headers=[tuple(line) for line in self.node["headers"]],
            type=None,
            framing=self.node["framing"],
            coding=self.node.get("coding"),
            method=self.method,
            cut_at=self.node.get("cut_at"),
        )
        pieces = [step for step in steps if step is not CLOSE]
        return division(pieces[0], b"".join(pieces[1:])) + [step for step in steps if step is CLOSE]


@dataclass
class Sequence:
    name: str
    config: dict
    steps: list


def expand_generators(text):
    """The text with `@a:LENGTH@` replaced by LENGTH repetitions of `a`, which may be any text."""
    return re.sub(r"@([^@]+?):(\d+)@", lambda match: match[1] * int(match[2]), text).encode()


def _step(raw, name):
    for part, known in (("step", _STEP), ("node", _NODE), ("expect", _EXPECT)):
        section = raw if part == "step" else raw.get(part, {})
        if unknown := set(section) - known:
            raise ValueError(f"{name}: {part} has {unknown}")
    node = raw.get("node")
    if node is not None:
        node = {
            "status": 200,
            "headers": [["Content-Type", "application/json"]],
            "body": "",
            **node,
        }
        node.setdefault("framing", "none" if node["status"] == 304 else "length")
        node["body"] = expand_generators(node["body"])
        if "hex" in node:
            node["body"] = bytes.fromhex(expand_generators(node["hex"]).decode())
    expect = {"status": node["status"] if node else 200, **raw.get("expect", {})}
    if "hex" in expect:
        expect["body"] = bytes.fromhex(expand_generators(expect["hex"]).decode())
    elif "body" in expect:
        expect["body"] = expand_generators(expect["body"])
    else:
        expect["body"] = node["body"] if node else b""
    method = raw.get("method", "POST")
    headers = [tuple(line) for line in raw.get("headers", [["Accept-Encoding", "gzip"]])]
    if method == "POST" and "Content-Type" not in dict(headers):
        headers.append(("Content-Type", "application/json"))
    body = expand_generators(raw["body"]) if "body" in raw else None
    if "hex" in raw:
        body = bytes.fromhex(expand_generators(raw["hex"]).decode())
    if coding := raw.get("coding"):
        body = encoded(body, coding)
        headers.append(("Content-Encoding", coding))
    return Step(
        raw.get("pause", 0) / 1000,
        method,
        raw.get("target", "/"),
        headers,
        body,
        coding,
        node,
        expect,
    )


def load(host):
    sequences = []
    for path in sorted(DIRECTORY.glob("*.toml")):
        with open(path, "rb") as file:
            table = tomllib.load(file).get("sequence", [])
        for raw in table:
            if unknown := set(raw) - _SEQUENCE:
                raise ValueError(f"{raw.get('name')}: {unknown}")
            if host in raw.get("hosts", [host]) and is_wanted(raw["name"]):
                steps = [_step(step, raw["name"]) for step in raw["step"]]
                sequences.append(Sequence(raw["name"], raw.get("config", {}), steps))
    return sequences


def whole(_sequence):
    return lambda head, rest: [head + rest]


def byte_by_byte(_sequence):
    return lambda head, rest: [head, *byte_chunks(rest, edge=200)]


def at_random(sequence):
    divide = scattered(zlib.crc32(sequence.name.encode()))
    return lambda head, rest: divide(head + rest)


def run(proxy, origin, sequence, division, host):
    """Runs all steps in order, each on a connection of its own."""
    for number, step in enumerate(sequence.steps, 1):
        time.sleep(step.pause)
        origin.requests.clear()
        # a response that shows an unexpected request
        unexpected = answer(b"no request is expected", status=599, type="text/plain")
        origin.answers(unexpected if step.node is None else step.script(division(sequence)))
        response = exchange(proxy, step, host)
        repetitions = 0
        # an expired entry may be sent as long as the update before has not ended
        while bool(origin.received()) == (step.node is None) and repetitions < proxy.late_stores:
            repetitions += 1
            origin.requests.clear()
            response = exchange(proxy, step, host)
        check_step(f"step {number}", step, response, origin.received())


def exchange(proxy, step, host):
    with proxy.connect() as connection:
        return connection.exchange(step.target, method=step.method, headers=step.headers, body=step.body, host=host)


def check_step(where, step, response, requests):
    expect = step.expect
    assert response.status == expect["status"], where
    assert len(requests) == (step.node is not None), where
    if "forwarded" in expect:
        is_coded = step.coding and requests[0].header("Content-Encoding")
        coding = "zstd" if step.coding == "zstd" else "gzip"
        body = decoded(coding, requests[0].body) if is_coded else requests[0].body
        assert body == expand_generators(expect["forwarded"]), where
    for name, value in expect.get("upstream", []):
        assert requests[0].header(name) == value, f"{where}: upstream {name}"
    for name in expect.get("upstream_absent", []):
        assert requests[0].all(name) == [], f"{where}: upstream {name}"
    is_cut = step.node is not None and step.node.get("cut_at") is not None
    if response.status == 502 or is_cut and response.status == 503:
        return  # a response of the proxy itself
    for name, value in expect.get("headers", []):
        assert response.header(name) == value, f"{where}: {name}"
    for name in expect.get("absent", []):
        assert response.all(name) == [], f"{where}: {name}"
    if "cache" in expect:
        assert cache_result(response) == expect["cache"], where
    assert response.coding == expect.get("coding"), where
    if response.status == 200 and step.method != "HEAD":
        assert response.framing == "length", where
    # the node's own bytes under its own name, which may be no stream of that coding
    is_as_sent = step.named_coding is not None and response.coding == step.named_coding
    body = response.decoded if response.body and not is_as_sent else response.body
    assert body == expect["body"], where
    if response.coding == "zstd" and body and response.framing == "length" and not is_as_sent:
        # Clients allocate no more than the content size.
        assert zstd.content_size(response.body) == len(body), where


def cache_result(response):
    """The cache status (RFC 9211), as one word."""
    status = response.header("Cache-Status") or ""
    words = {"fwd=miss": "miss", "fwd=bypass": "bypass", "fwd=stale": "stale", "sszip; hit": "hit"}
    return next((word for part, word in words.items() if part in status), "none")

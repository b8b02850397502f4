"""Erigon's experiment: blocks with transactions at a constant rate.

oha starts requests by the clock, whatever became of those before, and counts
latency from the moment a request was due: an answer that waits behind slow
ones is slow (no coordinated omission). Requests that were due and not answered
when the time was over count as failed.
"""

import json
import subprocess
from dataclasses import dataclass

import check
from bodies import compact
from load import cpu_ns, machine_share, machine_ticks
from stack import LOAD_CORE, NODE_CHUNKED, OHA, PASS, Nginx, Node, gzip_coder, pinned
from streaming_coders import SSZIP

RATE = 2300
CONNECTIONS = 128
# As geth sends: in chunks, the last one ending with a newline.
CHUNKED, LENGTH = "chunked", "length"
NODES = {CHUNKED: [*NODE_CHUNKED, "--with", "newline=on"], LENGTH: []}
ROWS = [
    (PASS, CHUNKED),
    (gzip_coder(1), CHUNKED),
    (gzip_coder(6), CHUNKED),
    (SSZIP, CHUNKED),
    (SSZIP, LENGTH),
]
METHOD = "eth_getBlockByNumber"
LARGE_BYTES = 246_000
MIDDLE_BYTES = 129_000
SMALL_BYTES = 30_000


@dataclass
class Plan:
    """Seconds for the small block, and for each of the larger ones, which no
    coder may be able to carry on one core."""

    small: int
    larger: int


def blocks(pairs, library):
    """Smallest first: the head of Erigon's block (only its first transactions),
    a recorded block of half the size, the recorded block nearest to Erigon's."""
    found = [
        pair
        for _, pair in pairs
        if isinstance(pair["request"], dict)
        and pair["request"]["method"] == METHOD
        and pair["request"]["params"][1:] == [True]
        and isinstance(pair["response"].get("result"), dict)
    ]
    pair = closest(found, LARGE_BYTES)
    large = library.add("block", pair, "rate")
    result = pair["response"]["result"]
    bare = compact(pair["response"] | {"result": result | {"transactions": []}})
    kept, total = [], len(bare)
    for transaction in result["transactions"]:
        if total >= SMALL_BYTES:
            break
        kept.append(transaction)
        total += len(compact(transaction)) + 1
    head = {
        "request": pair["request"] | {"params": ["0x1", True]},
        "response": pair["response"] | {"result": result | {"transactions": kept}},
    }
    small = library.add("head of the block", head, "rate")
    nearest = closest(found, MIDDLE_BYTES)
    # Without a corpus there may be no third block.
    middle = [] if nearest is pair else [library.add("smaller block", nearest, "rate")]
    return [small, *middle, large]


def closest(pairs, size):
    return min(pairs, key=lambda p: abs(len(compact(p["response"])) - size))


def oha(port, body, coder, seconds):
    command = [str(OHA), "--no-tui", "--output-format", "json"]
    command += ["-z", f"{seconds}s", "-q", str(RATE), "--latency-correction"]
    command += ["-c", str(CONNECTIONS), "-w", "-t", "30s", "-m", "POST", "-D", str(body.request)]
    command += ["-T", "application/json", "-H", f"Accept-Encoding: {coder.accept}"]
    done = subprocess.run(
        pinned(LOAD_CORE, [*command, f"http://127.0.0.1:{port}/"]),
        capture_output=True,
        text=True,
        timeout=seconds + 90,
    )
    if done.returncode:
        raise SystemExit(f"oha: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(nginx, body, coder, seconds, verified):
    before, ticks = cpu_ns(nginx.worker), machine_ticks()
    told = oha(nginx.port, body, coder, seconds)
    spent = cpu_ns(nginx.worker) - before
    share = machine_share(ticks, machine_ticks())
    good = told["statusCodeDistribution"].get("200", 0)
    wanted = RATE * seconds
    summary, wall = told["summary"], max(seconds, told["summary"]["total"])
    ms = {k: (v or 0) * 1e3 for k, v in told["latencyPercentiles"].items()}
    return {
        "wanted": wanted,
        "answered": good,
        "success": min(1.0, good / wanted),
        "rps": good / wall,
        "failed": sum(told["errorDistribution"].values())
        + sum(told["statusCodeDistribution"].values())
        - good,
        "errors": told["errorDistribution"],
        "statuses": told["statusCodeDistribution"],
        "p50_ms": ms["p50"],
        "p99_ms": ms["p99"],
        "max_ms": (summary["slowest"] or 0) * 1e3,
        "bytes": summary["sizePerRequest"] or 0,
        "bytes_verified": verified["bytes"],
        "cpu_us": spent / 1e3 / max(1, good),
        "utilisation": spent / 1e9 / wall,
        "machine_busy": share["busy"],
    }


def run(work, library, pairs, plan, say):
    samples, logged = [], {}
    for index, body in enumerate(blocks(pairs, library)):
        seconds = plan.larger if index else plan.small
        for coder, framing in ROWS:
            say(f"{RATE}/s of {body.size:,} bytes, {coder.name}, {framing}, {seconds} s")
            name = f"rate {coder.name} {framing}"
            with (
                Node(work, [library.pairs], options=NODES[framing]) as node,
                Nginx(work, "identity", node.port, {"/": PASS}) as identity,
                Nginx(work, name, node.port, {"/": coder}) as nginx,
            ):
                plain = check.answer(identity.port, "/", body, PASS)["decoded"]
                verified = check.answer(nginx.port, "/", body, coder, plain)
                point = measure(nginx, body, coder, seconds, verified)
                if complaints := nginx.complaints():
                    logged[f"{coder.name}, {framing}, {body.name}"] = complaints[-2000:]
            samples.append(
                {"body": body.name, "size": body.size, "seconds": seconds}
                | {"coder": coder.name, "framing": framing}
                | point
            )
    return {"rate": RATE, "connections": CONNECTIONS, "samples": samples, "complaints": logged}

"""Load on a server, and its resources meanwhile.

There are two kinds: wrk's closed loop, in which the next request waits for the last response,
for the maximum throughput of a server; and oha's open loop, in which requests start by the
clock, for the latency at a given rate.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import http_client
from load import machine_share, machine_ticks
from stack import LOAD_CORE, OHA, pinned

SCRIPT = Path(__file__).resolve().parent / "calls.lua"
MARK = "BENCH "
# Number of different ids in a file for oha, which draws lines from it.
LINES = 2_000


class LoadError(Exception):
    """A measurement without a result; its row reports it, and the run continues."""


def node_requests(node):
    """Returns the number of requests that the replay node has received, or None for another
    node."""
    try:
        with http_client.Peer(*node) as peer:
            return peer.fetch(path="/stats").value()["requests"]
    except (OSError, http_client.ConnectionLost, ValueError, KeyError, TypeError):
        return None


def settled_node_requests(node):
    """Returns the number of the node's requests once it no longer grows: wrk ends while some
    are in flight."""
    last, until = node_requests(node), time.monotonic() + 10
    while last is not None and time.monotonic() < until:
        time.sleep(0.1)
        now = node_requests(node)
        if now == last:
            break
        last = now
    return last


class Meter:
    """Measures the resources of a server between two moments, the load of the machine, and the
    requests at the node."""

    def __init__(self, server, node):
        self.server, self.node = server, node
        self.requests_before = settled_node_requests(node) if node else None
        self.cpu, self.ticks, self.began = server.cpu_ns(), machine_ticks(), time.monotonic()

    def read(self, answers, under_way=0):
        """Returns the measurement. `under_way` is the number of requests at the node for which
        no client waits any more."""
        wall = time.monotonic() - self.began
        share = machine_share(self.ticks, machine_ticks())
        out = {"machine_busy": share["busy"], "steal": share["steal"]}
        if self.cpu is not None:
            spent = self.server.cpu_ns() - self.cpu
            cpu_us = spent / 1e3 / max(1, answers)
            out |= {
                "cpu_us": cpu_us,
                "per_core": 1e6 / cpu_us if spent else 0,
                "utilisation": spent / 1e9 / wall,
                "resident_kb": self.server.resident_kb(),
            }
        if self.requests_before is not None:
            received = settled_node_requests(self.node) - self.requests_before
            out["asked"] = min(received, max(answers, received - under_way)) / max(1, answers)
        return out


def wrk(server, workload, file, seconds, first=0, connections=None, core=LOAD_CORE, more=()):
    """Returns wrk's counts. `first` is the first line of the file, `more` are parameters of
    its script."""
    command = ["wrk", "-t1", f"-c{connections or workload.connections}", f"-d{seconds}s"]
    command += ["--timeout", "30s", "-s", str(SCRIPT), server.url]
    environment = dict(os.environ, CALLS=str(file), FIRST=str(first))
    for name in ("KEYS", "SKEW", "WINDOW", "START"):
        environment.pop(name, None)
    environment |= dict(more)
    if workload.keys:
        environment["KEYS"] = str(workload.keys)
    if workload.skew:
        environment["SKEW"] = f"{workload.skew:g}"
    try:
        done = subprocess.run(
            pinned(core, command), env=environment, capture_output=True, text=True,
            timeout=seconds + 90,
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"wrk did not finish within {seconds + 90} s") from None
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return json.loads(line[len(MARK) :])
    raise LoadError(f"wrk printed no result; its output ends with: {(done.stdout + done.stderr).strip()[-300:]}")


def measure_closed_loop(server, workload, file, seconds, node=None, first=0, connections=None, core=LOAD_CORE):
    """Returns one sample of the closed loop: requests per second, percentiles, and resources."""
    meter = Meter(server, node)
    many = connections or workload.connections
    counts = wrk(server, workload, file, seconds, first, connections, core)
    if not counts["requests"]:
        raise LoadError(f"no response within {seconds} s")
    return {
        "requests": counts["requests"],
        "rps": counts["requests"] / counts["duration_us"] * 1e6,
        "wire": counts["bytes"] / counts["requests"],
        "errors": counts["errors"],
        "statuses": counts["statuses"],
        **{p: counts[f"{p}_us"] / 1e3 for p in ("p50", "p99", "p999", "max")},
    } | meter.read(counts["requests"], many)


def measure_at_rate(server, workload, folder, rate, seconds, coding, node=None, connections=128):
    """Returns one sample at a rate: requests start by the clock, whether or not earlier ones are
    complete, and latency counts from the time at which a request was due."""
    file = folder / f"lines-{workload.name}.txt"
    if not file.exists():
        bodies = [c.sent(100_000_001 + n) for n in range(LINES) for c in nth(workload, n)]
        file.write_bytes(b"\n".join(bodies) + b"\n")
    command = [str(OHA), "--no-tui", "--output-format", "json", "-z", f"{seconds}s"]
    command += ["-q", f"{rate:.0f}", "--latency-correction", "-c", str(connections)]
    command += ["-w", "-t", "30s", "-m", "POST", "-Z", str(file), "-T", "application/json"]
    command += ["-H", f"Accept-Encoding: {coding or 'identity'}"]
    meter = Meter(server, node)
    try:
        done = subprocess.run(
            pinned(LOAD_CORE, [*command, server.url]),
            capture_output=True, text=True, timeout=seconds + 120,
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"oha did not finish within {seconds + 120} s") from None
    if done.returncode:
        raise LoadError(f"oha failed: {done.stderr.strip()[-300:]}")
    report = json.loads(done.stdout)
    statuses = report["statusCodeDistribution"]
    good = statuses.get("200", 0)
    percentiles = {k: (v or 0) * 1e3 for k, v in report["latencyPercentiles"].items()}
    wanted = rate * seconds
    return {
        "wanted": wanted,
        "requests": good,
        "success": min(1.0, good / wanted),
        "rps": good / max(seconds, report["summary"]["total"]),
        "failed": sum(report["errorDistribution"].values()) + sum(statuses.values()) - good,
        "wire": report["summary"]["sizePerRequest"] or 0,
        "p50": percentiles["p50"],
        "p99": percentiles["p99"],
        "p999": percentiles["p99.9"],
        "max": (report["summary"]["slowest"] or 0) * 1e3,
    } | meter.read(max(1, good), connections)


def nth(workload, n):
    order = workload.order or range(len(workload.calls))
    return [workload.calls[order[n % len(order)]]]

"""Time of a fleet hit in addition to a hit in the owner's memory and one GET of the same
length by the same client.

A worker requests all entries once, and then another one, so that each request is a lookup of the
owner. In the first pass the owner finds them in the fleet, in the second one in its memory.

The server and the owner have a core each, so that the server has to wake for each GET, as on another
machine. Where they may share a core, the scheduler lets a GET between two pauses, which nothing else
surrounds, run on one core, but not the GET of a fleet hit: they could not be compared."""

import http.client
import json
import os
import signal
import statistics
import time
import zlib
from pathlib import Path

from fleet_servers import Redis, cache_coder, exchange, wait_until_ready
from load import process_ns
from stack import Nginx, Node, pin, slug, wait_for

# Bytes of a body, or of the value, and transactions of a block on a chain that has such responses.
# Lengths may differ by a quarter.
SIZES = {"body of 30 KB": ("body", 30_000, 20), "value of 30 KB": ("value", 30_000, 150)}
DIFFERENCE = 0.25
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
BLOCKS = 900
METHODS = {
    "eth_getBlockReceipts": lambda block: [block],
    "eth_getBlockByNumber": lambda block: [block, True],
    "trace_block": lambda block: [block],
}
OWNER_CORE, SERVER_CORE = 0, 1
# Costs of a request: CPU time of owner and worker in microseconds, and the owner's page faults and
# sleeps.
COSTS = ["owner_us", "worker_us", "faults", "sleeps"]


def measure(work, rounds, keys, log):
    """Returns the samples of each size in microseconds."""
    samples = {size: [] for size in SIZES}
    for size, (kind, length, transactions) in SIZES.items():
        options = ["--chain", "--chain-length", "1300", "--chain-transactions", str(transactions)]
        with Node(work, [], core=None, options=options) as node, Redis(work) as redis:
            pin(redis.process.pid, SERVER_CORE)
            exchange(node.socket, "POST", "/chain", json.dumps([{"finalize": 1250}]))
            calls = choose_calls(node, kind, length, keys)
            for number in range(rounds):
                log(f"latency, {size}, round {number + 1}")
                samples[size].append(measure_round(work, node, redis, calls, f"latency-{number}-{slug(size)}"))
    return samples


def choose_calls(node, kind, length, most):
    """Returns calls about final blocks whose responses have this length."""
    calls = []
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    for number in range(1250, 1250 - BLOCKS, -1):
        for method, params in METHODS.items():
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params(hex(number))})
            connection.request("POST", "/", body, {"Content-Type": "application/json"})
            content = connection.getresponse().read()
            found = len(zlib.compress(content, 6)) if kind == "value" else len(content)
            if abs(found - length) <= DIFFERENCE * length:
                calls.append(body.encode())
        if len(calls) >= most:
            return calls[:most]
    if len(calls) < most // 4:
        raise SystemExit(f"the chain has {len(calls)} responses of this length; at least {most // 4} are required")
    return calls


def measure_round(work, node, redis, calls, prefix):
    redis.execute("FLUSHALL")
    fleet = redis.fleet(prefix, timeout="50ms")
    head = f"http://127.0.0.1:{node.port} interval=1s"
    writer = cache_coder("writer", head, fleet)
    reader = cache_coder("reader", head, fleet)
    with Nginx(work, f"{prefix}-writer", node.port, {"/": writer}, core=None) as nginx:
        wait_until_ready(nginx)
        before = redis.value_count()
        request_all(nginx.port, calls)
        wait_for(lambda: redis.value_count() >= before + len(calls), "the values to be stored")
        length = int(float(nginx.owner_status()["fleet"]["bytes"]["sent"]) / len(calls))
    with Nginx(work, f"{prefix}-reader", node.port, {"/": reader}, core=None) as nginx:
        wait_until_ready(nginx)
        pin(nginx.owner, OWNER_CORE)
        gets = [ping(nginx, length) for _ in range(5)]
        from_fleet = measure_pass(nginx, calls)
        replace_worker(nginx)
        from_memory = measure_pass(nginx, calls)
        gets += [ping(nginx, length) for _ in range(5)]
    fleet, memory, get = from_fleet["p50"], from_memory["p50"], statistics.median(gets)
    costs = {f"fleet_{name}": from_fleet[name] for name in COSTS} | {f"memory_{name}": from_memory[name] for name in COSTS}
    return costs | {
        "fleet": fleet,
        "memory": memory,
        "get": get,
        "added": fleet - memory - get,
        "length": length,
        # the mean: the time until the reply between requests, not one after the other
        "reply": from_fleet["reply"],
        "fleet_share": from_fleet["fleet_share"],
        "memory_share": from_memory["memory_share"],
    }


def measure_pass(nginx, calls):
    """Sends all calls once. Returns the p50 of their times in microseconds, the costs of a request, and
    the shares of responses from the fleet and from the owner's memory."""
    before, costs_before = nginx.owner_status(), process_costs(nginx)
    times = request_all(nginx.port, calls)
    after, costs = nginx.owner_status(), process_costs(nginx)
    served = served_from_fleet(after["fleet"]) - served_from_fleet(before["fleet"])
    replies = [status["fleet"]["lookup_seconds"] for status in (before, after)]
    count = max(1, replies[1]["count"] - replies[0]["count"])
    return {name: (costs[name] - costs_before[name]) / len(calls) for name in COSTS} | {
        "p50": statistics.median(times),
        "reply": (replies[1]["sum"] - replies[0]["sum"]) * 1e6 / count,
        "fleet_share": served / len(calls),
        "memory_share": (after["lookups"]["memory"] - before["lookups"]["memory"]) / len(calls),
    }


def served_from_fleet(fleet):
    """Number of values that were used: a hit may be rejected, or not be servable."""
    return fleet["lookups"]["hit"] - sum(fleet["rejected"].values()) - sum(fleet["not_servable"].values())


def process_costs(nginx):
    # behind the name, which may have spaces
    fields = Path(f"/proc/{nginx.owner}/stat").read_text().rpartition(")")[2].split()
    statuses = [path.read_text() for path in Path(f"/proc/{nginx.owner}/task").glob("*/status")]
    lines = [line.split() for status in statuses for line in status.splitlines()]
    return {
        "owner_us": process_ns(nginx.owner) / 1000,
        "worker_us": process_ns(nginx.worker) / 1000,
        "faults": int(fields[7]) + int(fields[9]),
        "sleeps": sum(int(line[1]) for line in lines if line[:1] == ["voluntary_ctxt_switches:"]),
    }


def replace_worker(nginx):
    """Ends the worker, and waits for another one, whose memory is empty. The owner keeps its own."""
    former = set(nginx.owner_status()["processes"])
    os.kill(nginx.worker, signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{nginx.worker}").exists(), "the end of the worker")
    nginx.worker = nginx._child("worker process")

    def is_linked():
        names = set(nginx.owner_status()["processes"])
        return bool(names) and not names & former

    wait_for(is_linked, "the new worker to be connected to the owner")


def ping(nginx, length):
    """The p50 of GETs of the owner's own client, in microseconds."""
    report = exchange(nginx.prefix / "cache/owner.sock", "POST", "/v1/fleet/ping", json.dumps({"bytes": length}))
    return report["get_ms"]["p50"] * 1000


def request_all(port, calls):
    """Sends all calls on one connection; returns the times in microseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times = []
    for body in calls:
        began = time.perf_counter_ns()
        connection.request("POST", "/", body, HEADERS)
        response = connection.getresponse()
        response.read()
        times.append((time.perf_counter_ns() - began) / 1000)
        if response.status != 200:
            raise SystemExit(f"status {response.status} for {body!r}")
    return times

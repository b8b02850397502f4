"""Time of a fleet hit in addition to a hit in the owner's memory and one GET of the same
length by the same client.

One worker without room for the entries requests them in turn, so that each request is a lookup of
the owner. In the first pass the owner finds them in the fleet, in the second one in its memory."""

import http.client
import json
import statistics
import time
import zlib

from fleet_servers import Redis, cache_coder, exchange, wait_until_ready
from stack import Nginx, Node

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
WAIT_SECONDS = 120


def wait_for(condition, description):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_SECONDS} s for {description}")
        time.sleep(0.01)


def measure(work, rounds, keys, log):
    """Returns the samples of each size in microseconds."""
    samples = {size: [] for size in SIZES}
    for size, (kind, length, transactions) in SIZES.items():
        options = ["--chain", "--chain-length", "1300", "--chain-transactions", str(transactions)]
        with Node(work, [], core=None, options=options) as node, Redis(work) as redis:
            exchange(node.socket, "POST", "/chain", json.dumps([{"finalize": 1250}]))
            calls = choose_calls(node, kind, length, keys)
            for number in range(rounds):
                log(f"latency, {size}, round {number + 1}")
                samples[size].append(measure_round(work, node, redis, calls, f"latency-{number}-{slug(size)}"))
    return samples


def slug(size):
    return size.replace(" ", "-")


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
    reader = cache_coder("reader", head, fleet, memory="1m")
    with Nginx(work, f"{prefix}-writer", node.port, {"/": writer}, core=None) as nginx:
        wait_until_ready(nginx, wait_for)
        before = redis.value_count()
        request_all(nginx.port, calls)
        wait_for(lambda: redis.value_count() >= before + len(calls), "the values to be stored")
        length = int(float(nginx.owner_status()["fleet"]["bytes"]["sent"]) / len(calls))
    with Nginx(work, f"{prefix}-reader", node.port, {"/": reader}, core=None) as nginx:
        wait_until_ready(nginx, wait_for)
        gets = [ping(nginx, length) for _ in range(5)]
        first = nginx.owner_status()
        fleet_hits = request_all(nginx.port, calls)
        second = nginx.owner_status()
        memory_hits = request_all(nginx.port, calls)
        third = nginx.owner_status()
        gets += [ping(nginx, length) for _ in range(5)]
    return {
        "fleet": statistics.median(fleet_hits),
        "memory": statistics.median(memory_hits),
        "get": statistics.median(gets),
        "added": statistics.median(fleet_hits) - statistics.median(memory_hits) - statistics.median(gets),
        "length": length,
        "fleet_share": (second["fleet"]["lookups"]["hit"] - first["fleet"]["lookups"]["hit"]) / len(calls),
        "memory_share": (third["lookups"]["memory"] - second["lookups"]["memory"]) / len(calls),
    }


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

"""Throughput with a fleet that is configured and dead, next to a configuration without one; and the
latency of each second after the server has stopped."""

import dataclasses
import json
import shutil

from fleet_servers import Redis, cache_coder, exchange, wait_until_ready
from load import Wrk, measure
from marked_calls import MARK
from stack import Nginx, Node, free_port

CONNECTIONS = 16
# Seconds of load before a measurement, in which the breaker of a server that has stopped opens.
WARM_UP_SECONDS = 2
# Memory of the worker: full after the warm-up. In larger one a miss costs more when it is full, and a
# row with fewer or more requests before it would be compared with another state.
MEMORY = "8m"
# The expected length of responses under load is the mean of some of them; balances differ in length.
SLACK = 0.2


@dataclasses.dataclass(frozen=True)
class Body:
    name: str
    request: object
    path: str = "/"


def bodies(work):
    """Hits of one entry, and misses: each request has an account of its own."""
    texts = {
        "hits": b'{"jsonrpc":"2.0","id":%b,"method":"eth_getBlockReceipts","params":["0xc0"]}' % MARK,
        "misses": b'{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x%b%b","0xc0"]}' % (b"1" * 31, MARK),
    }
    for name, text in texts.items():
        path = work / f"{name}.request"
        path.write_bytes(text)
        yield Body(name, path)


def run(work, rounds, seconds, log):
    """Returns samples by body and row, and p99 by seconds since the server has stopped."""
    samples = {}
    with Node(work, [], options=["--chain", "--chain-length", "250"]) as node, Redis(work) as redis:
        exchange(node.socket, "POST", "/chain", json.dumps([{"finalize": 200}]))
        head = f"http://127.0.0.1:{node.port} interval=1s"
        rows = {
            "without": None,
            "refused": f"redis://127.0.0.1:{free_port()} key_file={redis.key}",
            "stopped": redis.fleet("dead"),
        }
        for number in range(rounds):
            # each round begins with another row
            order = list(rows)[number % len(rows) :] + list(rows)[: number % len(rows)]
            for body in bodies(work):
                for row in order:
                    log(f"dead fleet, {body.name}, {row}, round {number + 1}")
                    sample = measure_row(work, node, redis, body, row, rows[row], head, seconds)
                    samples.setdefault((body.name, row), []).append(sample)
        log("dead fleet, p99 after the stop")
        tail = measure_tail(work, node, redis, head)
    return samples, tail


def measure_row(work, node, redis, body, row, fleet, head, seconds):
    coder = cache_coder(row, head, fleet, memory=MEMORY)
    folder = None
    try:
        with Nginx(work, f"dead-{row}", node.port, {"/": coder}) as nginx:
            folder = nginx.prefix
            if row != "refused":
                wait_until_ready(nginx)
            expected = response_length(nginx, body)
            if row == "stopped":
                redis.pause()
            # in all rows, as it fills memories and opens connections
            Wrk(nginx.port, body, coder, CONNECTIONS, WARM_UP_SECONDS).result()
            return measure(nginx, body, coder, CONNECTIONS, seconds, expected, slack=SLACK)
    finally:
        redis.resume()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def response_length(nginx, body):
    """Mean length of some responses, as wrk counts it."""
    result = Wrk(nginx.port, body, cache_coder("", ""), 1, 1).result()
    return result["bytes"] / result["requests"]


def measure_tail(work, node, redis, head, seconds=6):
    """p99 of misses in microseconds, second by second; the server stops before the second one."""
    (body,) = (body for body in bodies(work) if body.name == "misses")
    coder = cache_coder("tail", head, redis.fleet("tail"), memory=MEMORY)
    found = []
    try:
        with Nginx(work, "dead-tail", node.port, {"/": coder}) as nginx:
            wait_until_ready(nginx)
            for second in range(seconds):
                if second == 1:
                    redis.pause()
                found.append(Wrk(nginx.port, body, coder, CONNECTIONS, 1).result()["p99_us"])
    finally:
        redis.resume()
    return found

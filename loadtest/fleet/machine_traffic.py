"""One machine of the measurement: nginx with its owner, and clients. Started in a network namespace
by machines.py, with its settings as JSON; prints its result as JSON."""

import collections
import http.client
import json
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "lib"))

from fleet_servers import cache_coder, exchange, wait_until_ready  # noqa: E402
from latency import HEADERS  # noqa: E402
from stack import Nginx  # noqa: E402
from traffic import Traffic, body  # noqa: E402

# Requests about blocks that never change.
FINAL_KINDS = {"chain id", "old block", "old receipts"}
# Requests whose responses belong to one block that is not final when it is requested.
ONE_BLOCK_KINDS = {"recent block", "recent receipts", "recent transaction"}
# Maximum interval in which the clients learn the head, in seconds.
WATCH_SECONDS = 1


def sharing_class(kind, method, params):
    """Returns the class of a call by what a fleet may share: the responses of "final" and
    "one block", and none of "unanchored" and "head"."""
    if kind in FINAL_KINDS:
        return "final"
    # sent in place of a call about a transaction, before one is known
    if method == "eth_blockNumber":
        return "head"
    if kind == "recent logs":
        is_one_block = params[0]["fromBlock"] == params[0]["toBlock"]
        return "one block" if is_one_block else "unanchored"
    if kind in ONE_BLOCK_KINDS:
        return "one block"
    return "unanchored" if kind == "state of a recent block" else "head"


class Client(threading.Thread):
    """A client with a connection of its own, which sends one request after the other."""

    def __init__(self, machine, number):
        super().__init__(daemon=True)
        self.machine = machine
        self.traffic = Traffic(number)
        self.counts = collections.Counter()
        self.hit_times = []
        self.failures = []

    def run(self):
        try:
            self.send_requests()
        except Exception as error:  # reported with the result
            self.failures.append(repr(error))

    def send_requests(self):
        machine = self.machine
        connection = http.client.HTTPConnection("127.0.0.1", machine.nginx.port, timeout=60)
        id, due = 0, time.monotonic()
        while not machine.is_over:
            due += machine.pause
            time.sleep(max(0, due - time.monotonic()))
            self.traffic.head, self.traffic.final = machine.head, machine.final
            id += 1
            kind, method, params = self.traffic.next()
            began = time.perf_counter()
            connection.request("POST", "/", body(method, params, id), HEADERS | {"Accept-Encoding": "identity"})
            response = connection.getresponse()
            content = response.read()
            took = time.perf_counter() - began
            if response.status != 200:
                self.failures.append(f"status {response.status} for {method}")
                continue
            is_hit = "; hit" in response.getheader("Cache-Status", "")
            class_name = sharing_class(kind, method, params)
            self.counts["requests"] += 1
            self.counts[f"{class_name} {'hits' if is_hit else 'misses'}"] += 1
            if is_hit:
                self.hit_times.append(took)
            self.traffic.learn(method, json.loads(content))


class Machine:
    def __init__(self, settings):
        self.settings = settings
        self.is_over = False
        self.pause = settings["clients"] / settings["rate"]
        self.head = self.final = 0
        slot = settings["slot_ms"]
        coder = cache_coder(
            "machine",
            f"unix:{settings['node']} interval={max(100, slot // 12)}ms",
            settings["fleet"],
            valid=f"sszip_cache_valid immutable 24h; sszip_cache_valid tip {slot}ms; sszip_cache_valid unfinalized {96 * slot}ms;",
            # requests that reach the node
            more="access_log @PREFIX@/node.log combined if=$upstream_addr;",
        )
        work = Path(settings["work"])
        self.nginx = Nginx(work, f"machine-{settings['number']}", Path(settings["node"]), {"/": coder}, core=None)

    def watch(self):
        state = exchange(self.settings["node"], "GET", "/chain")
        self.head, self.final = state["head"]["number"], state["finalized"]["number"]

    def run(self):
        with self.nginx:
            wait_until_ready(self.nginx)
            self.watch()
            first = 1000 * (1 + self.settings["number"])
            clients = [Client(self, first + number) for number in range(self.settings["clients"])]
            for client in clients:
                client.start()
            end = time.monotonic() + self.settings["seconds"]
            while time.monotonic() < end:
                time.sleep(min(WATCH_SECONDS, self.settings["slot_ms"] / 4000))
                self.watch()
            self.is_over = True
            for client in clients:
                client.join(60)
            return self.result(clients)

    def result(self, clients):
        counts = sum((client.counts for client in clients), collections.Counter())
        times = sorted(time for client in clients for time in client.hit_times)
        status = self.nginx.owner_status()
        return {
            "counts": counts,
            "node_requests": (self.nginx.prefix / "node.log").read_bytes().count(b"\n"),
            "hit_p50_ms": 1000 * statistics.median(times),
            "hit_p99_ms": 1000 * times[len(times) * 99 // 100],
            "fleet": status.get("fleet"),
            "failures": [failure for client in clients for failure in client.failures],
        }


if __name__ == "__main__":
    # nginx is stopped, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(json.dumps(Machine(json.loads(sys.argv[1])).run()))

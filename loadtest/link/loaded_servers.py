"""nginx with several workers on two cores, fully loaded with requests that its owner looks up.

Workers are pinned to the two cores in turn. The owner, the node and wrk run on any core: on a machine
with two cores they compete with the workers, as on a server under full load.
"""

import gzip
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import bodies
from load import Wrk, machine_share, machine_ticks, process_ns
from marked_calls import numbered, stored_calls
from stack import Nginx, Node, pin
from storing_coders import MEMORY, TIERS, stored

CORES = 2
WORKERS = [2, 4]
CONNECTIONS = 64
HIT, MISS = "hit", "miss"
KINDS = [HIT, MISS]
# Memory of workers and of the owner. Workers have no room for the entries of hits; the owner has
# room for the entries of some seconds of misses.
MEMORY_SIZES = {HIT: TIERS[MEMORY], MISS: ("16m", "64m")}
# Keys of hits, many more than the workers' memory has room for.
KEYS = 3_000
FILL_SECONDS, MOST_PASSES = 2, 6
# Maximum share of the keys that a last pass may still fetch.
LATE = 0.01
# Minimum number of lookups per request: others were served from the worker's memory, or not looked up.
LEAST_LOOKUPS = 0.8


@dataclass(frozen=True)
class Row:
    """A measured server: the kind of its requests, its number of workers, its build."""

    kind: str
    workers: int
    build: str

    @property
    def name(self):
        return f"{self.build}-{self.workers}-{self.kind}"


class LoadedServer:
    """One nginx of a row; `module` is another build's module, or None."""

    def __init__(self, work, node, row, module, call):
        coder = stored(row.name, *MEMORY_SIZES[row.kind])
        # a lookup that waits for a busy core is not abandoned
        coder = replace(coder, http=f"{coder.http} sszip_cache_lookup_timeout 100ms;")
        self.coder = replace(coder, module=module) if module else coder
        self.node, self.row, self.call = node, row, call
        self.nginx = Nginx(work, row.name, node.port, {"/": self.coder}, core=None, workers=row.workers)
        try:
            self.workers = worker_processes(self.nginx)
            if len(self.workers) != row.workers:
                raise SystemExit(f"{row.name}: {len(self.workers)} workers run, expected {row.workers}")
            for number, pid in enumerate(self.workers):
                pin(pid, number % CORES)
            self.verify()
            if row.kind == HIT:
                self.fill()
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.nginx.__exit__()

    def verify(self):
        """Compares a response with the node's."""
        request = numbered(self.call, 0)
        if gzip.decompress(post(self.nginx.port, request, "gzip")) != post(self.node.port, request, "identity"):
            raise SystemExit(f"{self.row.name}: the response differs from the node's")

    def load(self, seconds):
        keys = KEYS if self.row.kind == HIT else None
        load = Wrk(self.nginx.port, self.call.fresh(), self.coder, CONNECTIONS, seconds, core=None, keys=keys)
        result = load.result()
        if result["errors"] or not result["requests"]:
            raise SystemExit(
                f"{self.row.name}: {result['errors']} of wrk's requests failed, {result['requests']} succeeded"
            )
        return result

    def fill(self):
        """Requests all keys until hardly any request reaches the node."""
        for _ in range(MOST_PASSES):
            before = self.node.stats()["requests"]
            requests = self.load(FILL_SECONDS)["requests"]
            if requests >= KEYS and self.node.stats()["requests"] - before <= KEYS * LATE:
                return
        raise SystemExit(
            f"{self.row.name}: requests still reach the node after {MOST_PASSES} passes; nginx's error log ends with:\n"
            f"{self.nginx.complaints()[-2000:]}"
        )

    def sample(self, seconds):
        before, ticks = self.counters(), machine_ticks()
        result = self.load(seconds)
        share = machine_share(ticks, machine_ticks())
        spent = {name: value - before[name] for name, value in self.counters().items()}
        requests, lookups = result["requests"], spent["lookups"]
        if lookups < LEAST_LOOKUPS * requests:
            raise SystemExit(
                f"{self.row.name}: the owner counted {lookups} lookups for {requests} requests; nginx's error log ends "
                f"with:\n{self.nginx.complaints()[-2000:]}"
            )
        return {
            "rps": requests / result["duration_us"] * 1e6,
            "lookups": lookups / requests,
            "owner_us": spent["owner_ns"] / 1000 / lookups,
            "worker_us": spent["workers_ns"] / 1000 / requests,
            "busy": share["busy"],
        }

    def counters(self):
        status = self.nginx.owner_status()
        if not status:
            raise SystemExit(
                f"{self.row.name}: the owner did not respond; nginx's error log ends with:\n{self.nginx.complaints()[-2000:]}"
            )
        return {
            "lookups": sum(status["lookups"][name] for name in ("memory", "store", "missed")),
            "owner_ns": process_ns(self.nginx.owner),
            "workers_ns": sum(process_ns(pid) for pid in self.workers),
        }


def worker_processes(nginx):
    pid = nginx.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "worker process" in Path(f"/proc/{child}/cmdline").read_text()]


def post(port, request, accept):
    headers = {"Content-Type": "application/json", "Accept-Encoding": accept}
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", request, headers)) as reply:
        return reply.read()


def measure(work, corpus, builds, rounds, seconds, log):
    """Measures a recorded call of about 30 KB, all rows in turn. `builds` has the module of each
    build, None for this one. Returns the call, and the samples by row."""
    pairs = bodies.read_pairs(corpus) if corpus.is_dir() else bodies.sample_pairs(work)
    folder, (call,) = stored_calls(pairs, work, 1)
    rows = [Row(kind, workers, build) for kind in KINDS for workers in WORKERS for build in builds]
    samples = {row: [] for row in rows}
    with Node(work, [folder], core=None, options=["--lenient"]) as node, ExitStack() as stack:
        servers = {}
        for row in rows:
            log(f"starting {row.name}")
            servers[row] = stack.enter_context(LoadedServer(work, node, row, builds[row.build], call))
        for turn in range(rounds):
            # each round begins with another row
            for row in rows[turn % len(rows) :] + rows[: turn % len(rows)]:
                log(f"round {turn + 1} of {rounds}, {row.name}")
                samples[row].append(servers[row].sample(seconds))
        complaints = {row.name: server.nginx.complaints() for row, server in servers.items()}
    return call, samples, {name: text for name, text in complaints.items() if text}

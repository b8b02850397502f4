"""The store suite: entries of the cache's owner.

It measures the cost of a hit from the owner's memory and from RocksDB, in comparison with the
worker's memory; the throughput of a long entry; the additional cost of a store for a miss; the
waiting time of concurrent clients; and the bytes that RocksDB writes with and without its log.
"""

import gzip
from dataclasses import replace

import caching_bodies
import check
import engines
import load
import profiling
import stampede
import storing_bodies
from caching import CONNECTIONS, PER_GROUP, SLACK, Servers
from caches import FRESH, SMALL_TIER, Row, sszip_cache
from cache_fill import fill
from marked_calls import numbered, stored_calls
from stack import PASS, Nginx, Node
from storing_coders import HOT, MEMORY, PLACES, STORE, TIERS, stored

SECTIONS = ["hit", "large", "miss", "stampede", "log", "profiles"]
NAME = "part-04-store"
# The owner's counter that shows the origin of a hit.
COUNTERS = {MEMORY: "memory", STORE: "store"}
# Minimum share of a run's requests with the expected origin; the others are subtracted from the
# cost of a hit.
SHARE = 0.8
LARGE_ENTRY = "sszip_cache_max_entry 64m; sszip_max_oneshot 64m;"


def run(args, work, library, chosen, pairs, log):
    """Runs the selected sections, by name."""
    quick = args.quick
    out = {}
    if {"hit", "profiles"} & set(args.only):
        folder, calls = stored_calls(pairs, work, 1 if quick else 3)
        with Node(work, [folder], options=["--lenient"]) as node:
            log("measuring hits")
            with MeasuredOrigins(work, node, calls, storing_bodies.KEYS, log) as places:
                if "hit" in args.only:
                    out["hit"] = places.hits(1 if quick else 5, 1, CONNECTIONS)
                if "profiles" in args.only:
                    log("profiling")
                    out["profiles"] = places.profiles(work, 1 if quick else 3)
    if "large" in args.only:
        out["large"] = large(work, quick, log)
    if "miss" in args.only:
        log("measuring misses")
        out["miss"] = misses(work, chosen, quick, log)
    if "stampede" in args.only:
        log("measuring concurrent clients")
        out["stampede"] = stampede.run(work, pairs, 2 if quick else 10, log)
    if "log" in args.only:
        log("measuring writes to RocksDB's log")
        options = ["--rounds", "1", "--mb", "32"] if quick else ["--rounds", "3", "--mb", "128"]
        out["log"] = engines.bench_with("store", work, options, ["store"])
    return out


def large(work, quick, log):
    """Measures each long entry with a node of its own, because the node finds responses by the
    method alone."""
    found = {}
    for folder, call in storing_bodies.large(work):
        with Node(work, [folder], options=["--lenient"]) as node:
            log(f"measuring a large entry: {call.name}")
            with MeasuredOrigins(work, node, [call], 1, log, LARGE_ENTRY) as places:
                # one connection: a second request would wait for the first one's
                merge(found, places.hits(1 if quick else 5, 1, 1))
    return found


def merge(found, more):
    """Adds the measurements of another group of calls to `found`."""
    for key, value in more.items():
        if key in found and key not in ("rows", "keys"):
            found[key] += value
        else:
            found[key] = value


def misses(work, chosen, quick, log):
    """Measures misses like the cache suite: one node per group, with new ids and params in
    each request."""
    rows = [
        Row(sszip_cache("without a store", http=SMALL_TIER), FRESH),
        Row(stored("with a store", "16m"), FRESH),
    ]
    return misses_of(rows, work, chosen, quick, log)


def misses_of(rows, work, chosen, quick, log):
    found = {}
    groups = caching_bodies.unique_calls(chosen, work, 1 if quick else PER_GROUP)
    for group, (pairs, calls) in groups.items():
        with Node(work, [pairs], options=["--lenient"]) as node:
            log(f"misses, {group}")
            with Servers(work, node, rows, calls, misses=True) as servers:
                merge(found, servers.measure(calls, 1 if quick else 5, log))
    return found


class MeasuredOrigins:
    """One nginx per origin of a hit, filled with the same entries. `modules` lists builds of
    the module, each with a prefix for its rows."""

    def __init__(self, work, node, calls, keys, log, more="", modules=(("", None),)):
        self.node, self.calls, self.keys, self.log = node, calls, keys, log
        self.places = {name + place: (place, m) for place in PLACES for name, m in modules}
        self.servers, self.wire, self.facts = {}, {}, []
        try:
            with Nginx(work, "identity", node.port, {"/": PASS}) as plain:
                for row in self.places:
                    self.prepare(work, row, plain, more)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.__exit__()

    def prepare(self, work, row, plain, more):
        place, module = self.places[row]
        hot, memory = TIERS[place]
        coder = stored(row, hot, memory, more=more)
        if module:
            coder = replace(coder, module=module)
        server = self.servers[row] = Nginx(work, row, self.node.port, {"/": coder})
        self.coder = coder
        for call in self.calls:
            fill(server.port, self.node_requests, call, self.keys)
        if place == STORE:
            # a restart moves the owner's memory to files
            server.restart()
            for call in self.calls:
                fill(server.port, self.node_requests, call, self.keys)
        for call in self.calls:
            self.verify(row, server, call, plain)

    def verify(self, row, server, call, plain):
        request = numbered(call, self.keys - 1)
        sent = check.send(plain.port, "/", request, "")[2]
        status, headers, content, wire = check.send(server.port, "/", request, "gzip")
        if status != 200 or gzip.decompress(content) != sent:
            raise check.WrongAnswer(f"{row}, {call.name}: the response differs from the node's, status {status}")
        self.wire[row, call.name] = wire
        self.facts.append(
            {"row": row, "call": call.name, "bytes": len(content), "wire": wire}
        )

    def hits(self, rounds, seconds, connections):
        """Measures in interleaved rounds, like throughput.py."""
        samples = []
        rows = list(self.places)
        for turn in range(rounds):
            self.log(f"round {turn + 1} of {rounds}")
            for index, call in enumerate(self.calls):
                first = (turn + index) % len(rows)
                for row in rows[first:] + rows[:first]:
                    samples.append(
                        {"round": turn, "call": call.name, "group": call.group, "row": row}
                        | self.point(row, call, seconds, connections)
                    )
        logged = {row: s.complaints() for row, s in self.servers.items()}
        return {
            "rows": [{"name": row} for row in rows],
            "keys": self.keys,
            "calls": [{"name": c.name, "group": c.group, "size": c.size} for c in self.calls],
            "verified": self.facts,
            "samples": samples,
            "complaints": [[row, text] for row, text in logged.items() if text],
        }

    def point(self, row, call, seconds, connections):
        """Returns one sample; the counters of the node and of the owner show the origins of
        the responses."""
        server, (place, _) = self.servers[row], self.places[row]
        reached, found = self.node_requests(), server.owner_status()["lookups"]
        sample = load.measure(
            server, call.fresh(), self.coder, connections, seconds,
            self.wire[row, call.name], SLACK, self.keys,
        )
        reached, after = self.node_requests() - reached, server.owner_status()["lookups"]
        found = {name: after[name] - found[name] for name in after}
        if place == HOT:
            share = 1 - sum(found.values()) / sample["requests"]
        else:
            share = found[COUNTERS[place]] / sample["requests"]
        sample |= {"share": share, "reached": reached / sample["requests"]}
        if share < SHARE:
            raise SystemExit(
                f"{row}, {call.name}: {share:.0%} of {sample['requests']} requests "
                f"were served from this tier, expected at least {SHARE:.0%}; the owner counted {found}, "
                f"the node {reached}"
            )
        return sample

    def node_requests(self):
        return self.node.stats()["requests"]

    def profiles(self, work, seconds):
        """Profiles the worker and the owner while the owner sends entries."""
        call = self.calls[0]
        found = []
        for place in (MEMORY, STORE):
            server = self.servers[place]
            for process, pid in (("worker", server.worker), ("owner", server.owner)):
                found.append(
                    {"coder": f"{process}, from {place}", "body": call.name}
                    | profiling.sample(
                        work, server, call.fresh(), self.coder, seconds, CONNECTIONS, pid,
                        self.keys,
                    )
                )
        return found

"""The cache suite: stored responses.

It measures hits in comparison with the caches of nginx, batches of stored responses, the
additional cost of a miss, and the core's own benchmarks of keys, the scanner and splices.
"""

import json
import urllib.request
from dataclasses import replace

import caching_bodies as bodylib
import check
import engines
import load
import profiling
from bodies import Library
from caches import (
    FILE,
    FRESH,
    batch_rows,
    gzip_rows,
    identity_rows,
    miss_rows,
    sszip_cache,
    zstd,
    zstd_rows,
)
from marked_calls import DIGITS
from stack import MODULE, PASS, Coder, Nginx, Node

SECTIONS = ["gzip", "zstd", "identity", "batch", "miss", "core", "profiles"]
HIT_ROWS = {"gzip": gzip_rows, "zstd": zstd_rows, "identity": identity_rows}
NAME = "part-03-cache"
# A hit takes so little time that four connections would leave the worker idle.
CONNECTIONS = 16
PER_GROUP = 4
# Short responses of a batch are compressed together with the ids of the request.
SLACK = 0.1


def run(args, work, library, chosen, pairs, log):
    """Runs the selected sections, by name."""
    quick = args.quick
    rounds = 1 if quick else 3
    calls = bodylib.singles(chosen, library, 1 if quick else PER_GROUP)
    methods = {b.method for b in chosen if b.method.startswith("erigon_")}
    out = {}
    for section, rows in HIT_ROWS.items():
        if section in args.only:
            with Node(work, [library.pairs]) as node:
                log(f"hits, {section}")
                out[section] = hits(work, node, rows(methods), calls, rounds, log)
                if section == "zstd":
                    out[section]["memory"] = entry_memory(work, node, methods, calls)
    if "batch" in args.only:
        own = Library(work / "batches")
        couples = bodylib.batches(pairs, own)
        with Node(work, [own.pairs]) as node:
            log("measuring batches")
            rows = batch_rows(())
            batch_calls = [call for couple in couples for call in couple]
            out["batch"] = hits(work, node, rows, batch_calls, 1 if quick else 5, log)
            out["batch"]["couples"] = [[c.name for c in couple] for couple in couples]
    if "miss" in args.only:
        log("measuring misses")
        out["miss"] = misses(work, miss_rows(), chosen, quick, log)
    if "core" in args.only:
        log("measuring the core without nginx")
        out["core"] = core(args, work, library, calls)
    if "profiles" in args.only:
        log("profiling")
        with Node(work, [library.pairs]) as node:
            seconds = 1 if quick else 3
            out["profiles"] = profiles(work, node, methods, calls, seconds)
    return out


def hits(work, node, rows, calls, rounds, log):
    with Servers(work, node, rows, calls) as servers:
        return servers.measure(calls, rounds, log)


def misses(work, rows, chosen, quick, log):
    """Measures misses with one node per group, because the node finds responses by the method
    alone."""
    merged = {}
    groups = bodylib.unique_calls(chosen, work, 1 if quick else PER_GROUP)
    for group, (pairs, calls) in groups.items():
        with Node(work, [pairs], options=["--lenient"]) as node:
            log(f"misses, {group}")
            with Servers(work, node, rows, calls, misses=True) as servers:
                measured = servers.measure(calls, 1 if quick else 5, log)
        for key, value in measured.items():
            if key in merged and isinstance(value, list) and key != "rows":
                merged[key] += value
            else:
                merged[key] = value
    return merged


class Servers:
    """One nginx per row, with each response verified and, if the row has a cache, stored. With
    `misses`, calls have other params in each request."""

    def __init__(self, work, node, rows, calls, misses=False):
        self.node, self.rows, self.misses = node, rows, misses
        self.servers, self.verified = {}, {}
        try:
            for row in rows:
                self.servers[row] = Nginx(work, row.name, node.port, {"/": row.coder})
            with Nginx(work, "identity", node.port, {"/": PASS}) as plain:
                for call in calls:
                    for row in rows:
                        self.verified[row, call.name] = self.verify(row, call, plain)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.__exit__()

    def verify(self, row, call, plain):
        """Sends requests until responses no longer change: an entry keeps its identity form
        from its second identity request on. A repeated miss must be a hit if the row has a cache:
        the row measures misses that are stored."""
        server = self.servers[row]
        if row.request_kind == FILE:
            self.place(server, call, plain)
        for n in range(4):
            digits = b"%d" % (100_000_000 + n) if row.request_kind == FRESH else DIGITS
            request = call.request(digits)
            sent = check.send(plain.port, "/", request, "")[2]
            if row.request_kind == FILE:
                got = check.send(server.port, call.get().path, None, row.coder.accept)
            else:
                got = check.send(server.port, "/", request, row.coder.accept)
            status, headers, content, wire = got
            coding = headers.get("content-encoding", "")
            where = f"{row.name}, {call.name}"
            if status != 200 or check.DECODERS[coding](content) != sent:
                raise check.WrongAnswer(f"{where}: the response differs from the node's, status {status}")
            # A short response is not compressed.
            if coding != row.coder.coding and call.size > 2000:
                raise check.WrongAnswer(f"{where}: content coding {coding!r}, expected {row.coder.coding!r}")
        if self.misses and row.has_cache and not check.is_stored(server.port, request, row.coder.accept):
            raise check.WrongAnswer(f"{where}: a repeated request is no hit, so the response is not stored; use a method of STORED_METHODS")
        return {"bytes": len(content), "wire": wire, "coding": coding}

    def place(self, server, call, plain):
        """Writes the bytes that sszip sends for the call into a file."""
        request = call.request(DIGITS)
        coder = self.rows[0].coder
        first = self.servers[self.rows[0]]
        headers, content = check.send(first.port, "/", request, coder.accept)[1:3]
        decode = check.DECODERS[headers.get("content-encoding", "")]
        if decode(content) != check.send(plain.port, "/", request, "")[2]:
            raise check.WrongAnswer(f"{call.name}: sszip's response for the static file differs from the node's")
        folder = server.prefix / "static"
        folder.mkdir(exist_ok=True)
        (folder / call.get().path.strip("/")).write_bytes(content)

    def measure(self, calls, rounds, log):
        """Measures in interleaved rounds, like throughput.py."""
        samples = []
        for turn in range(rounds):
            log(f"round {turn + 1} of {rounds}")
            for index, call in enumerate(calls):
                first = (turn + index) % len(self.rows)
                for row in self.rows[first:] + self.rows[:first]:
                    samples.append(
                        {"round": turn, "call": call.name, "group": call.group, "row": row.name}
                        | self.point(row, call)
                    )
        facts = [
            {"row": row.name, "call": name, **facts}
            for (row, name), facts in self.verified.items()
        ]
        logged = {row.name: s.complaints() for row, s in self.servers.items()}
        return {
            "rows": [
                {"name": r.name, "asks": r.request_kind, "peer": r.peer, "directives": r.coder.directives}
                for r in self.rows
            ],
            "calls": [{"name": c.name, "group": c.group, "size": c.size} for c in calls],
            "verified": facts,
            "samples": samples,
            "complaints": [[name, text] for name, text in logged.items() if text],
        }

    def point(self, row, call):
        """Returns one sample; the node's counter shows whether the requests were hits."""
        body = {FRESH: call.fresh, FILE: call.get}.get(row.request_kind, call.same)()
        before = self.node_requests()
        sample = load.measure(
            self.servers[row],
            body,
            row.coder,
            CONNECTIONS,
            1,
            self.verified[row, call.name]["wire"],
            SLACK,
        )
        reached = self.node_requests() - before
        if self.misses and reached < sample["requests"] or not self.misses and reached:
            raise SystemExit(
                f"{row.name}, {call.name}: {reached} of {sample['requests']} "
                f"requests reached the node, expected {'all' if self.misses else 'none'}"
            )
        return sample

    def node_requests(self):
        return self.node.stats()["requests"]


def entry_memory(work, node, methods, calls):
    """Returns the bytes of the hot tier by group: after hits in gzip, and after hits in zstd
    that follow them."""
    coder = zstd(sszip_cache("", methods), "memory")
    status = Coder("status", "sszip on; sszip_status on;", "", handler="", module=MODULE)
    found = {}
    for group in dict.fromkeys(call.group for call in calls):
        own = [call for call in calls if call.group == group]
        found[group] = {"entries": len(own)}
        coders = {"/": coder, "/status": replace(status, http=coder.http)}
        with Nginx(work, f"memory-{group}", node.port, coders) as server:
            for accept in ("gzip", "zstd"):
                for call in own * 2:
                    check.send(server.port, "/", call.request(DIGITS), accept)
                found[group][accept] = tier_bytes(server)
    return found


def tier_bytes(server):
    url = f"http://127.0.0.1:{server.port}/status?format=json"
    with urllib.request.urlopen(url) as reply:
        return json.load(reply)["workers"]["cache_memory.bytes"]


def core(args, work, library, calls):
    """Runs the core's benchmarks: the scanner and keys with the recordings, splices with the
    bodies of this suite."""
    with Node(work, [library.pairs]) as node, Nginx(
        work, "identity", node.port, {"/": PASS}
    ) as plain:
        contents = {
            call.name: check.send(plain.port, "/", call.request(DIGITS), "")[2]
            for call in calls
        }
    recordings = args.corpus if args.corpus.is_dir() else None
    return {
        "jsonrpc": engines.bench("jsonrpc", work, recordings, args.quick)["rows"],
        "splice": engines.bench(
            "splice", work, engines.written(work, contents), args.quick
        ),
        "groups": {c.name.replace("/", "_"): c.group for c in calls},
    }


def profiles(work, node, methods, calls, seconds):
    """Profiles a gzip hit and an identity hit of sszip, and of the last row of another server,
    with one call per group."""
    found = []
    chosen = {call.group: call for call in calls}
    for section, rows in (("gzip", gzip_rows(methods)), ("identity", identity_rows(methods))):
        rows = [rows[0], [row for row in rows if row.peer][-1]]
        with Servers(work, node, rows, chosen.values()) as servers:
            for call in chosen.values():
                for row in rows:
                    body = call.get() if row.request_kind == FILE else call.same()
                    body = call.fresh() if row.request_kind == FRESH else body
                    found.append(
                        {"coder": f"{row.name}, {section}", "body": call.name}
                        | profiling.sample(
                            work, servers.servers[row], body, row.coder, seconds, CONNECTIONS
                        )
                    )
    return found

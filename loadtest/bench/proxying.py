"""The Envoy suite: the filter beside Envoy's own compressor, beside what answers from
memory, and beside no filter at all."""

import subprocess
import time

import caching_bodies as bodylib
import check
import load
import machine
import proxying_large
import proxying_store
from dataclasses import replace
from proxying_stack import ENVOY, PLAIN, Envoy, Row, asked, compressor, sszip, version
from stack import Node

SECTIONS = ["compress", "off", "hit", "owner", "workers", "large"]
NAME = "part-10-envoy"
DEFAULT = compressor("compressor", None)
BEST_SPEED = compressor("compressor, BEST_SPEED", "BEST_SPEED")
OURS = sszip()
COMPRESS = [PLAIN, DEFAULT, BEST_SPEED, OURS]
# `enable: false` is our filter doing nothing but being called
OFF = replace(sszip("sszip, disabled", enable=False), coding="")
NOT_APPLYING = replace(sszip("sszip, other types", types="text/plain"), coding="")
WORKERS = [1, 2, 4]
PER_GROUP = 3
# Requests at a time: the latency's and the throughput's.
CONNECTIONS = [1, 32]
# A hit compresses the id of the request, and so differs by some bytes.
SLACK = 0.1


def hits(known, name="sszip, hits"):
    """`known`: methods that the table of methods does not know."""
    row = sszip(name, cache=True, cache_memory="256m", cache_valid=valid(known))
    return replace(row, hits=True)


def valid(known):
    """As long as a measurement takes."""
    return [[kind, "1h"] for kind in ("immutable", "unfinalized", "tip", *sorted(known))]


def versions():
    return machine.web_versions() | {"envoy": version()}


def run(args, work, library, chosen, pairs, say):
    """The sections asked for, by name."""
    quick = args.quick
    rounds = 1 if quick else 3
    calls = bodylib.singles(chosen, library, 1 if quick else PER_GROUP)
    known = {b.method for b in chosen if b.method.startswith("erigon_")}
    out = {}
    with Node(work, [library.pairs]) as node:
        for section, rows in (("compress", COMPRESS), ("off", [PLAIN, OFF, NOT_APPLYING])):
            if section in args.only:
                say(section)
                with Servers(work, node, rows, calls) as servers:
                    out[section] = servers.measure(calls, CONNECTIONS, rounds, say)
        if "hit" in args.only:
            say("hits")
            out["hit"] = stored(work, node, known, calls, rounds, say)
        if "owner" in args.only:
            say("hits from the owner")
            out["owner"] = proxying_store.run(work, pairs, quick, rounds, say)
        if "workers" in args.only:
            say("hits by several workers")
            out["workers"] = workers(work, node, known, calls, rounds, say)
    if "large" in args.only:
        out["large"] = proxying_large.run(work, quick, say)
    return out


def stored(work, node, known, calls, rounds, say):
    """A file is of one answer: so each call has servers of its own."""
    merged = {}
    for call in calls:
        ours, file = hits(known), work / f"{call.file.stem}.answer"
        with Servers(work, node, [ours], [call]) as servers:
            file.write_bytes(servers.verified[ours, call.name].pop("content"))
        direct = Row("direct_response of the same bytes", "gzip", answers=file)
        with Servers(work, node, [ours, direct, OURS], [call]) as servers:
            measured = servers.measure([call], CONNECTIONS, rounds, say)
        merge(merged, measured)
    return merged


def workers(work, node, known, calls, rounds, say):
    """Hits of a short answer, wherever there is a core."""
    call = next(call for call in calls if call.group == "30 KB")
    merged = {}
    for count in WORKERS:
        ours = replace(hits(known, f"sszip, hits, {count} workers"), workers=count)
        file = work / f"{call.file.stem}.{count}"
        with Servers(work, node, [ours], [call]) as servers:
            file.write_bytes(servers.verified[ours, call.name].pop("content"))
        direct = Row(f"direct_response, {count} workers", "gzip", answers=file, workers=count)
        with Servers(work, node, [ours, direct], [call], core=None) as servers:
            merge(merged, servers.measure([call], [32], rounds, say))
    return merged


def merge(merged, measured):
    for key, value in measured.items():
        known = merged.setdefault(key, [])
        known += [one for one in value if one not in known]


class Servers:
    """An Envoy for each row, every answer verified, and stored where it will be."""

    def __init__(self, work, node, rows, calls, core=0):
        self.node, self.rows = node, rows
        self.servers, self.verified = {}, {}
        try:
            for row in rows:
                self.servers[row] = Envoy(work, row, node.port, core)
            for call in calls:
                for row in rows:
                    self.verified[row, call.name] = self.verify(row, call)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.__exit__()

    def verify(self, row, call):
        """Until nothing more changes: an answer is stored at the first time, and made
        ready at the second."""
        port = self.servers[row].port
        for turn in range(4):
            digits = bodylib.DIGITS if row.answers else b"%d" % (100_000_000 + turn)
            sent = check.send(self.node.port, "/", call.request(digits), "")[2]
            status, headers, content, wire = check.send(port, "/", call.request(digits), row.accept)
            coding = headers.get("content-encoding", "")
            where = f"{row.name}, {call.name}"
            plain = check.DECODERS[coding](content)
            # a file has the id that it was made with
            if status != 200 or plain != sent and not row.answers:
                raise check.WrongAnswer(f"{where}: not what the node sent, status {status}")
            if coding != row.coding:
                raise check.WrongAnswer(f"{where}: content coding {coding!r}")
        return {
            "bytes": len(content),
            "wire": wire,
            "coding": coding,
            "exact_length": "content-length" in headers,
            "content": content,
        }

    def measure(self, calls, connections, rounds, say):
        """Rounds interleave as in throughput.py."""
        samples = []
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            for index, call in enumerate(calls):
                for number in connections:
                    first = (turn + index) % len(self.rows)
                    for row in self.rows[first:] + self.rows[:first]:
                        samples.append(self.point(row, call, number) | {"round": turn})
        return {
            "rows": [{"name": row.name, "filters": row.filters} for row in self.rows],
            "calls": [{"name": c.name, "group": c.group, "size": c.size} for c in calls],
            "verified": [
                {"row": row.name, "call": name}
                | {key: value for key, value in facts.items() if key != "content"}
                for (row, name), facts in self.verified.items()
            ],
            "samples": samples,
            "complaints": [
                [row.name, text] for row, s in self.servers.items() if (text := s.complaints())
            ],
        }

    def point(self, row, call, connections):
        before = settled(self.node)
        sample = load.measure(
            self.servers[row],
            call.fresh(),
            row,
            connections,
            1,
            self.verified[row, call.name]["wire"],
            SLACK,
        )
        reached = settled(self.node) - before
        answers = row.answers or row.hits
        # what a daemon has too late the node is asked for
        late = sample["requests"] * proxying_store.LATE if row.cached else 0
        if answers and reached > late or not answers and reached < sample["requests"]:
            raise SystemExit(
                f"{row.name}, {call.name}: {reached} of {sample['requests']} requests "
                "reached the node"
            )
        return {
            "call": call.name,
            "group": call.group,
            "row": row.name,
            "connections": connections,
        } | sample


def settled(node):
    """How many requests the node has had. wrk leaves in the midst of some, and a proxy that
    has read them asks all the same."""
    last, until = asked(node), time.monotonic() + 10
    while time.monotonic() < until:
        time.sleep(0.1)
        now = asked(node)
        if now == last:
            break
        last = now
    return last


def missing():
    """What brings Envoy, where it is not there."""
    done = subprocess.run(["sh", "-c", f"test -x '{ENVOY}'"])
    return [f"{ENVOY} is missing: make setup"] if done.returncode else []

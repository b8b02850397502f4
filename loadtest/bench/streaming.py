"""The streaming suite: what the node sends in chunks.

Requests per second, time to the first compressed byte, memory, and Erigon's
constant rate; each section is a module of its own.
"""

import functools
import subprocess
import sys
import zlib
from statistics import median

import bodies as bodylib
import check
import first_byte
import memory
import rate
import throughput
from stack import HERE, LOAD_CORE, NODE_CHUNKED, Nginx, Node, pinned, stop
from streaming_coders import GZIP, LATENCY, MEMORY, SSZIP, SSZIP_ZLIB_RS, THROUGHPUT

SECTIONS = ["throughput", "latency", "memory", "rate"]
NAME = "part-02-streaming"
GROUP = "300 KB"
POOL_BYTES = 16 << 20
# Where a stream is cut into blocks depends on how the pieces arrive; that is
# not a coder that gave up, which is what the check under load looks for.
SLACK = 0.1


class Origin:
    """`origin.py` on the load's core, and what it will send."""

    def __init__(self, work, pairs):
        seen, parts, total = set(), [], 0
        for _, pair in sorted(pairs, key=lambda p: p[0]):
            part = bodylib.compact(pair["response"])
            if total < POOL_BYTES and part not in seen:
                seen.add(part)
                parts.append(part)
                total += len(part)
        self.pool = b"\n".join(parts)
        file = work / "pool"
        file.write_bytes(self.pool)
        self.process = subprocess.Popen(
            pinned(LOAD_CORE, [sys.executable, str(HERE / "origin.py"), str(file)]),
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the streaming origin did not start")
        self.port = int(line)

    def body(self, size):
        whole, rest = divmod(size, len(self.pool))
        return self.pool * whole + self.pool[:rest]

    @functools.cache  # noqa: B019 - one origin lives as long as the program
    def checksum(self, size):
        whole, rest = divmod(size, len(self.pool))
        checksum = 0
        for _ in range(whole):
            checksum = zlib.crc32(self.pool, checksum)
        return zlib.crc32(self.pool[:rest], checksum)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)


def run(args, work, library, chosen, pairs, say):
    """The sections asked for, by name."""
    out = {}
    quick = args.quick
    if "throughput" in args.only:
        plan = throughput.Plan(rounds=1 if quick else 2, seconds=1)
        bodies = [b for b in chosen if b.group == GROUP]
        out["throughput"] = requests_per_second(work, library, bodies[::2], plan, say)
    if "latency" in args.only or "memory" in args.only:
        with Origin(work, pairs) as origin:
            if "latency" in args.only:
                count = 40 if quick else 200
                out["latency"] = first_byte.run(work, origin, LATENCY, count, say)
            if "memory" in args.only:
                size, seconds = (128 << 20, 2) if quick else (1 << 30, 6)
                out["memory"] = memory.run(work, origin, MEMORY, size, seconds, say)
    if "rate" in args.only:
        plan = rate.Plan(small=3, larger=1) if quick else rate.Plan(small=60, larger=6)
        out["rate"] = rate.run(work, library, pairs, plan, say)
    return out


def requests_per_second(work, library, bodies, plan, say, coders=THROUGHPUT, reference=GZIP):
    with Node(work, [library.pairs], options=NODE_CHUNKED) as node:
        plain = throughput.identities(work, node, bodies)
        say("verifying every coder")
        servers, verified, contents = {}, {}, {}
        try:
            for coder in coders:
                server = servers[coder] = Nginx(work, coder.name, node.port, {"/": coder})
                for body in bodies:
                    got = check.answer(server.port, "/", body, coder, plain[body.name])
                    contents[coder, body.name] = check.exchange(
                        server.port, "/", body, coder.accept
                    )[2]
                    del got["decoded"]
                    verified[coder.name, body.name] = got
            if SSZIP_ZLIB_RS in coders:
                refuse_same(bodies, contents)
            samples = throughput.interleave(servers, bodies, verified, plan, say, SLACK)
            complaints = {c.name: s.complaints() for c, s in servers.items()}
        finally:
            for server in servers.values():
                server.__exit__()
    summary = throughput.summarise(coders, bodies, verified, samples, reference)
    for row in summary:
        row["bytes_under_load"] = median(
            s["wire"]
            for s in samples
            if (s["body"], s["coder"]) == (row["body"], row["coder"])
        )
    return {
        "coders": [c.name for c in coders],
        "directives": {c.name: c.directives for c in coders},
        "groups": {GROUP: [b.name for b in bodies]},
        "samples": samples,
        "complaints": {name: text for name, text in complaints.items() if text},
        "summary": summary,
    }


def refuse_same(bodies, contents):
    for body in bodies:
        if contents[SSZIP, body.name] == contents[SSZIP_ZLIB_RS, body.name]:
            raise SystemExit(
                f"{body.name}: the same bytes with igzip and without: "
                "libisal.so.2 is absent, or was not hidden"
            )

"""The wire suite: SSZ of the Beacon API and of witnesses through nginx, from a
node that has JSON only.

A block, asked for over and over; the same from the cache beside a static file of
its bytes; a block with blobs, published in SSZ; large answers, once each. Every answer is compared with what a typed
peer makes of the value.
"""

from dataclasses import replace

import check
import load
import machine
import transcoding
import wire_bridge
import wire_large
import wire_publish
import wire_values
from bodies import Body
from caching_coders import NOPUSH, OPEN_FILES, READ, SENDFILE, WAYS
from stack import MODULE, PASS, Coder, Nginx, Node
from wire_values import BLOCK, EITHER, JSON, SSZ

SECTIONS = ["block", "cached", "publish", "large", "bridge", "many", "beside"]
NAME = "part-09-wire"
CONNECTIONS = 4
BLOCK_BYTES = 150_000
PLAIN, OURS = "proxy_pass of the JSON", "sszip, SSZ"
SMALL = '{"data":{"version":"node/v1"}}'
# Answers of wrk's runs: those under way at its end, and heads that differ.
SLACK = 0.02


def versions():
    return machine.web_versions() | {
        crate: machine.locked_version(crate, transcoding.PEERS / "Cargo.lock")
        for crate in ("libssz", "serde_json", "sonic-rs")
    } | {"go": machine.output("go", "version").removeprefix("go version ") or "not installed"}


def run(args, work, say):
    """The sections asked for, by name."""
    quick, corpus = args.quick, args.corpus.parent
    client = wire_values.Client(work, quick, say)
    small = work / "small" / f"{wire_large.VERSION[1:]}.json"
    small.parent.mkdir(parents=True)
    small.write_text(SMALL)
    out = {"recorded": True}
    if {"block", "cached"} & set(args.only):
        json, ssz, by_root, recorded = wire_values.block(client, corpus, work, BLOCK_BYTES)
        out["recorded"] = recorded
        rounds, seconds = (1, 1) if quick else (9, 3)
        for section, rows, path in (
            ("block", block_rows(), BLOCK),
            ("cached", cached_rows(), by_root),
        ):
            if section in args.only:
                say(section)
                out[section] = often(work, rows, path, (json, ssz), rounds, seconds, say)
    if "publish" in args.only:
        rounds = 3 if quick else 50
        out["publish"] = wire_publish.run(client, corpus, work, rounds, say)
    if "large" in args.only:
        out["large"] = []
        for megabytes in wire_large.sizes(quick):
            for body in wire_large.bodies(client, corpus, work, megabytes):
                found = wire_large.run(client, work, body, 1 if quick else 3, say)
                out["large"].append(found)
                wire_large.forget(body)
    if "bridge" in args.only:
        size, rounds = wire_bridge.megabytes(quick), 1 if quick else 3
        out["bridge"] = wire_bridge.run(client, work, size, rounds, say)
    if "many" in args.only:
        megabytes, clients, memory = (8, 4, 32 << 20) if quick else (100, 10, 256 << 20)
        body = wire_values.witness(work, megabytes, coupled=False)
        out["many"] = wire_large.many(client, work, body, clients, memory, say)
    if "beside" in args.only:
        megabytes, rounds, seconds = (8, 1, 2) if quick else (500, 5, 10)
        body = wire_values.witness(work, megabytes, coupled=False)
        out["beside"] = wire_large.beside(client, work, body, rounds, seconds, say)
    return out


def asks(coder, media, accept=""):
    return replace(coder, media=media, accept=accept, coding=accept)


def transcoding_coder(name, more=""):
    own = f"sszip on; sszip_ssz on; gzip_proxied any; {more}"
    return asks(Coder(name, own, "", module=MODULE), EITHER)


def block_rows():
    ours = transcoding_coder(OURS)
    return [
        asks(replace(PASS, name=PLAIN), JSON),
        ours,
        asks(replace(ours, name=f"{OURS}, gzip"), EITHER, "gzip"),
        asks(replace(ours, name="sszip, JSON"), JSON),
    ]


def cached_rows():
    """A file leaves in the way that is best for its size: the target means the
    fastest."""
    kept = "sszip_cache on; sszip_cache_valid immutable 1h;"
    files = [
        asks(
            Coder(
                f"static file, open_file_cache{WAYS[way]}",
                f"root @PREFIX@/static; default_type {SSZ}; {way} {OPEN_FILES}",
                "",
                handler="",
            ),
            EITHER,
        )
        for way in (READ, SENDFILE, NOPUSH)
    ]
    return [transcoding_coder(OURS, kept), *files]


def often(work, rows, path, files, rounds, seconds, say):
    """One body over and over, in rounds that interleave."""
    json, ssz = files
    body = Body("block", "GET", "block", json.stat().st_size, None, path=path)
    servers, wires, samples, facts = {}, {}, [], []
    with Node(work, [work / "small"], options=["--page", f"{path}={json}"]) as node:
        try:
            for row in rows:
                server = servers[row] = Nginx(work, row.name, node.port, {"/": row})
                if not row.handler:
                    file = server.prefix / f"static{path}"
                    file.parent.mkdir(parents=True)
                    file.write_bytes(ssz.read_bytes())
                # the second time of what is kept is a hit
                for is_first in (True, False):
                    fact, wires[row] = verify(server, row, body, json, ssz, is_first)
                facts.append(fact)
            for turn in range(rounds):
                say(f"round {turn + 1} of {rounds}")
                first = turn % len(rows)
                for row in rows[first:] + rows[:first]:
                    sample = load.measure(
                        servers[row], body, row, CONNECTIONS, seconds, wires[row], SLACK
                    )
                    samples.append({"round": turn, "row": row.name} | sample)
            logged = {row.name: server.complaints() for row, server in servers.items()}
        finally:
            for server in servers.values():
                server.__exit__()
    return {
        "json": json.stat().st_size,
        "ssz": ssz.stat().st_size,
        "rows": [row.name for row in rows],
        "verified": facts,
        "samples": samples,
        "complaints": [[name, text] for name, text in logged.items() if text],
    }


def verify(server, row, body, json, ssz, is_first):
    expected = json if row.media == JSON else ssz
    status, headers, content, wire = check.send(
        server.port, body.path, None, row.accept, row.media
    )
    coding = headers.get("content-encoding", "")
    if status != 200 or coding != row.coding:
        raise check.WrongAnswer(f"{row.name}: status {status}, coding {coding!r}")
    if check.DECODERS[coding](content) != expected.read_bytes():
        raise check.WrongAnswer(f"{row.name}: not what a typed peer makes of it")
    if headers["content-type"] != (JSON if row.media == JSON else SSZ):
        raise check.WrongAnswer(f"{row.name}: it is {headers['content-type']!r}")
    cache = headers.get("cache-status", "")
    if "sszip_cache on" in row.directives and not is_first and not cache.startswith("sszip; hit"):
        raise check.WrongAnswer(f"{row.name}: no hit, but {cache!r}")
    return {"row": row.name, "bytes": len(content), "cache": cache}, wire

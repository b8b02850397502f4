"""Servers that somebody else runs, by their addresses: what they take can't be told, and they
are asked about what their node has."""

import argparse
import subprocess
import time
from urllib.parse import urlsplit

import asking
import checking
import driving
import load
import machine
import workloads
from servers import OURS, THEIRS, Given, Row
from stages import attempt, section

# Until they answer: they may be starting.
PATIENCE_SECONDS = 60
SECTIONS = {"single": ("block-30", "block-246"), "mix": ("mix",), "batch": ("batch",),
            "identity": ("identity",), "ssz": ("ssz",)}


def parse(text):
    """NAME=URL,...: what there is to measure."""
    found = []
    for one in text.split(","):
        name, _, url = one.partition("=")
        parts = urlsplit(url)
        if not name or parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
            raise argparse.ArgumentTypeError(f"{one!r} is not NAME=http://HOST[:PORT]")
        found.append((name, parts.hostname, parts.port or 80))
    return found


def measure(args, plan, work, say):
    rows, given = [], {}
    for name, host, port in args.targets:
        kind = OURS if "sszip" in name or "envoy" in name or "nginx" in name else THEIRS
        row = Row(name, name, kind, None, None)
        rows.append(row)
        given[name] = Given(row, host, port)
        wait_for(name, host, port)
    results = {
        "machine": machine.describe([], lambda: {"wrk": version()}),
        "quiet": load.quiet_check(),
        "quick": args.quick,
        "source": "Calls about what the node has: its last blocks, and what they name.",
        "rows": [{"key": r.key, "name": r.name, "kind": r.kind, "told": "", "keeps": ""} for r in rows],
        "absent": {}, "not_had": {}, "moving": {}, "complaints": {}, "sections": {}, "rates": [],
        "configs": {},
    }
    targets = ",".join(f"{name}=http://{host}:{port}" for name, host, port in args.targets)
    results["machine"]["command"] = f"loadtest/compare/run --targets {targets}"
    node = urlsplit(args.node) if args.node else None
    host, port = (node.hostname, node.port or 80) if node else args.targets[0][1:]
    with asking.Peer(host, port) as peer:
        try:
            of = {workload.name: workload for workload in workloads.asked(peer)}
        except (OSError, asking.Lost, ValueError, TypeError) as lost:
            raise SystemExit(f"http://{host}:{port} does not answer calls: {lost}") from None
    for section_name, members in SECTIONS.items():
        if section_name in args.only:
            for member in members:
                if member in of:
                    results["sections"][member] = closed(
                        of[member], rows, given, plan, work, say, (host, port) if node else None
                    )
    return results


def wait_for(name, host, port):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with asking.Peer(host, port, 10) as peer:
                return peer.call("eth_chainId")
        except (OSError, asking.Lost, ValueError, KeyError) as lost:
            if time.monotonic() > until:
                raise SystemExit(f"{name}: http://{host}:{port} does not answer: {lost}") from None
            time.sleep(0.5)


def closed(workload, rows, given, plan, work, say, node):
    say(workload.title)
    coding = "gzip" if workload.coding else ""
    file = work / f"{workload.name}.calls"
    workload.write(file, coding)
    verified, samples = {}, []
    for row in rows:
        found = checking.verify(given[row.key], workload, node, coding, moves=True)
        verified[row.key] = found | {"expected": checking.expected(found, workload)}
    # the first seconds are of cold caches, and are thrown away
    for turn in range(-1, plan.rounds):
        for row in rows:
            seconds = 1 if turn < 0 else plan.seconds
            point = attempt(
                lambda row=row, seconds=seconds, turn=turn: driving.closed(
                    given[row.key], workload, file, seconds, None, 997 * max(0, turn), core=None
                ),
                say, row,
            )
            if turn >= 0:
                samples.append({"row": row.key, "round": turn} | point)
    return section(workload, verified, samples)


def version():
    done = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).split("\n")[0].split("[")[0].strip()



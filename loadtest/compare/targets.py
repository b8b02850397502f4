"""Servers that the runner does not start, by their addresses: their resources are unknown, and
they receive calls about their node's data."""

import argparse
import subprocess
import time
from urllib.parse import urlsplit

import http_client
import response_checks
import wrk_runs
import load
import machine
import workloads
from servers import CONTROL, OURS, THEIRS, ExternalServer, Row
from stages import attempt, section

# Maximum duration of their start in seconds.
PATIENCE_SECONDS = 60
SECTIONS = {"single": ("block-30", "block-246"), "mix": ("mix",), "batch": ("batch",),
            "identity": ("identity",), "ssz": ("ssz",)}


def address(url):
    """Returns the URL of a server, and its address for a connection to it."""
    try:
        parts = urlsplit(url)
        usual = {"http": 80, "https": 443}[parts.scheme]
        port = parts.port or usual
    except (ValueError, KeyError):
        port = None
    if not port or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{url!r} is not http[s]://HOST[:PORT][/PATH]")
    return url, (parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/"))


def parse(text):
    """Parses NAME=URL,...: the servers to measure."""
    found = []
    for one in text.split(","):
        name, _, url = one.partition("=")
        if not name or not url:
            raise argparse.ArgumentTypeError(f"{one!r} is not NAME=URL")
        found.append((name, *address(url)))
    return found


def measure(args, plan, work, log):
    rows, external = [], {}
    node = args.node and args.node[1]
    for name, url, place in args.targets:
        kind = CONTROL if place == node else OURS if "sszip" in name else THEIRS
        rows.append(Row(name, name, kind, None, None))
        external[name] = ExternalServer(rows[-1], url, place)
        wait_for(name, url, place)
    results = {
        "machine": machine.describe([], lambda: {"wrk": version()}),
        "quiet": load.quiet_check(),
        "quick": args.quick, "given": True,
        "source": "Calls about what the node has: its last blocks, and what they name.",
        "rows": [{"key": r.key, "name": r.name, "kind": r.kind, "told": "", "keeps": ""} for r in rows],
        "absent": {}, "not_had": {}, "moving": {}, "complaints": {}, "sections": {}, "rates": [],
        "configs": {},
    }
    names = ",".join(f"{name}={url}" for name, url, _ in args.targets)
    results["machine"]["command"] = f"loadtest/compare/run --targets {names}"
    url, place = args.node or args.targets[0][1:]
    with http_client.Peer(*place) as peer:
        try:
            of = {workload.name: workload for workload in workloads.workloads_of_node(peer)}
        except (OSError, http_client.ConnectionLost, ValueError, TypeError, KeyError) as lost:
            raise SystemExit(f"{url}: JSON-RPC calls failed: {lost}; check the URL in --node or --targets") from None
    for section_name, members in SECTIONS.items():
        if section_name in args.only:
            for member in members:
                if member in of:
                    results["sections"][member] = closed(of[member], rows, external, plan, work, log, node)
    return results


def wait_for(name, url, place):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with http_client.Peer(*place, seconds=10) as peer:
                return peer.call("eth_chainId")
        except (OSError, http_client.ConnectionLost, ValueError, KeyError, AttributeError) as lost:
            if time.monotonic() > until:
                raise SystemExit(f"{name}: {url} did not respond within {PATIENCE_SECONDS} s: {lost}") from None
            time.sleep(0.5)


def closed(workload, rows, external, plan, work, log, node):
    log(workload.title)
    coding = "gzip" if workload.coding else ""
    verified, samples, files = {}, [], {}
    for number, row in enumerate(rows):
        server = external[row.key]
        files[row.key] = work / f"{workload.name}-{number}.calls"
        workload.write(files[row.key], coding, server.place[3])
        found = response_checks.verify(server, workload, node, coding, moves=True)
        verified[row.key] = found | {"expected": response_checks.expected(found, workload)}
    # the first round has cold caches, and is discarded
    for turn in range(-1, plan.rounds):
        for row in rows:
            seconds = 1 if turn < 0 else plan.seconds
            point = attempt(
                lambda row=row, seconds=seconds, turn=turn: wrk_runs.measure_closed_loop(
                    external[row.key], workload, files[row.key], seconds, node, 997 * max(0, turn),
                    plan.connections, core=None,
                ),
                log, row,
            )
            if turn >= 0:
                samples.append({"row": row.key, "round": turn} | point)
    return section(workload, verified, samples)


def version():
    done = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).split("\n")[0].split("[")[0].strip()

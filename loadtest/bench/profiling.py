"""Profiles of the worker, sampled with perf while wrk sends requests.

The event is the CPU clock: it exists on virtual machines without hardware counters for cycles
and instructions.
"""

import re
import subprocess

from load import Wrk
from stack import Nginx, sszip_coder
from throughput import CONNECTIONS, DEFAULT, REFERENCE

FREQUENCY = 1999
SHOWN = 12
LEAST_PERCENT = 0.5
SEPARATOR = "|"
LINE = re.compile(r"^\s*([\d.]+)%\s*\|(\S+)\s*\|\[.\]\s+(\S.*?)\s*$")


def run(work, node, bodies, levels, seconds, log):
    """Returns profiles of gzip 6, the default and the `every` level, with one body per group."""
    log("profiling")
    coders = [REFERENCE, DEFAULT]
    if levels["every"]:
        coders.append(sszip_coder(levels["every"]))
    chosen = {}
    for body in bodies:
        # The body in the middle of the group's list.
        chosen.setdefault(body.group, []).append(body)
    profiles = []
    for group in chosen.values():
        body = group[len(group) // 2]
        for coder in coders:
            with Nginx(work, f"profile {coder.name}", node.port, {"/": coder}) as nginx:
                profiles.append(
                    {"coder": coder.name, "body": body.name}
                    | sample(work, nginx, body, coder, seconds)
                )
    return profiles


def sample(work, nginx, body, coder, seconds, connections=CONNECTIONS, pid=None, keys=None):
    """Profiles the worker, or the process `pid`."""
    data = work / "perf.data"
    load = Wrk(nginx.port, body, coder, connections, seconds + 1, keys=keys)
    record = subprocess.run(
        ["perf", "record", "-e", "cpu-clock", "-F", str(FREQUENCY), "-o", str(data)]
        + ["-p", str(pid or nginx.worker), "--", "sleep", str(seconds)],
        capture_output=True,
        text=True,
    )
    load.result()
    if record.returncode != 0:
        return {"failed": record.stderr.strip().splitlines()[-1]}
    rows = report(data)
    return {"objects": total(rows, ["object"]), "symbols": total(rows, ["object", "symbol"])}


def report(data):
    output = subprocess.run(
        ["perf", "report", "-i", str(data), "--stdio", "--no-children"]
        + ["-F", "overhead,dso,sym", "-t", SEPARATOR],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = []
    for line in output.splitlines():
        if found := LINE.match(line):
            share, dso, symbol = found.groups()
            # Symbols of a stripped object without a name share one row.
            symbol = "(no symbol)" if symbol.startswith("0x") else symbol
            rows.append({"percent": float(share), "object": dso, "symbol": symbol})
    return rows


def total(rows, keys):
    """Sums shares by the keys, sorted in descending order, without small ones."""
    sums = {}
    for row in rows:
        key = tuple(row[k] for k in keys)
        sums[key] = sums.get(key, 0.0) + row["percent"]
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    return [
        dict(zip(keys, key, strict=True)) | {"percent": round(share, 2)}
        for key, share in ranked[:SHOWN]
        if share >= LEAST_PERCENT
    ]

"""Runs the core's micro-benchmarks on the same bodies.

They are cargo benchmarks because the crate selects its libdeflate; the other libraries are the
distribution's, loaded at run time.
"""

import json
import subprocess

from stack import ROOT, WORKER_CORE, pinned


def run(work, identities, quick, log):
    log("measuring the codecs without nginx")
    return bench("codecs", work, written(work, identities), quick)


def written(work, identities):
    """Writes each body to a file, and returns the folder."""
    folder = work / "bodies"
    folder.mkdir(exist_ok=True)
    for name, content in identities.items():
        (folder / name.replace("/", "_")).write_bytes(content)
    return folder


def bench(name, work, folder, quick):
    """Runs the benchmark with the bodies in the folder, or without one with its own; returns
    its results."""
    options = ["--rounds", "1", "--ms", "2"] if quick else ["--rounds", "5", "--ms", "10"]
    return bench_with(name, work, options + ([str(folder)] if folder else []))


def bench_with(name, work, options, features=()):
    """Runs the benchmark with other options; returns its results."""
    output = work / f"{name}.json"
    build = ["cargo", "bench", "--quiet", "-p", "sszip-core", "--bench", name]
    build += ["--features", ",".join(features)] if features else []
    subprocess.run([*build, "--no-run"], cwd=ROOT, check=True)
    command = [*build, "--", "--json", str(output), *options]
    subprocess.run(pinned(WORKER_CORE, command), cwd=ROOT, check=True)
    return json.loads(output.read_text())

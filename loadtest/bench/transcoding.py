"""The ssz suite: the core's SSZ walkers in comparison with typed crates.

`ssz-bench` of `loadtest/ssz-peers` measures all in one process, except the witnesses; this
module runs it and adds the versions.
"""

import json
import os
import subprocess

import machine
from stack import ROOT, WORKER_CORE, pinned

SECTIONS = ["block", "state", "witness"]
NAME = "part-06-ssz"
PEERS = ROOT / "loadtest/ssz-peers"
CRATES = [
    "libssz", "ethereum_ssz", "ssz_types", "tree_hash", "ethereum_hashing", "ssz_rs",
    "serde_json", "sonic-rs", "const-hex",
]


def versions():
    return {
        "rustc": machine.output("rustc", "--version").removeprefix("rustc "),
        **{crate: machine.locked_version(crate, PEERS / "Cargo.lock") for crate in CRATES},
    }


def run(args, work, log):
    """Runs the selected sections, which are named like the parts of ssz-bench."""
    out = work / "ssz.json"
    only = [word for section in args.only for word in ("--only", section)]
    quick = ["--quick"] if args.quick else []
    # a debug build is sufficient to test that it runs
    profile = [] if args.quick else ["--release"]
    build = ["cargo", "build", "--locked", "--bin", "ssz-bench", *profile]
    log("building ssz-bench")
    subprocess.run(build, cwd=PEERS, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", PEERS / "target")
    folder = ROOT / target / ("debug" if args.quick else "release")
    command = [folder / "ssz-bench", *quick, *only]
    command += ["--corpus", args.corpus.parent, "--work", work, out]
    subprocess.run(pinned(WORKER_CORE, [str(word) for word in command]), check=True)
    results = json.loads(out.read_text())
    sources = {"block", "witness"} & set(args.only)
    return results | {"recorded": sources <= set(results["recorded"])}

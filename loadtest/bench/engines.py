"""Runs the micro-benchmarks of the core's crate on the same bodies.

They are cargo benches because the crate decides which libdeflate ships; the
rivals are the distribution's shared libraries, opened at run time.
"""

import json
import subprocess

from stack import ROOT, WORKER_CORE, pinned


def run(work, identities, quick, say):
    say("codecs alone")
    return bench("codecs", work, written(work, identities), quick)


def written(work, identities):
    """A folder with the bodies, each a file."""
    folder = work / "bodies"
    folder.mkdir(exist_ok=True)
    for name, content in identities.items():
        (folder / name.replace("/", "_")).write_bytes(content)
    return folder


def bench(name, work, folder, quick):
    """What the bench of that name says of the bodies in the folder; without
    one, of its own."""
    options = ["--rounds", "1", "--ms", "2"] if quick else ["--rounds", "5", "--ms", "10"]
    return bench_with(name, work, options + ([str(folder)] if folder else []))


def bench_with(name, work, options, features=()):
    """The same, with options of its own."""
    output = work / f"{name}.json"
    build = ["cargo", "bench", "--quiet", "-p", "sszip-core", "--bench", name]
    build += ["--features", ",".join(features)] if features else []
    subprocess.run([*build, "--no-run"], cwd=ROOT, check=True)
    command = [*build, "--", "--json", str(output), *options]
    subprocess.run(pinned(WORKER_CORE, command), cwd=ROOT, check=True)
    return json.loads(output.read_text())

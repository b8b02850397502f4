"""Runs the codec micro-benchmark of the core's crate on the same bodies.

It is a cargo bench because the crate decides which libdeflate ships; the
rivals are the distribution's shared libraries, opened at run time.
"""

import json
import subprocess

from stack import ROOT, WORKER_CORE, pinned


def run(work, identities, quick, say):
    say("codecs alone")
    folder = work / "bodies"
    folder.mkdir(exist_ok=True)
    for name, content in identities.items():
        (folder / name.replace("/", "_")).write_bytes(content)
    output = work / "codecs.json"
    build = ["cargo", "bench", "--quiet", "-p", "sszip-core", "--bench", "codecs"]
    subprocess.run([*build, "--no-run"], cwd=ROOT, check=True)
    command = [*build, "--", "--json", str(output)]
    command += ["--rounds", "1", "--ms", "2"] if quick else ["--rounds", "5", "--ms", "10"]
    subprocess.run(pinned(WORKER_CORE, [*command, str(folder)]), cwd=ROOT, check=True)
    return json.loads(output.read_text())

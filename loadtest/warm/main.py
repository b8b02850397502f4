"""Compares the rate of `sszip warm` through nginx with the rate at which oha fetches the same requests
from the node, with the same concurrency. The node delays its responses."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "lib"))

from stack import MODULE, OHA, ROOT, Coder, Nginx, Node, wait_for  # noqa: E402

SSZIP = os.environ.get("SSZIP_COMMAND", ROOT / "build/bin/sszip")
TARGET = 0.9
# Blocks after the last final one.
RECENT_BLOCKS = 10


def followed_cache(node):
    """A cache that follows the node's chain: responses about final blocks are written to disk."""
    return Coder(
        "sszip with a store",
        f"sszip on; sszip_cache on; sszip_cache_namespace bench; sszip_cache_head http://127.0.0.1:{node.port};",
        "",
        http="sszip_cache_path @PREFIX@/cache max_size=2g memory=256m; sszip_cache_memory 256m;",
        module=MODULE,
    )


def finalize(node, block):
    command = json.dumps([{"finalize": block}]).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{node.port}/chain", command)
    with urllib.request.urlopen(request, timeout=30):
        pass


def wait_until_followed(nginx):
    def is_followed():
        # there is no status before the owner has started
        return any(chain["final"] for chain in (nginx.owner_status() or {}).get("chains", []))

    wait_for(is_followed, "the chain to be followed")


def sszip_warm(url, blocks, *options):
    command = [SSZIP, "warm", "--url", url, "--blocks", f"1-{blocks}", *options]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def node_rate(url, lines, count, concurrency):
    """Returns the requests per second of the node."""
    command = [OHA, "--no-tui", "--output-format", "json", "-n", str(count), "-c", str(concurrency)]
    command += ["-m", "POST", "-Z", lines, "-T", "application/json", url]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["summary"]["requestsPerSec"]


def measure(work, blocks, latency, concurrency):
    """Returns the rates of the node and of the command, and the command's summary."""
    options = ["--chain", "--chain-length", blocks + RECENT_BLOCKS, "--latency-ms", latency]
    with Node(work, [], options=options) as node:
        finalize(node, blocks)
        url = f"http://127.0.0.1:{node.port}/"
        lines = work / "requests"
        lines.write_bytes(sszip_warm(url, blocks, "--dry-run"))
        count = lines.read_bytes().count(b"\n")
        direct = node_rate(url, lines, count, concurrency)
        with Nginx(work, "warm", node.port, {"/": followed_cache(node)}) as nginx:
            wait_until_followed(nginx)
            url = f"http://127.0.0.1:{nginx.port}/"
            socket = nginx.prefix / "cache/owner.sock"
            more = ["--json", "--concurrency", str(concurrency), "--socket", socket]
            summary = json.loads(sszip_warm(url, blocks, *more))
    assert summary["requests"]["stored"] == count, summary
    return direct, summary["per_second"], summary


def main():
    parser = argparse.ArgumentParser(prog="loadtest/warm/run", description=__doc__)
    parser.add_argument("--blocks", type=int, default=2_000)
    parser.add_argument("--latency", type=int, default=20, metavar="MS", help="of the node")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8, 64])
    arguments = parser.parse_args()
    is_met = True
    print("| Concurrency | Node, requests/s | `sszip warm`, requests/s | Share | On disk |")
    print("|---|---|---|---|---|")
    for concurrency in arguments.concurrency:
        with tempfile.TemporaryDirectory(prefix="sszip-warm-") as work:
            direct, warm, summary = measure(Path(work), arguments.blocks, arguments.latency, concurrency)
        on_disk = summary["owner"]["on_disk"]
        print(f"| {concurrency} | {direct:.0f} | {warm:.0f} | {warm / direct:.2f} | {on_disk} |", flush=True)
        is_met &= warm >= TARGET * direct
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())

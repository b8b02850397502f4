"""Processor time of Lua functions: `sszip.get` in comparison with a shared dict's `get`, and
`sszip.gzip` with lua-zlib's deflate, in one worker, in turn, each in a loop that LuaJIT
compiles. Writes a table of medians, and of ratios within a round."""

import argparse
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "lib"))

import machine  # noqa: E402
from stack import MODULE, NGINX, ROOT, free_port, stop, wait_for_port  # noqa: E402

SIZES = {"30 KB": 30_000, "300 KB": 300_000}


def body(size):
    """Returns a block with its transactions in the notation of nodes, generated with random
    hashes."""
    rand = random.Random(7)

    def digits(length):
        return "0x" + "".join(rand.choices("0123456789abcdef", k=length))

    transactions = []
    block, people = digits(64), [digits(40) for _ in range(60)]
    text = ""
    while len(text) < size:
        transactions += [
            {
                "blockHash": block,
                "blockNumber": "0x1312d00",
                "from": rand.choice(people),
                "gas": hex(rand.randrange(21_000, 500_000)),
                "gasPrice": hex(rand.randrange(10**9, 10**11)),
                "hash": digits(64),
                "input": rand.choice(["0x", "0xa9059cbb" + "0" * 24 + digits(40)[2:] + "0" * 48 + digits(16)[2:]]),
                "nonce": hex(rand.randrange(10**6)),
                "r": digits(64),
                "s": digits(64),
                "to": rand.choice(people),
                "transactionIndex": hex(len(transactions)),
                "type": "0x2",
                "value": hex(rand.randrange(10**18)),
            }
            for _ in range(10)
        ]
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"hash": block, "transactions": transactions}}, separators=(",", ":"))
    return text[:size].encode()


class Worker:
    """nginx with one worker, which measures."""

    def __init__(self, module, rounds):
        self.prefix = pathlib.Path(tempfile.mkdtemp(prefix="sszip-lua-"))
        self.prefix.chmod(0o755)
        self.port = free_port()
        values = {
            "module": module,
            "prefix": self.prefix,
            "library": ROOT / "configs/openresty/lua",
            "port": self.port,
            "rounds": rounds,
            "user": "user root;" if os.geteuid() == 0 else "",
        }
        text = (HERE / "nginx.conf.in").read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        (self.prefix / "nginx.conf").write_text(text)
        log = self.prefix / "error.log"
        command = [NGINX, "-p", self.prefix, "-c", self.prefix / "nginx.conf", "-e", log]
        self.process = subprocess.Popen(command)
        wait_for_port(self.port, self.process, log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)
        shutil.rmtree(self.prefix, ignore_errors=True)

    def fetch(self, target, data=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{target}", data, timeout=600) as answer:
            return answer.read().decode()

    def samples(self, kind, data, number):
        found = {}
        for line in self.fetch(f"/?kind={kind}&number={number}", data).splitlines():
            name, value = line.split(" ")
            found.setdefault(name, []).append(float(value))
        return found


def row(operation, size, ours, theirs, found):
    ratios = [their / our for our, their in zip(found[ours], found[theirs], strict=True)]
    micro = [f"{statistics.median(found[name]):.1f}" for name in (ours, theirs)]
    return f"| {operation} | {size} | {micro[0]} | {micro[1]} | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=ROOT / "loadtest/results/part-13-lua.md", type=pathlib.Path,
                        help="result file (default: loadtest/results/part-13-lua.md)")
    parser.add_argument("--rounds", default=15, type=int, help="repetitions of each measurement (default: 15)")
    parser.add_argument("--module", default=MODULE,
                        help="module to measure (default: SSZIP_MODULE, or that of `make build`)")
    arguments = parser.parse_args()
    rows, sizes = [], []
    busy = os.getloadavg()[0]
    with Worker(pathlib.Path(arguments.module).resolve(), arguments.rounds) as worker:
        versions = worker.fetch("/versions")
        for size, length in SIZES.items():
            data, loops = body(length), 300_000_000 // length
            found = worker.samples("get", data, loops)
            rows.append(row("`get` beside the shared dict's", size, "sszip", "dict", found))
            found = worker.samples("set", data, loops // 4)
            rows.append(row("`set` beside the shared dict's", size, "sszip", "dict", found))
            found = worker.samples("gzip", data, max(20, loops // 100))
            for ours, theirs in (("sszip-1", "zlib-1"), ("sszip-1", "zlib-6"), ("sszip-6", "zlib-6")):
                rows.append(row(f"`gzip`, level {ours[-1]}, beside lua-zlib's level {theirs[-1]}", size, ours, theirs, found))
            coded = {name[6:]: int(values[0]) for name, values in found.items() if name.startswith("bytes-")}
            sizes.append(f"{size}: sszip 1 {coded['sszip-1']}, sszip 6 {coded['sszip-6']}, lua-zlib 1 {coded['zlib-1']}, lua-zlib 6 {coded['zlib-6']}")
            found = worker.samples("gunzip", data, max(20, loops // 50))
            rows.append(row("`gunzip` beside lua-zlib's", size, "sszip", "zlib", found))
    text = f"""# Lua

`loadtest/lua/run --rounds {arguments.rounds}`: microseconds of the worker's processor for one call,
medians of {arguments.rounds} rounds; ratios within a round, above 1 where sszip takes less. Bodies are
generated blocks. Values are checked before anything is timed.

| | |
|---|---|
| Commit | {machine.commit() or "unknown"} |
| Machine | {machine.cpu_model()}, Linux {platform.release()}, load {busy:.1f} before the run |
| Versions | {versions} |

| | body | sszip, us | other, us | ratio | from, to |
|---|---|---|---|---|---|
{chr(10).join(rows)}

Bytes of gzip, of {"; of ".join(sizes)}.
"""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""Scaling of sszip in nginx: more workers, connections and keys, and a larger store; and a
model for values beyond the measured ones.

loadtest/compare/scale --quick
loadtest/compare/scale --store-gb 50

Writes scaling.html, scaling.md and scaling.json.
"""

import argparse
import json
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# after this folder, which has modules of the same names
sys.path.insert(1, str(HERE.parent / "lib"))

import http_client  # noqa: E402
import calls  # noqa: E402
import wrk_runs  # noqa: E402
import load  # noqa: E402
import machine  # noqa: E402
import model  # noqa: E402
import scaling_report  # noqa: E402
import servers  # noqa: E402
from bodies import compact  # noqa: E402
from calls import Workload  # noqa: E402
from stack import MODULE, REPLAY_NODE, ROOT, Coder, Nginx, Node  # noqa: E402

SECTIONS = ["workers", "connections", "keys", "store"]
WORKERS = [1, 2, 4]
CONNECTIONS = [1, 10, 100, 1_000, 10_000]
KEYS = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
SKEW = 1.0
# Lengths of responses: 1 KB, 30 KB, and one that deflate only halves.
SMALL, MIDDLE, LONG = 1_000, 30_000, 300_000
METHODS = {SMALL: "eth_getBlockReceipts", MIDDLE: "eth_getLogs", LONG: "debug_getRawBlock"}
HOT, MEMORY = 16, 64
VALID = " ".join(f"sszip_cache_valid {c} 24h;" for c in ("immutable", "unfinalized", "tip"))
# Free space that remains on the disk.
SPARE_GB = 10
WINDOW = 48


def parse(argv):
    parser = argparse.ArgumentParser(prog="loadtest/compare/scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="test the harness in two minutes; the results are meaningless")
    parser.add_argument("--only", nargs="+", metavar="SECTION", choices=SECTIONS,
                        help=f"run only these sections ({', '.join(SECTIONS)})")
    parser.add_argument("--store-gb", type=float, default=16, help="maximum size of the store in GB (default: 16)")
    parser.add_argument("--out", type=Path,
                        help="folder of the results (default: loadtest/results; quick: build/bench)")
    parser.add_argument("--name", default="scaling", help="name of the result files")
    args = parser.parse_args(argv)
    args.only = args.only or SECTIONS
    return args


def log(text):
    print(f"scaling: {text}", flush=True)


def answers(folder):
    """Writes a node's folder with a response of each length."""
    dice = random.Random(3)

    def words(size, share):
        """Returns hexadecimal words with a share of random ones, like real responses."""
        one = dice.randbytes(16).hex()
        return [dice.randbytes(16).hex() if dice.random() < share else one for _ in range(size // 35)]

    results = {
        SMALL: words(SMALL, 0.3),
        MIDDLE: words(MIDDLE, 0.3),
        LONG: "0x" + dice.randbytes(LONG // 2).hex(),
    }
    folder.mkdir(parents=True)
    pairs = [
        {
            "request": {"jsonrpc": "2.0", "id": 1, "method": METHODS[size], "params": []},
            "response": {"jsonrpc": "2.0", "id": 1, "result": result},
        }
        for size, result in results.items()
    ]
    (folder / "answers.json").write_bytes(compact(pairs))


def workload(name, size, keys, skew=0.0, connections=32):
    method, hash = METHODS[size], calls.keyed_hash()
    params = [{"blockHash": hash}] if method == "eth_getLogs" else [hash]
    return Workload(name, name, [calls.call(method, params)], keys=keys, skew=skew,
                    connections=connections)


def stored(hot, memory, disk="64g"):
    """Returns sszip with a store, with the memory of workers and of the owner in MB."""
    return Coder(
        "sszip",
        f"sszip on; sszip_cache on; sszip_cache_namespace mainnet; {VALID}",
        "gzip",
        http=f"sszip_cache_memory {hot}m; "
        f"sszip_cache_path @PREFIX@/cache max_size={disk} memory={memory}m;",
        module=MODULE,
    )


class MeasuredServer:
    """One nginx in front of the node, with its owner's status."""

    def __init__(self, work, node, coder, workers=1, core=0, connections=4096):
        self.node = node
        self.nginx = Nginx(work, f"scale-{time.monotonic_ns()}", node.port, {"/": coder}, core=core,
                           workers=workers, connections=connections)
        row = servers.Row("sszip-nginx", "sszip in nginx", servers.OURS, None, None)
        self.server = servers.Server(row, self.nginx, "", [self.nginx.process.pid])
        self.work = work

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()

    def run(self, workload, seconds, first=0, core=wrk_runs.LOAD_CORE):
        """Returns one sample with the origins of its responses."""
        file = self.work / f"{workload.name}.calls"
        workload.write(file, "gzip")
        before = self.lookups()
        point = wrk_runs.measure_closed_loop(self.server, workload, file, seconds, http_client.local_address(self.node.port), first, core=core)
        after = self.lookups()
        found = {name: after[name] - before[name] for name in after}
        requests = point["requests"]
        point["shares"] = {
            "memory": found.get("memory", 0) / requests,
            "store": found.get("store", 0) / requests,
            "node": point["asked"],
        }
        point["shares"]["hot"] = max(0.0, 1 - sum(point["shares"].values()))
        return point

    def lookups(self):
        status = self.nginx.owner_status()
        return {k: v for k, v in (status or {"lookups": {}})["lookups"].items() if isinstance(v, int)}

    def status(self):
        return self.nginx.owner_status() or {}


def workers(work, node, seconds):
    """Measures several numbers of workers without pinning: wrk uses a part of the cores."""
    out = []
    for count in WORKERS:
        log(f"{count} workers")
        with MeasuredServer(work, node, stored(128, 256), count, core=None) as place:
            one = workload("workers", MIDDLE, 1, connections=64)
            place.run(one, 1, core=None)
            out.append({"workers": count} | place.run(one, seconds, core=None))
    return out


def connections(work, node, seconds, most):
    out = []
    with MeasuredServer(work, node, stored(128, 256), connections=16_000) as place:
        place.run(workload("warm", MIDDLE, 1), 1)
        for count in (c for c in CONNECTIONS if c <= most):
            log(f"{count:,} connections")
            one = workload("connections", MIDDLE, 1, connections=count)
            out.append({"connections": count} | place.run(one, seconds))
    return out


def costs(work, node, seconds):
    """Measures the CPU time of a request by the origin of its response, one origin at a time."""
    log("CPU time of a response from each tier")
    found, keys = {}, 20_000
    with MeasuredServer(work, node, stored(128, 256)) as place:
        hot = workload("cost-hot", SMALL, 500)
        place.run(hot, 1)
        found["hot"] = place.run(hot, seconds)
        found["node"] = place.run(workload("cost-node", SMALL, 0), seconds)
    many = workload("cost-many", SMALL, keys)
    with MeasuredServer(work, node, stored(1, 256)) as place:
        fill_all(place, many, keys)
        found["memory"] = place.run(many, seconds)
        status = place.status()["memory"]
        entry = status["bytes"] / max(1, status["entries"])
    with MeasuredServer(work, node, stored(1, 1)) as place:
        fill_all(place, many, keys)
        # a restart moves the owner's memory to files
        place.nginx.restart()
        place.server.roots = [place.nginx.process.pid]
        fill_all(place, many, keys)
        found["store"] = place.run(many, seconds)
    return {"places": found, "entry_bytes": entry, "costs": solve_costs(found)}


def solve_costs(found):
    """Returns the cost per origin: responses of a run have mostly one origin, and the costs
    are solve_costs so that all runs match."""
    cost = {place: point["cpu_us"] for place, point in found.items()}
    for _ in range(50):
        for place, point in found.items():
            mine = point["shares"][place]
            others = sum(s * cost[p] for p, s in point["shares"].items() if p != place)
            if mine > 0.3:
                cost[place] = max(0.1, (point["cpu_us"] - others) / mine)
    return cost


def fill_all(place, workload, keys):
    """Requests all keys in turn until hardly any request reaches the node."""
    rate = 4_000
    for _ in range(6):
        point = place.run(workload, max(1, round(keys / rate)))
        rate = max(rate, point["rps"] * 0.9)
        if point["asked"] < 0.01 and point["requests"] >= keys:
            return
    log(f"{workload.name}: {point['asked']:.0%} of the requests still reach the node after 6 passes")


def keys(work, node, seconds, warm, most, measured_costs):
    """Measures Zipf's distribution over growing numbers of keys, from an empty cache after a
    warm-up."""
    out = []
    rooms = {name: mb * 2**20 / measured_costs["entry_bytes"] for name, mb in (("hot", HOT), ("memory", MEMORY))}
    for count in (c for c in KEYS if c <= most):
        log(f"{count:,} keys")
        with MeasuredServer(work, node, stored(HOT, MEMORY)) as place:
            one = workload("keys", SMALL, count, SKEW)
            before = place.run(one, warm)["requests"]
            point = place.run(one, seconds, first=1)
            requests = before + point["requests"] / 2
            expected = model.shares(count, SKEW, rooms["hot"], rooms["memory"], requests)
            out.append(
                {"keys": count, "before": before, "model": expected,
                 "model_cpu_us": model.cost(expected, measured_costs["costs"]),
                 "measured_shares_cpu_us": model.cost(point["shares"], measured_costs["costs"])}
                | point
            )
    return out


def store(work, node, sizes, seconds):
    """Stores entries of 150 KB until the store has each size, and then requests any of them."""
    out, requested = [], 0
    with MeasuredServer(work, node, stored(1, 64, "200g")) as place:
        for size in sizes:
            began = time.monotonic()
            while (gigabytes := on_disk(place)) < size:
                requested = fill(place, requested, seconds)
            filled_to = requested // (2 * WINDOW) * WINDOW
            took = time.monotonic() - began
            log(f"{gigabytes:.1f} GB on disk, {filled_to:,} entries requested")
            one = workload("store", LONG, filled_to, skew=1e-9, connections=16)
            place.run(one, 1)
            point = place.run(one, seconds, first=1)
            owner = place.status()["store"]
            out.append(
                {"gb": gigabytes, "asked_for": filled_to, "filled_s": took,
                 "entries": owner["entries"], "owner_kb": resident(place.nginx.owner)}
                | point
            )
    return out


def fill(place, before, seconds):
    """Requests each key twice, because an entry is written to disk on its second request;
    returns the number of requests."""
    one = workload("fill", LONG, 1, connections=16)
    file = place.work / "fill.calls"
    one.write(file, "gzip")
    more = {"WINDOW": str(WINDOW), "START": str(before)}
    return before + wrk_runs.wrk(place.server, one, file, seconds, more=more)["requests"]


def on_disk(place):
    return place.status()["store"]["bytes"] / 1e9


def resident(pid):
    from envoys import resident as kb

    return kb(pid)


def extrapolated(measured_costs, measured):
    """Returns the model's values for configurations that were not measured."""
    out = []
    entry = measured_costs["entry_bytes"]
    for count in (10_000_000, 100_000_000):
        for hot_mb, memory_mb in ((16, 64), (128, 256), (1_024, 4_096)):
            # one day with 2,000 requests per second
            requests = 2_000 * 86_400
            shares = model.shares(count, SKEW, hot_mb * 2**20 / entry, memory_mb * 2**20 / entry, requests)
            cpu = model.cost(shares, measured_costs["costs"])
            groups = model.bins(count, SKEW)
            out.append({"keys": count, "hot_mb": hot_mb, "memory_mb": memory_mb, "shares": shares,
                        "cpu_us": cpu, "per_core": 1e6 / cpu,
                        "store_gb": model.entries(groups, requests) * entry / 1e9})
    return out


def sizes(args):
    free = shutil.disk_usage(tempfile.gettempdir()).free / 1e9 - SPARE_GB
    wanted = [0.2] if args.quick else [s for s in (1, 4, 10, 16, 25, 50) if s <= args.store_gb]
    return [s for s in wanted if s <= free], free


def by_keys(work, node, seconds, warm, most):
    measured_costs = costs(work, node, seconds)
    found = keys(work, node, seconds, warm, most, measured_costs)
    return {"costs": measured_costs, "keys": found, "extended": extrapolated(measured_costs, found)}


def by_size(work, node, args, seconds, notes):
    wanted, free = sizes(args)
    notes.append(f"{free + SPARE_GB:.0f} GB of disk were free.")
    return {"store": store(work, node, wanted, seconds)}


def main():
    args = parse(sys.argv[1:])
    for path in (MODULE, REPLAY_NODE):
        if not path.exists():
            raise SystemExit(f"{path} is missing; run make build")
    if not shutil.which("wrk"):
        raise SystemExit("wrk is missing; run apt-get install wrk")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65_536, hard), hard))
    most = min(CONNECTIONS[-1], min(65_536, hard) // 2)
    quick = args.quick
    seconds, warm, most_keys = (1, 1, 10_000) if quick else (5, 40, KEYS[-1])
    results = {"machine": machine.describe(sys.argv[1:], servers.versions), "quick": quick,
               "quiet": load.quiet_check(), "notes": [], "skew": SKEW, "hot_mb": HOT, "memory_mb": MEMORY}
    results["machine"]["command"] = " ".join(["loadtest/compare/scale", *sys.argv[1:]])
    if most < CONNECTIONS[-1]:
        results["notes"].append(f"No more than {most:,} connections: the limit of open files is {hard:,}.")
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="sszip-scale-"))
    work.chmod(0o755)
    try:
        answers(work / "answers")
        with Node(work, [work / "answers"], options=["--lenient"]) as node:
            of = {
                "workers": lambda: {"workers": workers(work, node, seconds)},
                "connections": lambda: {
                    "connections": connections(work, node, seconds, 100 if quick else most)
                },
                "keys": lambda: by_keys(work, node, seconds, warm, most_keys),
                "store": lambda: by_size(work, node, args, seconds, results["notes"]),
            }
            for name in args.only:
                try:
                    results |= of[name]()
                except wrk_runs.LoadError as failed:
                    results["notes"].append(f"{name}: nothing was measured: {failed}.")
                    log(results["notes"][-1])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    results["seconds"] = time.monotonic() - began
    out = args.out or ROOT / ("build/bench" if quick else "loadtest/results")
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{args.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / f"{args.name}.md").write_text(scaling_report.markdown(results, args.name))
    (out / f"{args.name}.html").write_text(scaling_report.html(results))
    log(f"wrote {args.name}.html, {args.name}.md and {args.name}.json in {out}")


if __name__ == "__main__":
    main()

"""Measures the fleet tier (docs/fleet.md): the time that a fleet hit adds, the node requests that a
second machine is spared, and the throughput with a fleet whose server is dead."""

import argparse
import datetime
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "lib"))

import dead_fleet  # noqa: E402
import latency  # noqa: E402
import machines  # noqa: E402
from fleet_servers import machine_facts  # noqa: E402
from page import markdown as table  # noqa: E402

RESULTS = HERE.parent / "results"
SECTIONS = ["latency", "machines", "dead"]
MOST_ADDED_US = 150
LEAST_SAVED = 0.6
# Classes of calls in the order of the table; see machine_traffic.py.
SHAREABLE = ["final", "one block"]
CLASSES = [*SHAREABLE, "unanchored", "head"]
LEAST_THROUGHPUT = 0.98


def log(text):
    print(f"fleet: {text}", file=sys.stderr, flush=True)


def verdict(is_met):
    return "met" if is_met else "not met"


def latency_text(samples):
    rows, costs = [], []
    for size, rounds in samples.items():
        mid = {name: median(sample[name] for sample in rounds) for name in rounds[0]}
        for kind in ("fleet", "memory"):
            owner, worker, faults, sleeps = (mid[f"{kind}_{name}"] for name in latency.COSTS)
            reply = f"{mid['reply']:.0f}" if kind == "fleet" else ""
            costs.append([f"{size}, {kind} hit", reply, f"{owner:.0f}", f"{worker:.0f}", f"{faults:.1f}", f"{sleeps:.1f}"])
        shares = f"{mid['fleet_share']:.0%}, {mid['memory_share']:.0%}"
        rows.append([size, *(f"{mid[name]:.0f}" for name in ("length", "fleet", "memory", "get", "added")), shares])
    heads = ["", "value, bytes", "fleet hit", "owner's memory hit", "GET", "added", "requests that were such hits"]
    added = {size: median(sample["added"] for sample in rounds) for size, rounds in samples.items()}
    verdicts = ", ".join(f"{size}: {verdict(most <= MOST_ADDED_US)}" for size, most in added.items())
    return [
        "## Latency of a fleet hit",
        "p50 in microseconds, through one worker, medians of the rounds. *GET* is `sszip fleet ping` of the same owner: "
        "the same client and connection type, the value's length, a millisecond apart. The server and the owner have a core "
        "each. *Added* is the fleet hit without the memory hit and the GET.",
        table(heads, rows),
        f"Goal: at most {MOST_ADDED_US} us added. {verdicts}.",
        "Costs of a request, means: *reply*, the time from the owner's `GET` to the reply, which contains the waits for sleeping "
        "processes; CPU time; page faults and sleeps of the owner's threads.",
        table(["", "reply, us", "owner's CPU, us", "worker's CPU, us", "page faults", "sleeps"], costs),
    ]


def machines_text(results, arguments):
    rows = []
    for has_fleet, pair in results.items():
        for number, result in enumerate(pair):
            counts = result["counts"]
            fleet = result["fleet"] or {"lookups": {"hit": 0}}
            rows.append([
                f"{'fleet' if has_fleet else 'no fleet'}, machine {number + 1}",
                f"{counts.get('requests', 0):,}",
                f"{result['node_requests']:,}",
                *(f"{counts.get(f'{name} misses', 0):,}" for name in CLASSES),
                f"{fleet['lookups']['hit']:,}",
                f"{result['hit_p50_ms']:.2f}, {result['hit_p99_ms']:.2f}",
            ])  # fmt: skip
    without, shared = results[False][1], results[True][1]

    def misses(result, classes):
        return sum(result["counts"].get(f"{name} misses", 0) for name in classes)

    def drop_of(count):
        """Returns the part of a count per request that is missing with the fleet."""
        with_fleet, alone = (count(result) / max(1, result["counts"].get("requests", 0)) for result in (shared, without))
        return 1 - with_fleet / max(1e-9, alone)

    drop = drop_of(lambda result: result["node_requests"])
    shareable_drop = drop_of(lambda result: misses(result, SHAREABLE))
    shareable = misses(without, SHAREABLE) / max(1, misses(without, CLASSES))
    failures = [failure for pair in results.values() for result in pair for failure in result["failures"]]
    heads = ["", "requests", "node requests", *(f"misses, {name}" for name in CLASSES), "fleet hits", "hits p50, p99, ms"]
    parts = [
        "## Node requests of a second machine",
        f"Two machines in network namespaces, {arguments.rate} requests/s each from {arguments.clients} clients of their own "
        f"(loadtest/lib/traffic.py), slots of {arguments.slot_ms} ms, {arguments.seconds} s; the second machine starts "
        f"{arguments.lead} s later. *Final* are `eth_chainId` and calls about old blocks, *one block* blocks, receipts, transactions "
        "and logs of one block that is not final when it is requested: a fleet may share their responses. It shares none that depend "
        "on the *head*, or are *unanchored*: the state at the number of a recent block, logs of several recent blocks.",
        table(heads, rows),
        f"Node requests of the second machine, per request: {drop:.0%} fewer with the fleet; misses that may be shared: {shareable_drop:.0%} "
        f"fewer. Goal: {LEAST_SAVED:.0%} fewer: {verdict(drop >= LEAST_SAVED)}.",
        f"Without the fleet {shareable:.0%} of the second machine's misses may be shared. Two machines that start empty and have equal "
        "traffic are each the first to request half of such responses, so that sharing all of them at once would save "
        f"{shareable / 2:.0%}; more only the later the second machine starts.",
    ]
    if failures:
        parts += [f"{len(failures)} requests failed, such as {failures[0]}"]
    return parts, failures


def dead_text(samples, tail):
    rows, ratios = [], []
    for name in ("hits", "misses"):
        base = samples[name, "without"]
        for row in ("without", "refused", "stopped"):
            mine = samples[name, row]
            ratio = median(one["rps"] / other["rps"] for one, other in zip(mine, base, strict=True))
            cpu = median(one["cpu_us"] / other["cpu_us"] for one, other in zip(mine, base, strict=True))
            rows.append([f"{name}, {row}", f"{median(one['rps'] for one in mine):,.0f}", f"{ratio:.3f}", f"{cpu:.3f}",
                         f"{median(one['owner_us'] for one in mine):.2f}",
                         f"{median(one['p99_us'] for one in mine):,.0f}"])  # fmt: skip
            ratios.append(ratio)
    seconds = ", ".join(f"{p99 / 1000:.1f}" for p99 in tail)
    return [
        "## A dead fleet",
        "Requests/s of wrk, and the ratio to the configuration without a fleet within a round. *Refused*: nothing listens on the "
        "port. *Stopped*: the server has stopped (SIGSTOP), its connections are open. *CPU* is the worker's time per request, *owner* "
        f"the owner's. Each row is measured after {dead_fleet.WARM_UP_SECONDS} s of the same load, with {dead_fleet.MEMORY} of memory "
        "in the worker, which misses have filled by then.",
        table(["", "requests/s", "ratio", "CPU ratio", "owner, us", "p99, us"], rows),
        f"Goal: at least {LEAST_THROUGHPUT}: {verdict(min(ratios) >= LEAST_THROUGHPUT)}.",
        f"p99 of misses in ms, second by second; the server stops before the second one: {seconds}.",
    ]


def parse():
    parser = argparse.ArgumentParser(prog="loadtest/fleet/run", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="run only these sections (default: all)")
    parser.add_argument("--quick", action="store_true", help="run a smoke test: few requests, one round")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of latency and dead (default: 3)")
    parser.add_argument("--keys", type=int, default=400, help="entries of a latency round (default: 400)")
    parser.add_argument("--seconds", type=int, default=600, help="duration of a run of two machines (default: 600)")
    parser.add_argument("--lead", type=int, default=15, help="seconds by which the second machine starts later (default: 15)")
    parser.add_argument("--slot-ms", type=int, default=12_000, help="duration of a slot in milliseconds (default: 12000, as on mainnet)")
    parser.add_argument("--rate", type=int, default=100, help="requests per second of each machine (default: 100)")
    parser.add_argument("--clients", type=int, default=8, help="client threads of each machine (default: 8)")
    parser.add_argument("--name", default="part-18-fleet", help="name of the result file (default: part-18-fleet)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.keys, arguments.seconds, arguments.slot_ms = 1, 60, 20, 1_000
    return arguments


def main():
    arguments = parse()
    facts = [("Date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")),
             ("Command", f"`loadtest/fleet/run {' '.join(sys.argv[1:])}`"), *machine_facts()]  # fmt: skip
    parts, failures = ["# The fleet tier", table(["", ""], facts)], []
    with tempfile.TemporaryDirectory(prefix="sszip-fleet-") as work:
        work = Path(work)
        work.chmod(0o755)
        if "latency" in arguments.only:
            parts += latency_text(latency.measure(work, arguments.rounds, arguments.keys, log))
        if "machines" in arguments.only:
            text, failures = machines_text(machines.run(work, arguments, log), arguments)
            parts += text
        if "dead" in arguments.only:
            parts += dead_text(*dead_fleet.run(work, arguments.rounds, 1 if arguments.quick else 5, log))
    text = "\n\n".join(parts) + "\n"
    print(text)
    if not arguments.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{arguments.name}.md").write_text(text)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

"""sszip in comparison with other servers: the same calls, the same node, one run.

Each server has the best settings of its documentation, and is verified before it is measured;
a server with wrong responses is reported as such. Writes NAME.html (one file, with plots and
each configuration), NAME.md (tables) and NAME.json (each sample). loadtest/README.md describes
the method.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# after this folder
sys.path.insert(1, str(HERE.parent / "lib"))

import load  # noqa: E402
import machine  # noqa: E402
import peers  # noqa: E402
import comparison_report  # noqa: E402
import sections  # noqa: E402
import servers  # noqa: E402
import targets  # noqa: E402
import workloads  # noqa: E402
from stack import OHA, REPLAY_NODE, ROOT  # noqa: E402
from stages import Stage  # noqa: E402

SECTIONS = ["single", "mix", "batch", "identity", "ssz", "trace", "rate", "cold", "large",
            "stampede", "witness", "head"]
# Default sections of a quick run.
QUICK = [name for name in SECTIONS if name not in ("identity", "trace", "large")]
# Workloads of a section whose node's responses never change.
STILL = {
    "single": ("block-30", "block-246"),
    "mix": ("mix",),
    "batch": ("batch",),
    "identity": ("identity",),
    "ssz": ("ssz",),
    "trace": ("trace",),
}


def parse(argv):
    parser = argparse.ArgumentParser(prog="loadtest/compare/run", description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="run one short round, a few minutes; the results are not representative")
    parser.add_argument("--tiny", action="store_true",
                        help="test the harness in less than a minute; the results are meaningless")
    parser.add_argument("--only", nargs="+", metavar="SECTION", choices=SECTIONS,
                        help=f"run only these sections ({', '.join(SECTIONS)})")
    keys = [row.key for row in servers.ALL_ROWS]
    parser.add_argument("--rows", nargs="+", metavar="ROW", choices=keys,
                        help=f"measure only these servers ({', '.join(keys)})")
    parser.add_argument("--targets", type=targets.parse, metavar="NAME=URL,...",
                        help="measure servers that are already running; requires only python3 and wrk")
    parser.add_argument("--node", type=targets.address, metavar="URL",
                        help="with --targets: URL of the node behind the servers")
    parser.add_argument("--seconds", type=positive, metavar="N", help="with --targets: duration of each measurement")
    parser.add_argument("--rounds", type=positive, metavar="N", help="with --targets: repetitions of each measurement")
    parser.add_argument("--connections", type=positive, metavar="N", help="with --targets: number of wrk's connections")
    parser.add_argument("--corpus", type=Path, default=workloads.CORPUS,
                        help="recorded pairs, METHOD/test_*.json (default: ../shared/corpus/execution)")
    parser.add_argument("--out", type=Path,
                        help="folder of the results (default: loadtest/results; quick: build/bench)")
    parser.add_argument("--name", default="compare", help="name of the result files")
    args = parser.parse_args(argv)
    for option in ("node", "seconds", "rounds", "connections"):
        if getattr(args, option) and not args.targets:
            parser.error(f"--{option} requires --targets")
    if args.rows and args.targets:
        parser.error("--rows and --targets exclude each other: --rows selects servers that this program starts")
    args.quick |= args.tiny
    args.only = args.only or (QUICK if args.quick else SECTIONS)
    return args


def positive(text):
    if not text.isdigit() or not 1 <= int(text) <= 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 3600")
    return int(text)


def log(text):
    print(f"compare: {text}", flush=True)


class Plan:
    """Durations and repetitions."""

    def __init__(self, args):
        self.rounds, self.seconds, self.rate_seconds = 3, 2, 4
        self.head_seconds, self.slot_ms, self.transactions = 31, 12_000, 150
        self.clients, self.herds, self.witness, self.witnesses = sections.CLIENTS, 3, "100M", 2
        if args.quick:
            self.rounds, self.seconds, self.rate_seconds = 1, 1, 2
            self.head_seconds, self.slot_ms, self.transactions = 4, 1_500, 60
            self.clients, self.herds, self.witness, self.witnesses = 100, 1, "20M", 1
        if args.tiny:
            self.head_seconds, self.slot_ms, self.clients, self.witness = 3, 1_000, 20, "2M"
        self.seconds, self.connections = args.seconds or self.seconds, args.connections
        self.rounds = args.rounds or self.rounds


def missing_tools(args):
    absent = []
    if not shutil.which("wrk"):
        absent.append("wrk is missing; run apt-get install wrk")
    if args.targets:
        return absent
    if not REPLAY_NODE.exists():
        absent.append(f"{REPLAY_NODE} is missing; run make build")
    if "rate" in args.only and not OHA.exists():
        absent.append(f"{OHA} is missing; run scripts/setup bench")
    if not shutil.which("taskset"):
        absent.append("taskset is missing; run apt-get install util-linux")
    return absent


def chosen_rows(args):
    """Returns the available rows, and the reasons why the others are absent."""
    rows, absent = [], {}
    named = [row for row in servers.ALL_ROWS if row.key in (args.rows or ())]
    for row in named or servers.ROWS:
        if reasons := row.missing():
            if row.kind == servers.OURS and args.rows:
                raise SystemExit("\n".join(reasons))
            absent[row.name] = "; ".join(reasons)
        else:
            rows.append(row)
    return rows, absent


def measure(args, plan, work):
    rows, absent = chosen_rows(args)
    results = {
        "machine": machine.describe(sys.argv[1:], servers.versions),
        "quiet": load.quiet_check(),
        "quick": args.quick,
        "rows": [
            {"key": r.key, "name": r.name, "kind": r.kind, "told": r.remark, "keeps": r.keeps}
            for r in rows
        ],
        "absent": absent,
        "not_had": peers.NOT_HAD,
        "configs": {}, "moving": {}, "complaints": {}, "sections": {}, "rates": [],
    }
    results["machine"]["command"] = " ".join(["loadtest/compare/run", *sys.argv[1:]])
    only = set(args.only)
    port = None
    if only & ({"rate"} | set(STILL)):
        still(args, plan, work, rows, results)
    if not args.corpus.is_dir():
        port = Sampler(work)
    try:
        if only & {"cold", "large"}:
            unseen(args, plan, work, rows, results, port and port.port)
        if "stampede" in only:
            results["sections"]["stampede"] = sections.stampede(
                work, args.corpus, rows, plan.herds, plan.clients, log, port and port.port
            )
    finally:
        if port:
            port.__exit__()
    if "witness" in only:
        results["sections"]["witness"] = sections.witnesses(
            work, plan.witness, rows, plan.witnesses, log
        )
    if "head" in only:
        found, configs = sections.heads(
            work, rows, plan.head_seconds, plan.slot_ms, plan.transactions, log
        )
        results["sections"]["head"] = found
        results["moving"] = configs
    return results


def Sampler(work):
    """Starts the replay node with its sample, in place of a corpus."""
    from stack import Node

    return Node(work, [], options=[])


def still(args, plan, work, rows, results):
    ground = workloads.still(work, args.corpus)
    with Stage(work, "still-servers", ground, rows, log) as stage:
        of = ground.workloads or workloads.sampled(stage.node.port)
        results["source"] = ground.source
        by_name = {workload.name: workload for workload in of}
        results["configs"] |= stage.configs()
        results["absent"] |= {r.name: stage.absent[r.key] for r in rows if r.key in stage.absent}
        for name, members in STILL.items():
            if name not in args.only:
                continue
            for member in members:
                if member in by_name:
                    results["sections"][member] = stage.closed(
                        by_name[member], plan.rounds, plan.seconds
                    )
        if "rate" in args.only:
            fixed(args, plan, stage, by_name, results)
        results["complaints"] |= stage.complaints()


def fixed(args, plan, stage, by_name, results):
    """Measures Erigon's two rates, and shares of the best server's throughput with the mix."""
    small, large = by_name["block-30"], by_name["block-246"]
    first, second = sections.ERIGON
    cases = [
        (small, first, f"Erigon's: {first:,} blocks of 30 KB a second"),
        (small, second, f"Erigon's: {second:,} blocks of 30 KB a second"),
        (large, second, f"{second:,} blocks of 246 KB a second"),
    ]
    if args.quick:
        del cases[1]
    if "mix" in results["sections"]:
        best, name = best_peer(results)
        shares = sections.SHARES[1:2] if args.quick else sections.SHARES
        for share in shares:
            rate = max(1, best * share / 100)
            cases.append((by_name["mix"], rate,
                          f"The mix at {share} % of what {name} can do: {rate:,.0f}/s"))
    for workload, rate, title in cases:
        results["rates"].append(
            sections.rates(stage, workload, rate, title, plan.rate_seconds, workload.name)
        )


def best_peer(results):
    mine = {r["key"] for r in results["rows"] if r["kind"] != servers.THEIRS}
    figures = comparison_report.Figures(results["sections"]["mix"])
    ranked = [(figures.mid(key, "rps") or 0, key) for key in figures.keys if key not in mine]
    ranked = ranked or [(figures.mid(key, "rps") or 0, key) for key in figures.keys]
    most, key = max(ranked)
    return most, next(r["name"] for r in results["rows"] if r["key"] == key)


def unseen(args, plan, work, rows, results, port):
    ground = workloads.unseen(work, args.corpus, port)
    cold_small, cold_large, hot, bulk = ground.workloads
    with Stage(work, "unseen-servers", ground, rows, log) as stage:
        if "cold" in args.only:
            for workload in (cold_small, cold_large):
                # no earlier response can have warmed a cache
                results["sections"][workload.name] = stage.closed(
                    workload, plan.rounds, plan.seconds, warm=0
                )
        if "large" in args.only:
            results["sections"]["large"] = sections.large(
                stage, hot, bulk, plan.rounds, plan.seconds
            )
        results["configs"] = stage.configs() | results["configs"]


def main():
    args = parse(sys.argv[1:])
    if absent := missing_tools(args):
        raise SystemExit("\n".join(absent))
    plan = Plan(args)
    out = args.out or ROOT / ("build/bench" if args.quick or args.targets else "loadtest/results")
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="sszip-compare-"))
    work.chmod(0o755)
    try:
        if args.targets:
            results = targets.measure(args, plan, work, log)
        else:
            results = measure(args, plan, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    results = comparison_report.without_places(results, work, ROOT)
    results["seconds"] = time.monotonic() - began
    results["goals"] = list(comparison_report.goals(results))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{args.name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / f"{args.name}.md").write_text(comparison_report.markdown(results, args.name))
    (out / f"{args.name}.html").write_text(comparison_report.html(results))
    print(comparison_report.summary(results))
    log(f"wrote {args.name}.html, {args.name}.md and {args.name}.json in {out}")
    # the caller compares servers of other projects, so wrong responses are a failure
    if args.targets and (wrong := comparison_report.servers_with_wrong_responses(results)):
        raise SystemExit(f"wrong responses from: {', '.join(wrong)}; the report lists them")


if __name__ == "__main__":
    main()

"""Benchmarks: nginx with sszip in comparison with other encoders.

There are four suites: `nginx`, compressed responses; `cache`, hits and misses; `store`, hits
from the cache's owner; and `ssz`, the core's SSZ walkers without nginx. Each suite verifies
each response before it measures, and writes tables and raw numbers. The comparison with other
servers, in nginx and in Envoy, is in loadtest/compare. See loadtest/README.md.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "lib"))

import baseline_build  # noqa: E402
import bodies  # noqa: E402
import caching  # noqa: E402
import caching_report  # noqa: E402
import chosen_bodies  # noqa: E402
import coders_report  # noqa: E402
import engines  # noqa: E402
import load  # noqa: E402
import machine  # noqa: E402
import profiling  # noqa: E402
import store_writes  # noqa: E402
import storing_report  # noqa: E402
import tail  # noqa: E402
import throughput  # noqa: E402
import transcoding  # noqa: E402
import transcoding_report  # noqa: E402
from report import MET, quiet  # noqa: E402
from stack import ROOT, Node  # noqa: E402

# For each suite: its sections, the name of its results, and the module that renders them.
SUITES = {
    "nginx": (["throughput", "tail", "codecs", "profiles"], "part-01-nginx", coders_report),
    "cache": (caching.SECTIONS, caching.NAME, caching_report),
    "store": (store_writes.SECTIONS, store_writes.NAME, storing_report),
    "ssz": (transcoding.SECTIONS, transcoding.NAME, transcoding_report),
}
VERSIONS = {"ssz": transcoding.versions}


def parse(argv):
    parser = argparse.ArgumentParser(prog="loadtest/bench/run", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="run a smoke test: few bodies, one short round"
    )
    parser.add_argument(
        "--suite", choices=SUITES, help="run only this suite (default: all, one after the other)"
    )
    sections = "; ".join(f"{s}: {', '.join(of)}" for s, (of, _, _) in SUITES.items())
    parser.add_argument(
        "--only", nargs="+", metavar="SECTION",
        help=f"run only these sections of the suite ({sections})",
    )
    parser.add_argument(
        "--corpus", type=Path, default=ROOT.parent / "shared/corpus/execution",
        help="recorded pairs, METHOD/test_*.json (default: ../shared/corpus/execution)",
    )
    parser.add_argument(
        "--out", type=Path,
        help="folder of the results (default: loadtest/results; quick: build/bench)",
    )
    parser.add_argument(
        "--before", type=Path, metavar="MODULE",
        help="compare sszip's rows with those of another build of the module (cache: gzip, identity, "
        "batch, miss; store: hit, miss)",
    )
    parser.add_argument("--name", help="name of the result files (default: the suite's)")
    args = parser.parse_args(argv)
    if not args.suite and (args.only or args.name):
        parser.error("--only and --name require --suite")
    if args.before and args.suite not in ("cache", "store"):
        parser.error("--before requires --suite cache or --suite store")
    if args.only and (unknown := set(args.only) - set(SUITES[args.suite][0])):
        parser.error(
            f"suite {args.suite} has no section {', '.join(sorted(unknown))}; "
            f"its sections: {', '.join(SUITES[args.suite][0])}"
        )
    return args


def log(text):
    print(f"bench: {text}", flush=True)


def choose(args, library, work):
    per_group = 2 if args.quick else chosen_bodies.PER_GROUP
    if args.corpus.is_dir():
        chosen = chosen_bodies.recorded(args.corpus, library, per_group)
        return chosen, bodies.read_pairs(args.corpus), (
            "Recorded from Ethereum mainnet nodes (erigontech/rpc-tests, "
            "integration/mainnet), sent compacted, as nodes send them."
        )
    pairs = bodies.sample_pairs(work)
    return chosen_bodies.from_sample(pairs, library, per_group), pairs, (
        "The replay node's generated sample: no recorded corpus was found, so these "
        "numbers do not count for the targets, which are set on real bodies."
    )


def measure(suite, args, work):
    results = {
        "machine": machine.describe(sys.argv[1:], VERSIONS.get(suite)),
        "quiet": load.quiet_check(),
        "notes": [],
        "quick": args.quick,
    }
    notes = results["notes"]
    if args.quick:
        notes.append("A quick run: it tests the harness, its numbers mean nothing.")
    if not quiet(results):
        trust = "the caches were shared" if suite == "ssz" else (
            "trust the CPU columns more than requests/s"
        )
        notes.append(
            f"The machine was {results['quiet']['busy']:.0%} busy before the run "
            f"started: {trust}."
        )
    if suite == "ssz":
        return results | transcoding.run(args, work, log)

    library = bodies.Library(work)
    chosen, pairs, source = choose(args, library, work)
    results |= {
        "source": source,
        "recorded": args.corpus.is_dir(),
        "bodies": [
            {"name": b.name, "method": b.method, "group": b.group, "size": b.size}
            for b in chosen
        ],
    }
    if args.before:
        return results | baseline_build.run(args, work, library, chosen, pairs, log)
    if suite == "cache":
        return results | caching.run(args, work, library, chosen, pairs, log)
    if suite == "store":
        return results | store_writes.run(args, work, library, chosen, pairs, log)
    return results | nginx_suite(args, work, library, chosen, pairs)


def nginx_suite(args, work, library, chosen, pairs):
    results = {}
    small = chosen_bodies.small_body(library)
    bulk = chosen_bodies.bulk_body(pairs, library)
    with Node(work, [library.pairs]) as node:
        if "throughput" in args.only or "profiles" in args.only:
            plan = throughput.Plan(rounds=1 if args.quick else 3, seconds=1)
            results["throughput"] = throughput.run(work, node, chosen, plan, log)
        if "profiles" in args.only:
            levels = results["throughput"]["levels"]
            results["profiles"] = profiling.run(
                work, node, chosen, levels, 1 if args.quick else 2, log
            )
        if "codecs" in args.only:
            plain = throughput.identities(work, node, chosen)
            results["codecs"] = engines.run(work, plain, args.quick, log)
    if "tail" in args.only:
        plan = tail.Plan(rounds=1 if args.quick else 3, seconds=1 if args.quick else 2)
        results["tail"] = tail.run(work, library, small, bulk, plan, log)
    return results


def write(results, out, name, reporter):
    out.mkdir(parents=True, exist_ok=True)
    written = [f"{name}.md", f"{name}.json"]
    results["verdicts"] = list(reporter.verdicts(results))
    text = reporter.render(results)
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    for row in results["verdicts"]:
        log(f"target: {row['target']}; measured: {row['measured']}; met: {MET[row['met']]}")
    for note in results["notes"]:
        log(note)
    log(f"wrote {', '.join(written)} in {out}")


def main():
    args = parse(sys.argv[1:])
    suites = [args.suite] if args.suite else list(SUITES)
    absent = machine.missing_tools(set(suites))
    if absent:
        raise SystemExit("\n".join(absent))
    out = args.out or ROOT / ("build/bench" if args.quick else "loadtest/results")
    for suite in suites:
        sections, name, reporter = SUITES[suite]
        if args.before:
            name, reporter = f"build-before-{suite}", baseline_build
        chosen = SimpleNamespace(**vars(args) | {"only": args.only or sections})
        started = time.monotonic()
        work = Path(tempfile.mkdtemp(prefix="sszip-bench-"))
        # nginx's worker may run as another user and must reach its folders.
        work.chmod(0o755)
        try:
            results = measure(suite, chosen, work)
            results["seconds"] = time.monotonic() - started
            write(results, out, args.name or name, reporter)
        finally:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()

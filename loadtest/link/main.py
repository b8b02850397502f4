"""Measures the owner's CPU time per lookup under full load: two workers with a core each, and four
workers on two cores, next to another build with --before. Prints Markdown tables, and writes them to
loadtest/results/ unless the run is a quick one."""

import argparse
import datetime
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "lib"))

import loaded_servers  # noqa: E402
import machine  # noqa: E402
from loaded_servers import CONNECTIONS, HIT, KEYS, MISS, WORKERS, Row  # noqa: E402
from page import markdown as table  # noqa: E402
from stack import MODULE, NGINX, REPLAY_NODE, ROOT  # noqa: E402

NOW, BEFORE = "now", "before"
TITLES = {HIT: "hit in the owner's memory", MISS: "miss, which is stored"}
SETUPS = {2: "2 workers, a core each", 4: "4 workers, two cores"}
# Maximum ratio of the owner's CPU time per lookup to the other build's.
MOST_RATIO = 0.5


def log(text):
    print(f"link: {text}", file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="loadtest/link/run", description=__doc__)
    parser.add_argument("--before", type=Path, metavar="MODULE",
                        help="compare with this nginx module of another build, which has its libsszip_owner.so beside it")
    parser.add_argument("--quick", action="store_true", help="run a smoke test: one round of a second")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions (default: 3)")
    parser.add_argument("--seconds", type=int, default=3, help="duration of a measurement (default: 3)")
    parser.add_argument("--corpus", type=Path, default=ROOT.parent / "shared/corpus/execution",
                        help="recorded pairs, METHOD/test_*.json (default: ../shared/corpus/execution)")
    parser.add_argument("--name", default="part-17-link", help="name of the result file (default: part-17-link)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 1
    return arguments


def check_prerequisites(modules):
    owners = [module.with_name("libsszip_owner.so") for module in modules]
    absent = [path for path in (Path(NGINX), REPLAY_NODE, *modules, *owners) if not path.exists()]
    if absent:
        raise SystemExit("\n".join(f"{path} is missing; run make build, and install nginx" for path in absent))
    if not shutil.which("wrk"):
        raise SystemExit("wrk is missing; run apt-get install wrk")
    if len(os.sched_getaffinity(0)) < loaded_servers.CORES:
        raise SystemExit(f"{loaded_servers.CORES} cores are required")


def facts(arguments):
    command = f"loadtest/link/run --rounds {arguments.rounds} --seconds {arguments.seconds}"
    rows = [
        ("Date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("Command", f"`{command}{' --before OLD.so' if arguments.before else ''}`"),
        ("Commit", machine.commit() or "unknown"),
        ("Machine", f"{machine.cpu_model()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the run"),
    ]
    if arguments.before:
        rows.append(("Commit before", machine.commit(arguments.before.parent) or "unknown"))
    return rows


def cost_table(samples):
    heads = ["", "build", "requests/s", "lookups per request", "owner's CPU, us per lookup",
             "workers' CPU, us per request", "machine busy"]  # fmt: skip
    rows = []
    for row, of in samples.items():
        mid = {name: median(sample[name] for sample in of) for name in of[0]}
        rows.append([
            f"{TITLES[row.kind]}; {SETUPS[row.workers]}", row.build, f"{mid['rps']:,.0f}", f"{mid['lookups']:.2f}",
            f"{mid['owner_us']:.1f}", f"{mid['worker_us']:.1f}", f"{mid['busy']:.0%}",
        ])  # fmt: skip
    return table(heads, rows)


def ratio_table(samples):
    rows = []
    for kind, title in TITLES.items():
        for workers in WORKERS:
            now, before = (samples[Row(kind, workers, build)] for build in (NOW, BEFORE))
            ratio = median(one["owner_us"] / other["owner_us"] for one, other in zip(now, before, strict=True))
            rows.append([f"{title}; {SETUPS[workers]}", f"{ratio:.2f}", "met" if ratio <= MOST_RATIO else "not met"])
    return table(["owner's CPU per lookup", "now / before", f"target: at most {MOST_RATIO}"], rows)


def main():
    arguments = parse()
    builds = {NOW: None}
    if arguments.before:
        builds[BEFORE] = arguments.before.resolve()
    check_prerequisites([MODULE, *filter(None, builds.values())])
    parts = ["# CPU time of the owner per lookup", table(["", ""], facts(arguments))]
    with tempfile.TemporaryDirectory(prefix="sszip-link-") as work:
        work = Path(work)
        # nginx's workers may run as another user
        work.chmod(0o755)
        call, samples, complaints = loaded_servers.measure(
            work, arguments.corpus, builds, arguments.rounds, arguments.seconds, log
        )
    parts += [
        f"`{call.method}`, responses of {call.size:,} bytes, {CONNECTIONS} connections of wrk. Workers are pinned to two cores; "
        f"the owner, the node and wrk run on any core. Hits: {KEYS:,} keys in turn, which the workers' memory has no room for. "
        "Misses: each request has a key of its own; the owner grants a lease and is sent the entry. CPU is the run time of all "
        "threads, lookups are the owner's count. Medians of the rounds.",
        cost_table(samples),
    ]
    if arguments.before:
        parts += ["Ratios within a round, medians:", ratio_table(samples)]
    if complaints:
        parts += ["nginx logged:", table(["", "line"], [(name, text.splitlines()[0]) for name, text in complaints.items()])]
    text = "\n\n".join(parts) + "\n"
    print(text)
    if not arguments.quick:
        (ROOT / "loadtest/results" / f"{arguments.name}.md").write_text(text)


if __name__ == "__main__":
    main()

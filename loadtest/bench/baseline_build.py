"""The suites in comparison with another build of the module: each row of sszip with both modules in one
run, to show changes that are smaller than the differences between two runs.
"""

from dataclasses import replace
from statistics import median

import caching
import caching_bodies as bodylib
import store_writes
import storing_bodies
from bodies import Library
from caches import FRESH, Row, batch_rows, gzip_rows, identity_rows, miss_rows
from caching_report import Samples
from marked_calls import stored_calls
from report import machine_text, table
from stack import Node
from storing_coders import stored

BEFORE = "before: "
ROUNDS = 5
# Beyond this ratio a result is worse; below it the difference is noise of the machine.
MOST = 1.03


def run(args, work, library, chosen, pairs, log):
    suite = {"cache": cache, "store": store}[args.suite]
    return suite(args, work, library, chosen, pairs, log)


def store(args, work, _library, chosen, pairs, log):
    out = {}
    if "hit" in args.only:
        folder, calls = stored_calls(pairs, work, 1 if args.quick else 3)
        modules = (("", None), (BEFORE, args.before))
        with Node(work, [folder], options=["--lenient"]) as node:
            log("measuring hits")
            places = store_writes.MeasuredOrigins(
                work, node, calls, storing_bodies.KEYS, log, modules=modules
            )
            with places:
                rounds = 1 if args.quick else ROUNDS
                out["hit"] = places.hits(rounds, 1, caching.CONNECTIONS)
    if "miss" in args.only:
        rows = [Row(stored("with a store", "16m"), FRESH)]
        out["miss"] = store_writes.misses_of(
            with_both_modules(rows, args.before), work, chosen, args.quick, log
        )
    return out


def cache(args, work, library, chosen, pairs, log):
    rounds = 1 if args.quick else ROUNDS
    per_group = 1 if args.quick else caching.PER_GROUP
    calls = bodylib.singles(chosen, library, per_group)
    methods = {b.method for b in chosen if b.method.startswith("erigon_")}
    out = {}
    with Node(work, [library.pairs]) as node:
        # a build before may have no zstd
        for section, rows in (("gzip", gzip_rows), ("identity", identity_rows)):
            if section in args.only:
                log(f"hits, {section}")
                couple = with_both_modules(rows(methods)[:1], args.before)
                out[section] = caching.hits(work, node, couple, calls, rounds, log)
    if "batch" in args.only:
        log("measuring batches")
        own = Library(work / "batches")
        batches = [call for couple in bodylib.batches(pairs, own) for call in couple]
        with Node(work, [own.pairs]) as node:
            couples = with_both_modules(batch_rows(()), args.before)
            out["batch"] = caching.hits(work, node, couples, batches, rounds, log)
    if "miss" in args.only:
        log("measuring misses")
        rows = [row for row in miss_rows() if row.coder.coding != "zstd"]
        couples = with_both_modules(rows, args.before)
        out["miss"] = caching.misses(work, couples, chosen, args.quick, log)
    return out


def with_both_modules(rows, module):
    """Returns each row with both modules, one after the other."""
    return [
        again
        for row in rows
        for again in (
            row,
            replace(row, coder=replace(row.coder, name=BEFORE + row.name, module=module)),
        )
    ]


def rows(results):
    """Yields each row and group, for the comparison with the other build."""
    for section in ("gzip", "identity", "batch", "hit", "miss"):
        if section not in results:
            continue
        samples = Samples(results[section])
        names = [row["name"] for row in results[section]["rows"]]
        for group in samples.groups:
            for name in names:
                if not name.startswith(BEFORE):
                    yield section, group, name, samples


def ratios(results):
    for section, group, name, samples in rows(results):
        cpu = samples.ratio(group, name, BEFORE + name, "cpu_us")
        rps = samples.ratio(group, name, BEFORE + name, "rps")
        now = median(
            s["cpu_us"] for call in samples.calls(group) for s in samples.by[call, name].values()
        )
        yield section, group, name, now, cpu, rps


def verdicts(results):
    return [
        {
            "target": f"{section}, {group}, {name}: at most {MOST - 1:.0%} more CPU than before",
            "measured": f"{cpu - 1:+.1%} ({rps - 1:+.1%} requests/s)",
            "met": None if results["quick"] else cpu <= MOST,
        }
        for section, group, name, _, cpu, rps in ratios(results)
    ]


def render(results):
    lines = [
        (section, group, name, f"{now:,.1f}", f"{cpu:.3f}x", f"{rps:.3f}x")
        for section, group, name, now, cpu, rps in ratios(results)
    ]
    return "\n\n".join(
        [
            "# nginx: against a build before",
            machine_text(results),
            "CPU and requests/s against the other build: medians of ratios within a round, "
            "of the calls of a group. CPU bears the verdict.",
            table(["What", "Bodies", "Row", "CPU us", "CPU", "Requests/s"], lines),
        ]
    ) + "\n"

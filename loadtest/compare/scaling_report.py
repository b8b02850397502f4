"""The scaling page: measurements, the model, and its deviations."""

import page
import svg
from figures import ms, number, share

TITLE = "How sszip scales"
OFF = 0.25
PLACES = {"hot": "worker's memory", "memory": "owner's memory", "store": "RocksDB", "node": "the node"}


def workers(rows):
    header = ["Workers", "Requests/s", "CPU us", "p99 ms", "RSS MB"]
    lines = [
        [r["workers"], number(r["rps"]), number(r["cpu_us"], 1), ms(r["p99"]), mb(r)] for r in rows
    ]
    plots = [svg.lines("Workers", "workers", "CPU us of a hit",
                       {"sszip": [(r["workers"], r["cpu_us"]) for r in rows]}, log_x=False)]
    text = (
        "Hits of 30 KB by 64 connections; workers, wrk and the node share the machine's cores, so "
        "that with as many workers as cores requests per second can't grow. What a hit costs tells "
        "whether workers are in each other's way."
    )
    return header, lines, plots, text


def connections(rows):
    header = ["Connections", "Requests/s", "CPU us", "p50 ms", "p99 ms", "max ms", "Errors", "RSS MB"]
    lines = [
        [number(r["connections"]), number(r["rps"]), number(r["cpu_us"], 1), ms(r["p50"]), ms(r["p99"]),
         ms(r["max"]), r["errors"], mb(r)]
        for r in rows
    ]
    plots = [
        svg.lines("Connections", "connections", "requests per second",
                  {"sszip": [(r["connections"], r["rps"]) for r in rows]}),
        svg.lines("Connections", "connections", "99th percentile, ms",
                  {"sszip": [(r["connections"], r["p99"]) for r in rows]}, log_y=True),
    ]
    return header, lines, plots, "Hits of 30 KB, one worker; each connection sends its next request when it has the response."


def keys(results):
    rows = results["keys"]
    header = ["Keys", "Requests before", "Requests/s", "CPU us", "... by the model", "p99 ms"]
    header += [f"{name} %" for name in PLACES.values()] + ["RSS MB"]
    lines = []
    for r in rows:
        pairs = [f"{100 * r['shares'][p]:.1f} ({100 * r['model'][p]:.1f})" for p in PLACES]
        lines.append(
            [number(r["keys"]), number(r["before"]), number(r["rps"]), number(r["cpu_us"], 1),
             number(r["model_cpu_us"], 1), ms(r["p99"]), *pairs, mb(r)]
        )
    plots = [
        svg.lines("Distinct keys", "keys", "CPU us of a request", {
            "measured": [(r["keys"], r["cpu_us"]) for r in rows],
            "model": [(r["keys"], r["model_cpu_us"]) for r in rows],
        }),
        svg.lines("Distinct keys", "keys", "% served from the worker's memory", {
            "measured": [(r["keys"], 100 * r["shares"]["hot"]) for r in rows],
            "model": [(r["keys"], 100 * r["model"]["hot"]) for r in rows],
        }),
    ]
    text = (
        f"Answers of 1 KB under keys by Zipf's distribution (exponent {results['skew']:g}), the worker's memory "
        f"{results['hot_mb']} MB, the owner's {results['memory_mb']} MB, from an empty cache and after so many "
        "requests as are given. In brackets is the model."
    )
    return header, lines, plots, text


def costs(results):
    header = ["An answer from", "CPU us", "Requests/s of one core"]
    found = results["costs"]["costs"]
    lines = [[PLACES[p], number(found[p], 1), number(1e6 / found[p])] for p in PLACES]
    text = (
        "Worker and owner together, answers of 1 KB. This is what the model is made of, with "
        f"{results['costs']['entry_bytes']:.0f} bytes of memory for an entry."
    )
    return header, lines, [], text


def store(rows):
    header = ["On disk GB", "Entries", "Filled in s", "Requests/s", "CPU us", "p50 ms", "p99 ms", "max ms",
              "From RocksDB", "Upstream requests", "Owner's RSS MB"]
    lines = [
        [number(r["gb"], 1), number(r["entries"]), number(r["filled_s"]), number(r["rps"]),
         number(r["cpu_us"], 1), ms(r["p50"]), ms(r["p99"]), ms(r["max"]), share(r["shares"]["store"]),
         share(r["asked"]), number(r["owner_kb"] / 1024)]
        for r in rows
    ]
    plots = [
        svg.lines("The store", "GB on disk", "requests per second",
                  {"sszip": [(r["gb"], r["rps"]) for r in rows]}),
        svg.lines("The store", "GB on disk", "99th percentile, ms",
                  {"sszip": [(r["gb"], r["p99"]) for r in rows]}),
    ]
    text = (
        "Any of the stored answers, each as likely, of 300 KB (150 KB stored), by 16 connections; the "
        "worker's memory has 1 MB. What the kernel has in its page cache needs no disk: beyond the "
        "machine's memory a hit is a read. A look-up that takes more than 20 ms is given up, and the node "
        "is asked."
    )
    return header, lines, plots, text


def extended(rows):
    header = ["Keys", "Worker's memory MB", "Owner's MB"] + [f"{name} %" for name in PLACES.values()]
    header += ["CPU us", "Requests/s of one core", "Store GB"]
    lines = [
        [number(r["keys"]), number(r["hot_mb"]), number(r["memory_mb"])]
        + [f"{100 * r['shares'][p]:.1f}" for p in PLACES]
        + [number(r["cpu_us"], 1), number(r["per_core"]), number(r["store_gb"], 1)]
        for r in rows
    ]
    text = "By the model alone, after a day of 2,000 requests a second about answers of 1 KB that never change."
    return header, lines, [], text


def mb(row):
    return number(row["resident_kb"] / 1024)


def breaks(results):
    """Yields the deviations of the model in this run."""
    for r in results.get("keys", []):
        for name, found in (("CPU by measured shares", r["measured_shares_cpu_us"]), ("CPU", r["model_cpu_us"])):
            if abs(found / r["cpu_us"] - 1) > OFF:
                yield (
                    f"{number(r['keys'])} keys: {name} {number(found, 1)} us by the model, "
                    f"{number(r['cpu_us'], 1)} us measured"
                )
    for r in results.get("store", []):
        if r["asked"] > 0.01:
            yield f"{number(r['gb'], 1)} GB: {share(r['asked'])} of the look-ups came too late, and the node was asked"
    for r in results.get("connections", []):
        if r["errors"]:
            yield f"{number(r['connections'])} connections: {r['errors']} errors"


MODEL = (
    "The model has two parts. How many answers come from where: of keys that are drawn by Zipf's "
    "distribution a memory has those that were asked for within a time for which it has room (Che's "
    "approximation); what was ever stored is in the store; the rest the node is asked for. What "
    "they cost: the CPU of an answer from each place, measured alone. It takes the worker's memory for "
    "one that lets go of what was not asked for longest, the store for one that has room for all, and "
    "nothing for what changes. It says nothing of latency, of the disk (a hit in the page cache and one "
    "on the disk cost the same CPU) and of cores that wait for each other."
)
PARTS = [
    ("workers", "Workers", lambda r: workers(r["workers"])),
    ("connections", "Connections", lambda r: connections(r["connections"])),
    ("costs", "What an answer costs", costs),
    ("keys", "Distinct keys", keys),
    ("store", "The store", lambda r: store(r["store"])),
    ("extended", "Beyond what was measured", lambda r: extended(r["extended"])),
]


def about(results):
    facts = results["machine"]
    versions = ", ".join(f"{n} {v}" for n, v in facts["versions"].items() if n in ("nginx",))
    lines = [
        f"{facts['date']}, commit {facts['commit']}, {facts['cpu']}, {facts['cores']} cores, Linux "
        f"{facts['kernel']}, {versions}. `{facts['command']}`, {results['seconds'] / 60:.0f} minutes.",
        *results["notes"],
    ]
    if results["quick"]:
        lines.append("A quick run: it tests the harness, its numbers mean little.")
    return lines


def broken(results):
    return list(breaks(results)) or ["Nowhere in this run: all within a quarter of what was measured."]


def html(results):
    parts = [page.paragraph(line) for line in about(results)]
    there = [(name, title, of) for name, title, of in PARTS if name in results]
    parts.append(page.links([*((n, t) for n, t, _ in there), ("model", "The model, and where it breaks")]))
    for name, title, of in there:
        header, lines, plots, text = of(results)
        parts += [page.heading(title, name), page.paragraph(text)]
        parts += [page.plots(plots)] if plots else []
        parts.append(page.table(header, lines))
    parts += [page.heading("The model, and where it breaks", "model"), page.paragraph(MODEL)]
    parts += [page.paragraph(line) for line in broken(results)]
    return page.page(TITLE, parts)


def markdown(results, name):
    parts = [f"# {TITLE}", *about(results), f"With plots: `{name}.html`."]
    for key, title, of in PARTS:
        if key in results:
            header, lines, _, text = of(results)
            parts += [f"## {title}", text, page.markdown(header, lines)]
    parts += ["## The model, and where it breaks", MODEL]
    parts.append("\n".join(f"- {line}" for line in broken(results)))
    return "\n\n".join(parts) + "\n"

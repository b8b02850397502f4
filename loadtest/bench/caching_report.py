"""Report of the cache suite in Markdown, with its targets."""

from statistics import median

from chosen_bodies import GROUPS
from report import MET, machine_text, profile_text, quiet, table
from throughput import SATURATED

HIT_RATIO = 0.9
BATCH_RATIO = 0.8
# Maximum ratio of CPU time for a miss with the cache on and off.
MISS_RATIO = {"300 KB": 1.05, "30 KB": 1.10}
KEY_NS = 2_000
MISSES = (
    ("cache on", "cache off, without igzip", "libdeflate without the cache"),
    ("cache on", "cache off", "without the cache"),
    ("cache on, without igzip", "cache off, without igzip", "without the cache, both without igzip"),
)
SCAN_GB_S = 1.0
OURS = "sszip"
TITLES = {
    "gzip": "Gzip hits",
    "zstd": "Zstd hits",
    "identity": "Identity hits",
    "miss": "Misses",
}


class Samples:
    """Samples of one section, by call and row."""

    def __init__(self, data):
        self.data = data
        self.groups = list(dict.fromkeys(c["group"] for c in data["calls"]))
        self.by = {}
        for s in data["samples"]:
            self.by.setdefault((s["call"], s["row"]), {})[s["round"]] = s

    def calls(self, group):
        return [c["name"] for c in self.data["calls"] if c["group"] == group]

    def mid(self, group, row, key):
        """Returns a row's median over rounds, then over calls."""
        return median(
            median(s[key] for s in self.by[call, row].values()) for call in self.calls(group)
        )

    def ratio(self, group, upper, lower, key):
        """Returns the ratio of two rows, computed within each round."""
        return median(
            self.round_ratio((call, upper), (call, lower), key) for call in self.calls(group)
        )

    def round_ratio(self, upper, lower, key):
        upper, lower = self.by[upper], self.by[lower]
        return median(upper[n][key] / lower[n][key] for n in upper)

    def bytes(self, group, row):
        calls = self.calls(group)
        return median(
            v["bytes"] for v in self.data["verified"] if v["row"] == row and v["call"] in calls
        )


def verdicts(results):
    """Returns each target with its measurement; `met` is None if the figures disagree."""
    out = []
    for section in ("gzip", "zstd", "identity"):
        if section in results:
            samples = Samples(results[section])
            peers = {}
            for row in results[section]["rows"]:
                peers.setdefault(row["peer"], []).append(row["name"])
            peers.pop("")
            for rows in peers.values():
                out += [hit(samples, section, group, rows) for group in samples.groups]
    if data := results.get("batch"):
        samples = Samples(data)
        for couple in data["couples"]:
            out += [batch(samples, couple, row["name"]) for row in data["rows"]]
    if data := results.get("miss"):
        samples = Samples(data)
        for group in samples.groups:
            for on, off, which in MISSES:
                cost = samples.ratio(group, on, off, "cpu_us")
                out.append(
                    {
                        "target": f"miss, {group}: at most {MISS_RATIO[group] - 1:.0%} more CPU "
                        f"than {which}",
                        "measured": f"{cost - 1:+.1%}",
                        "met": cost <= MISS_RATIO[group],
                    }
                )
    if data := results.get("core"):
        out += core_verdicts(data["jsonrpc"])
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    return out


def hit(samples, section, group, rows):
    """Returns the comparison with the row of a server that takes the least CPU time."""
    peer = min(rows, key=lambda row: samples.mid(group, row, "cpu_us"))
    rps = samples.ratio(group, OURS, peer, "rps")
    cpu = samples.ratio(group, peer, OURS, "cpu_us")
    return {
        "target": f"{section} hit, {group}: at least {HIT_RATIO:g}x {peer}",
        "measured": ratio_text(rps, cpu),
        "met": is_met(rps, cpu, HIT_RATIO),
    }


def batch(samples, couple, row):
    ten, one = ((name, row) for name in couple)
    rps = samples.round_ratio(ten, one, "rps")
    cpu = samples.round_ratio(one, ten, "cpu_us")
    return {
        "target": f"{couple[0]} in a batch, {row}: at least {BATCH_RATIO:g}x one answer as long",
        "measured": ratio_text(rps, cpu),
        "met": is_met(rps, cpu, BATCH_RATIO),
    }


def ratio_text(rps, cpu):
    return f"{rps:.2f}x ({cpu:.2f}x by CPU)"


def is_met(rps, cpu, goal):
    """Returns whether both ratios meet the goal; None if they disagree. Requests per second
    may be limited by wrk, and the kernel sends parts of a long response on wrk's core when
    acknowledgements arrive, so neither decides alone."""
    return rps >= goal if (rps >= goal) == (cpu >= goal) else None


def core_verdicts(rows):
    worst = max((r for r in rows if r["what"] == "request+block+key"), key=lambda r: r["ns"])
    yield {
        "target": f"scan and key of a usual request: at most {KEY_NS / 1e3:g} us",
        "measured": f"{worst['ns'] / 1e3:.2f} us for the slowest, {worst['body']}",
        "met": worst["ns"] <= KEY_NS,
    }
    for row in rows:
        if row["body"] == "batch of requests":
            speed = row["bytes"] / row["ns"]
            operation = {"scan": "scan", "request": "scan and split"}.get(row["what"], row["what"])
            yield {
                "target": f"{operation} of a 1 MB batch: at least {SCAN_GB_S:g} GB/s",
                "measured": f"{speed:.2f} GB/s",
                "met": speed >= SCAN_GB_S,
            }


def render(results):
    parts = ["# nginx: sszip's cache beside nginx's", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    parts += [
        "## Targets",
        "Met or not where requests/s and the worker's CPU per request say the same; misses "
        "by CPU. *Undecided*: the two disagree, the bodies were generated, or the run was a "
        "quick one."
        + ("" if quiet(results) else " The machine was busy before the run."),
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in verdicts(results)],
        ),
        "## How it was measured",
        "One nginx worker on one core, wrk (16 connections) on the other, with the node "
        "where it is asked at all; medians over rounds, then over calls; ratios within a "
        "round. The node's counter tells that every request of a hit's run was one, and "
        "that none of a miss's was. Below 90 % (marked \\*) the worker was not the "
        "bottleneck, and its requests/s are a lower bound. The kernel sends parts of a long "
        "answer on wrk's core, when acknowledgements come, and those are in nobody's CPU.",
    ]
    texts = {"gzip": GZIP_TEXT, "zstd": ZSTD_TEXT, "identity": IDENTITY_TEXT, "miss": MISS_TEXT}
    for section, text in texts.items():
        if section in results:
            parts += section_text(section, results[section], text)
        if section == "zstd" and section in results:
            parts.append(memory_text(results[section]["memory"]))
        if section == "identity" and "batch" in results:
            parts += batch_text(results["batch"])
    if data := results.get("core"):
        parts += core_text(data)
    if data := results.get("profiles"):
        parts += profile_text(data)
    return "\n\n".join(parts) + "\n"


GZIP_TEXT = (
    "sszip answers a call under another id in each request. *static file*: the same "
    "bytes, by GET; the target means the cheapest way to send them. `proxy_cache` has the request's body in "
    "its key, so that another id is a miss; it is shown at its best, **with one id over and "
    "over**: with what the node gzipped, and with identity compressed on each hit by gzip 1. "
    "*sub_filter*: what stock nginx can do for any id: the key leaves it out, and the id is "
    "put into each answer before gzip 1."
)
ZSTD_TEXT = (
    "For a client that prefers zstd. sszip: another id in each request; *static file*: the same bytes, by "
    "GET; *sszip, gzip*: the same server for a client of gzip."
)
IDENTITY_TEXT = (
    "For a client that accepts no coding. sszip: another id in each request; `proxy_cache`: "
    "one id over and over, its best case; *sub_filter*: any id, as above."
)
MISS_TEXT = (
    "Each request has an id and params that none had before; the tier holds 16 MB, so that "
    "entries are driven out. *Without igzip*: `libisal.so.2` hidden from that nginx, so that "
    "libdeflate compresses. A client that wants identity "
    "is not compressed for, but what is stored is. The node takes most of the load's core."
)


def share(value):
    return f"{value:.0%}" + ("" if value >= SATURATED else " \\*")


def against(samples, section, group, row):
    """Returns ratios: for hits how much better sszip is than the row, for misses the cost of
    the row in comparison with no cache."""
    if section == "miss":
        base = "cache off"
        return tuple(samples.ratio(group, row, base, key) for key in ("rps", "cpu_us"))
    return samples.ratio(group, OURS, row, "rps"), samples.ratio(group, row, OURS, "cpu_us")


def section_text(section, data, text):
    samples, title = Samples(data), TITLES[section]
    heads = ("against cache off", "CPU against it")
    if section != "miss":
        heads = ("sszip against it", "by CPU")
    parts = [f"## {title}", text]
    for group in samples.groups:
        rows = []
        for row in data["rows"]:
            name = row["name"]
            rps, cpu = against(samples, section, group, name)
            rows.append(
                (
                    name,
                    row["asks"],
                    f"{samples.mid(group, name, 'rps'):,.0f}",
                    f"{rps:.2f}x",
                    f"{samples.mid(group, name, 'cpu_us'):,.1f}",
                    f"{cpu:.2f}x",
                    f"{samples.bytes(group, name):,.0f}",
                    share(samples.mid(group, name, "utilisation")),
                )
            )
        low, high = (n // 1000 for n in GROUPS[group])
        parts += [
            f"### {title}, {group} ({low}-{high} KB, {len(samples.calls(group))} calls)",
            table(
                ["", "Asked", "Requests/s", heads[0], "CPU us", heads[1]]
                + ["Bytes", "Worker"],
                rows,
            ),
        ]
    return parts + logged(data)


def memory_text(groups):
    """Returns the table of the bytes of the hot tier with and without zstd forms."""
    lines = [
        (name, one["entries"], f"{one['gzip']:,}", f"{one['zstd']:,}", f"{one['zstd'] / one['gzip']:.2f}x")
        for name, one in groups.items()
    ]
    heads = ["Bodies", "Entries", "Bytes after gzip hits", "after zstd hits", "Ratio"]
    return "Memory of entries, which keep their zstd form from the first zstd hit on:\n\n" + table(heads, lines)


def batch_text(data):
    samples = Samples(data)
    sizes = {c["name"]: c["size"] for c in data["calls"]}
    rows = []
    for ten, one in data["couples"]:
        for name in (r["name"] for r in data["rows"]):
            for call in (one, ten):
                of_call = samples.by[call, name].values()
                facts = next(
                    v for v in data["verified"] if (v["call"], v["row"]) == (call, name)
                )
                rows.append(
                    (
                        call,
                        name,
                        f"{median(s['rps'] for s in of_call):,.0f}",
                        f"{samples.round_ratio((call, name), (one, name), 'rps'):.2f}x",
                        f"{median(s['cpu_us'] for s in of_call):,.1f}",
                        f"{samples.round_ratio((one, name), (call, name), 'cpu_us'):.2f}x",
                        f"{sizes[call]:,}",
                        f"{facts['bytes']:,}" + ("" if facts["coding"] else " (identity)"),
                        share(median(s["utilisation"] for s in of_call)),
                    )
                )
    return [
        "## Batches",
        "Ten stored answers in one batch, other ids each time, beside one stored answer "
        "whose result is the results of such answers up to the same length. Answers below "
        "`sszip_min_length` are stored as they are, and coded with the ids of each batch.",
        table(
            ["", "Client", "Requests/s", "against one", "CPU us", "by CPU"]
            + ["Content", "Bytes sent", "Worker"],
            rows,
        ),
        *logged(data),
    ]


def logged(data):
    return [f"nginx logged, {n}:\n\n```\n{text[-2000:]}\n```" for n, text in data["complaints"]]


def core_text(data):
    scans = [
        (r["what"], r["body"], f"{r['bytes']:,}", f"{r['ns'] / 1e3:,.2f}")
        + (f"{r['bytes'] / r['ns']:.2f}",)
        for r in data["jsonrpc"]
    ]
    by_task = {}
    for row in data["splice"]:
        by_task.setdefault((data["groups"][row["body"]], row["task"]), []).append(row["ns"])
    groups = list(dict.fromkeys(group for group, _ in by_task))

    def us(group, *tasks):
        return sum(median(by_task[group, task]) for task in tasks) / 1e3

    rows = [
        ("look up and splice: a gzip hit", ["look up and splice"]),
        ("decode, then compress at level 1", ["inflate", "open 1"]),
        ("decode: an identity hit before the identity form is kept", ["inflate"]),
        ("compress at level 1: a fill", ["open 1"]),
    ]
    return [
        "## The core alone",
        "One thread, its CPU time; `benches/jsonrpc`: the scan of a text, the reading of a "
        "request or response, and for usual requests all that comes before a look-up (batch: "
        "scan and split, no keys).",
        table(["What", "Of", "Bytes", "us", "GB/s"], scans),
        "`benches/splice`, medians over the calls of a group, us: what a cache without the "
        "splice would do to put another id into what it stored is the second row.",
        table(
            ["What", *groups],
            [(text, *(f"{us(g, *tasks):,.1f}" for g in groups)) for text, tasks in rows],
        ),
    ]

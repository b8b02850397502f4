"""Report of the store suite in Markdown, with its targets."""

from statistics import median

from caching_report import Samples, logged, share
from report import MET, machine_text, profile_text, quiet, table
from storing_coders import HOT, MEMORY, PLACES, STORE

# Additional CPU time of worker and owner for a hit from the owner, in comparison with the
# worker's memory, in microseconds.
HIT_US = 60
LARGE_GB_S = 1.0
# Ratio of the worker's CPU time for a miss with and without a store.
MISS_RATIO = {"300 KB": 1.05, "30 KB": 1.25}
LAST_MS = 20
LOG_RATIO = 0.6
OFF, ON = "without a store", "with a store"


class Places(Samples):
    """Samples of hits, by call and origin."""

    def in_all(self, call, place):
        """Returns the CPU time of worker and owner by round in microseconds."""
        return {
            n: s["cpu_us"] + s["owner_us"] for n, s in self.by[call, place].items()
        }

    def more(self, group, place):
        """Returns the additional cost of an origin over the worker's memory in microseconds."""
        return self.over_calls(group, lambda call: self.beyond(call, place, self.in_all))

    def beyond(self, call, place, of):
        """Returns the additional cost per request of this origin, without a run's requests of
        another one."""
        this, hot = of(call, place), of(call, HOT)
        shares = self.by[call, place]
        return median((this[n] - hot[n]) / shares[n]["share"] for n in this)

    def over_calls(self, group, of):
        return median(of(call) for call in self.calls(group))

    def latency(self, call, place):
        return {n: s["p50_us"] for n, s in self.by[call, place].items()}

    def speed(self, group, place, of):
        """Returns the throughput in GB/s: bytes of an entry, divided by the additional time
        over the worker's memory."""
        return self.bytes(group, place) / 1e3 / self.over_calls(
            group, lambda call: self.beyond(call, place, of)
        )


def verdicts(results):
    """Returns each target with its measurement; `met` is None if the figures do not decide."""
    out = list(target_rows(results))
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    return out


def target_rows(results):
    if data := results.get("hit"):
        samples = Places(data)
        for group in samples.groups:
            for place in (MEMORY, STORE):
                more = samples.more(group, place)
                yield {
                    "target": f"hit from {place}, {group}: worker and owner together at most "
                    f"{HIT_US} us more than from the worker's memory",
                    "measured": f"{more:+.1f} us",
                    "met": more <= HIT_US,
                }
    if data := results.get("large"):
        samples = Places(data)
        for group in samples.groups:
            for place in (MEMORY, STORE):
                wall = samples.speed(group, place, samples.latency)
                cpu = samples.speed(group, place, samples.in_all)
                yield {
                    "target": f"an entry of {group} from {place}: at least {LARGE_GB_S:g} GB/s",
                    "measured": f"{wall:.2f} GB/s ({cpu:.2f} by CPU of both)",
                    "met": wall >= LARGE_GB_S,
                }
    if data := results.get("miss"):
        samples = Samples(data)
        for group in samples.groups:
            cost = samples.ratio(group, ON, OFF, "cpu_us")
            yield {
                "target": f"miss, {group}: at most {MISS_RATIO[group] - 1:.0%} more CPU of the "
                "worker than without a store",
                "measured": f"{cost - 1:+.1%}, and {samples.mid(group, ON, 'owner_us'):.1f} us "
                "of the owner",
                "met": cost <= MISS_RATIO[group],
            }
    if data := results.get("stampede"):
        rounds = [s for s in data["samples"] if s["kind"] == ON]
        most = max(s["reached"] for s in rounds)
        last = median(s["last_ms"] for s in rounds)
        subject = f"{data['clients']:,} requests at once for one key, {data['workers'][ON]} workers"
        yield {
            "target": f"{subject}: the node is asked once",
            "measured": f"{most} at most",
            "met": most == 1,
        }
        yield {
            "target": f"{subject}: the last has its answer {LAST_MS} ms after the node gave it",
            "measured": f"{last:.1f} ms, {max(s['last_ms'] for s in rounds):.1f} at worst",
            "met": last <= LAST_MS,
        }
    for length, rows in by_length(results.get("log")).items():
        ratio = rows["off"]["written"] / rows["on"]["written"]
        yield {
            "target": f"values of {length:,} bytes without RocksDB's log: at most "
            f"{LOG_RATIO:g}x of the bytes written with it",
            "measured": f"{ratio:.2f}x",
            "met": ratio <= LOG_RATIO,
        }


def by_length(rows):
    found = {}
    for row in rows or ():
        if "log" in row:
            found.setdefault(row["values"], {})[row["log"]] = row
    return found


def render(results):
    parts = ["# nginx: answers that the cache's owner keeps", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    parts += [
        "## Targets",
        "*Undecided*: the bodies were generated, or the run was a quick one."
        + ("" if quiet(results) else " The machine was busy before the run."),
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in verdicts(results)],
        ),
        "## How it was measured",
        "`sszip_cache_path`: nginx's cache manager is the owner. One worker on one core; "
        "wrk, the node and the owner share the other. Medians over rounds, then over "
        "calls; differences and ratios within a round. *Worker CPU* and *owner CPU* are "
        "the run time of the two processes per request, all threads included; *worker* is "
        "the share of its core that it used: below 90 % (marked \\*) its requests/s are a "
        "lower bound.",
    ]
    if data := results.get("hit"):
        parts += ["## Hits", HIT_TEXT.format(keys=f"{data['keys']:,}"), *hit_text(data)]
    if data := results.get("large"):
        parts += ["## A long entry", LARGE_TEXT, *large_text(data)]
    if data := results.get("miss"):
        parts += ["## Misses", MISS_TEXT, *miss_text(data)]
    if data := results.get("stampede"):
        parts += stampede_text(data)
    if data := results.get("log"):
        parts += log_text(data)
    if data := results.get("profiles"):
        parts += profile_text(data)
    return "\n\n".join(parts) + "\n"


HIT_TEXT = (
    "Recorded answers of about 30 KB, to calls that name a block by its hash, and so never "
    "change; {keys} keys of each, in turn. *The worker's memory* has room for all; else it "
    "has 1 MB, so that what it keeps is gone before it is asked for again. *The owner's "
    "memory* has room for all; for *RocksDB* it has 1 MB, and nginx was started anew, so "
    "that what is stored lies in files (in the page cache). *From there*: what the owner's "
    "counters say of the run."
)
LARGE_TEXT = (
    "An answer whose coded form takes 10 MB, asked for over one connection, one request at "
    "a time. The worker's memory takes it in its own row only. What nodes usually send is "
    "read strictly at the first hit, not when it comes, by the owner (decision 015): *stored "
    "unread* is that; *10 MB* has its members in no usual order, so that it is read when it "
    "comes. Both are only moved at a hit. Speeds are its bytes through what a hit takes longer than one from the worker's memory: *by time*, by the "
    "median latency of a request, which is what moving the entry into the worker adds; *by "
    "CPU*, by the run time of worker and owner together, which in part run at the same "
    "time. *End to end* is what came to wrk."
)
MISS_TEXT = (
    "Each request has an id and params that none had before; the cache is on in both rows, "
    "its memory 16 MB. With a store, the owner is asked for each key's lease, and is given "
    "the answer."
)


def hit_text(data):
    samples = Places(data)
    parts = []
    for group in samples.groups:
        rows = []
        for place in PLACES:
            worker, owner, rps, used, found = (
                samples.mid(group, place, key)
                for key in ("cpu_us", "owner_us", "rps", "utilisation", "share")
            )
            more = "" if place == HOT else f"{samples.more(group, place):+.1f}"
            rows.append(
                (place, f"{rps:,.0f}", f"{worker:,.1f}", f"{owner:,.1f}", more)
                + (f"{samples.bytes(group, place):,.0f}", f"{found:.1%}", share(used))
            )
        parts += [
            f"### Hits, {group} ({len(samples.calls(group))} calls)",
            table(
                ["From", "Requests/s", "Worker CPU us", "Owner CPU us", "In all, us more"]
                + ["Bytes", "From there", "Worker"],
                rows,
            ),
        ]
    return parts + logged(data)


def large_text(data):
    samples = Places(data)
    rows = []
    for group in samples.groups:
        for place in PLACES:
            size = samples.bytes(group, place)
            rps, worker, owner, late, found, reached = (
                samples.mid(group, place, key)
                for key in ("rps", "cpu_us", "owner_us", "p50_us", "share", "reached")
            )
            speeds = ("", "")
            if place != HOT:
                speeds = tuple(
                    f"{samples.speed(group, place, of):.2f}"
                    for of in (samples.latency, samples.in_all)
                )
            rows.append(
                (group, place, f"{late:,.0f}", f"{worker:,.0f}", f"{owner:,.0f}", *speeds)
                + (f"{size * rps / 1e9:.2f}", f"{size:,.0f}", f"{found:.1%}", f"{reached:.1%}")
            )
    return [
        table(
            ["", "From", "Latency us", "Worker CPU us", "Owner CPU us", "GB/s by time", "by CPU"]
            + ["GB/s end to end", "Bytes", "From there", "Upstream requests"],
            rows,
        ),
        *logged(data),
    ]


def miss_text(data):
    samples = Samples(data)
    parts = []
    for group in samples.groups:
        rows = []
        for row in (OFF, ON):
            rps, cpu = (samples.ratio(group, row, OFF, key) for key in ("rps", "cpu_us"))
            rows.append(
                (row, f"{samples.mid(group, row, 'rps'):,.0f}", f"{rps:.2f}x")
                + (f"{samples.mid(group, row, 'cpu_us'):,.1f}", f"{cpu:.2f}x")
                + (f"{samples.mid(group, row, 'owner_us'):,.1f}",)
                + (f"{samples.bytes(group, row):,.0f}",)
                + (share(samples.mid(group, row, "utilisation")),)
            )
        parts += [
            f"### Misses, {group} ({len(samples.calls(group))} calls)",
            table(
                ["", "Requests/s", "against without", "Worker CPU us", "CPU against it"]
                + ["Owner CPU us", "Bytes", "Worker"],
                rows,
            ),
        ]
    return parts + logged(data)


def stampede_text(data):
    rows = []
    for kind, workers in data["workers"].items():
        rounds = [s for s in data["samples"] if s["kind"] == kind]
        reached = sorted({s["reached"] for s in rounds})
        rows.append(
            (kind, workers, "-".join(map(str, reached[:1] + reached[1:][-1:])))
            + tuple(
                f"{median(s[key] for s in rounds):.1f}"
                for key in ("first_ms", "median_ms", "p99_ms", "last_ms")
            )
            + (f"{max(s['last_ms'] for s in rounds):.1f}",)
        )
    return [
        "## Many at once",
        f"{data['clients']:,} clients, each with a connection that is open and was used "
        f"before, ask for one key that nobody has ({data['call']}, {data['size']:,} bytes), "
        "all of them before the node answers. Times are from the node's answer, before it is "
        "written, to the last byte of a client's, as the kernel stamps it; medians over "
        f"{len(data['samples']) // len(data['workers'])} keys. All processes on both cores; "
        "the client sleeps meanwhile.",
        table(
            ["", "Workers", "The node was asked", "First, ms", "Median, ms", "p99, ms"]
            + ["Last, ms", "Last at worst, ms"],
            rows,
        ),
    ]


def log_text(data):
    rows = [
        (f"{length:,}", name, f"{row['written']:.2f}", f"{row['kernel']:.2f}")
        + (f"{row['mb_s']:,.0f}",)
        for length, rows in by_length(data).items()
        for name, row in rows.items()
    ]
    return [
        "## RocksDB's log",
        "`shared-core/benches/store`: the same entries with the log and without, bytes written "
        "for each byte stored, as RocksDB counts them and as the kernel does.",
        table(["Values of bytes", "Log", "Written", "by the kernel's count", "MB/s"], rows),
    ]

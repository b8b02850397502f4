"""The wire suite's measurements in Markdown, and its targets."""

from statistics import median

import plot
import wire_bridge
import wire_publish
from caching_report import logged, share
from report import MET, machine_text, quiet, table
from wire import OURS, PLAIN
from wire_large import DIRECT, PROXY, SSZ_ROW, TCP, UNIX
from wire_large import PLAIN as PLAIN_ROWS

BLOCK_RPS, BLOCK_P99 = 0.9, 1.2
CACHED_RPS = 0.95
PUBLISH_TIME = 1.5
# Of the SSZ, and bytes besides.
GROWTH, GROWTH_MORE = 1.15, 32e6
# Beside sszip_memory: what a worker has for other things.
MANY_MORE = 32e6
DECODED, DECODED_MEGABYTES = 2.0, 500
BESIDE_P99 = 2.0
SSZ_CODED = f"{SSZ_ROW}, gzip"
PROXIES = [row.name for row in PLAIN_ROWS]
CODINGS = ["sszip, JSON", "sszip, JSON, gzip", SSZ_ROW, SSZ_CODED]


class Often:
    """Samples of one body that was asked for over and over."""

    def __init__(self, data):
        self.data, self.by = data, {}
        for s in data["samples"]:
            self.by.setdefault(s["row"], {})[s["round"]] = s

    def mid(self, row, key):
        return median(s[key] for s in self.by[row].values())

    def ratio(self, upper, lower, key):
        """Of the same rounds."""
        upper, lower = self.by[upper], self.by[lower]
        return median(upper[n][key] / lower[n][key] for n in upper)


class Large:
    """Samples of one large body, by row and transport; `plain`: the rows that it is
    compared with."""

    def __init__(self, data, plain=PROXIES):
        self.data, self.plain, self.by = data, plain, {}
        for s in data["samples"]:
            self.by.setdefault((s["row"], s["transport"]), []).append(s)

    def name(self):
        return f"{self.data['kind']}, {self.data['megabytes']} MB"

    def ms(self, row, transport, key="done_ns"):
        samples = self.by.get((row, transport))
        return median(s[key] for s in samples) / 1e6 if samples else None

    def best(self, transport):
        """The fastest that leaves the JSON as it is, and its time."""
        return min((self.ms(name, transport), name) for name in self.plain)

    def decode(self):
        """What each way of decoding takes, ms."""
        found = {how: ns / 1e6 for how, ns in self.data["decode"].items()}
        for samples in self.by.values():
            for how, ns in samples[0]["decode_ns"]:
                found.setdefault(how, ns / 1e6)
        return found


def verdicts(results):
    """Every target with what was measured; None where the figures bear none."""
    out = list(measured(results))
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    elif not quiet(results):
        # times are of a machine that had other things to do
        out = [row if row.get("memory") else row | {"met": None} for row in out]
    return out


def measured(results):
    if data := results.get("block"):
        yield from of_block(Often(data))
    if data := results.get("cached"):
        yield of_cached(Often(data))
    if data := results.get("publish"):
        ratio = Often(data).ratio(wire_publish.OURS, wire_publish.DIRECT, "done_us")
        yield {
            "target": f"a publish of {data['ssz'] / 1e6:.1f} MB of SSZ to a JSON-only node: at "
            f"most {PUBLISH_TIME:g}x the time of sending it the JSON",
            "measured": f"{ratio:.2f}x",
            "met": ratio <= PUBLISH_TIME,
        }
    for data in results.get("large", ()):
        yield from of_large(Large(data))
    if data := results.get("many"):
        most = data["memory"] + MANY_MORE
        yield {
            "target": f"{data['clients']} at once, {data['megabytes']} MB: the worker grows by "
            f"no more than sszip_memory + {MANY_MORE / 1e6:.0f} MB ({most / 1e6:,.0f} MB)",
            "measured": f"{data['growth'] / 1e6:,.0f} MB, {data['as_ssz']} of "
            f"{data['clients']} as SSZ",
            "met": data["growth"] <= most,
            "memory": True,
        }
    if data := results.get("beside"):
        samples = Often(data)
        ratio = samples.ratio(SSZ_ROW, PROXY.name, "p99_us")
        yield {
            "target": f"small requests beside {data['megabytes']} MB: p99 at most "
            f"{BESIDE_P99:g}x that beside proxy_pass of the same JSON",
            "measured": f"{ratio:.2f}x",
            "met": ratio <= BESIDE_P99,
        }


def of_block(samples):
    what = f"a block of {samples.data['json'] / 1e3:,.0f} KB"
    rps, p99 = (samples.ratio(OURS, PLAIN, key) for key in ("rps", "p99_us"))
    yield {
        "target": f"{what}, JSON node, SSZ client: at least {BLOCK_RPS:g}x the requests/s of "
        f"{PLAIN}",
        "measured": f"{rps:.2f}x",
        "met": rps >= BLOCK_RPS,
    }
    yield {
        "target": f"{what}: p99 at most {BLOCK_P99:g}x",
        "measured": f"{p99:.2f}x",
        "met": p99 <= BLOCK_P99,
    }


def of_cached(samples):
    files = [row for row in samples.data["rows"] if row != OURS]
    file = max(files, key=lambda row: samples.mid(row, "rps"))
    rps = samples.ratio(OURS, file, "rps")
    return {
        "target": f"the same from the cache: at least {CACHED_RPS:g}x a {file}",
        "measured": f"{rps:.2f}x",
        "met": rps >= CACHED_RPS,
    }


def of_large(large):
    data = large.data
    for transport in (TCP, UNIX):
        ours = large.ms(SSZ_ROW, transport)
        if ours is None:
            continue
        best, name = large.best(transport)
        yield {
            "target": f"{large.name()}, {transport}: the SSZ is whole no later than the JSON "
            "by the best that is no sszip",
            "measured": f"{ours:,.0f} ms, {best:,.0f} ms ({name})",
            "met": ours <= best,
        }
        decode = large.decode()
        ways = {how: ms for how, ms in decode.items() if how != "libssz"}
        if data["megabytes"] == DECODED_MEGABYTES and ways:
            how = min(ways, key=ways.get)
            faster = (best + ways[how]) / (ours + decode.get("libssz", 0))
            yield {
                "target": f"{large.name()}, {transport}: decoded at least {DECODED:g}x sooner "
                f"than JSON by {how}, the fastest",
                "measured": f"{faster:.2f}x",
                "met": faster >= DECODED,
            }
        most = GROWTH * data["ssz"] + GROWTH_MORE
        for row in (SSZ_ROW, SSZ_CODED):
            growth = max(s["growth"] for s in large.by[row, transport])
            yield {
                "target": f"{large.name()}, {transport}, {row}: the worker grows by at most "
                f"{most / 1e6:,.0f} MB ({GROWTH:g}x the SSZ + 32 MB)",
                "measured": f"{growth / 1e6:,.0f} MB",
                "met": growth <= most,
                "memory": True,
            }


def draw(results, path):
    """Whether there was something to draw."""
    charts = []
    for data in results.get("large", ()):
        large = Large(data)
        names = [row for row, transport in large.by if transport == TCP]
        values = [large.ms(name, TCP) for name in names]
        charts.append((large.name(), names, values))
    if charts:
        plot.bars(charts[-3:], "ms to the last byte, TCP", path)
    return bool(charts)


def render(results, plot_name):
    parts = ["# SSZ on the wire", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    parts += [
        "## Targets",
        "*Undecided*: times of a machine that was busy before the run, no recorded block, or "
        "a quick run.",
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in verdicts(results)],
        ),
    ]
    if data := results.get("block"):
        parts += ["## A block", BLOCK_TEXT.format(**kilobytes(data)), *often_text(data, PLAIN)]
    if data := results.get("cached"):
        parts += ["## From the cache", CACHED_TEXT, *often_text(data, OURS)]
    if data := results.get("publish"):
        parts += publish_text(data)
    if data := results.get("large"):
        parts += ["## Large answers", LARGE_TEXT, f"![times]({plot_name})"]
        for one in data:
            parts += large_text(Large(one))
    if data := results.get("bridge"):
        parts += bridge_text(data)
    if data := results.get("many"):
        parts += many_text(data)
    if data := results.get("beside"):
        parts += beside_text(data)
    return "\n\n".join(parts) + "\n"


BLOCK_TEXT = (
    "{json} KB of JSON, {ssz} KB of SSZ: a recorded block of mainnet without its longest "
    "transactions. The node has JSON only and shares a core with wrk; nginx has one worker "
    "on the other. Medians over rounds, ratios within a round. *Worker*: the share of its "
    "core that it used; below 90 % (marked \\*) its requests/s are a lower bound."
)
CACHED_TEXT = "The same block by its root, stored as SSZ, beside a file of the same bytes."
LARGE_TEXT = (
    "From the first request to the last byte at the client, decoded if it was gzipped; over "
    "TCP from the node to nginx and to the client, and over Unix sockets. *state*: a "
    "BeaconState; *decoupled*: `engine_newPayload`, then `debug_executionWitness`; *coupled*: "
    "`engine_newPayloadWithWitness` (the node's own time for either is not in it). MB are of "
    "JSON, about. *proxy_pass* has nginx's own buffers. Node, worker and client are free on "
    "all cores. *Growth*: the most that the worker's resident memory grew."
)


def kilobytes(data):
    return {key: f"{data[key] / 1e3:,.0f}" for key in ("json", "ssz")}


def often_text(data, against):
    samples = Often(data)
    bytes_ = {fact["row"]: fact["bytes"] for fact in data["verified"]}
    rows = []
    for row in data["rows"]:
        rps, cpu, p50, p99, used = (
            samples.mid(row, key) for key in ("rps", "cpu_us", "p50_us", "p99_us", "utilisation")
        )
        ratios = [f"{samples.ratio(row, against, key):.2f}x" for key in ("rps", "p99_us")]
        rows.append(
            (row, f"{rps:,.0f}", ratios[0], f"{p50:,.0f}", f"{p99:,.0f}", ratios[1])
            + (f"{cpu:,.1f}", f"{bytes_[row]:,}", share(used))
        )
    header = ["", "Requests/s", f"against {against}", "p50 us", "p99 us", "against it"]
    header += ["Worker CPU us", "Bytes", "Worker"]
    return [table(header, rows), *logged(data)]


def publish_text(data):
    samples = Often(data)
    rows = [
        (row, f"{samples.mid(row, 'done_us') / 1e3:.2f}")
        + (f"{samples.ratio(row, wire_publish.DIRECT, 'done_us'):.2f}x",)
        for row in data["rows"]
    ]
    rounds = len(data["samples"]) // len(data["rows"])
    return [
        "## A publish",
        f"A block with blobs, {data['json'] / 1e6:.1f} MB of JSON or {data['ssz'] / 1e6:.1f} MB "
        "of SSZ, from the first byte sent to the answer, over a connection of its own; "
        f"medians over {rounds} rounds. What the node got is compared with the value.",
        table(["", "ms", "against it"], rows),
    ]


def large_text(large):
    data = large.data
    rows = []
    for transport in (TCP, UNIX):
        best, _ = large.best(transport)
        for row in [DIRECT, *large.plain, *CODINGS]:
            samples = large.by.get((row, transport))
            if not samples:
                rows.append((row, transport, "left as JSON") + ("",) * 5)
                continue
            done, head = (large.ms(row, transport, key) for key in ("done_ns", "head_ns"))
            growth = max((s["growth"] for s in samples if "growth" in s), default=None)
            cpu = [s["cpu_ns"] for s in samples if "cpu_ns" in s]
            rows.append(
                (row, transport, f"{done:,.0f}", f"{done / best:.2f}x", f"{head:,.0f}")
                + (f"{samples[0]['content'] / 1e6:,.1f}",)
                + (f"{median(cpu) / 1e6:,.0f}" if cpu else "",)
                + ("" if growth is None else f"{growth / 1e6:,.1f}",)
            )
    decode = ", ".join(f"{how} {ms:,.0f} ms" for how, ms in large.decode().items())
    header = ["", "Over", "Whole, ms", "of the best JSON", "Head, ms", "MB sent"]
    return [
        f"### {large.name()} ({data['json'] / 1e6:,.0f} MB of JSON, {data['ssz'] / 1e6:,.0f} MB "
        "of SSZ)",
        table([*header, "Worker CPU ms", "Growth, MB"], rows),
        *([f"Decoding it, once it is there: {decode}."] if decode else []),
        *logged(data),
    ]


def bridge_text(data):
    """Each beside what the node says in its own way, through proxy_pass."""
    by = {}
    for s in data["samples"]:
        by.setdefault((s["row"], s["transport"]), []).append(s)
    rows = []
    for (name, transport), samples in by.items():
        own = by[wire_bridge.BESIDE.get(name, name), transport]
        done, head, cpu = (median(s[key] for s in samples) / 1e6 for key in ("done_ns", "head_ns", "cpu_ns"))
        plain = median(s["done_ns"] for s in own) / 1e6
        growth = max(s["growth"] for s in samples)
        rows.append(
            (name, transport, f"{done:,.0f}", f"{done / plain:.2f}x", f"{head:,.0f}")
            + (f"{samples[0]['content'] / 1e6:,.1f}", f"{cpu:,.0f}", f"{growth / 1e6:,.1f}")
        )
    header = ["", "Over", "Whole, ms", "of the node's own by proxy_pass", "Head, ms", "MB sent"]
    return [
        "## The bridge for witnesses",
        f"A payload's witness of {data['megabytes']} MB of JSON, by the method (JSON-RPC, "
        f"{data['method'] / 1e6:,.0f} MB) and by the route (REST, {data['route'] / 1e6:,.0f} MB of SSZ). "
        "*rpc*: asked for at the route, of a node that has the method; *rest*: the other way round. "
        "*proxy_pass*: what the node says in its own way, with large buffers.",
        table([*header, "Worker CPU ms", "Growth, MB"], rows),
        *logged(data),
    ]


def many_text(data):
    times = sorted(ns / 1e6 for ns in data["done_ns"])
    return [
        f"## {data['clients']} at once",
        f"Answers (*{data['kind']}*) of {data['megabytes']} MB, `sszip_memory` {data['memory'] >> 20} MiB, "
        "clients that take both formats and get the JSON where there is no memory for more: "
        f"{data['as_ssz']} got SSZ. The worker grew by {data['growth'] / 1e6:,.0f} MB; the first "
        f"was done after {times[0]:,.0f} ms, the last after {times[-1]:,.0f} ms.",
    ]


def beside_text(data):
    samples = Often(data)
    rows = [
        (row,)
        + tuple(f"{samples.mid(row, key) / 1e3:,.2f}" for key in ("alone_p99_us", "p50_us"))
        + (f"{samples.mid(row, 'p99_us') / 1e3:,.2f}", f"{samples.mid(row, 'max_us') / 1e3:,.1f}")
        + (f"{sum(s['large'] for s in samples.by[row].values())}",)
        for row in samples.by
    ]
    return [
        "## Small requests beside it",
        f"Four connections with pauses, while one answer (*{data['kind']}*) of "
        f"{data['megabytes']} MB after the other is under way. Times in ms.",
        table(["Beside", "p99 alone", "p50", "p99", "max", "Large ones"], rows),
    ]

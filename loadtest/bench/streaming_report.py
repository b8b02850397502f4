"""The streaming suite's measurements in Markdown, and its targets."""

from bodies import GROUPS
from first_byte import ALLOWED_MS, HOLD_MS
from rate import CHUNKED
from report import MET, draw, machine_text, mid, of, quiet, table
from streaming import GROUP
from streaming_coders import GZIP, SSZIP, SSZIP_ZLIB_RS
from throughput import SATURATED

# main.py asks each suite's report for it.
__all__ = ["draw", "render", "verdicts"]
RPS_RATIO = 2.5
BODY_GROWTH = 8 << 20
STREAM_BYTES = 160 << 10


def verdicts(results):
    """Every target with what was measured; None where the numbers do not bear
    a verdict."""
    out = []
    if data := results.get("throughput"):
        out.append(throughput_verdict(data))
    if data := results.get("latency"):
        out += latency_verdicts(data, quiet(results))
    if data := results.get("memory"):
        out += memory_verdicts(data)
    if data := results.get("rate"):
        out += rate_verdicts(data, quiet(results))
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    return out


def throughput_verdict(data):
    rows = of(data["summary"], GROUP, SSZIP.name)
    rps, cpu, size = (mid(rows, k) for k in ("rps_ratio", "cpu_ratio", "bytes_ratio"))
    worst = max(r["bytes_ratio"] for r in rows)
    met = rps >= RPS_RATIO and size <= 1
    if mid(of(data["summary"], GROUP, GZIP.name), "utilisation") < SATURATED:
        met = None
    elif not met and size <= 1 and mid(rows, "utilisation") < SATURATED:
        met = None
    return {
        "target": f"chunked, {GROUP}: at least {RPS_RATIO:g}x gzip 1's requests/s "
        "at no more bytes",
        "measured": f"{rps:.2f}x ({cpu:.2f}x by CPU) at {size:.3f}x the bytes "
        f"(worst body {worst:.3f}x)",
        "met": met,
    }


def latency_verdicts(data, calm):
    """On medians; p99 is the machine's as much as the coder's."""
    rows = {r["coder"]: r for r in data["summary"]}
    for mode in ("", ", unbuffered"):
        plain, ours = rows[f"pass-through{mode}"], rows[f"{SSZIP.name}{mode}"]
        late = [
            ours["usable_ms"][q] - plain["first_ms"][q] for q in ("p50", "p99")
        ]
        yield {
            "target": f"first compressed chunk{mode}: no later than {ALLOWED_MS} ms + "
            f"the hold ({HOLD_MS} ms) after plain proxying",
            "measured": f"{late[0]:+.2f} ms at the median, {late[1]:+.2f} ms at p99, "
            "decodable",
            "met": late[0] <= ALLOWED_MS + HOLD_MS or (False if calm else None),
        }


def memory_verdicts(data):
    plain = next(r for r in data["slow"] if r["coder"] == "pass-through")
    for coder in (SSZIP.name, SSZIP_ZLIB_RS.name):
        large = next(r for r in data["large"] if r["coder"] == coder)
        slow = next(r for r in data["slow"] if r["coder"] == coder)
        yield {
            "target": f"{coder}: a {data['bytes'] >> 20} MiB body grows the worker by at "
            f"most {BODY_GROWTH >> 20} MiB",
            "measured": f"{large['growth'] / 2**20:.2f} MiB at the peak",
            "met": large["growth"] <= BODY_GROWTH,
        }
        # Streams that were passed on in identity say nothing about the coder.
        yield {
            "target": f"{coder}: {data['streams']:,} slow streams at most "
            f"{STREAM_BYTES >> 10} KiB each",
            "measured": f"{slow['each'] / 1024:.0f} KiB each, "
            f"{(slow['each'] - plain['each']) / 1024:.0f} more than pass-through"
            + (f", {slow['not_coded']} not compressed" if slow["not_coded"] else ""),
            "met": slow["each"] <= STREAM_BYTES and not slow["not_coded"],
        }


def complete(sample):
    """Every request due was answered by a coder that did not give up.

    oha's clock starts a tick late, which is no failure.
    """
    answered = sample["answered"] >= sample["wanted"] * 0.999 and not sample["failed"]
    return answered and sample["bytes"] <= sample["bytes_verified"] * 1.1


def rate_verdicts(data, calm):
    for ours in data["samples"]:
        if ours["coder"] != SSZIP.name:
            continue
        plain = next(
            s
            for s in data["samples"]
            if (s["size"], s["coder"]) == (ours["size"], "pass-through")
        )
        met = complete(ours)
        if not met and (not complete(plain) or not calm):
            # Then it is the machine that can't carry it.
            met = None
        yield {
            "target": f"{data['rate']:,}/s of {ours['size'] / 1e3:.0f} KB blocks, "
            f"{ours['framing']}, for {ours['seconds']} s: 100 % success",
            "measured": f"{ours['success']:.2%} answered; p50 {ours['p50_ms']:.2f}, "
            f"p99 {ours['p99_ms']:.2f}, max {ours['max_ms']:.1f} ms"
            + ("" if complete(plain) else f"; pass-through {plain['success']:.2%}"),
            "met": met,
        }


def render(results, plot_name):
    parts = ["# nginx: sszip when the node streams", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    parts += [
        "## Targets",
        "*Undecided*: something other than the worker was the bottleneck, pass-through "
        "missed it too, the machine was busy before the run, the bodies were generated, "
        "or the run was a quick one.",
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in verdicts(results)],
        ),
    ]
    if data := results.get("throughput"):
        parts += throughput_text(data, plot_name)
    if data := results.get("latency"):
        parts += latency_text(data)
    if data := results.get("memory"):
        parts += memory_text(data)
    if data := results.get("rate"):
        parts += rate_text(data)
    return "\n\n".join(parts) + "\n"


def share(value):
    return f"{value:.0%}" + ("" if value >= SATURATED else " \\*")


def logged(complaints):
    return [f"nginx logged, {n}:\n\n```\n{text}\n```" for n, text in complaints.items()]


def throughput_text(data, plot_name):
    rows = []
    for coder in data["coders"]:
        mine = of(data["summary"], GROUP, coder)
        rows.append(
            (
                coder,
                f"{mid(mine, 'rps'):,.0f}",
                f"{mid(mine, 'rps_ratio'):.2f}x",
                f"{mid(mine, 'cpu_us'):,.0f}",
                f"{mid(mine, 'cpu_ratio'):.2f}x",
                f"{mid(mine, 'bytes_ratio'):.3f}x",
                f"{max(r['bytes_ratio'] for r in mine):.3f}x",
                f"{mid(mine, 'bytes_under_load'):,.0f}",
                "yes" if all(r["exact_length"] for r in mine) else "no",
                share(mid(mine, "utilisation")),
            )
        )
    low, high = (n // 1000 for n in GROUPS[GROUP])
    return [
        f"## Requests per second, chunked ({low}-{high} KB, {len(data['groups'][GROUP])} bodies)",
        "The node sends chunks of 16 KB without a pause. One nginx worker on one core, wrk "
        "(four connections) and the node on the other; medians over rounds, then over "
        "bodies; ratios against nginx gzip 1 within the same round. *zlib-rs*: "
        "`libisal.so.2` hidden from that nginx. *Held whole*: `sszip_hold 1m 10s`, so that "
        "every answer is compressed in one shot after all. *Wire bytes* are wrk's mean per "
        "answer under load, head and framing included. Below 90 % (marked \\*) the worker "
        "was not the bottleneck: requests/s are a lower bound, only its CPU counts.",
        f"![requests per second by coder]({plot_name})",
        table(
            ["Coder", "Requests/s", "against gzip 1", "CPU us", "by CPU", "Bytes"]
            + ["worst body", "Wire bytes", "Length", "Worker"],
            rows,
        ),
        *logged(data["complaints"]),
    ]


def latency_text(data):
    rows = [
        [r["coder"]]
        + [f"{r[key][q]:.2f}" for key in ("first_ms", "usable_ms") for q in r[key]]
        for r in data["summary"]
    ]
    return [
        "## The first compressed byte",
        f"{data['requests']} requests each, coders taking turns request by request. The "
        f"node sends {data['first']:,} bytes, pauses {data['pause_ms']:.0f} ms, and sends the "
        f"rest of {data['bytes']:,} bytes. Milliseconds from the request to the first "
        "content byte, and until the first chunk could be decoded whole. Both verdicts "
        "take the later one of sszip and the earlier one of pass-through.",
        table(
            ["Coder", "first byte p50", "p99", "max", "decodable p50", "p99", "max"], rows
        ),
    ]


def memory_text(data):
    large = [
        (
            r["coder"],
            f"{r['before'] / 2**20:.2f}",
            f"{r['after'] / 2**20:.2f}",
            f"{r['peak'] / 2**20:.2f}",
            f"{r['growth'] / 2**20:.2f}",
            f"{data['bytes'] / r['content']:.1f}",
            f"{r['seconds']:.1f}",
        )
        for r in data["large"]
    ]
    slow = [
        (
            r["coder"],
            f"{r['before'] / 2**20:.1f}",
            f"{r['peak'] / 2**20:.1f}",
            f"{r['each'] / 1024:.0f}",
            f"{r['each_now'] / 1024:.0f}",
            r["not_coded"],
            f"{r['decoded_each'] / 1024:,.0f}",
        )
        for r in data["slow"]
    ]
    return [
        "## Memory",
        "Resident memory of a fresh worker that has served one short answer, with nginx's "
        "default proxy buffers. The growth is to the peak (VmHWM), not to what is left.",
        f"One body of {data['bytes'] >> 20} MiB, chunked, recorded answers over and over; "
        "length and CRC-32 of what the client decoded are checked. The client decodes on the "
        "core of the node, so seconds are not the coder's.",
        table(
            ["Coder", "MiB before", "after", "peak", "growth", "Ratio", "Seconds"], large
        ),
        f"{data['streams']:,} streams at once, each client with a 4 KB receive buffer taking "
        "1 KB four times a second, nginx's sockets with a 16 KB send buffer so that the kernel "
        "does not take the streams in; none comes to its end, and what came is decoded and "
        "compared.",
        table(
            ["Coder", "MiB before", "peak", "KiB each at the peak", "KiB each at the end"]
            + ["Not compressed", "KiB decoded each"],
            slow,
        ),
        *logged({r["coder"]: r["complaints"] for r in data["slow"] if "complaints" in r}),
    ]


def rate_text(data):
    rows = []
    for s in data["samples"]:
        rows.append(
            (
                f"{s['size'] / 1e3:.0f} KB, {s['seconds']} s",
                f"{s['coder']}, {s['framing']}",
                f"{s['success']:.2%}",
                f"{s['rps']:,.0f}",
                s["failed"],
                *(f"{s[k]:,.2f}" for k in ("p50_ms", "p99_ms", "max_ms")),
                f"{s['bytes']:,.0f}",
                f"{s['cpu_us']:,.0f}",
                f"{s['utilisation']:.0%}",
            )
        )
    return [
        f"## A constant {data['rate']:,} requests per second",
        "eth_getBlockByNumber with transactions: the recorded block nearest to 246 KB, one "
        "of half that, and the first transactions of the large one, 30 KB in all, which one "
        f"worker should carry. oha on {data['connections']} connections, latency counted from when a "
        f"request was due. *{CHUNKED}*: 16 KB chunks and a newline at the end, as geth sends. "
        "*Answered* is the share of the requests that were due; the rest failed or were "
        "not even begun when the time was over (oha's clock starts a tick late: a few "
        "missing in ten thousand are its own). Percentiles are over those answered. "
        "Load generator and node share a core, and reach their own limit: see pass-through.",
        table(
            ["Block", "Coder", "Answered", "Requests/s", "Errors", "p50 ms", "p99 ms"]
            + ["max ms", "Bytes", "CPU us", "Worker"],
            rows,
        ),
        *logged(data["complaints"]),
    ]

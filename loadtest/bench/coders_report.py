"""Renders the measurements in Markdown, with the targets that are met."""

from statistics import median

from chosen_bodies import GROUPS
from report import MET, machine_text, mid, profile_text, quiet, rows_of, table
from throughput import DEFAULT, REFERENCE, SATURATED

# Minimum ratio of requests per second to gzip 6, and maximum ratio of bytes.
DEFAULT_RPS = {"300 KB": 3.5, "30 KB": 2.5}
DEFAULT_BYTES = 1.16
EQUAL_RPS = {"300 KB": 2.0, "30 KB": 1.6}
TAIL_RATIO = 2.0


def verdicts(results):
    """Returns each target with its measurement; it is met by requests per second.

    `met` is None if the numbers do not decide: the machine had other work, the worker was not
    the bottleneck, or the bodies were generated.
    """
    out = []
    if data := results.get("throughput"):
        summary, levels = data["summary"], data["levels"]
        for group, goal in DEFAULT_RPS.items():
            out.append(ratio(summary, group, DEFAULT.name, goal, DEFAULT_BYTES))
        for level, scope in equal_levels(levels):
            for group, goal in EQUAL_RPS.items():
                if level is None:
                    text = f"a level with no more bytes {scope}, {group}"
                    out.append({"target": text, "met": False, "measured": "no such level"})
                else:
                    row = ratio(summary, group, f"sszip {level}", goal, 1.0)
                    row["target"] += f" (no more {scope})"
                    out.append(row)
    if data := results.get("tail"):
        for row in data["summary"]:
            if row["coder"] != DEFAULT.name:
                continue
            out.append(
                {
                    "target": f"small answers' p99 beside 5 MB answers, {row['placement']}, "
                    f"{row['load']}: at most {TAIL_RATIO:g}x alone",
                    "measured": f"{row['p99_ratio']:.2f}x",
                    "met": row["p99_ratio"] <= TAIL_RATIO if quiet(results) else None,
                }
            )
    if not results["recorded"]:
        out = [row | {"met": None} for row in out]
    return out


def equal_levels(levels):
    """Returns the levels that send no more bytes, each with the scopes of the comparison."""
    scopes = {"every": "on any single body", "median": "at the median"}
    merged = {}
    for kind, level in levels.items():
        merged.setdefault(level, []).append(scopes[kind])
    return [(level, " and ".join(texts)) for level, texts in merged.items()]


def ratio(summary, group, coder, goal, most_bytes):
    rows = rows_of(summary, group, coder)
    rps, cpu, size = (mid(rows, k) for k in ("rps_ratio", "cpu_ratio", "bytes_ratio"))
    worst = max(r["bytes_ratio"] for r in rows)
    met = rps >= goal and size <= most_bytes
    if mid(rows_of(summary, group, REFERENCE.name), "utilisation") < SATURATED:
        # gzip 6 was limited by another bottleneck, so every ratio to it is too high
        met = None
    elif not met and size <= most_bytes and mid(rows, "utilisation") < SATURATED:
        # requests per second are a lower bound
        met = None
    return {
        "target": f"{coder}, {group}: at least {goal:g}x gzip 6's requests/s "
        f"at no more than {most_bytes:g}x its bytes",
        "measured": f"{rps:.2f}x ({cpu:.2f}x by CPU) at {size:.3f}x the bytes "
        f"(worst body {worst:.3f}x)",
        "met": met,
    }


def render(results):
    parts = ["# nginx: sszip against the other coders", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    rows = verdicts(results)
    if rows:
        parts += [
            "## Targets",
            "*Undecided*: requests/s while something other than the worker was the "
            "bottleneck, latency on a machine that was busy before the run, or generated "
            "bodies. Repeat the run on a quiet machine with the recorded ones.",
            table(
                ["Target", "Measured", "Met"],
                [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in rows],
            ),
        ]
    if data := results.get("throughput"):
        parts += throughput_text(data)
    if data := results.get("tail"):
        parts += tail_text(data)
    if data := results.get("codecs"):
        parts += codecs_text(data, results["bodies"])
    if data := results.get("profiles"):
        parts += profile_text(data)
    if results.get("throughput"):
        parts += bodies_text(results)
    return "\n\n".join(parts) + "\n"


def throughput_text(data):
    parts = [
        "## Requests per second",
        "One nginx worker on one core, wrk (one thread, four connections) and the "
        "replay node on the other; one configuration for all but the coder. Medians "
        "over rounds, then over the bodies of the group. Ratios are against nginx "
        "gzip 6 within the same round. *CPU* is the worker's run time per answer, all "
        "threads included; *by CPU* is the ratio of those, which another tenant of "
        "the machine hardly changes. *Worker* is the share of its core the worker "
        "used: below 90 % (marked \\*) it was not the bottleneck, so its requests/s "
        "are a lower bound and only its CPU counts.",
    ]
    for group in data["groups"]:
        rows = []
        for coder in data["coders"]:
            of_coder = rows_of(data["summary"], group, coder)
            worker = mid(of_coder, "utilisation")
            rows.append(
                (
                    coder,
                    f"{mid(of_coder, 'rps'):,.0f}",
                    f"{mid(of_coder, 'rps_ratio'):.2f}x",
                    f"{mid(of_coder, 'cpu_us'):,.0f}",
                    f"{mid(of_coder, 'cpu_ratio'):.2f}x",
                    f"{mid(of_coder, 'bytes_ratio'):.3f}x",
                    f"{max(r['bytes_ratio'] for r in of_coder):.3f}x",
                    "yes" if all(r["exact_length"] for r in of_coder) else "no",
                    f"{worker:.0%}" + ("" if worker >= SATURATED else " \\*"),
                )
            )
        low, high = (n // 1000 for n in GROUPS[group])
        parts += [
            f"### {group} ({low}-{high} KB, {len(data['groups'][group])} bodies)",
            table(
                ["Coder", "Requests/s", "against gzip 6", "CPU us", "by CPU"]
                + ["Bytes", "worst body", "Length", "Worker"],
                rows,
            ),
        ]
    every, middle = data["levels"]["every"], data["levels"]["median"]
    parts.append(
        "The level that gives no more bytes than gzip 6, by measuring all twelve: "
        f"**{every or 'none'}** on no single body more, **{middle or 'none'}** at "
        "the median of each group."
    )
    for name, text in data["complaints"].items():
        parts.append(f"nginx with {name} logged:\n\n```\n{text}\n```")
    return parts


def tail_text(data):
    rows = [
        (
            row["placement"],
            row["load"],
            row["coder"],
            f"{row['alone_p50_us']:,.0f}",
            f"{row['alone_p99_us']:,.0f}",
            f"{row['beside_p50_us']:,.0f}",
            f"{row['beside_p99_us']:,.0f}",
            f"{row['p99_ratio']:.2f}x",
            f"{row['alone_rps']:,.0f} / {row['beside_rps']:,.0f}",
            f"{row['bulk_rps']:.1f}",
        )
        for row in data["summary"]
    ]
    small, bulk = data["connections"]["small"], data["connections"]["bulk"]
    return [
        "## Small answers while large ones are compressed",
        f"eth_chainId ({data['small_bytes']} bytes) on {small} connections, alone and "
        f"while a second wrk asks for a {data['bulk_bytes'] / 1e6:.1f} MB answer on "
        f"{bulk} connections, without pause, through the same worker. *Paced*: each "
        f"connection pauses {data['pause_ms']} ms on average before a request; *back "
        "to back*: none. *Pinned*: worker on one core, load and node on the other; "
        "*free*: the kernel places all of them on both. Pass-through is given about "
        "as many large answers per second as sszip finished in the same round: it "
        "shows what mere contention for the cores and the loopback costs.",
        table(
            ["Cores", "Load", "Coder", "p50 alone, us", "p99 alone", "p50 beside"]
            + ["p99 beside", "p99 ratio", "requests/s alone / beside", "large/s"],
            rows,
        ),
    ]


def codecs_text(data, bodies):
    group_of = {b["name"].replace("/", "_"): b["group"] for b in bodies}
    base = {
        b["body"]: b
        for e in data["engines"]
        if (e["engine"], e["level"]) == ("zlib", 6)
        for b in e["bodies"]
    }
    rows = []
    for engine in data["engines"]:
        row = [f"{engine['engine']} {engine['level']}", engine["version"]]
        for group in GROUPS:
            own = [b for b in engine["bodies"] if group_of[b["body"]] == group]
            row.append(f"{median(b['bytes_in'] / b['ns'] * 1e3 for b in own):,.0f}")
            row.append(f"{median(b['ns'] / 1e3 for b in own):,.0f}")
            if base:
                speed = median(base[b["body"]]["ns"] / b["ns"] for b in own)
                size = median(b["bytes_out"] / base[b["body"]]["bytes_out"] for b in own)
                row += [f"{speed:.2f}x", f"{size:.3f}x"]
            else:
                row += ["-", "-"]
        rows.append(row)
    parts = [
        "## Codecs alone",
        "One thread, its CPU time, whole body to whole gzip member (zstd: frame), every "
        "output decoded and compared; medians over the bodies. libdeflate is the one "
        "the core's crate bundles; zlib, igzip and zstd are the system's. These "
        "numbers bound what any nginx module around the codec can reach.",
        table(
            ["Codec", "Version"]
            + [f"{g}: {c}" for g in GROUPS for c in ("MB/s", "us", "against zlib 6", "bytes")],
            rows,
        ),
    ]
    parts += [f"{a['engine']} was not measured: {a['why']}" for a in data["absent"]]
    return parts


def bodies_text(results):
    data = results["throughput"]
    shown = [c for c in data["coders"] if c.startswith("sszip")]
    cells = {(r["body"], r["coder"]): r for r in data["summary"]}
    rows = []
    for body in results["bodies"]:
        gzip6 = cells[body["name"], REFERENCE.name]
        row = [f"{body['name']} ({body['method']})", f"{body['size']:,}"]
        row += [f"{gzip6['bytes']:,}", f"{gzip6['rps']:,.0f}"]
        for coder in shown:
            c = cells[body["name"], coder]
            row.append(f"{c['rps_ratio']:.2f}x ({c['cpu_ratio']:.2f}x), {c['bytes_ratio']:.3f}x")
        rows.append(row)
    return [
        "## The bodies",
        f"{results['source']} Per coder: requests/s against gzip 6 (by CPU), bytes "
        "against gzip 6.",
        table(["Body", "Bytes", "gzip 6 bytes", "gzip 6 requests/s", *shown], rows),
    ]

"""Report of the ssz suite in Markdown, with its targets."""

from statistics import median

from report import MET, machine_text, table

OURS = "sszip"
TO_SSZ, TO_SSZ_INDENTED, TO_JSON = "JSON to SSZ", "indented JSON to SSZ", "SSZ to JSON"
CHECK, ENCODE, ROOT, PART = "check", "encode", "hash_tree_root", "one part"
FASTER = {TO_SSZ: 3.0, TO_JSON: 3.0}
ROOT_RATIO = 1.2
WITNESS_GB_S = 1.5
# Ratio of peak memory to the SSZ, and additional bytes.
WITNESS_PEAK, WITNESS_MORE = 1.15, 32e6
# Maximum ratio of the time per byte between the largest state and the one before; both are longer
# than the processor's caches.
LINEAR = 1.25


def name(group):
    count = group["validators"]
    return group["value"] + (f", {count:,} validators" if count else "")


def way(group, implementation):
    return next(w["ns"] for w in group["ways"] if w["who"] == implementation)


def peers(group):
    """Returns the times of other libraries, the fastest first."""
    others = {w["who"]: w["ns"] for w in group["ways"] if not w["who"].startswith(OURS)}
    return sorted(others.items(), key=lambda item: median(item[1]))


def ratio(these, those):
    """Returns the median ratio within the same rounds."""
    return median(a / b for a, b in zip(these, those, strict=True))


def verdicts(results):
    """Returns each target with its measurement; `met` is None if the figures do not decide."""
    out = [*group_targets(results["groups"]), *state_targets(results["groups"])]
    out += witness_targets(results["witnesses"])
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    return out


def group_targets(groups):
    for group in groups:
        operation, subject = group["operation"], f"{name(group)}, {group['operation']}"
        if operation in (ENCODE, PART, TO_SSZ_INDENTED):
            continue
        ours = way(group, OURS)
        implementation, theirs = peers(group)[0]
        faster = ratio(theirs, ours)
        measured = f"{faster:.2f}x of {implementation}"
        if operation in FASTER and not group["validators"]:
            goal = FASTER[operation]
            yield {
                "target": f"{subject}: at least {goal:g}x the fastest typed path",
                "measured": measured,
                "met": faster >= goal,
            }
        elif operation == CHECK:
            yield {
                "target": f"{subject}: faster than any peer decodes",
                "measured": measured,
                "met": faster > 1,
            }
        elif operation == ROOT:
            yield {
                "target": f"{subject}: at most {ROOT_RATIO:g}x the time of the fastest peer",
                "measured": f"{1 / faster:.2f}x the time of {implementation}",
                "met": 1 / faster <= ROOT_RATIO,
            }


def state_targets(groups):
    states = [g for g in groups if g["validators"]]
    for operation in (TO_SSZ, TO_JSON, CHECK, ROOT):
        by_size = sorted(
            (g for g in states if g["operation"] == operation), key=lambda g: g["validators"]
        )[-2:]
        if len(by_size) == 2:
            less, more = (median(way(g, OURS)) / g["bytes_in"] for g in by_size)
            yield {
                "target": f"BeaconState, {operation}: linear; per byte, "
                f"{by_size[1]['validators']:,} validators take at most {LINEAR:g}x of "
                f"{by_size[0]['validators']:,}",
                "measured": f"{more / less:.2f}x",
                "met": more / less <= LINEAR,
            }


def witness_targets(witnesses):
    for witness in witnesses:
        subject = f"ExecutionWitness, {witness['bytes_json'] / 1e6:,.0f} MB of JSON"
        ours = next(w["samples"] for w in witness["ways"] if w["who"] == OURS)
        speed = median(witness["bytes_json"] / s["ns"] for s in ours)
        whole = median(witness["bytes_json"] / (s["ns"] + s["reading_ns"]) for s in ours)
        yield {
            "target": f"{subject}: at least {WITNESS_GB_S:g} GB/s",
            "measured": f"{speed:.2f} GB/s ({whole:.2f} with reading the file)",
            "met": speed >= WITNESS_GB_S,
        }
        peak = max(s["peak_kib"] for s in ours) * 1024
        most = WITNESS_PEAK * witness["bytes_ssz"] + WITNESS_MORE
        yield {
            "target": f"{subject}: at most {most / 1e6:,.0f} MB of memory "
            f"({WITNESS_PEAK:g}x the SSZ + 32 MB)",
            "measured": f"{peak / 1e6:,.0f} MB",
            "met": peak <= most,
        }


def render(results):
    parts = ["# SSZ: tables beside typed crates", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    rows = verdicts(results)
    parts += [
        "## Targets",
        "*Undecided*: the values were generated, or the run was a quick one.",
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in rows],
        ),
        "## How it was measured",
        "CPU time of one thread; rounds of all ways in turn, each beginning with another "
        "one; medians, and medians of the ratios within a round. GB/s are of what is read. What a way makes is "
        "dropped within its time. Before, the SSZ, JSON and roots of all were compared. "
        "*JSON to SSZ* of a peer is its JSON crate into a struct, and the struct into "
        "SSZ; *SSZ to JSON* the reverse; *check* is its decoding; *hash_tree_root* is of "
        "a struct that it has already, ours is of SSZ and checks it; *encode* is of such "
        "a struct, and we have no such thing. *One part* is a validator's key by its "
        "path, beside decoding all.",
    ]
    names = dict.fromkeys(name(g) for g in results["groups"])
    for of_name in names:
        parts.append(f"## {of_name}")
        for group in results["groups"]:
            if name(group) == of_name:
                parts += group_text(group)
    parts += witness_text(results["witnesses"])
    return "\n\n".join(parts) + "\n"


def group_text(group):
    ours = next((w["ns"] for w in group["ways"] if w["who"] == OURS), None)
    is_part = group["operation"] == PART
    rows = []
    for one in group["ways"]:
        ns = median(one["ns"])
        row = [one["who"], time_text(ns)]
        if ours:
            row.append(f"{ratio(one['ns'], ours):,.2f}x")
        if not is_part:
            row.append(f"{group['bytes_in'] / ns:.2f}")
        if group["validators"] and not is_part:
            row.append(f"{ns / group['validators']:,.1f}")
        rows.append(row)
    header = ["By", "Time"] + ["against sszip"] * bool(ours)
    header += [] if is_part else ["GB/s"]
    header += ["ns per validator"] if group["validators"] and not is_part else []
    of = f"{group['operation']} ({group['bytes_in']:,} bytes, {len(group['ways'][0]['ns'])} rounds)"
    return [f"### {of}", table(header, rows)]


def time_text(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:,.3g} {unit}" if ns < 1e3 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def witness_text(witnesses):
    if not witnesses:
        return []
    parts = [
        "## ExecutionWitness",
        "A recorded witness' nodes, keys and codes over and over, in a file that is in "
        "the page cache. Each way in a process of its own: sszip reads 64 KiB at a time "
        "and parses them as they come; the others read all, parse it, drop it and encode "
        "the struct. GB/s are of JSON: of parsing and encoding alone, and with reading "
        "the file. *Peak* is all of the process' resident memory (`VmHWM`).",
    ]
    for witness in witnesses:
        size = witness["bytes_json"]
        ours = next(w["samples"] for w in witness["ways"] if w["who"] == OURS)
        rows = []
        for one in witness["ways"]:
            samples = one["samples"]
            peak = max(s["peak_kib"] for s in samples) * 1024
            against = ratio([s["ns"] for s in samples], [s["ns"] for s in ours])
            rows.append(
                (
                    one["who"],
                    time_text(median(s["ns"] for s in samples)),
                    f"{median(size / s['ns'] for s in samples):.2f}",
                    f"{median(size / (s['ns'] + s['reading_ns']) for s in samples):.2f}",
                    f"{against:.2f}x",
                    f"{peak / 1e6:,.0f} MB",
                    f"{peak / witness['bytes_ssz']:.2f}x",
                )
            )
        parts += [
            f"### {size / 1e6:,.0f} MB of JSON, {witness['bytes_ssz'] / 1e6:,.0f} MB of SSZ "
            f"({len(ours)} rounds)",
            table(
                ["By", "Time", "GB/s", "with reading", "against sszip", "Peak", "of the SSZ"],
                rows,
            ),
        ]
    return parts

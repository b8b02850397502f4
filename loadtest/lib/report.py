"""Functions that reports share: Markdown tables, the machine, and whether it was idle."""

from statistics import median

from load import QUIET_SHARE
from page import markdown as table

__all__ = ["MET", "machine_text", "mid", "rows_of", "profile_text", "quiet", "table"]
MET = {True: "yes", False: "no", None: "undecided"}


def rows_of(summary, group, coder):
    return [r for r in summary if r["group"] == group and r["coder"] == coder]


def mid(rows, key):
    return median(r[key] for r in rows)


def quiet(results):
    return results["quiet"]["busy"] <= QUIET_SHARE


def machine_text(results):
    facts, before = results["machine"], results["quiet"]
    rows = [
        ("Date", facts["date"]),
        ("Command", f"`{facts['command']}`"),
        ("Commit", facts["commit"]),
        ("Machine", f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}"),
        ("Busy before the run", f"{before['busy']:.1%}, stolen {before['steal']:.1%}"),
        ("Took", f"{results['seconds']:.0f} s"),
    ]
    rows += [(name, version) for name, version in facts["versions"].items()]
    return table(["", ""], rows)


def profile_text(profiles):
    parts = [
        "## Profiles",
        "perf, CPU clock, all threads of the worker. What a stripped object does not "
        "name is one row.",
    ]
    for profile in profiles:
        title = f"### {profile['coder']}, {profile['body']}"
        if "failed" in profile:
            parts.append(f"{title}\n\nperf could not record: {profile['failed']}")
            continue
        objects = ", ".join(f"{o['object']} {o['percent']:.0f} %" for o in profile["objects"])
        rows = [
            (f"{s['percent']:.1f}", s["object"], f"`{s['symbol']}`") for s in profile["symbols"]
        ]
        parts += [title, f"By object: {objects}.", table(["%", "Object", "Symbol"], rows)]
    return parts

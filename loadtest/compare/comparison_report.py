"""The page, the tables, and the output for a terminal."""

import json
from pathlib import Path

import page
import svg
from figures import Figures, megabytes, ms, number, share, times
from goals import goals

__all__ = ["Figures", "goals", "html", "markdown", "summary", "without_places"]
MET = {True: "met", False: "not met", None: "-"}
CLOSED = ["Server", "Requests/s", "... per core", "CPU us", "p50 ms", "p99", "p99.9", "max",
          "Bytes", "Upstream requests", "RSS MB", "Right?"]
RATE = ["Server", "Answered", "p50 ms", "p99", "p99.9", "max", "CPU of a core", "RSS MB", "Right?"]
HEAD = [*CLOSED[:-1], "Late", "at most ms", "Right?"]
HERD = ["Server", "Upstream requests", "Last answer after ms", "Median ms", "CPU ms", "Right?"]
LARGE = ["Server", "Hot requests/s", "p50 ms", "p99", "p99.9", "max", "5 MB misses/s", "CPU of a core",
         "RSS MB", "Right?"]
WITNESS = ["Server", "ms", "CPU ms", "MB sent", "Grew by MB", "Right?"]
TITLE = "sszip beside other servers"
HOW = (
    "Every server is set as its own documentation says is best, with one worker on one core; the "
    "load and the node are on the other. All run at once, and are measured in turn: each workload "
    "goes through all servers, each round beginning with another. Medians over rounds are shown. "
    "Requests per second come of wrk, which sends the next request when the last is answered; "
    "they hang on what else the machine does, and on wrk. Requests per core are those that a "
    "second of processor time is enough for, of all processes of the server together (threads that "
    "write, compress again or follow the chain among them): it is the fairer figure, and the one "
    "that targets mean. Percentiles at a rate come of oha: requests begin by the clock, and are "
    "late from when they were due. Before anything is timed every call is asked three times under "
    "ids of its own, decoded, and compared with what the node says; under load somebody goes on "
    "looking. Who answers wrongly is measured all the same, and is said to."
)
HOW_GIVEN = (
    "The servers were there already, with settings of their own, and share the machine with the "
    "load. They are measured in turn, each round beginning anew; medians over rounds are shown. "
    "Requests per second come of wrk, which sends the next request when the last is answered. Before "
    "anything is timed every call is asked three times under ids of its own, decoded, and compared "
    "with what the node says, where that is known."
)


def without_places(results, work, root):
    """Removes the paths of this run's files, which are meaningless elsewhere."""
    text = json.dumps(results)
    for place, replacement in ((f"{work}/", ""), (f"{root}/", ""), (f"{Path.home()}/", "~/")):
        if place.strip("/"):
            text = text.replace(json.dumps(place)[1:-1], replacement)
    return json.loads(text)


class Rows:
    def __init__(self, results):
        self.names = {row["key"]: row["name"] for row in results["rows"]}
        self.kinds = {row["key"]: row["kind"] for row in results["rows"]}

    def ours(self, keys):
        return {n for n, key in enumerate(keys) if self.kinds[key] == "ours"}


def closed_row(figures, key, name):
    mid = figures.mid
    if mid(key, "rps") is None:
        return [name, *["-"] * (len(CLOSED) - 2), f"no: {figures.failed(key)}"]
    return [
        name, number(mid(key, "rps")), number(mid(key, "per_core")), number(mid(key, "cpu_us"), 1),
        ms(mid(key, "p50")), ms(mid(key, "p99")), ms(mid(key, "p999")), ms(mid(key, "max")),
        number(mid(key, "wire")), share(mid(key, "asked")), megabytes(mid(key, "resident_kb")),
        figures.right(key),
    ]


def rate_row(figures, key, name):
    mid = figures.mid
    if mid(key, "rps") is None:
        return [name, *["-"] * (len(RATE) - 2), f"no: {figures.failed(key)}"]
    return [
        name, share(mid(key, "success")), ms(mid(key, "p50")), ms(mid(key, "p99")),
        ms(mid(key, "p999")), ms(mid(key, "max")), share(mid(key, "utilisation")),
        megabytes(mid(key, "resident_kb")), figures.right(key),
    ]


def head_row(figures, key, name):
    row = closed_row(figures, key, name)
    audit = next((one["audit"] for one in figures.by[key].values() if "audit" in one), None)
    late = [f"{audit['stale']} of {audit['compared']}", ms(audit["latest_ms"])] if audit else ["-", "-"]
    return [*row[:-1], *late, row[-1]]


def stampede_row(figures, key, name):
    mid = figures.mid
    if mid(key, "last_ms") is None:
        return [name, *["-"] * (len(HERD) - 2), f"no: {figures.failed(key)}"]
    cpu = mid(key, "cpu_us")
    return [
        name, number(mid(key, "node")), ms(mid(key, "last_ms")), ms(mid(key, "p50")),
        ms(cpu * mid(key, "requests") / 1e3 if cpu is not None else None), figures.right(key),
    ]


def large_row(figures, key, name):
    mid = figures.mid
    if mid(key, "rps") is None:
        return [name, *["-"] * (len(LARGE) - 2), f"no: {figures.failed(key)}"]
    return [
        name, number(mid(key, "rps")), ms(mid(key, "p50")), ms(mid(key, "p99")), ms(mid(key, "p999")),
        ms(mid(key, "max")), number(mid(key, "bulk_rps"), 1), share(mid(key, "utilisation")),
        megabytes(mid(key, "resident_kb")), figures.right(key),
    ]


def witness_row(figures, key, name):
    mid = figures.mid
    if mid(key, "took_ms") is None:
        return [name, *["-"] * (len(WITNESS) - 2), f"no: {figures.failed(key)}"]
    return [
        name, ms(mid(key, "took_ms")), ms(mid(key, "cpu_us") / 1e3), number(mid(key, "wire") / 1e6, 1),
        megabytes(mid(key, "grew_kb")), figures.right(key),
    ]


SPECIAL = {"head": (HEAD, head_row), "stampede": (HERD, stampede_row), "large": (LARGE, large_row),
           "witness": (WITNESS, witness_row)}
# Plots of a section: unit, and the sample's value.
DRAWN = {
    "stampede": [("requests that reached the node", "node"), ("ms until the last answer", "last_ms")],
    "witness": [("ms until the last byte", "took_ms"), ("MB that the server grew by", "grew_kb")],
    "large": [("99th percentile of hot answers, ms", "p99"), ("5 MB answers a second", "bulk_rps")],
}
USUAL = [("requests per second of one core", "per_core"), ("99th percentile, ms", "p99")]


def parts_of(results):
    """Yields name, title, note, header, rows, keys and plots of each section."""
    rows = Rows(results)
    for name, section in results["sections"].items():
        figures = Figures(section)
        header, row = SPECIAL.get(name, (CLOSED, closed_row))
        lines = [row(figures, key, rows.names[key]) for key in figures.keys]
        drawn = DRAWN.get(name, USUAL)
        if figures.keys and all(figures.mid(k, "per_core") is None for k in figures.keys):
            drawn = [("requests per second", "rps"), USUAL[1]] if name not in SPECIAL else drawn
        yield name, section, *known(header, lines), figures, drawn
    for number_, section in enumerate(results["rates"]):
        figures = Figures(section)
        lines = [rate_row(figures, key, rows.names[key]) for key in figures.keys]
        yield f"rate-{number_ + 1}", section, RATE, lines, figures, [
            ("99th percentile, ms", "p99"), ("of a core", "utilisation")
        ]


def known(header, lines):
    """Removes the columns without any value, as for servers that the runner did not start."""
    there = [
        n for n in range(len(header)) if n in (0, len(header) - 1) or any(line[n] != "-" for line in lines)
    ]
    return [header[n] for n in there], [[line[n] for n in there] for line in lines]


def drawn(figures, rows, unit, value):
    factor = 1 / 1024 if value.endswith("_kb") else 1
    items = []
    for key in figures.keys:
        if (found := figures.mid(key, value)) is not None:
            wrong = "" if figures.right(key) == "yes" else "(wrong answers)"
            items.append((rows.names[key], found * factor, rows.kinds[key], wrong))
    more = value in ("rps", "per_core", "bulk_rps")
    items.sort(key=lambda one: -one[1] if more else one[1])
    title = "More is better" if more else "Less is better"
    return svg.bars(title, unit, items) if items else ""


def about(results):
    facts = results["machine"]
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    busy = results["quiet"]["busy"]
    commit = f"commit {facts['commit']}, " if facts["commit"] else ""
    lines = [
        f"{facts['date']}, {commit}{facts['cpu']}, {facts['cores']} cores, "
        f"Linux {facts['kernel']}. {versions}. `{facts['command']}`, {results['seconds'] / 60:.0f} minutes.",
        results.get("source", ""),
    ]
    if results["quick"]:
        lines.append("A quick run: it tests the harness, its numbers mean little.")
    if busy > 0.05:
        lines.append(f"The machine was {busy:.0%} busy before the run: trust requests per core more.")
    return [line for line in lines if line]


def section_note(section):
    connections = section.get("connections")
    at = f"{connections} connections. " if connections else ""
    return at + section.get("note", "")


def html(results):
    rows = Rows(results)
    parts = [page.paragraph(line) for line in about(results)]
    sections = list(parts_of(results))
    links = [(name, section["title"]) for name, section, *_ in sections]
    links.append(("how", "How it was measured"))
    if not results.get("given"):
        links = [("goals", "Targets"), *links, ("configurations", "Configurations"),
                 ("absent", "Servers not measured")]
    parts.append(page.links(links))
    if (short := in_short(results))[0]:
        lines = [[cell.replace("*", "").strip() for cell in line] for line in short[2]]
        ours = {n for n, kind in enumerate(rows.kinds.values()) if kind == "ours"}
        parts += [page.heading("Summary", "short"), page.paragraph(short[0].split(";")[0] + ".")]
        parts.append(page.table(short[1], lines, ours))
    if not results.get("given"):
        parts.append(page.heading("Targets", "goals"))
        if results["goals"]:
            parts.append(page.table(["Target", "Measured", "Met"], goal_rows(results), text=(0, 1)))
        else:
            parts.append(page.paragraph("No target applies to these measurements."))
    for name, section, header, lines, figures, plots in sections:
        parts.append(page.heading(section["title"], name))
        if section_note(section):
            parts.append(page.paragraph(section_note(section)))
        parts.append(page.plots([drawn(figures, rows, unit, value) for unit, value in plots]))
        parts.append(page.table(header, lines, rows.ours(figures.keys), text=(len(header) - 1,)))
    parts.append(page.heading("How it was measured", "how"))
    parts.append(page.paragraph(how(results)))
    notes = [(row["name"], row["told"]) for row in results["rows"] if row["told"]]
    if notes:
        parts.append(page.table(["Server", ""], notes, text=(1,)))
    if results.get("given"):
        return page.page(TITLE, parts)
    parts.append(page.heading("Configurations", "configurations"))
    for key, text in results["configs"].items():
        parts.append(page.folded(rows.names.get(key, key), text))
    for key, text in results["moving"].items():
        parts.append(page.folded(f"{rows.names.get(key, key)}, with a moving head", text))
    for key, text in results["complaints"].items():
        parts.append(page.folded(f"{rows.names.get(key, key)} logged", text))
    parts.append(page.heading("Servers not measured", "absent"))
    parts.append(page.table(["Server", "Reason"], absent(results), text=(1,)))
    return page.page(TITLE, parts)


def how(results):
    return HOW_GIVEN if results.get("given") else HOW


def servers_with_wrong_responses(results):
    """Returns the servers with a wrong or missing response."""
    rows, found = Rows(results), {}
    for section in results["sections"].values():
        figures = Figures(section)
        for key in figures.keys:
            if figures.failed(key) or figures.right(key) != "yes":
                found[rows.names[key]] = None
    return list(found)


def absent(results):
    return [*results["absent"].items(), *results["not_had"].items()] or [("none", "")]


def goal_rows(results):
    return [(g["target"], g["measured"], MET[g["met"]]) for g in results["goals"]]


def markdown(results, name):
    more = "plots" if results.get("given") else "plots and every configuration"
    parts = [f"# {TITLE}", *about(results), f"With {more}: `{name}.html`."]
    if (short := in_short(results))[0]:
        parts += ["## Summary", short[0], page.markdown(*short[1:])]
    if results["goals"]:
        parts += ["## Targets", page.markdown(["Target", "Measured", "Met"], goal_rows(results))]
    for _, section, header, lines, _, _ in parts_of(results):
        parts += [f"## {section['title']}"]
        parts += [section_note(section)] if section_note(section) else []
        parts.append(page.markdown(header, lines))
    parts += ["## How it was measured", how(results)]
    if not results.get("given"):
        parts += ["## Servers not measured", page.markdown(["Server", "Reason"], absent(results))]
    return "\n\n".join(parts) + "\n"


SHORT = [("head", "the mix, with a moving head"), ("mix", "the mix, warm"), ("block-246", "a block of 246 KB, warm"),
         ("cold-246", "the same block, all misses")]


def in_short(results):
    """Returns the source of the README's table: requests per second per core, and the ratio of
    sszip's to each server's. The result is a caption, a header and rows."""
    rows = Rows(results)
    there = [(name, title) for name, title in SHORT if name in results["sections"]]
    if not there:
        return "", [], []
    figures = {name: Figures(results["sections"][name]) for name, _ in there}
    value = "per_core" if any(
        f.mid(key, "per_core") is not None for f in figures.values() for key in f.keys
    ) else "rps"
    ours = next((key for key, kind in rows.kinds.items() if kind == "ours"), None)
    lines = []
    for key, name in rows.names.items():
        cells = [f"**{name}**" if rows.kinds[key] == "ours" else name]
        for section, _ in there:
            mine = figures[section]
            found = number(mine.mid(key, value))
            ratio = mine.ratio(ours, key, value) if ours and key != ours else None
            found += f" ({times(ratio)} less)" if ratio and ratio > 1 else ""
            found += " *" if mine.by.get(key) and mine.right(key) != "yes" else ""
            cells.append(found)
        if "head" in figures:
            cells.append(share(figures["head"].mid(key, "asked")))
        lines.append(cells)
    unit = "requests/s of one core" if value == "per_core" else "requests/s"
    header = ["", *(title for _, title in there)] + (["upstream requests"] if "head" in figures else [])
    return f"{unit[0].upper()}{unit[1:]}; * some answers were wrong.", header, lines


def summary(results):
    """Returns the tables for a terminal."""
    rows = Rows(results)
    lines = []
    for _, section, header, cells, _, _ in parts_of(results):
        lines += ["", section["title"], *columns([header, *cells])]
    for goal in results["goals"]:
        lines.append(f"{MET[goal['met']]:>7}: {goal['target']}: {goal['measured']}")
    return "\n".join(lines if rows.names else [])


def columns(rows):
    widths = [max(len(str(row[n])) for row in rows) for n in range(len(rows[0]) - 1)]
    for row in rows:
        first = f"  {row[0]:<{widths[0]}}"
        rest = (f"{cell!s:>{width}}" for cell, width in zip(row[1:-1], widths[1:], strict=True))
        yield "  ".join([first, *rest, str(row[-1])])

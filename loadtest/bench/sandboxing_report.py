"""The Wasm suite's measurements in Markdown, and its targets."""

import plot
from proxying import CONNECTIONS, OURS, PLAIN
from proxying_report import Samples, section_table
from report import MET, machine_text, quiet, table
from sandboxing import WASM

ADDED, HIT_US, HIT_RPS = 1.5, 130, 4
HITS = "Wasm, hits"
TITLES = {"compress": "Compression", "hit": "Hits, other ids each"}


def verdicts(results):
    """Every target with what was measured."""
    out = []
    for connections in CONNECTIONS:
        at = f"{connections} at a time"
        if data := results.get("compress"):
            samples = Samples(data)
            for group in samples.groups:
                ratio = samples.added_ratio(group, connections, WASM.name, OURS.name, PLAIN.name)
                out.append(
                    {
                        "target": f"{group}, {at}: at most {ADDED:g}x the module's added CPU",
                        "measured": f"{ratio:.2f}x",
                        "met": ratio <= ADDED,
                    }
                )
        if data := results.get("hit"):
            samples = Samples(data)
            for group in samples.groups:
                out += of_hits(samples, group, connections, at)
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    return out


def of_hits(samples, group, connections, at):
    def both(of):
        return of(HITS)["cpu_us"] + of(HITS)["owner_us"]

    faster = samples.rounds(group, connections, lambda of: of(HITS)["rps"] / of(WASM.name)["rps"])
    yield {
        "target": f"a hit of {group}, {at}: at least {HIT_RPS}x the requests/s of compressing",
        "measured": f"{faster:.1f}x",
        "met": faster >= HIT_RPS,
    }
    if group == "30 KB":
        whole = samples.rounds(group, connections, both)
        envoy = samples.mid(group, connections, HITS, "cpu_us")
        yield {
            "target": f"a hit of {group}, {at}: at most {HIT_US} us in all",
            "measured": f"{whole:.1f} us, of which {envoy:.1f} us are Envoy's",
            "met": whole <= HIT_US,
        }


def draw(results, path):
    """Whether there was something to draw."""
    charts = []
    for section in TITLES:
        if section in results:
            samples = Samples(results[section])
            names = [row["name"] for row in results[section]["rows"]]
            for group in samples.groups:
                values = [samples.mid(group, CONNECTIONS[-1], name, "cpu_us") for name in names]
                charts.append((f"{TITLES[section]}, {group}", names, values))
    if charts:
        plot.bars(charts, "CPU us of Envoy per request", path)
    return bool(charts)


def render(results, plot_name):
    parts = ["# Envoy: sszip in a sandbox (proxy-wasm)", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    parts += [
        "## Targets",
        "By the CPU of Envoy's process, all threads; of hits, with that of sszip-cached."
        + ("" if quiet(results) else " The machine was busy before the run."),
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in verdicts(results)],
        ),
        "## How it was measured",
        "As [Envoy's module](part-10-envoy.md); sszip-cached is free on all cores.",
    ]
    if any(section in results for section in TITLES):
        parts.append(f"![CPU]({plot_name})")
    for section, title in TITLES.items():
        if section in results:
            parts += [f"## {title}", section_table(Samples(results[section]))]
    if data := results.get("sandbox"):
        parts += [
            "## A sandbox",
            "From the start of Envoy until its port answers, and its resident memory a second "
            "later. What a sandbox is made from is compiled once for all workers.",
            table(
                ["Row", "Workers", "Ready s", "Resident MB"],
                [
                    (one["row"], one["workers"], f"{one['ready_s']:.2f}", f"{one['resident_kb'] / 1e3:.0f}")
                    for one in data
                ],
            ),
        ]
    return "\n\n".join(parts) + "\n"

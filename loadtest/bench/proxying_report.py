"""The Envoy suite's measurements in Markdown, and its targets."""

from statistics import median

import plot
from proxying import BEST_SPEED, CONNECTIONS, DEFAULT, NOT_APPLYING, OFF, OURS, PLAIN, WORKERS
from proxying_large import PROXY
from proxying_store import CONNECTIONS as OWNER_CONNECTIONS
from proxying_store import HOT, OWNER
from report import MET, machine_text, quiet, table
from wire_report import Large, large_text, of_large

DEFAULT_CPU, DEFAULT_BYTES = 0.5, 1.10
SPEED_CPU, SPEED_BYTES = 1.0, 0.65
HIT_US, BESIDE_DIRECT_US, HIT_RPS = 50, 8, 10
OFF_US, OWNER_US = 5, 60
HITS, DIRECT = "sszip, hits", "direct_response of the same bytes"
TITLES = {
    "compress": "Compression",
    "off": "Switched on and not applying",
    "hit": "Hits, other ids each",
    "owner": "Hits from the owner",
    "workers": "Hits by several workers, on both cores",
}


class Samples:
    """Those of one section; figures are medians over rounds, then over calls."""

    def __init__(self, data):
        self.data = data
        self.groups = list(dict.fromkeys(call["group"] for call in data["calls"]))
        self.by = {}
        for one in data["samples"]:
            key = one["call"], one["row"], one["connections"]
            self.by.setdefault(key, {})[one["round"]] = one

    def calls(self, group):
        return [call["name"] for call in self.data["calls"] if call["group"] == group]

    def rounds(self, group, connections, value):
        """`value` is of a function that finds a row's sample of the same round."""
        of_calls = []
        for call in self.calls(group):
            rounds = {
                n for (c, _, k), by in self.by.items() if (c, k) == (call, connections) for n in by
            }
            of_rounds = []
            for turn in sorted(rounds):
                of_rounds.append(
                    value(lambda row, call=call, turn=turn: self.by[call, row, connections][turn])
                )
            of_calls.append(median(of_rounds))
        return median(of_calls)

    def mid(self, group, connections, row, key):
        return self.rounds(group, connections, lambda of: of(row)[key])

    def added(self, group, connections, row, base):
        """us of CPU more than another row's."""
        return self.rounds(group, connections, lambda of: of(row)["cpu_us"] - of(base)["cpu_us"])

    def added_ratio(self, group, connections, row, other, base):
        def ratio(of):
            more, others = (of(one)["cpu_us"] - of(base)["cpu_us"] for one in (row, other))
            return more / others

        return self.rounds(group, connections, ratio)

    def bytes_ratio(self, group, row, other):
        sizes = {(v["row"], v["call"]): v["bytes"] for v in self.data["verified"]}
        return median(sizes[row, call] / sizes[other, call] for call in self.calls(group))


def verdicts(results):
    """Every target with what was measured."""
    out = []
    for connections in CONNECTIONS:
        out += of_connections(results, connections)
    if data := results.get("owner"):
        samples = Samples(data)
        (group,) = samples.groups
        more = samples.added(group, OWNER_CONNECTIONS, OWNER.name, HOT.name)
        out.append(
            {
                "target": f"a hit of {group} from the owner: at most {OWNER_US} us more than from "
                "the worker's memory",
                "measured": f"{more:+.1f} us",
                "met": more <= OWNER_US,
            }
        )
    if data := results.get("workers"):
        out.append(of_workers(Samples(data)))
    for data in results.get("large", ()):
        out += of_large(Large(data, [PROXY]))
    if not results["recorded"] or results["quick"]:
        out = [row | {"met": None} for row in out]
    return out


def of_connections(results, connections):
    at = f"{connections} at a time"
    if data := results.get("compress"):
        samples = Samples(data)
        for group in samples.groups:
            for peer, cpu, size in (
                (DEFAULT.name, DEFAULT_CPU, DEFAULT_BYTES),
                (BEST_SPEED.name, SPEED_CPU, SPEED_BYTES),
            ):
                ratio = samples.added_ratio(group, connections, OURS.name, peer, PLAIN.name)
                length = samples.bytes_ratio(group, OURS.name, peer)
                yield {
                    "target": f"{group}, {at}: at most {cpu:g}x the added CPU of Envoy's {peer} "
                    f"at no more than {size:g}x its bytes",
                    "measured": f"{ratio:.2f}x at {length:.2f}x",
                    "met": ratio <= cpu and length <= size,
                }
    if data := results.get("off"):
        samples = Samples(data)
        for group in samples.groups:
            more = samples.added(group, connections, NOT_APPLYING.name, OFF.name)
            yield {
                "target": f"{group}, {at}: not applying at most {OFF_US} us more than disabled",
                "measured": f"{more:+.1f} us",
                "met": more <= OFF_US,
            }
    if data := results.get("hit"):
        samples = Samples(data)
        for group in samples.groups:
            yield from of_hits(samples, group, connections, at)


def of_hits(samples, group, connections, at):
    whole = samples.mid(group, connections, HITS, "cpu_us")
    more = samples.added(group, connections, HITS, DIRECT)
    faster = samples.rounds(group, connections, lambda of: of(HITS)["rps"] / of(OURS.name)["rps"])
    if group == "30 KB":
        yield {
            "target": f"a hit of {group}, {at}: at most {HIT_US} us in all",
            "measured": f"{whole:.1f} us",
            "met": whole <= HIT_US,
        }
        yield {
            "target": f"a hit of {group}, {at}: at most {BESIDE_DIRECT_US} us more than "
            "direct_response",
            "measured": f"{more:+.1f} us",
            "met": more <= BESIDE_DIRECT_US,
        }
    yield {
        "target": f"a hit of {group}, {at}: at least {HIT_RPS}x the requests/s of compressing",
        "measured": f"{faster:.1f}x",
        "met": faster >= HIT_RPS,
    }


def of_workers(samples):
    (group,) = samples.groups
    last = WORKERS[-1]

    def grows(kind):
        first, most = (
            samples.mid(group, 32, f"{kind}, {count} workers", "cpu_us") for count in (1, last)
        )
        return most / first

    ours, theirs = grows("sszip, hits"), grows("direct_response")
    return {
        "target": f"{last} workers on one hot tier: a hit's CPU grows no more than "
        "direct_response's, within a tenth",
        "measured": f"{ours:.2f}x, {theirs:.2f}x",
        "met": ours <= theirs * 1.1,
    }


def draw(results, path):
    """Whether there was something to draw."""
    charts = []
    for section in ("compress", "hit"):
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
    parts = ["# Envoy: sszip beside Envoy's own", machine_text(results)]
    if results["notes"]:
        parts.append("\n".join(f"- **{note}**" for note in results["notes"]))
    rows = verdicts(results)
    parts += [
        "## Targets",
        "By the CPU of Envoy's process, all threads."
        + ("" if quiet(results) else " The machine was busy before the run."),
        table(
            ["Target", "Measured", "Met"],
            [(r["target"], r["measured"], f"**{MET[r['met']]}**") for r in rows],
        ),
        "## How it was measured",
        "One Envoy for each row, one worker on one core unless it says more, wrk on the "
        "other with the node; medians over rounds, then over calls; differences and ratios "
        "within a round. *Added* is what a row takes more than Envoy without a filter. "
        "The node's counter tells that hits were hits, and that nothing else was. Each "
        "answer is decoded and compared before it is measured.",
    ]
    if "compress" in results or "hit" in results:
        parts.append(f"![CPU]({plot_name})")
    for section, title in TITLES.items():
        if section in results:
            parts += [f"## {title}", section_table(Samples(results[section]))]
    if data := results.get("large"):
        parts += ["## Witnesses", LARGE_TEXT]
        for one in data:
            parts += large_text(Large(one, [PROXY]))
    return "\n\n".join(parts) + "\n"


LARGE_TEXT = (
    "From the first request to the last byte at the client, decoded if it was gzipped; over "
    "TCP or a Unix socket from the node to Envoy, and over TCP to the client. Node, Envoy "
    "and client are free on all cores. *Growth*: the most that Envoy's resident memory grew."
)


def section_table(samples):
    lines = []
    names = list(dict.fromkeys(row["name"] for row in samples.data["rows"]))
    numbers = list(dict.fromkeys(one["connections"] for one in samples.data["samples"]))
    for group in samples.groups:
        for connections in numbers:
            for name in names:
                sizes = [
                    v
                    for v in samples.data["verified"]
                    if v["row"] == name and v["call"] in samples.calls(group)
                ]
                figures = [
                    samples.mid(group, connections, name, key)
                    for key in ("cpu_us", "rps", "p99_us")
                ]
                lines.append(
                    (
                        group,
                        connections,
                        name,
                        f"{median(v['bytes'] for v in sizes):,.0f}",
                        "yes" if all(v["exact_length"] for v in sizes) else "no",
                        f"{figures[0]:.1f}",
                        f"{figures[1]:,.0f}",
                        f"{figures[2] / 1e3:.2f}",
                    )
                )
    header = ["Bodies", "At a time", "Row", "Bytes", "Length", "CPU us", "Requests/s", "p99 ms"]
    return table(header, lines)

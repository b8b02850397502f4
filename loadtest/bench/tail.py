"""Latency of short responses, alone and while 5 MB responses are sent.

The same measurement with pass-through, at the rate of long responses that sszip reached, shows
how much of an increase is contention for two cores and a loopback interface; the rest is
caused by the encoder.
"""

import time
from dataclasses import dataclass
from statistics import median

import check
from load import Wrk, check_answers, cpu_ns
from stack import LOAD_CORE, PASS, WORKER_CORE, Nginx, Node
from throughput import DEFAULT, REFERENCE

SMALL_CONNECTIONS = 8
BULK_CONNECTIONS = 2
PAUSE_MS = 4
# Seconds for which the load of long responses starts before the probe, and ends after it.
LEAD_SECONDS = 0.7
MARGIN_SECONDS = 1
LOADS = {"paced": PAUSE_MS, "back to back": None}
# sszip is first: its rate is used for pass-through.
CODERS = [DEFAULT, REFERENCE, PASS]


@dataclass
class Plan:
    rounds: int
    seconds: int


def run(work, library, small, bulk, plan, log):
    samples = []
    for placement, worker_core, load_core in (
        ("pinned", WORKER_CORE, LOAD_CORE),
        ("free", None, None),
    ):
        with Node(work, [library.pairs], core=load_core) as node:
            servers = {
                c: Nginx(work, f"tail {c.name}", node.port, {"/": c}, worker_core)
                for c in CODERS
            }
            try:
                plain = check.answer(servers[PASS].port, "/", bulk, PASS)["decoded"]
                wires = {
                    coder: verify(server, coder, small, bulk, plain)
                    for coder, server in servers.items()
                }
                for turn in range(plan.rounds):
                    log(f"tail latency, {placement}, round {turn + 1} of {plan.rounds}")
                    for kind, pause in LOADS.items():
                        bench = Bench(small, bulk, plan.seconds, load_core, pause)
                        for point in bench.round(servers, wires):
                            samples.append(
                                {"placement": placement, "load": kind, "round": turn}
                                | point
                            )
            finally:
                for server in servers.values():
                    server.__exit__()
    return {
        "bulk_bytes": bulk.size,
        "small_bytes": small.size,
        "pause_ms": PAUSE_MS,
        "connections": {"small": SMALL_CONNECTIONS, "bulk": BULK_CONNECTIONS},
        "samples": samples,
        "summary": summarise(samples),
    }


def verify(server, coder, small, bulk, plain):
    """Returns the wire bytes of both responses; the short one is below each encoder's minimum
    length."""
    tiny = check.answer(server.port, "/", small, PASS)
    return tiny["wire"], check.answer(server.port, "/", bulk, coder, plain)["wire"]


@dataclass
class Bench:
    """One kind of load: its bodies, its duration, and its core."""

    small: object
    bulk: object
    seconds: int
    core: int | None
    pause: int | None

    def round(self, servers, wires):
        """Measures each encoder without and with load; pass-through at sszip's rate."""
        pace = None
        for coder, server in servers.items():
            yield self.probe(server, coder, wires[coder], None)
            slow_down = self.pause_for(pace) if coder is PASS else 0
            point = self.probe(server, coder, wires[coder], slow_down)
            if coder is DEFAULT:
                pace = point["bulk_rps"]
            yield point

    @staticmethod
    def pause_for(rate):
        """Returns the mean pause in milliseconds with which the connections of long responses
        reach this rate."""
        return round(BULK_CONNECTIONS / rate * 1000)

    def probe(self, server, coder, wires, bulk_pause):
        """Measures short responses. `bulk_pause` is None without a load of long ones, and 0
        for one without pauses."""
        small_wire, bulk_wire = wires
        has_load = bulk_pause is not None
        heavy = None
        if has_load:
            heavy = Wrk(
                server.port,
                self.bulk,
                coder,
                BULK_CONNECTIONS,
                self.seconds + MARGIN_SECONDS,
                self.core,
                bulk_pause or None,
            )
            time.sleep(LEAD_SECONDS)
        before = cpu_ns(server.worker)
        light = Wrk(
            server.port,
            self.small,
            coder,
            SMALL_CONNECTIONS,
            self.seconds,
            self.core,
            self.pause,
        ).result()
        spent = cpu_ns(server.worker) - before
        check_answers(light, self.small, coder, SMALL_CONNECTIONS, small_wire)
        point = {
            "coder": coder.name,
            "beside": has_load,
            "rps": light["requests"] / light["duration_us"] * 1e6,
            "p50_us": light["p50_us"],
            "p99_us": light["p99_us"],
            "max_us": light["max_us"],
            "utilisation": spent / 1000 / light["duration_us"],
            "bulk_rps": 0.0,
        }
        if heavy:
            result = heavy.result()
            check_answers(result, self.bulk, coder, BULK_CONNECTIONS, bulk_wire)
            point["bulk_rps"] = result["requests"] / result["duration_us"] * 1e6
        return point


def summarise(samples):
    table = {}
    for s in samples:
        key = s["placement"], s["load"], s["coder"]
        table.setdefault(key, {}).setdefault(s["beside"], []).append(s)
    summary = []
    for (placement, kind, coder), sides in table.items():
        alone, loaded = sides[False], sides[True]
        row = {
            "placement": placement,
            "load": kind,
            "coder": coder,
            "alone_p50_us": median(s["p50_us"] for s in alone),
            "alone_p99_us": median(s["p99_us"] for s in alone),
            "alone_rps": median(s["rps"] for s in alone),
            "beside_p50_us": median(s["p50_us"] for s in loaded),
            "beside_p99_us": median(s["p99_us"] for s in loaded),
            "beside_rps": median(s["rps"] for s in loaded),
            "bulk_rps": median(s["bulk_rps"] for s in loaded),
        }
        row["p99_ratio"] = row["beside_p99_us"] / row["alone_p99_us"]
        summary.append(row)
    return summary

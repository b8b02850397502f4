"""Requests per second and CPU time per request of several encoders.

Rounds are interleaved: one body is requested from each encoder before the next body, each time
in another order, so that a slow minute affects all of them. Ratios are computed within a
round, with both sides on the same state of the machine; then medians over rounds, then over
bodies.
"""

from dataclasses import dataclass
from statistics import median

import check
import load
from stack import BROTLI, PASS, Nginx, gzip_coder, sszip_coder, zstd_coder

REFERENCE = gzip_coder(6)
DEFAULT = sszip_coder(None, "sszip default")
LEVELS = range(1, 13)
ZSTD_LEVELS = (1, 3, 6)
# Enough to keep the worker busy; more connections would only add responses that are in flight,
# and so not counted, at the end.
CONNECTIONS = 4
SATURATED = 0.9


@dataclass
class Plan:
    rounds: int
    seconds: int


def level_sizes(work, node, bodies, identities):
    """Returns the bytes of each body at each level, with each response verified."""
    coders = {f"/level{n}": sszip_coder(n) for n in LEVELS}
    sizes = {}
    with Nginx(work, "levels", node.port, coders) as nginx:
        for level, (path, coder) in zip(LEVELS, coders.items(), strict=True):
            for body in bodies:
                got = check.answer(
                    nginx.port, path, body, coder, identities[body.name]
                )
                sizes.setdefault(body.name, {})[level] = got["bytes"]
    return sizes


def lowest_level(sizes, reference, groups):
    """Returns the lowest levels that send no more bytes than the reference.

    `every`: for no single body more; `median`: for no group more at the median.
    """
    found = {"every": None, "median": None}
    for level in reversed(LEVELS):
        ratios = {name: by[level] / reference[name] for name, by in sizes.items()}
        if all(r <= 1 for r in ratios.values()):
            found["every"] = level
        if all(median(ratios[n] for n in names) <= 1 for names in groups.values()):
            found["median"] = level
    return found


def identities(work, node, bodies):
    """Returns what the node sends, compared with the recording."""
    with Nginx(work, "identity", node.port, {"/": PASS}) as nginx:
        return {b.name: check.answer(nginx.port, "/", b, PASS)["decoded"] for b in bodies}


def run(work, node, bodies, plan, log):
    groups = {}
    for body in bodies:
        groups.setdefault(body.group, []).append(body.name)
    plain = identities(work, node, bodies)

    log("verifying every coder and level")
    with Nginx(work, "reference", node.port, {"/": REFERENCE}) as nginx:
        reference = {
            b.name: check.answer(nginx.port, "/", b, REFERENCE, plain[b.name])["bytes"]
            for b in bodies
        }
    sizes = level_sizes(work, node, bodies, plain)
    levels = lowest_level(sizes, reference, groups)

    coders = [PASS, gzip_coder(1), REFERENCE, BROTLI, DEFAULT, *map(zstd_coder, ZSTD_LEVELS)]
    coders += [sszip_coder(n) for n in sorted({n for n in levels.values() if n})]

    servers, verified = {}, {}
    try:
        for coder in coders:
            servers[coder] = Nginx(work, coder.name, node.port, {"/": coder})
            for body in bodies:
                got = check.answer(
                    servers[coder].port, "/", body, coder, plain[body.name]
                )
                del got["decoded"]
                verified[coder.name, body.name] = got
        samples = interleave(servers, bodies, verified, plan, log)
        complaints = {c.name: s.complaints() for c, s in servers.items()}
    finally:
        for server in servers.values():
            server.__exit__()

    return {
        "coders": [c.name for c in coders],
        "directives": {c.name: c.directives for c in coders},
        "groups": groups,
        "levels": levels,
        "level_sizes": sizes,
        "verified": [
            {"coder": c, "body": b, **facts} for (c, b), facts in verified.items()
        ],
        "samples": samples,
        "complaints": {name: text for name, text in complaints.items() if text},
        "summary": summarise(coders, bodies, verified, samples),
    }


def interleave(servers, bodies, verified, plan, log, slack=0.02):
    coders = list(servers)
    samples = []
    for turn in range(plan.rounds):
        log(f"throughput, round {turn + 1} of {plan.rounds}")
        for index, body in enumerate(bodies):
            first = (turn + index) % len(coders)
            for coder in coders[first:] + coders[:first]:
                point = load.measure(
                    servers[coder],
                    body,
                    coder,
                    CONNECTIONS,
                    plan.seconds,
                    verified[coder.name, body.name]["wire"],
                    slack,
                )
                samples.append(
                    {"round": turn, "body": body.name, "coder": coder.name, **point}
                )
    return samples


def summarise(coders, bodies, verified, samples, reference=REFERENCE):
    """Returns medians per body and encoder, with ratios to the reference."""
    table = {}
    for s in samples:
        table.setdefault((s["body"], s["coder"]), {})[s["round"]] = s
    summary = []
    for body in bodies:
        base = table[body.name, reference.name]
        base_bytes = verified[reference.name, body.name]["bytes"]
        for coder in coders:
            rounds = table[body.name, coder.name]
            facts = verified[coder.name, body.name]
            utilisation = median(s["utilisation"] for s in rounds.values())
            summary.append(
                {
                    "body": body.name,
                    "group": body.group,
                    "coder": coder.name,
                    "bytes": facts["bytes"],
                    "exact_length": facts["exact_length"],
                    "bytes_ratio": facts["bytes"] / base_bytes,
                    "rps": median(s["rps"] for s in rounds.values()),
                    "cpu_us": median(s["cpu_us"] for s in rounds.values()),
                    "rps_ratio": median(
                        s["rps"] / base[n]["rps"] for n, s in rounds.items()
                    ),
                    "cpu_ratio": median(
                        base[n]["cpu_us"] / s["cpu_us"] for n, s in rounds.items()
                    ),
                    "utilisation": utilisation,
                    "saturated": utilisation >= SATURATED,
                }
            )
    return summary

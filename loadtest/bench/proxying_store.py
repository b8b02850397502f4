"""Hits that the store's owner answers, on threads of Envoy's, beside those of its memory."""

import gzip

import check
import load
import storing_bodies as bodylib
from filling import fill
from proxying_stack import Envoy, asked, sszip
from stack import Node

CONNECTIONS = 32
SLACK = 0.1
PATH = "@PREFIX@/cache max_size=1g memory=256m"
VALID = ["immutable 1h"]
HOT = sszip("sszip, hits of many keys", cache=True, cache_memory="256m", cache_valid=VALID)
OWNER = sszip(
    "sszip, hits from the owner",
    cache=True,
    cache_memory="1m",
    cache_valid=VALID,
    cache_path=PATH,
)
ROWS = [HOT, OWNER]
# Of those that come from the owner so many may be asked of the node: a look-up that takes
# too long is given up.
LATE = 0.01


def run(work, pairs, quick, rounds, say):
    folder, calls = bodylib.calls(pairs, work, 1 if quick else 3)
    samples, verified = [], []
    with Node(work, [folder], options=["--lenient"]) as node:
        servers = {}
        try:
            for row in ROWS:
                server = servers[row] = Envoy(work, row, node.port)
                for call in calls:
                    fill(server.port, lambda: asked(node), call, bodylib.KEYS)
                    verified.append(verify(node, server, row, call))
            wires = {(v["row"], v["call"]): v["wire"] for v in verified}
            for turn in range(rounds):
                say(f"round {turn + 1} of {rounds}")
                for index, call in enumerate(calls):
                    first = (turn + index) % len(ROWS)
                    for row in ROWS[first:] + ROWS[:first]:
                        before = asked(node)
                        wire = wires[row.name, call.name]
                        sample = load.measure(
                            servers[row], call.fresh(), row, CONNECTIONS, 2, wire, SLACK,
                            bodylib.KEYS,
                        )
                        reached = asked(node) - before
                        if reached > sample["requests"] * LATE:
                            raise SystemExit(
                                f"{row.name}, {call.name}: {reached} of {sample['requests']} "
                                "requests reached the node"
                            )
                        key = {"call": call.name, "group": call.group, "row": row.name}
                        samples.append(
                            key | {"connections": CONNECTIONS, "round": turn} | sample
                        )
            complaints = [[row.name, text] for row, s in servers.items() if (text := s.complaints())]
        finally:
            for server in servers.values():
                server.__exit__()
    return {
        "rows": [{"name": row.name, "filters": row.filters} for row in ROWS],
        "calls": [{"name": c.name, "group": c.group, "size": c.size} for c in calls],
        "verified": verified,
        "samples": samples,
        "complaints": complaints,
    }


def verify(node, server, row, call):
    request = bodylib.numbered(call, bodylib.KEYS - 1)
    sent = check.send(node.port, "/", request, "")[2]
    status, headers, content, wire = check.send(server.port, "/", request, "gzip")
    if status != 200 or gzip.decompress(content) != sent:
        raise check.WrongAnswer(f"{row.name}, {call.name}: not what the node sent")
    return {
        "row": row.name,
        "call": call.name,
        "bytes": len(content),
        "wire": wire,
        "coding": "gzip",
        "exact_length": "content-length" in headers,
    }

"""When the first chunk of a paused answer reaches the client, and is usable.

The node sends 2 KB, pauses for longer than any hold, then sends what takes
the body beyond the window. The coders take turns request by request, so that
a noisy moment touches all of them.
"""

import time
from statistics import median, quantiles

from arriving import READ, Answer, Broken, ask, on_load_core
from stack import PASS, Nginx, unbuffered
from streaming_coders import SSZIP

FIRST = 2 << 10
BODY = 80 << 10
PAUSE_SECONDS = 0.03
# sszip_hold's default, which the target allows on top of 2 ms.
HOLD_MS = 5
ALLOWED_MS = 2


def one(port, coder, expected):
    """Milliseconds from the request to the first content byte, and to the
    moment when the first chunk could be decoded."""
    target = f"/paused?first={FIRST}&pause={PAUSE_SECONDS}&bytes={BODY}"
    answer, plain = Answer(), bytearray()
    first = usable = None
    with ask(port, target, coder.accept) as peer:
        start = time.perf_counter()
        while not answer.ended:
            data = peer.recv(READ)
            now = time.perf_counter() - start
            if not data:
                raise Broken(f"{coder.name}: the answer was cut")
            plain += answer.feed(data)
            if first is None and answer.content:
                first = now * 1e3
            if usable is None and answer.decoded >= FIRST:
                usable = now * 1e3
    if answer.coding != coder.coding or plain != expected:
        raise Broken(f"{coder.name}: not the answer that was sent, coded {answer.coding!r}")
    return {"first_ms": first, "usable_ms": usable}


def run(work, origin, coders, requests, say):
    say(f"first bytes, {requests} requests each")
    expected = origin.body(BODY)
    rows = [*coders, *(unbuffered(c) for c in (PASS, SSZIP))]
    servers, samples = {}, {c.name: [] for c in rows}
    try:
        for coder in rows:
            servers[coder] = Nginx(work, coder.name, origin.port, {"/": coder})
            one(servers[coder].port, coder, expected)
        with on_load_core():
            for turn in range(requests):
                first = turn % len(rows)
                for coder in rows[first:] + rows[:first]:
                    point = one(servers[coder].port, coder, expected)
                    samples[coder.name].append(point)
    finally:
        for server in servers.values():
            server.__exit__()
    return {
        "first": FIRST,
        "bytes": BODY,
        "pause_ms": PAUSE_SECONDS * 1e3,
        "requests": requests,
        "samples": samples,
        "summary": [summarise(c.name, samples[c.name]) for c in rows],
    }


def summarise(name, points):
    row = {"coder": name}
    for key in ("first_ms", "usable_ms"):
        values = [p[key] for p in points]
        row[key] = {
            "p50": median(values),
            "p99": quantiles(values, n=100, method="inclusive")[98],
            "max": max(values),
        }
    return row

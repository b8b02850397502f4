"""The worker's resident memory: one very large body, a thousand slow clients.

nginx's own proxy buffers are at their defaults here; the large ones that the
throughput is measured with would be most of what is counted.
"""

import contextlib
import resource
import time
import zlib
from pathlib import Path

from arriving import READ, Answer, Broken, ask, on_load_core
from stack import Nginx, default_buffers

KIB = 1024
STREAMS = 1000
# Far more than all buffers between node and client hold, so that no stream
# comes to its end.
SLOW_BODY = 256 << 20
RECEIVE_BUFFER = 4 << 10
# Else the kernel would take megabytes of each stream before nginx had to hold
# anything, and a run would end before memory was at its height.
SLOW_LISTEN = "sndbuf=16k"
SIP = 1 << 10
SIP_SECONDS = 0.25


def resident(pid):
    """RSS and its peak, in bytes."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return tuple(int(fields[name].split()[0]) * KIB for name in ("VmRSS", "VmHWM"))


def reset_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def run(work, origin, coders, large, seconds, say):
    """`large`: bytes of the large body; `seconds`: how long the slow ones sip."""
    one_body, slow = [], []
    allow_files(4 * STREAMS)
    with on_load_core():
        for coder in map(default_buffers, coders):
            say(f"memory, {coder.name}: {large >> 20} MiB, {STREAMS} slow streams")
            with Nginx(work, f"large {coder.name}", origin.port, {"/": coder}) as nginx:
                one_body.append({"coder": coder.name} | large_body(nginx, origin, coder, large))
            with Nginx(
                work, f"slow {coder.name}", origin.port, {"/": coder}, listen=SLOW_LISTEN
            ) as nginx:
                slow.append({"coder": coder.name} | slow_streams(nginx, origin, coder, seconds))
                if complaints := nginx.complaints():
                    slow[-1]["complaints"] = complaints
    return {"bytes": large, "streams": STREAMS, "large": one_body, "slow": slow}


def allow_files(number):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))


def warm(nginx, coder, origin):
    """A worker that has served something, but has streamed nothing yet."""
    with ask(nginx.port, "/large?bytes=100", coder.accept) as peer:
        answer = Answer()
        while not answer.ended:
            answer.feed(peer.recv(READ))


def large_body(nginx, origin, coder, size):
    warm(nginx, coder, origin)
    before, _ = resident(nginx.worker)
    reset_peak(nginx.worker)
    answer, checksum, started = Answer(), 0, time.monotonic()
    with ask(nginx.port, f"/large?bytes={size}", coder.accept) as peer:
        while not answer.ended:
            data = peer.recv(READ)
            if not data:
                raise Broken(f"{coder.name}: cut after {answer.decoded} bytes")
            checksum = zlib.crc32(answer.feed(data), checksum)
        took = time.monotonic() - started
        after, peak = resident(nginx.worker)
    if (answer.decoded, checksum) != (size, origin.checksum(size)):
        raise Broken(f"{coder.name}: {answer.decoded} bytes are not what was sent")
    if answer.coding != coder.coding:
        raise Broken(f"{coder.name}: content coding {answer.coding!r}")
    return {
        "before": before,
        "after": after,
        "peak": peak,
        "growth": max(after, peak) - before,
        "content": answer.content,
        "seconds": took,
    }


def slow_streams(nginx, origin, coder, seconds):
    """All streams open at once, each client taking a sip every so often.

    The peak counts, not only what is left at the end.
    """
    warm(nginx, coder, origin)
    before, _ = resident(nginx.worker)
    reset_peak(nginx.worker)
    expected = origin.body(4 << 20)
    identity = 0
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(STREAMS):
            peer = ask(
                nginx.port, f"/large?bytes={SLOW_BODY}", coder.accept, RECEIVE_BUFFER
            )
            streams.append((stack.enter_context(peer), Answer()))
        deadline = time.monotonic() + seconds
        rounds = 0
        while time.monotonic() < deadline or rounds < 4:
            for peer, answer in streams:
                sip(peer, answer, expected, coder, wait=rounds == 0)
            rounds += 1
            time.sleep(SIP_SECONDS)
        now, peak = resident(nginx.worker)
        for _, answer in streams:
            identity += answer.coding != coder.coding
    return {
        "before": before,
        "now": now,
        "peak": peak,
        "each_now": (now - before) / STREAMS,
        "each": (max(now, peak) - before) / STREAMS,
        "not_coded": identity,
        "decoded_each": sum(a.decoded for _, a in streams) / STREAMS,
    }


def sip(peer, answer, expected, coder, wait):
    """What came has to be what was sent. The first sip waits for the head."""
    peer.setblocking(wait)
    if wait:
        peer.settimeout(60)
    while True:
        at = answer.decoded
        try:
            data = peer.recv(SIP)
        except BlockingIOError:
            return
        if not data:
            raise Broken(f"{coder.name}: a slow stream was cut")
        plain = answer.feed(data)
        if plain != expected[at : at + len(plain)]:
            raise Broken(f"{coder.name}: a slow stream decodes to something else")
        if answer.headers is not None:
            return

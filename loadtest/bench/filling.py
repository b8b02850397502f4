"""Has a store filled, by asking for all that it is to have."""

import re
import socket
import time

import check
import storing_bodies as bodylib

# A fill is asked for, is there, is asked for again; what comes last is a hit.
MOST_PASSES = 6
# Between two of them.
SETTLE_SECONDS = 0.2
# A look-up that takes too long is given up, and the node asked: on a machine
# that is busy this is so many of them.
LATE = 0.01
# So many requests are sent before the first is read.
PIPELINED = 32
LENGTH = re.compile(
    rb"\r\nContent-Length: (\d+)\r\n(?:[^\r\n]+\r\n)*\r\n", re.IGNORECASE
)


def fill(port, asked, call, keys):
    """Asks for every key until the node hears of hardly any; `asked`: how many requests it
    has had."""
    for _ in range(MOST_PASSES):
        before = asked()
        ask_for_all(port, call, keys)
        if asked() - before <= keys * LATE:
            return
        # what the node gave is on its way to the owner
        time.sleep(SETTLE_SECONDS)
    raise SystemExit(f"{call.name}: keys are still missing after {MOST_PASSES} passes")


def ask_for_all(port, call, keys):
    """Some requests at a time, whose answers are only counted."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        for first in range(0, keys, PIPELINED):
            numbers = range(first, min(first + PIPELINED, keys))
            texts = (
                check.written(port, "/", bodylib.numbered(call, n), "gzip") for n in numbers
            )
            peer.sendall(b"".join(texts))
            left = len(numbers)
            data = bytearray()
            while left:
                if not (piece := peer.recv(1 << 20)):
                    raise SystemExit(f"{call.name}: the connection was closed")
                data += piece
                while found := LENGTH.search(data):
                    end = found.end() + int(found[1])
                    if len(data) < end:
                        break
                    del data[:end]
                    left -= 1

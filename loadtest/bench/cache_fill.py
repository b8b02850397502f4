"""Fills a store by requests for all of its keys."""

import re
import socket
import time

import check
from marked_calls import numbered

# Maximum number of passes: a first one fetches, a second one stores, and the last one only hits.
MOST_PASSES = 6
# Pause between two passes in seconds.
SETTLE_SECONDS = 0.2
# Share of look-ups that may exceed the time limit and reach the node, as they do on a busy
# machine.
LATE = 0.01
# Number of requests that are sent before the first response is read.
PIPELINED = 32
LENGTH = re.compile(
    rb"\r\nContent-Length: (\d+)\r\n(?:[^\r\n]+\r\n)*\r\n", re.IGNORECASE
)


def fill(port, node_requests, call, keys):
    """Requests each key until hardly any request reaches the node. `node_requests` returns the number
    of the node's requests."""
    for _ in range(MOST_PASSES):
        before = node_requests()
        request_all(port, call, keys)
        if node_requests() - before <= keys * LATE:
            return
        # fetched responses are still on their way to the owner
        time.sleep(SETTLE_SECONDS)
    raise SystemExit(f"{call.name}: requests still reach the node after {MOST_PASSES} passes; see nginx's error log")


def request_all(port, call, keys):
    """Sends requests in groups, and only counts their responses."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        for first in range(0, keys, PIPELINED):
            numbers = range(first, min(first + PIPELINED, keys))
            texts = (
                check.written(port, "/", numbered(call, n), "gzip") for n in numbers
            )
            peer.sendall(b"".join(texts))
            left = len(numbers)
            data = bytearray()
            while left:
                if not (piece := peer.recv(1 << 20)):
                    raise SystemExit(f"{call.name}: the server closed the connection before the last response")
                data += piece
                while found := LENGTH.search(data):
                    end = found.end() + int(found[1])
                    if len(data) < end:
                        break
                    del data[:end]
                    left -= 1

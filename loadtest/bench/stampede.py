"""Concurrent requests of many clients for one key that is not stored: the number of requests
that reach the node, and the time until the last client has its response.

All connections are open and have been used before. The client sleeps until all responses have
arrived, so that it takes no processor time from the servers; the kernel records when the last
byte of a response arrived (SO_TIMESTAMPNS).
"""

import gzip
import json
import resource
import select
import socket
import struct
import threading
import time

import check
import marked_calls
from bodies import compact
from caches import sszip_cache
from stack import Nginx
from storing_coders import stored

CLIENTS = 1_000
WORKERS = 4
NODE_SECONDS = 0.3
# Maximum duration of a round in seconds.
PATIENCE_SECONDS = 20
SETTLE_SECONDS = 0.2
# Linux's number of the option, which Python's socket module does not define.
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
KINDS = {
    "with a store": (WORKERS, True),
    "without a store": (WORKERS, False),
    "one worker, without a store": (1, False),
}


class SlowNode:
    """A node that responds to each call after a delay, and records the times."""

    def __init__(self, result):
        self.result = result
        self.answered = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        with peer, peer.makefile("rb") as stream:
            while stream.readline():
                length = 0
                while (line := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                call = json.loads(stream.read(length))
                time.sleep(NODE_SECONDS)
                answer = {"jsonrpc": "2.0", "id": call["id"], "result": self.result}
                body = compact(answer)
                head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                # taken before the response is sent, so that sending counts as waiting time of the
                # clients
                self.answered.append(time.time_ns())
                peer.sendall(f"HTTP/1.1 200 OK\r\n{head}".encode() + body)


def run(work, pairs, rounds, log):
    """Measures with a new key in each round."""
    # each connection has two ends
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _, (call,) = marked_calls.stored_calls(pairs, work, 1)
    result = marked_calls.nearest(pairs)[0][1]["result"]
    samples = []
    for kind, (workers, has_store) in KINDS.items():
        log(f"{CLIENTS:,} clients, {kind}")
        with SlowNode(result) as node:
            coder = (stored if has_store else sszip_cache)(kind)
            with Nginx(
                work, f"stampede {kind}", node.port, {"/": coder}, core=None,
                listen="reuseport", workers=workers,
            ) as nginx:
                clients = Clients(nginx.port)
                try:
                    # opens all connections to the node and to the owner beforehand
                    clients.request_from_all(call, CLIENTS, node, result)
                    for turn in range(rounds):
                        samples.append(
                            {"kind": kind, "round": turn}
                            | clients.request_from_all(call, turn, node, result)
                        )
                finally:
                    clients.close()
                complaints = nginx.complaints()
        if complaints:
            raise SystemExit(f"{kind}: nginx logged errors:\n{complaints[-2000:]}")
    return {
        "clients": CLIENTS,
        "workers": {kind: workers for kind, (workers, _) in KINDS.items()},
        "call": call.name,
        "size": call.size,
        "samples": samples,
    }


class Clients:
    def __init__(self, port):
        self.port, self.peers = port, []
        try:
            for _ in range(CLIENTS):
                peer = socket.create_connection(("127.0.0.1", port), timeout=30)
                self.peers.append(peer)
                peer.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except BaseException:
            self.close()
            raise

    def close(self):
        for peer in self.peers:
            peer.close()

    def request_from_all(self, call, number, node, result):
        """Sends a request for the same key from each client, with an id of its own."""
        template = marked_calls.numbered(call, number)
        before = len(node.answered)
        # the id is the client's own, the number in the params is common to all
        own = b"%d" % (marked_calls.FIRST + number)
        texts = [
            check.written(self.port, "/", template.replace(b'"id":' + own, b'"id":%d' % n), "gzip")
            for n in range(CLIENTS)
        ]
        begun = time.time_ns()
        for peer, text in zip(self.peers, texts, strict=True):
            peer.sendall(text)
        sent = time.time_ns()
        self.wait(node, before, sent)
        ends = [self.read(peer, n, result) for n, peer in enumerate(self.peers)]
        answered = node.answered[before:]
        if min(answered) < sent:
            raise SystemExit(
                "the node responded before all clients had sent their requests: the machine is too slow; "
                "increase NODE_SECONDS"
            )
        after = sorted((end - min(answered)) / 1e6 for end in ends)
        return {
            "asked_ms": (sent - begun) / 1e6,
            "reached": len(answered),
            "first_ms": after[0],
            "median_ms": after[len(after) // 2],
            "p99_ms": after[len(after) * 99 // 100],
            "last_ms": after[-1],
        }

    def wait(self, node, before, sent):
        """Waits until each client has received data, and a little longer."""
        time.sleep(NODE_SECONDS + SETTLE_SECONDS)
        poll = select.poll()
        left = {peer.fileno() for peer in self.peers}
        for fileno in left:
            poll.register(fileno, select.POLLIN)
        while left:
            if time.time_ns() - sent > PATIENCE_SECONDS * 1e9:
                raise SystemExit(
                    f"{len(left)} of {CLIENTS} clients have no response after {PATIENCE_SECONDS} s"
                )
            for fileno, _ in poll.poll(1000):
                left.discard(fileno)
                poll.unregister(fileno)
        time.sleep(SETTLE_SECONDS)

    def read(self, peer, number, result):
        """Verifies a response, and returns when its last byte arrived, in nanoseconds since
        1970."""
        data, arrived_at = b"", 0
        length = None
        while length is None or len(data) < length:
            piece, controls, _, _ = peer.recvmsg(1 << 20, 128)
            if not piece:
                raise SystemExit(f"client {number}: the connection ended before the end of the response")
            data += piece
            arrived_at = max([arrived_at, *(stamp(control) for control in controls)])
            head, end, _ = data.partition(b"\r\n\r\n")
            if end and length is None:
                fields = dict(
                    line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:]
                )
                length = len(head) + 4 + int(fields[b"content-length"])
        body = data.partition(b"\r\n\r\n")[2]
        if not arrived_at:
            raise SystemExit("the kernel reports no arrival times (SO_TIMESTAMPNS); run on Linux")
        expected = {"jsonrpc": "2.0", "id": number, "result": result}
        if json.loads(gzip.decompress(body)) != expected:
            raise check.WrongAnswer(f"client {number}: the response differs from the expected one")
        return arrived_at


def stamp(control):
    level, kind, data = control
    if (level, kind) != (socket.SOL_SOCKET, SO_TIMESTAMPNS):
        return 0
    seconds, nanoseconds = struct.unpack("@ll", data[:16])
    return seconds * 1_000_000_000 + nanoseconds

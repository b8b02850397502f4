"""The scripted node: it sends the bytes of a script, in the script's pieces, and records every
request unchanged.

It listens on TCP and on a Unix socket. Over the Unix socket a piece is sent only after the
piece before it was read (the kernel counts a Unix socket's unread bytes as the sender's), so
that pieces arrive separately without any sleeping.
"""

import fcntl
import itertools
import random
import re
import socket
import struct
import termios
import threading
import time
import zlib
from dataclasses import dataclass, field
from http import HTTPStatus

from harness.guards import GUARD_SECONDS

from . import zstd


class Close:
    """Script step: close the connection."""


class Reset:
    """Script step: close it with a TCP reset."""


@dataclass
class WaitFor:
    """Script step: wait for an event of the test (bounded)."""

    event: threading.Event
    seconds: float = GUARD_SECONDS


@dataclass
class CloseWithoutResponse:
    """Script step: read until the proxy closes its side."""

    seconds: float = GUARD_SECONDS
    seen: threading.Event = field(default_factory=threading.Event)


CLOSE = Close()
RESET = Reset()


@dataclass
class Request:
    head: bytes
    body: bytes
    connection: int

    @property
    def line(self):
        return self.head.split(b"\r\n", 1)[0].decode()

    @property
    def method(self):
        return self.line.split(" ")[0]

    @property
    def target(self):
        return self.line.split(" ")[1]

    @property
    def path(self):
        return self.target.split("?")[0]

    def all(self, name):
        lines = (line.partition(b":") for line in self.head.split(b"\r\n")[1:])
        return [
            value.strip().decode("latin-1")
            for key, _, value in lines
            if key.decode("latin-1").lower() == name.lower()
        ]

    def header(self, name):
        values = self.all(name)
        return ", ".join(values) if values else None


def gzipped(body, level=6):
    coder = zlib.compressobj(level, zlib.DEFLATED, 31)
    return coder.compress(body) + coder.flush()


def encoded(body, coding):
    """The body in a coding: zstd, or gzip under any of its names."""
    return zstd.compress(body) if coding == "zstd" else gzipped(body)


def status_line(status, version="1.1"):
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unassigned"
    return f"HTTP/{version} {status} {phrase}"


def head(status=200, headers=(), version="1.1"):
    lines = [status_line(status, version), *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunked(pieces, last=True):
    """The pieces as chunks, each one item of the list."""
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece]
    return chunks + ([b"0\r\n\r\n"] if last else [])


def whole(body):
    return [body]


def byte_chunks(body, edge=3000):
    """Single bytes; of a large body only the edges are split."""
    if len(body) <= 2 * edge:
        return [body[i : i + 1] for i in range(len(body))]
    middle = len(body) - edge
    return (
        [body[i : i + 1] for i in range(edge)]
        + [body[edge:middle]]
        + [body[i : i + 1] for i in range(middle, len(body))]
    )


def scattered(seed, most=12):
    """Splits at random positions, the same for the same seed."""

    def split(body):
        chance = random.Random(seed)
        cuts = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randint(1, most)))
        edges = [0, *cuts, len(body)]
        return [body[a:b] for a, b in itertools.pairwise(edges) if a < b]

    return split


def answer(
    body=b"",
    *,
    status=200,
    headers=(),
    type="application/json",
    framing="length",
    split=whole,
    coding=None,
    cut_at=None,
    then=(),
    version="1.1",
    method="GET",
):
    """A script: the list of pieces and steps of one complete response."""
    fields = [("Content-Type", type)] if type is not None else []
    fields += headers
    if coding:
        body = encoded(body, coding)
        fields.append(("Content-Encoding", coding))
    if framing == "length":
        fields.append(("Content-Length", str(len(body))))
    elif framing == "chunked":
        fields.append(("Transfer-Encoding", "chunked"))
    elif framing == "close":
        fields.append(("Connection", "close"))
    script = [head(status, fields, version)]
    if method == "HEAD":
        return script + list(then)
    if cut_at is not None:
        sent = body[:cut_at]
        pieces = split(sent) if sent else []
        return script + (chunked(pieces, last=False) if framing == "chunked" else pieces) + [CLOSE]
    pieces = split(body) if body else []
    if framing == "chunked":
        pieces = chunked(pieces)
    elif framing == "none":
        pieces = []
    if framing == "close":
        pieces = pieces + [CLOSE]
    return script + pieces + list(then)


class Origin:
    """Responds by path; a path without a script is a 404."""

    def __init__(self, directory):
        self.requests = []
        self.connections = 0
        self.errors = []
        # respond before the request's body has arrived
        self.early = False
        self._scripts = {}
        self._default = None
        self._lock = threading.Lock()
        self._open = set()
        self._tcp = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self._tcp.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.path = f"{directory}/origin.sock"
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(self.path)
        self._unix.listen(1024)
        for listener in (self._tcp, self._unix):
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def answers(self, script, path=None):
        """Sets the script for a path, or for all paths without one. A callable is called with
        each request."""
        if path is None:
            self._default = script
        else:
            self._scripts[path] = script

    def forget(self):
        self._scripts.clear()
        self._default = None
        self.requests.clear()
        self.errors.clear()
        self.early = False

    def received(self, path=None):
        with self._lock:
            return [r for r in self.requests if path is None or r.path == path]

    def last(self, path=None):
        return self.received(path)[-1]

    def close(self):
        for listener in (self._tcp, self._unix):
            listener.close()
        with self._lock:
            for connection in list(self._open):
                connection.close()

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                number = self.connections
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection, number):
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = bytearray()
        try:
            while True:
                request = _read_request(connection, received, number, with_body=not self.early)
                if request is None:
                    return
                with self._lock:
                    self.requests.append(request)
                if not self._play(connection, request, received):
                    return
        except OSError:
            # The proxy closed the connection, as in many tests.
            pass
        except Exception as error:  # raised by the fixture, threads can't raise
            self.errors.append(error)
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _play(self, connection, request, received):
        script = self._scripts.get(request.path, self._default)
        if callable(script):
            script = script(request)
        if script is None:
            script = answer(b"no script", status=404, type="text/plain")
        for step in script:
            if isinstance(step, (bytes, bytearray, memoryview)):
                connection.sendall(step)
                _drained(connection)
            elif isinstance(step, WaitFor):
                step.event.wait(step.seconds)
            elif isinstance(step, CloseWithoutResponse):
                connection.settimeout(step.seconds)
                while connection.recv(65536):
                    pass
                step.seen.set()
                return False
            elif isinstance(step, Reset):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            elif isinstance(step, Close):
                return False
            elif callable(step):
                # The rest of the connection belongs to the test.
                step(connection, request, bytes(received))
                return False
            else:
                raise TypeError(step)
        return True


def _drained(connection):
    """Waits until the proxy has read the bytes that were sent (Unix sockets only)."""
    if connection.family != socket.AF_UNIX:
        return
    deadline = time.monotonic() + GUARD_SECONDS
    queries = 0
    try:
        while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))[0]:
            if time.monotonic() > deadline:
                return
            queries += 1
            # the proxy of a busy machine needs the core
            time.sleep(0 if queries < 50 else 0.0002)
    except ValueError as closed:
        # the test has ended
        raise OSError("the connection was closed") from closed


def _more(connection, received):
    piece = connection.recv(65536)
    received += piece
    return bool(piece)


def _read_request(connection, received, number, with_body=True):
    while (end := received.find(b"\r\n\r\n")) < 0:
        if not _more(connection, received):
            return None
    text = bytes(received[:end])
    del received[: end + 4]
    length = re.search(rb"(?im)^content-length: *(\d+)\r?$", text)
    if not with_body:
        body = b""
    elif re.search(rb"(?im)^transfer-encoding: *chunked\r?$", text):
        body = _read_chunks(connection, received)
    elif length:
        size = int(length[1])
        while len(received) < size:
            if not _more(connection, received):
                return None
        body = bytes(received[:size])
        del received[:size]
    else:
        body = b""
    return Request(text, body, number)


def _read_chunks(connection, received):
    body = b""
    while True:
        while (end := received.find(b"\r\n")) < 0:
            if not _more(connection, received):
                raise ConnectionError("the request ended inside a chunk")
        size = int(received[:end], 16)
        while len(received) < end + 2 + size + 2:
            if not _more(connection, received):
                raise ConnectionError("the request ended inside a chunk")
        body += received[end + 2 : end + 2 + size]
        del received[: end + 2 + size + 2]
        if size == 0:
            return body

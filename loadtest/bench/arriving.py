"""An answer read as it arrives: head, framing and content coding in steps.

`check.exchange` waits for the whole of an answer; here it matters when its
parts come, or it never comes whole.
"""

import os
import socket
import zlib
from contextlib import contextmanager

from stack import LOAD_CORE

READ = 256 << 10


@contextmanager
def on_load_core():
    """This process beside the node, away from the worker."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {LOAD_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ask(port, target, accept, receive_buffer=None):
    """A connection that has sent its GET."""
    peer = socket.socket()
    if receive_buffer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.settimeout(60)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.connect(("127.0.0.1", port))
    peer.sendall(
        f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Accept-Encoding: {accept}\r\n\r\n".encode()
    )
    return peer


class Broken(SystemExit):
    pass


class Answer:
    """What came so far. `content` counts coded bytes, `decoded` plain ones."""

    def __init__(self):
        self.headers = None
        self.content = self.decoded = 0
        self.ended = False
        self._buffer = bytearray()
        self._inflate = None
        self._chunked = False
        # Bytes to come of this chunk or body; with chunks, a line end follows.
        self._left = 0
        self._line_end = False

    @property
    def coding(self):
        return self.headers.get("content-encoding", "")

    def feed(self, data):
        """The plain bytes that these wire bytes complete."""
        self._buffer += data
        if self.headers is None and not self._head():
            return b""
        plain = []
        while not self.ended and (part := self._part()) is not None:
            self.content += len(part)
            plain.append(self._inflate.decompress(part) if self._inflate else part)
        if self.ended and self._inflate and not self._inflate.eof:
            raise Broken("the answer ended, its gzip member did not")
        out = b"".join(plain)
        self.decoded += len(out)
        return out

    def _head(self):
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        status, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        if status.split()[1] != "200":
            raise Broken(f"an answer came with {status!r}")
        fields = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}
        if self.coding:
            self._inflate = zlib.decompressobj(31)
        self._chunked = "content-length" not in self.headers
        self._left = 0 if self._chunked else int(self.headers["content-length"])
        return True

    def _part(self):
        """Some content, or None if more has to be read first."""
        if self._left == 0 and not self._next_chunk():
            return None
        if not self._buffer:
            return None
        part = bytes(self._buffer[: self._left])
        del self._buffer[: len(part)]
        self._left -= len(part)
        self.ended = not self._chunked and self._left == 0
        return part

    def _next_chunk(self):
        """Reads a chunk's size line; the last one ends the answer."""
        skip = 2 if self._line_end else 0
        end = self._buffer.find(b"\r\n", skip)
        if end < 0:
            return False
        size = int(self._buffer[skip:end], 16)
        if size == 0:
            # None of these answers has trailers.
            if len(self._buffer) < end + 4:
                return False
            self.ended = True
            return False
        del self._buffer[: end + 2]
        self._left, self._line_end = size, True
        return True

"""A client on a raw socket that reads responses strictly: it accepts only bytes that RFC 9112
allows, and detects an excess byte.
"""

import contextlib
import socket
import struct
import zlib
from dataclasses import dataclass, field

from harness.guards import GUARD_SECONDS

from . import zstd


class Malformed(AssertionError):
    """The server violated HTTP."""


class Truncated(AssertionError):
    """The connection ended before the response did."""


# Other headers are joined by header(), so that a comparison shows repetitions.
_SINGLE = {"content-length", "transfer-encoding", "content-type", "date"}


@dataclass
class Response:
    version: str
    status: int
    headers: list
    body: bytes = b""
    framing: str = "none"  # length | chunked | close | none
    interim: list = field(default_factory=list)
    uri: str = ""
    nginx: object = None

    def all(self, name):
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name):
        """The header's lines, joined as RFC 9110, 5.3 allows, or None."""
        values = self.all(name)
        return ", ".join(values) if values else None

    @property
    def coding(self):
        return self.header("Content-Encoding")

    @property
    def length(self):
        value = self.header("Content-Length")
        return None if value is None else int(value)

    @property
    def decoded(self):
        return decoded(self.coding, self.body)

    @property
    def logged(self):
        """The line of the access log about this request."""
        return self.nginx.logged(self.uri)

    @property
    def mode(self):
        return self.logged["mode"]


def stream_decoder(coding):
    """A decoder of one gzip member or zstd frame in pieces; None for other codings."""
    if coding == "gzip":
        return zlib.decompressobj(31)
    return zstd.Decompressor() if coding == "zstd" else None


def decoded(coding, coded):
    """The content of a body in a coding, without trailing bytes; of other codings the body."""
    if not (decoder := stream_decoder(coding)):
        return coded
    body = decoder.decompress(coded)
    if not decoder.eof:
        raise Truncated(f"{coding} stream of {len(coded)} bytes has no end")
    if decoder.unused_data:
        raise Malformed(f"{len(decoder.unused_data)} bytes after the {coding} stream")
    return body


def gunzip(coded):
    """The content of one gzip member without trailing bytes."""
    return decoded("gzip", coded)


def unzstd(coded):
    """The content of one zstd frame without trailing bytes."""
    return decoded("zstd", coded)


def request_bytes(target, *, method="GET", version="1.1", headers=(), body=None, host="localhost"):
    lines = [f"{method} {target} HTTP/{version}", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None and not any(
        name.lower() in ("content-length", "transfer-encoding") for name, _ in headers
    ):
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


class Connection:
    """One client connection; responses may be pipelined."""

    def __init__(self, port, timeout=GUARD_SECONDS, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.received = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.socket.sendall(data)

    def close(self):
        self.socket.close()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _more(self):
        piece = self.socket.recv(262144)
        self.received += len(piece)
        self.buffer += piece
        return bool(piece)

    def _line(self):
        start = 0
        while (end := self.buffer.find(b"\n", start)) < 0:
            start = len(self.buffer)
            if not self._more():
                raise Truncated(f"the connection ended in a line: {bytes(self.buffer)!r}")
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        if not line.endswith(b"\r"):
            raise Malformed(f"a line without CR: {line!r}")
        return line[:-1].decode("latin-1")

    def take(self, count):
        while len(self.buffer) < count:
            if not self._more():
                raise Truncated(f"{len(self.buffer)} of {count} bytes")
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def read_head(self):
        version, _, rest = self._line().partition(" ")
        if version not in ("HTTP/1.0", "HTTP/1.1"):
            raise Malformed(f"not a status line: {version!r}")
        headers = []
        while line := self._line():
            name, colon, value = line.partition(":")
            if not colon or name != name.strip() or not name:
                raise Malformed(f"not a field line: {line!r}")
            headers.append((name, value.strip(" \t")))
        for name in _SINGLE:
            if sum(key.lower() == name for key, _ in headers) > 1:
                raise Malformed(f"{name} more than once: {headers}")
        return Response(version[5:], int(rest[:3]), headers)

    def read(self, method="GET"):
        """The next complete response, with its interim responses."""
        interim = []
        response = self.read_head()
        while 100 <= response.status < 200 and response.status != 101:
            interim.append(response)
            response = self.read_head()
        response.interim = interim
        coding = response.header("Transfer-Encoding")
        length = response.header("Content-Length")
        if coding is not None and length is not None:
            raise Malformed("both Content-Length and Transfer-Encoding")
        if length is not None and not length.isdigit():
            raise Malformed(f"Content-Length {length!r}")
        if method == "HEAD" or response.status in (101, 204, 304):
            return response
        if coding is not None:
            if coding != "chunked":
                raise Malformed(f"Transfer-Encoding {coding!r}")
            response.framing = "chunked"
            response.body = self._chunks()
        elif length is not None:
            response.framing = "length"
            response.body = self.take(int(length))
        else:
            response.framing = "close"
            while self._more():
                pass
            response.body = bytes(self.buffer)
            self.buffer.clear()
        return response

    def _chunks(self):
        body = bytearray()
        while True:
            size = int(self._line().split(";")[0], 16)
            if size == 0:
                if trailer := self._line():
                    raise Malformed(f"a trailer: {trailer!r}")
                return bytes(body)
            body += self.take(size)
            if self.take(2) != b"\r\n":
                raise Malformed("a chunk without CRLF")

    def ended(self):
        """Asserts that nothing but the end of the connection follows."""
        if self.buffer or self._more():
            raise Malformed(f"bytes after the answer: {bytes(self.buffer[:80])!r}")

    def exchange(self, target, *, method="GET", **request):
        self.send(request_bytes(target, method=method, **request))
        return self.read(method)


@contextlib.contextmanager
def connected(port, **options):
    with Connection(port, **options) as connection:
        yield connection


def fetch(port, target, *, method="GET", version="1.1", headers=(), body=None, timeout=GUARD_SECONDS):
    """One request on one connection, which must end right after the response."""
    headers = [*headers, ("Connection", "close")] if version == "1.1" else list(headers)
    with Connection(port, timeout=timeout) as connection:
        response = connection.exchange(
            target, method=method, version=version, headers=headers, body=body
        )
        connection.ended()
        return response

"""A small HTTP client: one connection, complete responses, decompressed content."""

import ctypes
import ctypes.util
import json
import socket
import ssl
import zlib
from dataclasses import dataclass

SECONDS = 60


class ConnectionLost(Exception):
    """The connection was closed, or the data is not HTTP."""


@dataclass
class Answer:
    status: int
    headers: dict
    content: bytes
    # bytes of head and body with the framing of chunks, as wrk counts them
    wire: int

    @property
    def coding(self):
        return self.headers.get("content-encoding", "")

    def decoded(self):
        return DECODERS[self.coding](self.content)

    def value(self):
        return json.loads(self.decoded())


class Peer:
    """A persistent connection, which is opened again after it was closed."""

    def __init__(self, host, port, is_tls=False, prefix="", seconds=SECONDS):
        self.host, self.port, self.seconds = host, port, seconds
        self.is_tls, self.prefix = is_tls, prefix
        self.socket = self.stream = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.socket:
            self.stream.close()
            self.socket.close()
            self.socket = self.stream = None

    def fetch(self, body=None, path="/", coding="", media=""):
        """Sends a POST of `body`, or a GET without one."""
        is_old = self.socket is not None
        try:
            return self._once(body, path, coding, media)
        except (ConnectionLost, OSError):
            self.close()
            # the server may have closed an idle connection meanwhile, which is not an error
            if not is_old:
                raise
            return self._once(body, path, coding, media)

    def call(self, method, *params, id=1):
        """Returns the result of a call, or None for an error."""
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": list(params)}
        return self.fetch(json.dumps(body).encode()).value().get("result")

    def _once(self, body, path, coding, media):
        if self.socket is None:
            self.socket = socket.create_connection((self.host, self.port), self.seconds)
            if self.is_tls:
                context = ssl.create_default_context()
                self.socket = context.wrap_socket(self.socket, server_hostname=self.host)
            self.stream = self.socket.makefile("rb")
        path = joined_path(self.prefix, path)
        self.socket.sendall(written(self.host, self.port, body, path, coding, media))
        answer = read(self.stream)
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer


def local_address(port):
    """Returns the address of a server on this machine."""
    return "127.0.0.1", port


def joined_path(prefix, path):
    """Joins a server's own path and a path below it: /v3/KEY, but /v3/KEY/stats."""
    return prefix + path if path != "/" or not prefix else prefix


def written(host, port, body, path="/", coding="", media=""):
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {host}:{port}"]
    lines += [f"Accept-Encoding: {coding}"] if coding else []
    lines += [f"Accept: {media}"] if media else []
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def read(stream):
    first = stream.readline()
    try:
        status = int(first.split()[1])
    except (IndexError, ValueError):
        raise ConnectionLost(f"the response has no status line: {first[:80]!r}") from None
    wire, headers = len(first), {}
    while (line := stream.readline()) not in (b"\r\n", b"\n", b""):
        wire += len(line)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    wire += 2
    if "content-length" in headers:
        size = int(headers["content-length"])
        content = stream.read(size)
        if len(content) < size:
            raise ConnectionLost(f"the connection ended after {len(content)} of {size} bytes")
        return Answer(status, headers, content, wire + size)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        content, framing = read_chunks(stream)
        return Answer(status, headers, content, wire + len(content) + framing)
    content = stream.read()
    headers["connection"] = "close"
    return Answer(status, headers, content, wire + len(content))


def read_chunks(stream):
    parts, framing = [], 0
    while True:
        line = stream.readline()
        if not line.strip():
            raise ConnectionLost("the connection ended before the last chunk")
        size = int(line.split(b";")[0], 16)
        piece = stream.read(size)
        if len(piece) < size:
            raise ConnectionLost("the connection ended within a chunk")
        parts.append(piece)
        framing += len(line) + len(stream.readline())
        if size == 0:
            return b"".join(parts), framing


def gunzip(content):
    return zlib.decompress(content, 31)


def unbrotli(content):
    """Decompresses brotli with the library of nginx's brotli module."""
    library = ctypes.CDLL(ctypes.util.find_library("brotlidec") or "libbrotlidec.so.1")
    room = max(1 << 20, 40 * len(content))
    out, size = ctypes.create_string_buffer(room), ctypes.c_size_t(room)
    good = library.BrotliDecoderDecompress(
        ctypes.c_size_t(len(content)), content, ctypes.byref(size), out
    )
    if good != 1:
        raise ValueError("the body is not brotli, or decodes to more than 40 times its length")
    return out.raw[: size.value]


def unzstd(content):
    """Decompresses zstd frames with the system's library."""
    library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    room = max(1 << 20, 40 * len(content))
    out = ctypes.create_string_buffer(room)
    size = library.ZSTD_decompress(out, ctypes.c_size_t(room), content, ctypes.c_size_t(len(content)))
    if size > room:
        raise ValueError("the body is not zstd, or decodes to more than 40 times its length")
    return ctypes.string_at(out, size)


DECODERS = {"": bytes, "identity": bytes, "gzip": gunzip, "br": unbrotli, "zstd": unzstd}

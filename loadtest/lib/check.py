"""Verifies the response to each body with each encoder before it is measured."""

import gzip
import json
import socket

import brotli
import zstandard


class WrongAnswer(SystemExit):
    pass


def exchange(port, path, body, accept):
    """Sends one POST over a new connection; returns status, headers, content without framing,
    and wire bytes."""
    return send(port, path, body.request.read_bytes(), accept)


def send(port, path, request, accept, media=""):
    """Sends a request of these bytes over a new connection; without bytes it is a GET."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        return send_request(peer, peer.makefile("rb"), path, request, accept, media)


def send_request(peer, stream, path, request, accept, media=""):
    """Sends a request over an open connection, whose file is `stream`."""
    peer.sendall(written(peer.getpeername()[1], path, request, accept, media))
    status = int(stream.readline().split()[1])
    wire = len("HTTP/1.1 200 OK\r\n")
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        wire += len(line)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    wire += 2
    if "content-length" in headers:
        content = stream.read(int(headers["content-length"]))
        return status, headers, content, wire + len(content)
    content, framing = read_chunks(stream)
    return status, headers, content, wire + len(content) + framing


def written(port, path, request, accept, media=""):
    """Returns the bytes of a request. Its host equals wrk's, because it may be a part of a
    cache key."""
    head = (
        f"{'GET' if request is None else 'POST'} {path} HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\nAccept-Encoding: {accept}\r\n"
    )
    if media:
        head += f"Accept: {media}\r\n"
    if request is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(request)}\r\n"
    return f"{head}\r\n".encode() + (request or b"")


def read_chunks(stream):
    parts, framing = [], 0
    while True:
        size_line = stream.readline()
        size = int(size_line, 16)
        parts.append(stream.read(size))
        framing += len(size_line) + len(stream.readline())
        if size == 0:
            return b"".join(parts), framing


def unzstd(content):
    """Decompresses a frame of any length, with its content size or without."""
    return zstandard.ZstdDecompressor().decompressobj().decompress(content)


DECODERS = {"": bytes, "gzip": gzip.decompress, "br": brotli.decompress, "zstd": unzstd}


def answer(port, path, body, coder, identity=None):
    """Returns the sizes of one response, after it was decompressed and compared.

    `identity` is the body of pass-through; without it the body is compared as JSON with the
    recording.
    """
    where = f"{coder.name}, {body.name}"
    status, headers, content, wire = exchange(port, path, body, coder.accept)
    if status != 200:
        raise WrongAnswer(f"{where}: status {status}, expected 200")
    coding = headers.get("content-encoding", "")
    if coding != coder.coding:
        raise WrongAnswer(f"{where}: content coding {coding!r}, expected {coder.coding!r}")
    decoded = DECODERS[coding](content)
    if identity is None:
        if json.loads(decoded) != body.answer:
            raise WrongAnswer(f"{where}: the node's response differs from the recorded one")
    elif decoded != identity:
        raise WrongAnswer(f"{where}: the decoded body differs from the pass-through body")
    return {
        "bytes": len(content),
        "wire": wire,
        "exact_length": "content-length" in headers,
        "decoded": decoded,
    }

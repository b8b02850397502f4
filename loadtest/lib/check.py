"""Verifies the response to each body with each encoder before it is measured."""

import gzip
import json
import re
import socket
import time

import brotli
import zstandard

# Number of requests until one is a hit, and the seconds between two of them: an entry may be stored
# after its response was sent.
REPETITIONS, PAUSE_SECONDS = 20, 0.05
HIT = re.compile(r"sszip; hit; ttl=(\d+)")
# Minimum remaining TTL of a hit in seconds: a response that contradicts its request has one below a
# second.
LEAST_TTL = 60


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


def is_stored(port, request, accept):
    """Whether a repeated request is a hit of sszip's cache, with a TTL of a usual entry."""
    for _ in range(REPETITIONS):
        hit = HIT.match(send(port, "/", request, accept)[1].get("cache-status", ""))
        if hit and int(hit[1]) >= LEAST_TTL:
            return True
        time.sleep(PAUSE_SECONDS)
    return False


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

"""Rows of the parity table on a host: how the node's response is split, and assertions on
the host's response."""

import re
import zlib

from . import zstd
from .client import fetch, request_bytes
from .origin import byte_chunks, scattered

CALL = b'{"jsonrpc":"2.0","id":1,"method":"x"}'


def send_whole(_case):
    return lambda head, rest: [head + rest]


def send_bytes(_case):
    return lambda head, rest: [head, *byte_chunks(rest, edge=1500 if len(rest) <= 3000 else 200)]


def send_random_pieces(case):
    split = scattered(zlib.crc32(case.name.encode()))
    return lambda head, rest: split(head + rest)


def exchange(host, path, case):
    """The response to the case's request at `path`. Asserts that the connection is usable
    afterwards."""
    uri = host.uri(path)
    request = {
        "method": case.request["method"],
        "version": case.request["version"],
        "headers": [tuple(line) for line in case.request["headers"]],
        "body": CALL if case.request["method"] == "POST" else None,
    }
    if case.request["version"] == "1.0":
        return host.named(fetch(host.port, uri, **request), uri)
    with host.connect() as connection:
        response = connection.exchange(uri, **request)
        if response.framing == "close":
            connection.ended()
        else:
            # An excess or missing byte would break the next response.
            connection.send(request_bytes("/in-step"))
            assert connection.read().status == 204
    return host.named(response, uri)


def check_response(case, response, origin):
    """Asserts the row's expectations of the response and of the upstream request."""
    assert response.status == case.expect["status"]
    if "mode" in case.expect:
        assert response.mode == case.expect["mode"]
    check_body(case, response)
    check_content_length(case, response)
    for name, value in case.expect.get("headers", []):
        # Some hosts join header lines without the space.
        assert re.sub(r",\s*", ", ", response.header(name) or "") == value, name
    for name in case.expect.get("absent", []):
        assert response.all(name) == [], name
    for name, value in case.expect.get("upstream", []):
        assert origin.last().header(name) == value, f"upstream {name}"
    for name in case.expect.get("upstream_absent", []):
        assert origin.last().all(name) == [], f"upstream {name}"


def check_body(case, response):
    if case.expect["status"] != case.response["status"]:
        assert response.coding is None
        return
    coding = case.expect["coding"]
    assert response.coding == (None if coding == "identity" else coding)
    if not case.has_body:
        assert response.body == b""
    elif coding == "identity":
        assert response.body == case.plain
    elif case.is_encoded_by_node:
        assert response.body == case.sent
    else:
        assert response.decoded == case.plain
        # The compressed length of a stream is unknown in advance.
        assert (
            len(response.body) < len(case.plain)
            or case.refuses_identity
            or response.mode == "stream"
        )


def check_content_length(case, response):
    if case.expect["length"] == "absent":
        assert response.length is None
    elif case.request["method"] == "HEAD":
        assert response.length == len(case.sent)
    else:
        # The strict client has already read exactly this number of bytes.
        assert response.framing == "length"
        if response.coding == "zstd" and case.has_body and not case.is_encoded_by_node:
            # Clients allocate no more than the content size.
            assert zstd.content_size(response.body) == len(case.plain)

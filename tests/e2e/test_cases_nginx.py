"""The parity table on nginx: every exchange whole, byte by byte and split at
random, and the connection still usable after each."""

import zlib

import pytest

from harness import cases
from harness.client import fetch, gunzip, request_bytes
from harness.origin import bytewise, scattered

pytestmark = pytest.mark.carried("the parity table: the core decides its rows")

CASES = cases.load("nginx")
CALL = b'{"jsonrpc":"2.0","id":1,"method":"x"}'

# One location for each set of directives that the table uses.
LOCATIONS = {}
for case in CASES:
    LOCATIONS.setdefault(tuple(sorted(case.config.items())), f"/config-{len(LOCATIONS)}/")


def directives(config):
    # The window's time is the host's affair; the table speaks of its bytes.
    config = {"enable": "on", "hold": "64k 60s", **dict(config)}
    enable = config.pop("enable")
    return "".join([f"sszip {enable}; ", *(f"sszip_{name} {value}; " for name, value in config.items())])


CONFIG = (
    "server { listen 127.0.0.1:@port@; proxy_http_version 1.1; location = /in-step { return 204; }\n"
    + "".join(
        f"location {path} {{ {directives(config)} proxy_pass http://@origin_unix@; }}\n"
        for config, path in LOCATIONS.items()
    )
    + "}"
)


def whole(_case):
    return lambda head, rest: [head + rest]


def byte_by_byte(_case):
    return lambda head, rest: [head, *bytewise(rest, edge=1500 if len(rest) <= 3000 else 200)]


def at_random(case):
    split = scattered(zlib.crc32(case.name.encode()))
    return lambda head, rest: split(head + rest)


@pytest.mark.parametrize("split", [whole, byte_by_byte, at_random], ids=lambda split: split.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(nginx, origin, case, split):
    origin.answers(case.script(split(case)))
    response = exchange(nginx, case)

    assert response.status == case.expect["status"]
    if "mode" in case.expect:
        assert response.mode == case.expect["mode"]
    judge_body(case, response)
    judge_length(case, response)
    for name, value in case.expect.get("headers", []):
        assert response.header(name) == value, name
    for name in case.expect.get("absent", []):
        assert response.all(name) == [], name
    for name, value in case.expect.get("upstream", []):
        assert origin.last().header(name) == value, f"upstream {name}"
    for name in case.expect.get("upstream_absent", []):
        assert origin.last().all(name) == [], f"upstream {name}"


def exchange(nginx, case):
    uri = nginx.uri(LOCATIONS[tuple(sorted(case.config.items()))])
    request = {
        "method": case.request["method"],
        "version": case.request["version"],
        "headers": [tuple(line) for line in case.request["headers"]],
        "body": CALL if case.request["method"] == "POST" else None,
    }
    if case.request["version"] == "1.0":
        return nginx.named(fetch(nginx.port, uri, **request), uri)
    with nginx.connect() as connection:
        response = connection.exchange(uri, **request)
        if response.framing == "close":
            connection.ended()
        else:
            # A byte too many or too few would show in the next answer.
            connection.send(request_bytes("/in-step"))
            assert connection.read().status == 204
    return nginx.named(response, uri)


def judge_body(case, response):
    if case.expect["status"] != case.response["status"]:
        assert response.coding is None
        return
    coding = case.expect["coding"]
    assert response.coding == (None if coding == "identity" else coding)
    if not case.has_body:
        assert response.body == b""
    elif coding == "identity":
        assert response.body == case.plain
    elif case.coded_by_node:
        assert response.body == case.sent
    else:
        assert gunzip(response.body) == case.plain
        # Of a stream nobody knows beforehand what it will come to.
        assert len(response.body) < len(case.plain) or case.refuses_identity or response.mode == "stream"


def judge_length(case, response):
    if case.expect["length"] == "absent":
        assert response.length is None
    elif case.request["method"] == "HEAD":
        assert response.length == len(case.sent)
    else:
        # The strict client has already read exactly that many bytes.
        assert response.framing == "length"

"""The sequences of the parity table on nginx: what is stored, and for whom,
with the node's answers whole, byte by byte and split at random."""

import gzip
import itertools
import time
import zlib

import pytest

from harness import sequences, zstd
from harness.origin import answer, bytewise, scattered

pytestmark = pytest.mark.carried("the parity table: the core decides its rows")

SEQUENCES = sequences.load("nginx")

# One server for each set of directives; which one is said by Host, and so are
# the namespaces of runs told apart.
SERVERS = {}
for sequence in SEQUENCES:
    SERVERS.setdefault(tuple(sorted(sequence.config.items())), f"config-{len(SERVERS)}.test")


def server(name, config):
    # as in the other rows, the window's time is the host's affair
    config = {"cache": "on", "hold": "64k 60s", **dict(config)}
    # and what is asked in the background
    config.setdefault("ssz_preset", "mainnet")
    directives = "".join(f"sszip_{directive} {value}; " for directive, value in config.items())
    return (
        f"server {{ listen 127.0.0.1:@port@; server_name *.{name}; proxy_http_version 1.1;"
        f" sszip on; {directives}"
        "location / { proxy_set_header Host $host; proxy_pass http://@origin_unix@; } }\n"
    )


CONFIG = "".join(server(name, config) for config, name in SERVERS.items())
_runs = itertools.count(1)


def whole(_sequence):
    return lambda head, rest: [head + rest]


def byte_by_byte(_sequence):
    return lambda head, rest: [head, *bytewise(rest, edge=200)]


def at_random(sequence):
    split = scattered(zlib.crc32(sequence.name.encode()))
    return lambda head, rest: split(head + rest)


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


@pytest.mark.parametrize("split", [whole, byte_by_byte, at_random], ids=lambda split: split.__name__)
@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.name)
def test_sequence(nginx, origin, sequence, split):
    host = f"run-{next(_runs)}.{SERVERS[tuple(sorted(sequence.config.items()))]}"
    for number, step in enumerate(sequence.steps, 1):
        time.sleep(step.pause)
        origin.requests.clear()
        # one that should not be asked says so
        unasked = answer(b"nobody should ask", status=599, type="text/plain")
        origin.answers(unasked if step.node is None else step.script(split(sequence)))
        with nginx.connect() as connection:
            response = connection.exchange(
                step.target, method=step.method, headers=step.headers, body=step.body, host=host
            )
        judge(f"step {number}", step, response, origin.received())


def judge(where, step, response, asked):
    expect = step.expect
    assert response.status == expect["status"], where
    assert len(asked) == (step.node is not None), where
    if "forwarded" in expect:
        is_coded = step.coding and asked[0].header("Content-Encoding")
        decode = zstd.decompress if step.coding == "zstd" else gzip.decompress
        body = decode(asked[0].body) if is_coded else asked[0].body
        assert body == sequences.expanded(expect["forwarded"]), where
    for name, value in expect.get("upstream", []):
        assert asked[0].header(name) == value, f"{where}: upstream {name}"
    for name in expect.get("upstream_absent", []):
        assert asked[0].all(name) == [], f"{where}: upstream {name}"
    if response.status == 502:
        return  # nginx's own
    for name, value in expect.get("headers", []):
        assert response.header(name) == value, f"{where}: {name}"
    for name in expect.get("absent", []):
        assert response.all(name) == [], f"{where}: {name}"
    if "cache" in expect:
        assert of_cache(response) == expect["cache"], where
    assert response.coding == expect.get("coding"), where
    if response.status == 200 and step.method != "HEAD":
        assert response.framing == "length", where
    assert response.decoded == expect["body"], where


def of_cache(response):
    """RFC 9211, as one word."""
    said = response.header("Cache-Status") or ""
    words = {"fwd=miss": "miss", "fwd=bypass": "bypass", "fwd=stale": "stale", "sszip; hit": "hit"}
    return next((word for part, word in words.items() if part in said), "none")

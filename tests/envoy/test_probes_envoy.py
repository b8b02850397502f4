"""Probes of a route's node, as Envoy's own requests: the rows of test_node_capabilities.py that depend on
the host."""

import functools
import json
import threading
import time

import pytest

from harness.envoy import cluster, route
from harness.origin import CloseWithoutResponse, WaitFor, answer, byte_chunks, scattered
from harness.spec_vectors import values as specified_values
from test_node_capabilities import (
    BLOCK,
    EITHER,
    FAULTS,
    GENESIS,
    JSON,
    OCTETS,
    SPEC,
    UPDATES,
    blocks,
    chain,
    data_json,
    served,
    wait_for_ssz,
)

__all__ = ["blocks", "chain"]

# A cluster of its own for each route: capabilities are recorded by cluster and prefix.
ROUTES = {
    "/": {},
    "/gnosis/a-key/": {"prefix_rewrite": "/", "host_rewrite_literal": "node.test"},
    "/chain/": {"regex_rewrite": {"pattern": {"regex": "^/chain/(.*)$"}, "substitution": r"/deep/\1"}},
    "/below/": {},
    "/cached/": {"prefix_rewrite": "/"},
    "/given/": {"prefix_rewrite": "/"},
    "/posted/": {"prefix_rewrite": "/"},
    "/updates/": {"prefix_rewrite": "/"},
    "/left/": {"prefix_rewrite": "/"},
    "/gzipped/": {"prefix_rewrite": "/"},
    "/exits/": {"prefix_rewrite": "/"},
    **{f"/fault_{name}/": {"prefix_rewrite": "/"} for name in FAULTS},
}  # fmt: skip
SETTINGS = {
    "/cached/": {"cache": True},
    "/given/": {"ssz_preset": "minimal"},
    "/posted/": {"ssz_request": "always"},
}
HOSTS = ("native", "wasm")
# each worker of a sandbox has capabilities of its own, and sends probes itself
WORKERS = {"native": 5, "wasm": 1}


def cluster_of(prefix):
    # the name in the form of gateways
    return f"rule{prefix}?"


@pytest.fixture(scope="module")
def file_envoy(host, start_envoy, session_origin):
    routes = []
    for prefix, more in ROUTES.items():
        made = route(prefix, SETTINGS.get(prefix), cluster=cluster_of(prefix), **more)
        if prefix == "/gnosis/a-key/":
            made["request_headers_to_add"] = [{"header": {"key": "x-token", "value": "let-me"}}]
            made["request_headers_to_remove"] = ["x-secret"]
        routes.insert(0, made)
    where = {"pipe": {"path": str(session_origin.path)}}
    clusters = [cluster(cluster_of(prefix), where) for prefix in ROUTES]
    return start_envoy(routes, settings={"ssz": True}, workers=WORKERS[host], clusters=clusters)


@pytest.fixture
def envoy(file_envoy):
    """The file's Envoy, which is started again after a test that ended it."""
    if file_envoy.process is None:
        file_envoy.start()
    return file_envoy


def get(envoy, prefix, path, *headers, accept=None):
    return envoy.get(prefix.rstrip("/") + path, accept, headers=headers)


def minimal(origin, chain, blocks, probe_path=SPEC, first=(), **options):
    origin.answers([*first, *answer(data_json(chain.spec), **options)], probe_path)
    origin.answers(lambda request: served(blocks["minimal"]) if "/blocks/7" in request.path else None)
    return bytes.fromhex(blocks["minimal"]["ssz"])


@pytest.mark.parametrize(
    "prefix, path, probe_path",
    [
        ("/", BLOCK, SPEC),
        ("/below/", f"/a%20b//k{BLOCK}?x=/eth/v1/y", f"/below/a%20b//k{SPEC}"),
        ("/gnosis/a-key/", BLOCK, SPEC),
        ("/chain/", BLOCK, f"/deep{SPEC}"),
        ("/cached/", BLOCK, SPEC),
    ],
)
def test_preset_is_probed_once_without_delaying_requests(envoy, origin, chain, blocks, prefix, path, probe_path):
    """All workers know the preset after one probe, which is sent where the router sends."""
    go_on = threading.Event()
    ssz = minimal(origin, chain, blocks, probe_path, [WaitFor(go_on)], split=scattered(prefix))
    conditions = [("If-None-Match", '"x"'), ("Range", "bytes=0-1"), ("X-Secret", "1"), ("X-Kept", "2")]
    first = get(envoy, prefix, path, OCTETS, *conditions)
    # no request waits for the probe
    assert (first.status, first.mode) == (406, "ssz-invalid")
    go_on.set()
    known = wait_for_ssz(envoy, lambda: get(envoy, prefix, path, OCTETS))
    assert known.body == ssz
    for _ in range(15):
        assert get(envoy, prefix, path, OCTETS).body == ssz
    (probe,) = origin.received(probe_path)
    assert probe.method == "GET"
    assert probe.body == b""
    assert probe.header("Accept") == "application/json"
    assert probe.header("Accept-Encoding") == "identity"
    assert probe.header("X-Kept") == "2"
    assert probe.header("Host") == origin.last().header("Host")
    if prefix == "/gnosis/a-key/":
        assert probe.header("Host") == "node.test"
        assert probe.header("X-Token") == "let-me"
        assert probe.header("X-Secret") is None
    for name in ("Content-Length", "Transfer-Encoding", "If-None-Match", "Range"):
        assert probe.header(name) is None, name
    # and the node gets no other probe
    assert {request.path for request in origin.received()} <= {probe_path, origin.last().path}


def test_preset_is_read_from_a_compressed_response(envoy, origin, chain, blocks):
    # the timeout of a probe is a minute: a busy machine needs longer for a thousand pieces
    split = functools.partial(byte_chunks, edge=50)
    ssz = minimal(origin, chain, blocks, coding="gzip", split=split, framing="chunked")
    assert wait_for_ssz(envoy, lambda: get(envoy, "/gzipped/", BLOCK, EITHER)).body == ssz


STUCK = pytest.param("stuck", marks=pytest.mark.wasm_thorough("the timeout is that of a silent node"))


@pytest.mark.parametrize("fault", [STUCK if name == "stuck" else name for name in FAULTS])
def test_requests_are_not_delayed_when_a_probe_fails(envoy, origin, chain, blocks, fault):
    script = FAULTS[fault](chain.spec)
    origin.answers(script, SPEC)
    origin.answers(served(blocks["mainnet"]), BLOCK)
    ssz = bytes.fromhex(blocks["mainnet"]["ssz"])
    began = time.monotonic()
    with envoy.connect() as connection:
        for _ in range(4):
            path = f"/fault_{fault}{BLOCK}"
            assert connection.exchange(path, headers=[OCTETS]).body == ssz
            assert get(envoy, f"/fault_{fault}/", BLOCK, OCTETS).body == ssz
    envoy.wait_for(lambda: origin.received(SPEC), "the probe")
    for step in script:
        if isinstance(step, CloseWithoutResponse):
            assert step.seen.wait(step.seconds), "it is still awaited"
    # repeated after five seconds, then ten
    assert len(origin.received(SPEC)) <= 1 + (time.monotonic() - began) / 5


def test_node_is_not_probed_when_the_preset_is_configured(envoy, origin, blocks):
    origin.answers(served(blocks["minimal"]), BLOCK)
    for _ in range(2):
        assert get(envoy, "/given/", BLOCK, OCTETS).status == 200
    assert {request.path for request in origin.received()} == {BLOCK}


@pytest.mark.parametrize("leaves", ["close", "reset"])
def test_probe_continues_when_its_client_aborts(envoy, origin, chain, blocks, leaves):
    """The probe does not belong to the client. The second time it has another path."""
    prefix = f"/left/{leaves}"
    gate = threading.Event()
    ssz = minimal(origin, chain, blocks)
    spec = answer(data_json(chain.spec))
    origin.answers([spec[0], WaitFor(gate), *spec[1:]], f"/{leaves}{SPEC}")
    with envoy.connect() as connection:
        connection.send(
            f"GET {prefix}{BLOCK} HTTP/1.1\r\nHost: a\r\nAccept: {OCTETS[1]}\r\n\r\n".encode()
        )
        assert connection.read().status == 406
        getattr(connection, leaves)()
    gate.set()
    known = wait_for_ssz(envoy, lambda: get(envoy, prefix, BLOCK, OCTETS))
    assert known.body == ssz
    assert len(origin.received(f"/{leaves}{SPEC}")) == 1


def test_submission_starts_a_probe_and_is_sent_once(envoy, origin, chain, cache_directory):
    signed = specified_values(cache_directory, "specified_values.py", "minimal", "SignedBeaconBlock")
    block = next(value for value in signed if value["fork"] == "capella")
    origin.answers(answer(data_json(chain.spec)), SPEC)
    path = "/eth/v2/beacon/blocks"
    origin.answers(answer(b"", type=None), path)
    headers = [("Content-Type", OCTETS[1]), ("Eth-Consensus-Version", "capella")]
    body = bytes.fromhex(block["ssz"])
    response = envoy.get(f"/posted{path}", None, method="POST", body=body, headers=headers)
    assert response.status == 200, response.body
    assert json.loads(origin.last(path).body) == block["data"]
    envoy.wait_for(lambda: origin.received(SPEC), "the probe")
    (probe,) = origin.received(SPEC)
    assert (probe.method, probe.body) == ("GET", b"")
    for name in ("Content-Length", "Content-Type", "Transfer-Encoding", "Eth-Consensus-Version"):
        assert probe.header(name) is None, name
    assert len(origin.received(path)) == 1


def test_light_client_updates_of_every_fork_are_transcoded(envoy, origin, chain):
    origin.answers(answer(data_json(chain.spec)), SPEC)
    origin.answers(answer(data_json(chain.genesis)), GENESIS)
    origin.answers(answer(chain.json, split=scattered(7)), UPDATES)
    target = f"{UPDATES}?start_period=0&count=9"
    known = wait_for_ssz(envoy, lambda: get(envoy, "/updates/", target, EITHER))
    assert (known.body, known.mode, known.framing) == (chain.octets, "ssz", "length")
    assert get(envoy, "/updates/", target, JSON).decoded == chain.json
    origin.answers(answer(chain.octets, type=OCTETS[1], split=scattered(8)), UPDATES)
    response = get(envoy, "/updates/", target, JSON)
    assert json.loads(response.decoded) == json.loads(chain.json)
    assert len(origin.received(SPEC)) == len(origin.received(GENESIS)) == 1


def test_envoy_exits_during_a_probe(envoy, origin, chain, blocks):
    origin.answers([CloseWithoutResponse()], SPEC)
    origin.answers(served(blocks["mainnet"]), BLOCK)
    assert get(envoy, "/exits/", BLOCK, OCTETS).status == 200
    envoy.wait_for(lambda: origin.received(SPEC), "the probe")
    # fails if the exit status is another than 0
    envoy.end()

"""A sandbox with less and less memory: clients receive a right response, or a truncated one, or
an error, and the next client a right one; if need be of a new sandbox."""

import itertools
import json
import pathlib

import pytest

from harness import sandbox
from harness.client import Malformed, Truncated
from harness.envoy import route
from harness.origin import answer
from harness.rpc import Node
from harness.sandbox import WasmEnvoy
from harness.wasm import with_memory
from test_refused_memory_envoy import CONSOLIDATIONS, OCTETS, Calls, block, entries, node, ssz_of
from tiers import by_tier

MB = 1 << 20
# in addition to a sandbox's initial memory; the last suffices for all exchanges
MEMORIES = by_tier([MB, 9 * MB, 256 * MB], [MB, 2 * MB, 3 * MB, 5 * MB, 9 * MB, 256 * MB])
SETTINGS = {"cache": True, "cache_namespace": "all", "cache_max_request": "4m", "buffer_limit": "8m"}
CALLS = [dict(), dict(path="/stream"), dict(new=3), dict(pad=700_000)]
CLIENTS = by_tier([("gzip", "length"), (None, "chunked")], list(itertools.product(("gzip", None), ("length", "chunked"))))
ENTRIES = 30_000
_numbers = itertools.count(1)


@pytest.fixture(params=MEMORIES, ids=lambda bytes: f"{bytes // MB}M")
def envoy(request, session_origin, tmp_path, monkeypatch):
    path = tmp_path / "small.wasm"
    path.write_bytes(with_memory(pathlib.Path(sandbox.WASM).read_bytes(), request.param))
    monkeypatch.setattr(sandbox, "WASM", str(path))
    routes = [
        route("/stream", {"hold": "1k 1ms"}),
        route("/eth", {"ssz": True, "ssz_preset": "mainnet", "ssz_request": "always"}),
        route("/"),
    ]
    envoy = WasmEnvoy(routes, origin=session_origin, settings=SETTINGS, per_connection=8 * MB)
    envoy.has_all = request.param == MEMORIES[-1]
    if not envoy.has_all:
        envoy.expect("Uncaught RuntimeError: unreachable")
    yield envoy.start()
    envoy.stop()


def transcoded(envoy, accept, wanted):
    """The outcome of a transcoded response: `"whole"`, `"cut"` or a status."""
    try:
        response = envoy.fetch(f"{CONSOLIDATIONS}?n={next(_numbers)}", None, accept, headers=[("Accept", wanted)])
    except (Truncated, Malformed, ConnectionError):
        return "cut"
    if response.status != 200:
        return response.status
    assert response.header("Content-Type") == wanted
    if wanted == OCTETS:
        assert response.decoded == ssz_of(ENTRIES)
    else:
        assert json.loads(response.decoded)["data"] == entries(ENTRIES)
    return "whole"


def test_response_is_whole_truncated_or_an_error_when_a_sandbox_has_little_memory(envoy, origin):
    text = json.dumps({"version": "electra", "data": entries(ENTRIES)}, separators=(",", ":")).encode()
    forms = {OCTETS: (text, "application/json"), "application/json": (ssz_of(ENTRIES), OCTETS)}
    fields = [("Eth-Consensus-Version", "electra")]
    outcomes = []
    for accept, framing in CLIENTS:
        origin.answers(node(framing=framing))
        for kind in CALLS:
            outcomes.append(Calls(envoy, accept=accept, **kind)())
            assert envoy.process.poll() is None
        for wanted, (body, type) in forms.items():
            origin.answers(answer(body, type=type, headers=fields, framing=framing), CONSOLIDATIONS)
            outcomes.append(transcoded(envoy, accept, wanted))
    assert set(outcomes) <= {"whole", "cut", 502, 503}
    assert not envoy.has_all or set(outcomes) == {"whole"}
    origin.answers(Node({"eth_getBlockByHash": b'"0x1"'}))
    short = block(next(_numbers) + 10_000_000, 1)
    # a sandbox that has failed is replaced after a moment
    envoy.wait_for(lambda: envoy.fetch("/", short).status == 200, "an answer")
    envoy.wait_for(lambda: "; hit" in (envoy.fetch("/", short).header("Cache-Status") or ""), "a hit")
    # of other blocks, and the hit
    origin.requests.clear()
    block_of = lambda pad: block(next(_numbers) + 20_000_000, 1, pad)  # noqa: E731
    batch = b"[" + b",".join(block_of(0) for _ in range(100)) + b"]"
    for body in (block_of(0), block_of(700_000), block_of(3 * MB), batch, short):
        try:
            response = envoy.fetch("/", body, headers=[("Cache-Control", "only-if-cached")])
            outcome = response.status
        except (Truncated, Malformed, ConnectionError):
            outcome = "cut"
        assert outcome in ({504, 200} if envoy.has_all else {504, 200, 502, 503, "cut"})
        assert envoy.process.poll() is None
    assert origin.received() == []

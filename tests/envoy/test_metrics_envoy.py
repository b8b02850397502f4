"""sszip's metrics in Envoy: at /stats, and for Prometheus."""

import re
import threading

import pytest

from harness.client import fetch, request_bytes
from harness.envoy import Envoy, route
from harness.origin import WaitFor, answer, chunked, head
from harness.rpc import Node, call
from harness.sandbox import WasmEnvoy

HOSTS = ("native", "wasm")
BODY = b'{"a":"' + b"b" * 50_000 + b'"}'
CHUNKED = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]


@pytest.fixture(scope="module")
def envoy(host, session_origin):
    routes = [
        route("/off", {"enable": False, "cache": False}),
        route("/plain", {"cache": False}),
        route("/stream", {"cache": False, "hold": "1k 60s"}),
        route("/hold", {"cache": False, "hold": "64k 60s"}),
        route("/"),
    ]
    kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
    envoy = kind(
        routes,
        origin=session_origin,
        settings={"cache": True, "cache_namespace": "mainnet"},
        # each sandbox has a memory of its own, so that hits depend on the worker
        workers={"native": 2, "wasm": 1}[host],
    )
    envoy.configuration |= {
        "stats_flush_interval": "0.1s",
        # as in docs/envoy.md
        "stats_config": {
            "stats_tags": [
                {"tag_name": "mode", "regex": r"^sszip\.mode(\.(.+))$"},
                {"tag_name": "method", "regex": r"^sszip\.rpc(\.(.+))$"},
                {"tag_name": "reason", "regex": r"^sszip\.cache\.reason(\.(.+))$"},
            ]
        },
    }
    yield envoy.start()
    envoy.stop()


def stats(envoy):
    """All numbers of sszip, without their prefix."""
    prefix = "wasmcustom.sszip" if isinstance(envoy, WasmEnvoy) else "sszip"
    text = fetch(envoy.admin, f"/stats?filter=^{prefix}[.]&type=All").body.decode()
    found = re.findall(rf"^{prefix}\.(\S+): (\d+|P0.*|No recorded values)$", text, re.M)
    assert len(found) == len(text.splitlines())
    return {name: int(value) if value.isdigit() else value for name, value in found}


class Counted:
    """The changes of the counters since it was created or last compared."""

    def __init__(self, envoy, origin):
        self.envoy = envoy
        self.before = self.now()
        # a sandbox passes on the increments of earlier requests before this one's, or with them
        origin.answers(answer(BODY), "/plain/last")
        assert envoy.get("/plain/last", None).status == 200
        self.reach({"mode.accept-encoding": 1})

    def now(self):
        values = stats(self.envoy)
        gauge = re.compile(r"(memory|cache_memory|ssz|jobs|owner\.links|cache\.waiting)\b")
        return {
            name: n for name, n in values.items() if isinstance(n, int) and not gauge.match(name)
        }

    def reach(self, expected):
        """Waits until the changes are at least the expected ones, and returns all of them: a
        sandbox collects the increments of its requests for a tenth of a second."""
        now = {}

        def changes():
            # a sandbox defines a counter when it first changes
            changed = {name: n - self.before.get(name, 0) for name, n in now.items()}
            return {name: by for name, by in changed.items() if by}

        def has_reached():
            now.update(self.now())
            return all(changes().get(name, 0) >= by for name, by in expected.items())

        self.envoy.wait_for(has_reached, f"the changes {expected}")
        found, self.before = changes(), now
        return found


def test_compressed_responses_are_counted(envoy, origin):
    origin.answers(answer(BODY))
    counted = Counted(envoy, origin)
    sizes = [len(envoy.get("/plain").body) for _ in range(3)]
    expected = {
        "requests": 3,
        "node.requests": 3,
        "node.status.2xx": 3,
        "mode.oneshot": 3,
        "response.compressed": 3,
        "response.total_uncompressed_bytes": 3 * len(BODY),
        "response.total_compressed_bytes": sum(sizes),
    }
    assert counted.reach(expected) == expected
    origin.answers(lambda request: [head(200, CHUNKED), *chunked([BODY[:9000], BODY[9000:]])])
    size = sum(len(envoy.get("/stream").body) for _ in range(2))
    expected = {
        "requests": 2,
        "node.requests": 2,
        "node.status.2xx": 2,
        "mode.stream": 2,
        "response.compressed": 2,
        "response.total_uncompressed_bytes": 2 * len(BODY),
        "response.total_compressed_bytes": size,
    }
    assert counted.reach(expected) == expected


def test_unchanged_responses_are_counted_by_mode(envoy, origin):
    counted = Counted(envoy, origin)
    small = {"mode.too-small": 1, "response.content_length_too_small": 1}
    # what "/off" would count is found with the next request
    for path, accept, options, changes in [
        ("/plain", None, {}, {"mode.accept-encoding": 1}),
        ("/off", "gzip", {}, {}),
        ("/plain", "gzip", {"type": "image/png"}, {"mode.type": 1}),
        ("/plain", "gzip", {"body": b"{}"}, small),
    ]:
        origin.answers(answer(options.pop("body", BODY), **options))
        assert envoy.get(path, accept).status == 200
        if changes:
            changes |= {"response.not_compressed": 1, "requests": 1}
            changes |= {"node.requests": 1, "node.status.2xx": 1}
        assert counted.reach(changes) == changes


def test_hits_misses_methods_and_batches_are_counted(envoy, origin):
    origin.answers(Node({"eth_chainId": b'"0x1"', "x": b"1", "eth_blockNumber": b'"0x1"'}))
    body = call("eth_chainId", "[]")
    counted = Counted(envoy, origin)
    assert envoy.post("/a", body).status == 200
    counted.reach({"cache.miss": 1, "rpc.eth_chainId": 1, "mode.too-small": 1})
    sent = sum(len(envoy.post("/a", body).body) for _ in range(2))
    expected = {
        "requests": 2,
        "node.calls_saved": 2,
        "cache.hit": 2,
        "cache.hit_bytes": sent,
        "mode.hit": 2,
        "rpc.eth_chainId": 2,
    }
    assert counted.reach(expected) == expected
    # clients cannot add names of methods
    for method in ["x", "sszip.x y", "eth_chainId.x"]:
        envoy.post("/a", call(method, "[]"))
        counted.reach({"rpc.other": 1, "cache.bypass": 1, "cache.reason.rpc-method": 1})
    batch = b"[" + body + b"," + call("eth_blockNumber", "[]", "2") + b"]"
    assert envoy.post("/a", batch).status == 200
    counted.reach(
        {
            "batch.requests": 1,
            "batch.calls": 2,
            "batch.hits": 1,
            "mode.merged": 1,
            "requests": 1,
            "node.requests": 1,
            "node.calls_saved": 1,
        }
    )


def test_request_of_a_client_that_aborts_is_counted(envoy, origin):
    """The request is counted as far as it has progressed."""
    go_on = threading.Event()
    path = "/waits"
    node = Node({"eth_gasPrice": b'"0x1"'})
    node.gates["eth_gasPrice"] = go_on
    origin.answers(node, path)
    fields = [("Content-Type", "application/json")]
    counted = Counted(envoy, origin)
    with envoy.connect() as connection:
        body = call("eth_gasPrice", "[]")
        connection.send(request_bytes(path, method="POST", headers=fields, body=body))
        envoy.wait_for(node.count, "the node to receive a request")
    envoy.wait_for(lambda: envoy.active() == 0, "all to end")
    expected = {"requests": 1, "cache.miss": 1, "rpc.eth_gasPrice": 1}
    assert counted.reach(expected) == expected
    # Envoy reads it at once
    piece = BODY[:5000]
    origin.answers([head(200, CHUNKED), *chunked([piece], last=False), WaitFor(go_on)], "/left")
    with envoy.connect() as connection:
        connection.send(request_bytes("/left", headers=[("Accept-Encoding", "gzip")]))
        connection.read_head()
    envoy.wait_for(lambda: envoy.active() == 0, "all to end")
    go_on.set()
    compressed = {"mode.stream": 1, "response.compressed": 1}
    compressed["response.total_uncompressed_bytes"] = len(piece)
    assert counted.reach(compressed).items() >= compressed.items()


def test_gauges_show_buffered_bodies_and_entries(envoy, origin):
    go_on = threading.Event()

    def steps(request):
        yield head(200, CHUNKED)
        yield chunked([BODY[:20_000]], last=False)[0]
        yield WaitFor(go_on)
        yield from chunked([BODY[20_000:]])

    origin.answers(steps)
    client_thread = threading.Thread(target=envoy.get, args=["/hold"])
    client_thread.start()
    gauges = envoy.wait_for(
        lambda: (now := stats(envoy)).get("memory.held") and now, "a body that is held"
    )
    assert gauges["memory.bytes"] >= 20_000
    go_on.set()
    client_thread.join()
    nothing = {"memory.held": 0, "memory.bytes": 0, "jobs.waiting": 0, "ssz.running": 0}
    envoy.wait_for(lambda: stats(envoy).items() >= nothing.items(), "nothing to be held")
    block_hash = b"ab" * 32
    origin.answers(Node({"eth_getBlockByHash": b'{"hash":"0x%b"}' % block_hash}))
    envoy.post("/stored", call("eth_getBlockByHash", '["0x%s",true]' % block_hash.decode()))
    gauges = envoy.wait_for(
        lambda: (now := stats(envoy)).get("cache_memory.entries") and now,
        "an entry in memory",
    )
    assert gauges["cache_memory.bytes"] > 0


def test_histogram_has_the_lengths_of_responses(envoy, origin):
    origin.answers(answer(BODY))
    assert envoy.get("/plain").status == 200
    name = "response.uncompressed_bytes"
    envoy.wait_for(lambda: stats(envoy).get(name, "No").startswith("P0"), "a histogram's values")


@pytest.mark.native("tags of its names are configured in the same way")
def test_metrics_are_valid_for_prometheus(envoy, origin):
    origin.answers(answer(BODY))
    assert envoy.get("/plain").status == 200
    lines = fetch(envoy.admin, "/stats/prometheus?filter=^sszip[.]").body.decode().splitlines()
    values = [line for line in lines if line and not line.startswith("#")]
    assert len(values) > 100
    for line in values:
        assert re.fullmatch(r"envoy_sszip_[a-zA-Z0-9_]+\{[^}\n]*\} [0-9.e+]+", line), line
    for begins in (
        r'envoy_sszip_mode\{mode="oneshot"\} [1-9]',
        r'envoy_sszip_rpc\{method="eth_call"\} 0',
        r'envoy_sszip_cache_reason\{reason="rpc-method"\} ',
        r"envoy_sszip_response_compressed\{\} [1-9]",
    ):
        assert any(re.match(begins, line) for line in values), begins


def test_gauges_are_removed_with_their_configuration(session_origin, origin, tmp_path):
    """Gauges are read from the main thread once a second, by a thread that outlives it."""
    for _ in range(3):
        envoy = Envoy([route("/")], origin=session_origin, settings={"cache": True})
        envoy.start()
        assert "jobs.waiting" in stats(envoy)
        envoy.stop()

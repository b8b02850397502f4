"""Envoy configurations in the shapes that operators use in front of nodes, with sszip added as
docs/envoy.md describes: shapes/*.yaml."""

import json
import pathlib
import subprocess

import pytest
import websockets.sync.client

from harness.client import request_bytes
from harness.envoy import Envoy
from harness.guards import GUARD_SECONDS, lookup_settings
from harness.origin import Origin, answer
from harness.replay import ReplayNode
from harness.rpc import Node, call
from harness.sandbox import WasmEnvoy
from harness.websocket_server import websocket_server
from tiers import by_tier, times

HOSTS = ("native", "wasm")
SHAPES = pathlib.Path(__file__).with_name("shapes")
KEY = "/v1/" + "0123456789abcdef" * 2
LATEST = call("eth_getBlockByNumber", '["latest",true]')
BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
SETTINGS = {"cache": True, "ssz": True}


def result(of):
    return b'{"hash":"0x%b","of":"%b","x":"%b"}' % (b"ab" * 32, of, b"0" * 3000)


@pytest.fixture(scope="module")
def replay():
    node = ReplayNode("--beacon", "json")
    yield node
    node.stop()


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    origin = Origin(tmp_path_factory.mktemp("other"))
    yield origin
    origin.close()


# The class of each host, and its store settings.
KINDS = {
    "native": (Envoy, {}),
    "wasm": (WasmEnvoy, {"cache_owner": "cluster:sszip_cached", **lookup_settings()}),
}


@pytest.fixture
def shape(host, other):
    started = []
    other.forget()
    kind, own = KINDS[host]

    def filter_of(**settings):
        return kind.filter_of({**SETTINGS, **own, **settings})

    def start(name, begins="", **values):
        envoy = kind([], text="-", workers=2)
        values = {
            "prefix": envoy.prefix,
            "sszip": json.dumps({"name": "sszip", "typed_config": filter_of()}),
            **values,
        }
        text = begins + (SHAPES / f"{name}.yaml").read_text()
        # the cluster of the daemon
        for cluster in envoy.configuration["static_resources"]["clusters"]:
            text += f"  - {json.dumps(cluster)}\n"
        for key, value in values.items():
            text = text.replace(f"@{key}@", str(value))
        envoy.text = text
        if "key.pem" in text:
            envoy._certificate()
        started.append(envoy)
        return envoy.start()

    start.filter_of = filter_of
    yield start
    for envoy in started:
        envoy.stop()
    assert not other.errors, other.errors


def is_hit(response):
    return "sszip; hit" in (response.header("Cache-Status") or "")


def test_pool_behind_keys_shares_entries_and_reports_errors(shape, origin, other):
    """Entries are shared by all nodes of the pool, per key; errors are the pool's."""
    for node, name in ((origin, b"one"), (other, b"two")):
        node.answers(Node({"eth_getBlockByHash": result(name)}))
    envoy = shape("pool", node=origin.port, other=other.port)
    got = [envoy.fetch(KEY, BLOCK) for _ in range(6)]
    assert [is_hit(one) for one in got] == [False] + [True] * 5, got[0]
    assert len({one.decoded for one in got}) == 1
    assert len(origin.received()) + len(other.received()) == 1
    elsewhere = envoy.fetch(KEY[:-1] + "e", BLOCK)
    assert elsewhere.status == 200 and not is_hit(elsewhere)
    assert envoy.fetch("/v1/short", BLOCK).status == 404
    assert envoy.fetch("/health").body == b"ok"
    cors = envoy.fetch(KEY, BLOCK, headers=[("Origin", "https://wallet.test")])
    assert cors.header("Access-Control-Allow-Origin") == "https://wallet.test"
    # one node fails: the other one gets the requests
    origin.answers([lambda connection, request, received: connection.close()])
    for number in range(6):
        body = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32), str(number + 10)).replace(
            b"true", b"false"
        )
        assert b'"of":"two"' in envoy.fetch(KEY, body).decoded
    # both nodes fail: a JSON-RPC error, and stored responses all the same
    other.answers([lambda connection, request, received: connection.close()])
    failed = envoy.fetch(KEY, call("eth_chainId"))
    assert failed.status == 503 and json.loads(failed.decoded)["error"]["code"] == -32000
    assert is_hit(envoy.fetch(KEY, BLOCK))


def test_504_of_only_if_cached_is_not_retried_in_a_pool(shape, host, origin, other):
    """The pool retries gateway errors, and rewrites the body of local replies: Wasm's only."""
    for node in (origin, other):
        node.answers(Node({"eth_getBlockByHash": result(b"one")}))
    envoy = shape("pool", node=origin.port, other=other.port)
    fields = [("Cache-Control", "only-if-cached"), ("Origin", "https://wallet.test")]
    response = envoy.fetch(KEY, BLOCK, headers=fields)
    assert response.status == 504
    assert response.header("Cache-Status").startswith("sszip; detail=miss; key=")
    assert response.header("Access-Control-Allow-Origin") == "https://wallet.test"
    body = json.loads(response.decoded)
    problem = {"status": 504, "detail": "not cached: only-if-cached"}
    assert (json.loads(body["error"]["message"]) if host == "wasm" else body) == problem
    assert origin.received() == other.received() == []
    assert envoy.fetch(KEY, BLOCK, headers=fields[1:]).status == 200
    envoy.wait_for(lambda: is_hit(envoy.fetch(KEY, BLOCK, headers=fields)), "an answer to be stored")


@pytest.mark.wasm_thorough("test_policy_heads and test_router forward a WebSocket past a sandbox")
def test_websocket_of_a_pool_is_forwarded(shape, origin, other):
    with websocket_server() as port:
        envoy = shape("pool", node=port, other=port)
        uri = f"ws://127.0.0.1:{envoy.port}/ws"
        with websockets.sync.client.connect(uri, proxy=None) as connection:
            for message in (BLOCK.decode(), "x" * 100_000):
                connection.send(message)
                assert connection.recv(GUARD_SECONDS) == message


def publish(path, version, typed):
    """Publishes another filter configuration in a file (ECDS)."""
    filter = {
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "sszip",
        "typed_config": typed,
    }
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"version_info": str(version), "resources": [filter]}))
    new.replace(path)


@pytest.mark.parametrize("name, target", by_tier([("pool", KEY)], [("pool", KEY), ("beacon", "/")]))
def test_pipelined_requests_are_answered_while_the_filter_config_changes(shape, origin, other, tmp_path, name, target):
    """Each pipelined request is answered, whichever filter configuration it has, and however
    many configurations there have been while its response waits."""
    origin.answers(Node({"eth_getBlockByHash": result(b"one"), "eth_chainId": b'"0x1"'}))
    other.answers(Node({"eth_getBlockByHash": result(b"one"), "eth_chainId": b'"0x1"'}))
    path = tmp_path / "ecds.json"
    publish(path, 1, shape.filter_of())
    source = {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}
    kinds = [shape.filter_of()["@type"]]
    discovered = {"config_source": source, "type_urls": kinds}
    envoy = shape(
        name, begins="node: { id: test, cluster: test }\n", node=origin.port, other=other.port,
        sszip=json.dumps({"name": "sszip", "config_discovery": discovered}),
    )  # fmt: skip
    envoy.wait_for(lambda: is_hit(envoy.fetch(target, BLOCK)), "an answer to be stored")
    json_ = [("Content-Type", "application/json")]
    calls = [call("eth_chainId"), BLOCK, BLOCK, BLOCK, BLOCK]
    sent = [request_bytes(target, method="POST", headers=json_, body=body) for body in calls * 4]
    hits, rounds = 0, times(10, 30)
    for version in range(2, 200):
        if version > rounds + 1 and hits > rounds * 12:
            break
        with envoy.connect() as connection:
            connection.send(b"".join(sent))
            publish(path, version, shape.filter_of(min_length=version))
            for body in calls * 4:
                answered = connection.read("POST")
                assert answered.status == 200, answered
                assert (b'"of":"one"' in answered.body) == (body == BLOCK)
                hits += is_hit(answered)
    assert hits > rounds * 12
    envoy.wait_for(lambda: sum(envoy.stats("config_reload$").values()) > 1, "the filter to change")


def curl(envoy, path, body, *headers, host="localhost", version="--http2"):
    """Status, HTTP version, head and decoded body of a response over TLS."""
    fields = [
        word
        for one in ("Content-Type: application/json", f"Host: {host}", *headers)
        for word in ("-H", one)
    ]
    output = subprocess.run(
        ["curl", "-sk", version, "--compressed", "-D", "-", "-d", "@-", *fields, "-w", "\n%{http_version} %{http_code}",
         f"https://localhost:{envoy.port}{path}"],
        input=body, capture_output=True, check=True, timeout=30,
    ).stdout  # fmt: skip
    output, _, figures = output.rpartition(b"\n")
    head, _, body = output.partition(b"\r\n\r\n")
    version, status = figures.decode().split()
    return int(status), version, head.decode().lower(), body


def test_chains_by_name_path_and_header_are_kept_apart(shape, origin, other, tmp_path):
    """No request receives a response of another chain, selected by name, path or header."""
    authority = Origin(tmp_path)
    authority.answers(
        lambda request: answer(status=200 if request.header("X-Api-Key") == "right" else 403)
    )
    origin.answers(Node({"eth_getBlockByHash": result(b"one")}))
    other.answers(Node({"eth_getBlockByHash": result(b"two")}))
    envoy = shape("chains", node=origin.port, other=other.port, authority=authority.port)
    key = "X-Api-Key: right"
    for _ in range(2):
        for path, fields, host, name in [
            ("/one", [], "localhost", b"one"), ("/two", [], "localhost", b"two"),
            ("/one", ["X-Chain: two"], "localhost", b"two"), ("/unnamed", [], "localhost", b"two"),
            ("/one", [], "mainnet.test", b"one"),
        ]:  # fmt: skip
            for version in ("--http2", "--http1.1"):
                status, protocol, head, body = curl(
                    envoy, path, BLOCK, key, *fields, host=host, version=version
                )
                assert (status, protocol) == (200, version[6:].rstrip(".")), head
                assert b'"of":"%b"' % name in body and "content-encoding: gzip" in head
            assert curl(envoy, path, BLOCK, *fields, host=host)[0] == 403
    hits = [curl(envoy, "/one", BLOCK, key)[2], curl(envoy, "/two", BLOCK, key)[2]]
    assert all("sszip; hit" in head for head in hits)
    # each response of a canary comes from one of the two, and hits from the right one
    seen = {curl(envoy, "/canary", BLOCK, key)[3] for _ in range(12)}
    assert len(seen) == 2
    # a split batch that other filters have read whole
    for name in ("one", "two"):
        mixed = b"[%b,%b]" % (BLOCK, call("eth_chainId", id="2"))
        status, _, _, body = curl(envoy, f"/{name}", mixed, key)
        assert status == 200 and b'"of":"%b"' % name.encode() in body and b'"id":2' in body
    authority.close()
    assert not authority.errors


def test_execution_and_beacon_routes_work_together(shape, replay, other):
    other.answers(answer(b"of no account"))
    envoy = shape("beacon", node=replay.port, other=other.port)
    for accept in ("gzip", None):
        first = envoy.fetch("/", LATEST, accept)
        assert first.status == 200 and first.coding == accept
        assert (
            first.header("Strict-Transport-Security")
            and first.header("Access-Control-Allow-Origin") == "*"
        )
    assert is_hit(first)
    block = envoy.fetch(
        "/eth/v2/beacon/blocks/head", headers=[("Accept", "application/octet-stream")]
    )
    assert (block.status, block.header("Content-Type")) == (200, "application/octet-stream")
    json_ = envoy.fetch("/eth/v2/beacon/blocks/head", headers=[("Accept", "application/json")])
    assert json_.decoded.startswith(b"{") and len(json_.decoded) > len(block.decoded)
    # the block is submitted as SSZ, for a node that may have JSON only
    fields = [
        ("Content-Type", "application/octet-stream"),
        ("Eth-Consensus-Version", block.header("Eth-Consensus-Version")),
    ]
    published = envoy.get(
        "/eth/v2/beacon/blocks", method="POST", body=block.decoded, headers=fields
    )
    plain = envoy.get(
        "/eth/v2/beacon/blocks", None, method="POST", body=block.decoded, headers=fields
    )
    assert published.status == plain.status < 500
    assert envoy.fetch("/", call("admin_nodeInfo")).status == 403
    assert envoy.fetch("/engine", call("eth_chainId")).status == 403
    allowed = envoy.fetch("/engine", call("eth_chainId"), headers=[("Authorization", "Bearer x")])
    assert allowed.status == 200 and not is_hit(allowed)
    with envoy.connect() as connection:
        connection.send(
            b"GET /eth/v1/events?topics=head HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        assert connection.read_head().status in (200, 404)
    envoy.wait_for(lambda: other.received(), "the mirror")

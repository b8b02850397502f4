"""The configurations that operators copy (configs/envoy), unchanged but for ports, file names
and certificates, and the same with the Wasm filter, put in as they describe: there are hits,
and each configuration fulfils its purpose."""

import base64
import hashlib
import json
import pathlib
import re
import subprocess

import pytest
import websockets.sync.client
import yaml

from harness import client
from harness.chain import Chain
from harness.copied_configs import CONFIGS, Tls, request_through
from harness.envoy import Envoy
from harness.guards import GUARD_SECONDS
from harness.nginx import free_port
from harness.origin import Origin, answer
from harness.owner import Owner
from harness.replay import ReplayNode
from harness.rpc import Node, call
from harness.sandbox import WASM, WasmEnvoy
from harness.websocket_server import websocket_server

HOSTS = ("native", "wasm")
FOLDER = CONFIGS / "envoy"
BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)
CHAIN_ID = call("eth_chainId")
PAGE = "/eth/v2/beacon/blocks/head"
GZIP = ("Accept-Encoding", "gzip")
# Settings of the module that sszip-cached has for the sandbox.
DAEMONS = ("cache_path", "cache_memory", "cache_head")


def is_hit(response):
    return "sszip; hit" in (response.header("Cache-Status") or "")


def sandboxed(text, owner):
    """The configuration with the filter of sszip-wasm.yaml."""
    text = re.sub(r"%DYNAMIC_METADATA\(sszip:(\w+)\)%", r"%FILTER_STATE(wasm.sszip.\1:PLAIN)%", text)
    found = yaml.safe_load(text)["static_resources"]
    example = (FOLDER / "sszip-wasm.yaml").read_text()
    example = example.replace("/usr/lib/envoy/sszip_envoy.wasm", str(pathlib.Path(WASM).absolute())).replace("/run/sszip/cached.sock", owner.socket)
    example = yaml.safe_load(example)["static_resources"]
    (ours,) = [one for one in http(example["listeners"][0])["http_filters"] if one["name"] == "sszip"]
    found["clusters"] += [one for one in example["clusters"] if one["name"] == "sszip_cached"]
    # status and purges are served by the daemon, at its socket
    found["listeners"] = [one for one in found["listeners"] if one["name"] != "local"]
    for listener in found["listeners"]:
        listener["per_connection_buffer_limit_bytes"] = example["listeners"][0]["per_connection_buffer_limit_bytes"]
        managed = http(listener)
        for at, one in enumerate(managed["http_filters"]):
            if one["name"] == "sszip":
                settings = one["typed_config"]["filter_config"]["value"]
                managed["http_filters"][at] = with_settings(ours, settings)
        for host in managed["route_config"]["virtual_hosts"]:
            for route in host["routes"]:
                into_metadata(route)
    return f"static_resources: {json.dumps(found)}"


def http(listener):
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def without(settings):
    return {name: value for name, value in settings.items() if name not in DAEMONS}


def with_settings(filter, settings):
    found = json.loads(json.dumps(filter))
    configuration = found["typed_config"]["config"]["configuration"]
    own = {name: value for name, value in json.loads(configuration["value"]).items() if name in ("buffer_limit", "cache_owner")}
    configuration["value"] = json.dumps(own | without(settings))
    return found


def into_metadata(route):
    filters = route.get("typed_per_filter_config", {})
    settings = filters.get("sszip", {}).get("filter_config")
    if settings:
        del filters["sszip"]
        route["metadata"] = {"filter_metadata": {"sszip": {"config": json.dumps(without(settings["value"]))}}}


class Running:
    """Envoy with one of the files, in either host."""

    def __init__(self, host, name, changes, heads=()):
        self.owner = Owner(heads).start() if host == "wasm" else None
        self.envoy = WasmEnvoy([], text="-", owner=self.owner, workers=2) if self.owner else Envoy([], text="-", workers=2)
        text = (FOLDER / name).read_text()
        for original, own in changes.items():
            assert original in text, original
            text = text.replace(original, own.replace("@prefix@", str(self.envoy.prefix)))
        text = re.sub("^ *#.*\n", "", text, flags=re.M).replace("@port@", str(self.envoy.port))
        assert not re.search(r"/(etc|var|run)/", text), "a folder of this machine's"
        if "certificate.pem" in text:
            self.envoy._certificate()
        self.envoy.text = sandboxed(text, self.owner) if self.owner else text
        self.envoy.start()

    def stop(self):
        self.envoy.stop()
        if self.owner:
            self.owner.close()

    def forget(self):
        """Removes entries that the test before has stored."""
        if self.owner:
            self.owner.purge(everything=True)

    def tls(self, source="127.0.0.1"):
        self.envoy.settle()
        return Tls(self.envoy.port, "rpc.example.org", source)

    def send(self, *arguments, source="127.0.0.1", **more):
        """Sends a request over TLS."""
        with self.tls(source) as connection:
            return request_through(connection, "rpc.example.org", *arguments, **more)

    def until_hit(self, send):
        """The hit: a sandbox stores some milliseconds later."""
        return self.envoy.wait_for(lambda: is_hit(got := send()) and got, "a hit")


def port(number):
    return f"port_value: {number} "


@pytest.fixture(scope="module")
def sockets():
    with websocket_server() as port:
        yield port


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT, "eth_chainId": b'"0x1"'}, headers=[("Access-Control-Allow-Origin", "*")])
    origin.answers(node)
    return node


# rpc.yaml


@pytest.fixture(scope="module")
def rpc(host, session_origin, sockets):
    running = Running(host, "rpc.yaml", {
        "address: 0.0.0.0, port_value: 443 ": "address: 127.0.0.1, port_value: @port@ ",
        "/etc/letsencrypt/live/example.org/fullchain.pem": "@prefix@/certificate.pem",
        "/etc/letsencrypt/live/example.org/privkey.pem": "@prefix@/key.pem",
        port(8545): port(session_origin.port),
        port(8546): port(sockets),
    })  # fmt: skip
    yield running
    running.stop()


def test_rpc_yaml_serves_hits_under_any_id_over_http2(rpc, node):
    body = call("eth_getBlockByHash", '["0x%s",true]' % ("11" * 32))

    def curl(id):
        command = ["curl", "-sk", "--http2", "--compressed", "-D", "-", "-d", body.replace(b'"id":1', b'"id":%d' % id)]
        address = ["--connect-to", f"::127.0.0.1:{rpc.envoy.port}", "-H", "Content-Type: application/json", "https://rpc.example.org/"]
        done = subprocess.run([*command, *address], capture_output=True, check=True, timeout=30)
        top, _, content = done.stdout.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/2 200") and b"content-encoding: gzip" in top and b"content-length: " in top
        assert json.loads(content)["id"] == id
        return b"sszip; hit" in top

    assert not curl(1)
    rpc.envoy.wait_for(lambda: curl(7), "a hit")


def test_rpc_yaml_shares_entries_between_web_origins(rpc, node, origin):
    sends = [lambda name=name: rpc.send("/", BLOCK, headers=[("Origin", f"https://{name}.test"), GZIP]) for name in "ab"]
    sends[0]()
    for name, send in zip("ab", sends, strict=True):
        got = rpc.until_hit(send)
        assert got.all("Access-Control-Allow-Origin") == [f"https://{name}.test"]
        assert "cache-status" in got.header("Access-Control-Expose-Headers")
    before = len(origin.received())
    fields = [("Origin", "https://a.test"), ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "content-type")]
    preflight = rpc.send("/", method="OPTIONS", headers=fields)
    assert preflight.status == 200 and preflight.all("Access-Control-Allow-Origin") == ["https://a.test"]
    assert "POST" in preflight.header("Access-Control-Allow-Methods") and "content-type" in preflight.header("Access-Control-Allow-Headers")
    assert len(origin.received()) == before


def test_rpc_yaml_denies_methods_and_long_batches(rpc, node):
    for method in ("debug_traceBlock", "eth_sendTransaction", "engine_getPayloadV3"):
        got = rpc.send("/", call(method))
        assert (got.status, json.loads(got.decoded)["error"]["code"]) == (200, -32601), method
    assert node.count() == 0
    many = b"[" + b",".join([CHAIN_ID] * 101) + b"]"
    assert json.loads(rpc.send("/", many).decoded)["error"]["code"] == -32600
    assert rpc.send("/elsewhere", CHAIN_ID).status == 404


def test_rpc_yaml_limits_the_rate_of_each_client(rpc, node):
    statuses = []
    with rpc.tls("127.0.0.2") as connection:
        while 429 not in statuses and len(statuses) < 2000:
            got = request_through(connection, "rpc.example.org", "/", CHAIN_ID, headers=[("Origin", "https://a.test")])
            statuses.append(got.status)
    assert statuses[:100] == [200] * 100 and got.status == 429 and not is_hit(got)
    # without it a web page could not read the error
    assert got.all("Access-Control-Allow-Origin") == ["https://a.test"]
    assert rpc.send("/", CHAIN_ID, source="127.0.0.3").status == 200


def test_rpc_yaml_forwards_websockets(rpc):
    with rpc.tls() as connection, websockets.sync.client.connect("ws://rpc.example.org/", sock=connection.socket, proxy=None) as ws:
        for message in (BLOCK.decode(), "x" * 100_000):
            ws.send(message)
            assert ws.recv(GUARD_SECONDS) == message


def test_rpc_yaml_logs_hits_as_json(rpc, node):
    body = call("eth_getBlockByHash", '["0x%s",true]' % ("22" * 32))
    rpc.until_hit(lambda: rpc.send("/", body))

    def lines():
        lines = (json.loads(line) for line in rpc.envoy.error_log().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("rpc_method") == "eth_getBlockByHash" and line["cache"] == "HIT"]

    (line, *_) = rpc.envoy.wait_for(lines, "the log")
    assert (line["status"], line["mode"], line["client"]) == (200, "hit", "127.0.0.1")


# auth.yaml

OF_ENVOY = pytest.mark.wasm_thorough("Envoy's own filters authorize; test_other_filters_envoy has them with a sandbox")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    origin = Origin(tmp_path_factory.mktemp("service"))
    origin.answers(lambda request: answer(status=200 if request.path in ("/may/v3/alice", "/may/v3/bob") else 403, type=None))
    yield origin
    origin.close()
    assert not origin.errors, origin.errors


@pytest.fixture(scope="module")
def auth(host, session_origin, service, tmp_path_factory):
    passwords = tmp_path_factory.mktemp("passwords") / "passwords"
    passwords.write_text("me:{SHA}" + base64.b64encode(hashlib.sha1(b"secret").digest()).decode() + "\n")
    running = Running(host, "auth.yaml", {
        port(8546): port("@port@"),
        "/etc/envoy/sszip-passwords": str(passwords),
        port(8545): port(session_origin.port),
        port(9000): port(service.port),
    })  # fmt: skip
    yield running
    running.stop()


@OF_ENVOY
def test_auth_yaml_shares_entries_between_authenticated_clients(auth, node, origin):
    body = call("eth_getBlockByHash", '["0x%s",true]' % ("33" * 32))

    def send(password):
        fields = [("Authorization", "Basic " + base64.b64encode(password).decode())] if password else []
        return auth.envoy.fetch("/", body, headers=fields, host="password.example.org")

    got = send(b"me:secret")
    assert got.status == 200 and not is_hit(got)
    auth.until_hit(lambda: send(b"me:secret"))
    for password in (None, b"me:guess", b"you:secret"):
        got = send(password)
        assert got.status == 401 and not is_hit(got) and RESULT not in got.decoded
    assert all(request.header("Authorization") is None for request in origin.received())


@OF_ENVOY
def test_auth_yaml_shares_entries_between_valid_keys_only(auth, node, origin, service):
    body = call("eth_getBlockByHash", '["0x%s",true]' % ("44" * 32))

    def send(path, host="keys.example.org"):
        return auth.envoy.fetch(path, body, host=host)

    assert send("/v3/unknown").status == 403
    got = send("/v3/alice")
    assert got.status == 200 and not is_hit(got)
    auth.until_hit(lambda: send("/v3/alice"))
    received_before = len(origin.received())
    assert is_hit(send("/v3/bob")) or len(origin.received()) > received_before
    auth.until_hit(lambda: send("/v3/bob"))
    for path in ("/v3/unknown", "/v3/", "/", "/v3/alice/more"):
        got = send(path)
        assert got.status in (403, 404) and not is_hit(got), path
    assert send("/", host="elsewhere.test").status == 404
    assert {request.target for request in origin.received()} == {"/"}
    assert len(service.received("/may/v3/bob")) >= 1


# chains.yaml


@pytest.fixture(scope="module")
def chains(host):
    nodes = [Chain(), Chain("--chain-id", "100", "--seed", "2")]
    beacon = ReplayNode("--beacon", "json")
    mainnet, gnosis = (node.port for node in nodes)
    heads = [{"namespace": name, "url": f"http://127.0.0.1:{port}"} for name, port in (("mainnet", mainnet), ("gnosis", gnosis))]
    local = free_port()
    running = Running(host, "chains.yaml", {
        port(8546): port("@port@"),
        port(8580): port(local),
        "/var/cache/envoy/sszip": "@prefix@/store",
        port(8545): port(mainnet),
        "127.0.0.1:8545": f"127.0.0.1:{mainnet}",
        port(8645): port(gnosis),
        "127.0.0.1:8645": f"127.0.0.1:{gnosis}",
        port(5052): port(beacon.port),
    }, heads)  # fmt: skip
    running.nodes = {"/mainnet": nodes[0], "/gnosis": nodes[1]}
    running.local = local
    yield running
    running.stop()
    for node in (*nodes, beacon):
        node.stop()


def test_chains_yaml_keeps_chains_apart(chains):
    for path, id in (("/mainnet", "0x1"), ("/gnosis", "0x64")) * 2:
        got = chains.until_hit(lambda path=path: chains.envoy.fetch(path, CHAIN_ID))
        assert json.loads(got.decoded)["result"] == id
    assert chains.envoy.fetch("/other", CHAIN_ID).status == 404


@pytest.mark.parametrize("path, other", [("/mainnet", "/gnosis"), ("/gnosis", "/mainnet")])
def test_chains_yaml_follows_the_head_of_each_chain(chains, path, other):
    """A response about the head is a hit for a slot, but no longer than the head stays."""

    def send(path):
        return chains.envoy.fetch(path, call("eth_blockNumber"))

    def number(path):
        return int(json.loads(send(path).decoded)["result"], 16)

    chain, elsewhere = chains.nodes[path], number(other)

    def is_purged_with_its_head():
        """Whether the old head is removed before its TTL of some seconds has passed."""
        # the owner knows the chain a moment after its start
        chains.until_hit(lambda: send(path))
        before, remaining = chain.head, []
        chains.envoy.wait_for(lambda: number(path) == before, "the head to be stored")
        chain.do({"extend": 1})

        def is_new():
            got = send(path)
            remaining.extend(re.findall(r"; hit; ttl=(\d+)", got.header("Cache-Status")))
            return int(json.loads(got.decoded)["result"], 16) == before + 1

        chains.envoy.wait_for(is_new, "the new head")
        return "0" not in remaining

    # a follower that is not scheduled for seconds is late, and so this is repeated
    assert any(is_purged_with_its_head() for _ in range(4))
    assert number(other) == elsewhere


def test_chains_yaml_serves_json_and_ssz_from_the_cache(chains):
    for accept, kind in (("application/json", "{"), ("application/octet-stream", "d")) * 2:
        send = lambda accept=accept: chains.envoy.fetch(PAGE, headers=[("Accept", accept)])  # noqa: E731
        got = chains.until_hit(send)
        assert (got.status, got.header("Content-Type")) == (200, accept)
        assert (got.decoded[:1] == b"{") == (kind == "{") and "Accept" in got.header("Vary")


@pytest.mark.native("there it is the daemon that has them")
def test_chains_yaml_serves_status_and_purge_locally(chains):
    def local(path, method="GET"):
        with client.Connection(chains.local) as connection:
            return connection.exchange(path, method=method, body=b"" if method == "POST" else None)

    chains.until_hit(lambda: chains.envoy.fetch("/mainnet", CHAIN_ID))
    status = json.loads(local("/sszip?format=json").body)
    assert status["hits"] > 0
    assert {one["name"] for one in status["owner"]["chains"]} == {"mainnet", "gnosis"}
    assert local("/sszip/purge?namespace=mainnet", "POST").status == 200
    assert not is_hit(chains.envoy.fetch("/mainnet", CHAIN_ID))

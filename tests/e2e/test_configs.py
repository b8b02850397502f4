"""The configurations that operators copy (configs/nginx), served by nginx: there are
hits, and each configuration fulfils its purpose."""

import base64
import json
import re
import subprocess
import threading

import pytest
import websockets.sync.client

from harness import client
from harness.chain import Chain
from harness.copied_configs import CONFIGS, CopiedConfig, request_through, certificate
from harness.guards import GUARD_SECONDS
from harness.nginx import Nginx, free_port
from harness.origin import Origin, WaitFor, answer, chunked, head
from harness.owner import UnixConnection
from harness.payloads import SYNCING_RESULT, calls, submission_of
from harness.replay import ReplayNode
from harness.rpc import Node, call
from harness.websocket_server import websocket_server

pytestmark = pytest.mark.once("the module's part is tried on each nginx; `listen ... http2` is for Debian's")

BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)
CHAIN_ID = call("eth_chainId")
HEADER = "/eth/v1/beacon/headers"
PAGE = "/eth/v2/beacon/blocks/head"
OCTETS = ("Accept", "application/octet-stream")
JSON = ("Accept", "application/json")
GZIP = ("Accept-Encoding", "gzip")
FILES = {"sszip-keys": b"0123abcd alice;\n4567ef bob;\n", "sszip-passwords": b"me:{PLAIN}secret\n"}
SITES = sorted(path.stem for path in (CONFIGS / "nginx/sites").iterdir())


def is_hit(response):
    return (response.header("Cache-Status") or "").startswith("sszip; hit")


def purged(nginx, port, target):
    """Purges; the process with the store may take time to start on a busy machine."""
    nginx.wait_for(lambda: client.fetch(port, target, method="POST").status == 200, "a purge")


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def sockets():
    """The port of a node's WebSocket."""
    with websocket_server() as port:
        yield port


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """The service to which auth.conf sends its subrequests."""
    origin = Origin(tmp_path_factory.mktemp("judge"))
    origin.answers(lambda request: answer(status=200 if request.header("Authorization") == "Bearer good" else 401, type=None))
    yield origin
    origin.close()
    assert not origin.errors, origin.errors


@pytest.fixture(scope="module")
def serving(signed, session_origin, sockets, judge):
    """One nginx with all sites in front of the scripted node."""
    node = session_origin.port
    nodes = {8545: node, 8546: sockets, 5052: node, 8551: node, 9000: judge.port}
    changes = {"set_real_ip_from 192.0.2.0/24;": "set_real_ip_from 127.0.0.9;"}
    server = CopiedConfig(signed, *(site for site in SITES if site != "chains"), nodes=nodes, files=FILES, changes=changes).start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def own_namespace(serving):
    """Purges entries that the test before has stored."""
    purged(serving.nginx, serving.local, "/sszip/purge?everything")
    yield
    serving.nginx.check()


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT, "eth_chainId": b'"0x1"'})
    origin.answers(node)
    return node


@pytest.fixture(scope="module")
def replay():
    node = ReplayNode("--beacon", "json")
    yield node
    node.stop()


@pytest.fixture
def beacon(origin, replay):
    """The replay node behind an origin that records its requests."""

    def pass_on(request):
        fields = [(name, value) for name in ("Accept", "Content-Type") if (value := request.header(name))]
        got = client.fetch(replay.port, request.target, method=request.method, headers=fields)
        passed_headers = [(name, value) for name in ("Eth-Consensus-Version", "Vary") if (value := got.header(name))]
        return answer(got.body, status=got.status, type=got.header("Content-Type"), headers=[*passed_headers, ("Cache-Control", "max-age=5")])

    origin.answers(pass_on)
    return origin


# all sites


def test_sites_are_valid_together_in_one_configuration(signed):
    ports = {port: free_port() for port in (8545, 8546, 8551, 8645, 5052, 9000)}
    both = CopiedConfig(signed, *SITES, nodes=ports, files=FILES)
    status, output = both.nginx.test()
    both.stop()
    assert status == 0, output
    assert "[warn]" not in output, output


def test_sszip_conf_serves_hits_purges_and_logs(session_origin, origin, node, sockets):
    """sszip.conf has an http block of its own."""
    text = (CONFIGS / "nginx/sszip.conf").read_text()
    nginx = Nginx("server { listen 127.0.0.1:@port@; }", origin=session_origin)
    frame = (nginx.prefix / "nginx.conf").read_text()
    main, http = frame.split("events {")[0], frame.split("http {")[1].split("log_format")[0]
    temporary = "".join(line + "\n" for line in frame.splitlines() if "_temp_path" in line)
    for published, own in {
        "load_module modules/ngx_http_sszip_module.so;": main,
        "worker_processes auto;": "",
        "http {": "http {" + http + temporary,
        "127.0.0.1:8545": f"127.0.0.1:{nginx.port}",
        "127.0.0.1:9545": origin.address,
        "/var/cache/nginx/sszip": f"{nginx.prefix}/cache",
        "/var/log/nginx/sszip.log": f"{nginx.prefix}/sszip.log",
    }.items():
        assert published in text
        text = text.replace(published, own)
    (nginx.prefix / "nginx.conf").write_text(text)
    nginx.start()
    try:
        post = {"method": "POST", "headers": [("Content-Type", "application/json"), GZIP]}
        got = [client.fetch(nginx.port, "/", body=BLOCK, **post) for _ in range(2)]
        assert [is_hit(one) for one in got] == [False, True]
        assert got[1].coding == "gzip" and json.loads(got[1].decoded)["result"]["hash"]
        purged(nginx, nginx.port, "/sszip/purge?everything")
        assert not is_hit(client.fetch(nginx.port, "/", body=BLOCK, **post))
        assert b" hit " in (nginx.prefix / "sszip.log").read_bytes()
    finally:
        nginx.stop()


# rpc


def test_rpc_site_serves_hits_under_any_id_over_http2(serving, node):
    hits = []
    for id in ("1", '"two"'):
        command = ["curl", "-sk", "--http2", "--compressed", "-D", "-", "-d", call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32), id)]
        address = ["--connect-to", f"::127.0.0.1:{serving.tls}", "-H", "Content-Type: application/json", "https://rpc.example.org/"]
        done = subprocess.run([*command, *address], capture_output=True, check=True, timeout=30)
        top, _, body = done.stdout.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/2 200") and b"content-encoding: gzip" in top and b"content-length: " in top
        assert json.loads(body)["id"] == json.loads(id)
        hits.append(b"cache-status: sszip; hit" in top)
    assert hits == [False, True] and node.count() == 1


def test_rpc_site_shares_entries_between_web_origins(serving, origin):
    """The node's own CORS header is not repeated."""
    origin.answers(Node({"eth_getBlockByHash": RESULT}, headers=[("Access-Control-Allow-Origin", "*")]))
    got = [serving.fetch("rpc", body=BLOCK, headers=[("Origin", f"https://{name}.test"), GZIP]) for name in "abc"]
    assert [is_hit(one) for one in got] == [False, True, True]
    assert all(one.all("Access-Control-Allow-Origin") == ["*"] for one in got)
    assert all("Cache-Status" in one.header("Access-Control-Expose-Headers") for one in got)
    before = len(origin.received())
    preflight_headers = [("Origin", "https://a.test"), ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "content-type")]
    preflight = serving.fetch("rpc", method="OPTIONS", headers=preflight_headers)
    assert preflight.status == 204 and preflight.all("Access-Control-Allow-Origin") == ["*"]
    assert "POST" in preflight.header("Access-Control-Allow-Methods") and "Content-Type" in preflight.header("Access-Control-Allow-Headers")
    assert len(origin.received()) == before


def test_rpc_site_denies_methods_and_long_batches(serving, node):
    for method in ("debug_traceBlock", "admin_nodeInfo", "eth_sendTransaction", "eth_signTypedData", "engine_getPayloadV3"):
        got = serving.fetch("rpc", body=call(method))
        assert (got.status, json.loads(got.decoded)["error"]["code"]) == (200, -32601), method
    assert node.count() == 0
    both = b"[%b,%b]" % (BLOCK, call("debug_traceBlock", id="2"))
    assert [("error" in one, one["id"]) for one in json.loads(serving.fetch("rpc", body=both).decoded)] == [(False, 1), (True, 2)]
    assert node.count() == node.count("eth_getBlockByHash") == 1
    many = b"[" + b",".join([CHAIN_ID] * 101) + b"]"
    assert json.loads(serving.fetch("rpc", body=many).decoded)["error"]["code"] == -32600
    assert serving.fetch("rpc", "/elsewhere", body=CHAIN_ID).status == 404


def until_refused(serving, name, target="/", source="127.0.0.1", headers=()):
    """Responses to consecutive calls, up to the first that exceeds the rate."""
    got = []
    with serving.connect(name, source) as connection:
        while len(got) < 3000 and not (got and got[-1].status == 429):
            got.append(request_through(connection, f"{name}.example.org", target, CHAIN_ID, headers))
    assert [one.status for one in got] == [200] * (len(got) - 1) + [429] and len(got) > 100
    return got


def test_rpc_site_limits_the_rate_of_each_client(serving, node):
    *_, hit, refused = until_refused(serving, "rpc", source="127.0.0.2")
    assert is_hit(hit) and not is_hit(refused)
    # without it a web page could not read the error
    assert refused.all("Access-Control-Allow-Origin") == ["*"]
    assert serving.fetch("rpc", body=CHAIN_ID, source="127.0.0.3").status == 200


@pytest.mark.parametrize("path", ["/", "/ws"])
def test_rpc_site_forwards_websockets(serving, sockets, path):
    with serving.connect("rpc") as connection, websockets.sync.client.connect(f"ws://rpc.example.org{path}", sock=connection.socket, proxy=None) as ws:
        for message in (BLOCK.decode(), "x" * 100_000):
            ws.send(message)
            assert ws.recv(GUARD_SECONDS) == message


# auth


def test_keys_site_shares_entries_between_valid_keys_only(serving, node, origin):
    assert serving.fetch("keys", "/v3/unknown", body=BLOCK).status == 403
    got = [serving.fetch("keys", f"/v3/{key}", body=BLOCK) for key in ("0123abcd", "4567ef", "0123abcd")]
    assert [(one.status, is_hit(one)) for one in got] == [(200, False), (200, True), (200, True)]
    for target in ("/v3/unknown", "/v3/", "/", "/v3/0123abcd/more"):
        got = serving.fetch("keys", target, body=BLOCK)
        assert got.status in (403, 404) and not is_hit(got), target
    assert [request.target for request in origin.received()] == ["/"]
    serving.nginx.wait_for(lambda: len(serving.lines()) > 3, "the log")
    assert b"0123abcd" not in b"\n".join(serving.lines()) and b"POST /" in serving.lines()[-1]


def test_keys_site_limits_the_rate_of_each_key(serving, node):
    until_refused(serving, "keys", "/v3/0123abcd")
    assert serving.fetch("keys", "/v3/4567ef", body=CHAIN_ID).status == 200


def test_password_site_shares_entries_between_authenticated_clients(serving, node, origin):
    serving.nginx.expect("no user|password mismatch|was not found")
    fields = [("Authorization", "Basic " + base64.b64encode(b"me:secret").decode()), ("Cookie", "a=b")]
    wrong = [("Authorization", "Basic " + base64.b64encode(b"me:guess").decode())]
    got = [serving.fetch("password", body=BLOCK, headers=fields) for _ in range(2)]
    assert [(one.status, is_hit(one)) for one in got] == [(200, False), (200, True)]
    for headers in ([], wrong):
        got = serving.fetch("password", body=BLOCK, headers=headers)
        assert got.status == 401 and got.header("WWW-Authenticate") and RESULT not in got.decoded
    (request,) = origin.received()
    assert request.header("Authorization") is None and request.header("Cookie") is None


def test_auth_service_is_required_for_hits(serving, node, origin, judge):
    judge.requests.clear()
    good = [("Authorization", "Bearer good"), ("Cookie", "a=b")]
    got = [serving.fetch("asked", "/x", body=BLOCK, headers=good) for _ in range(2)]
    assert [(one.status, is_hit(one)) for one in got] == [(200, False), (200, True)]
    for headers in ([], [("Authorization", "Bearer other")]):
        got = serving.fetch("asked", "/x", body=BLOCK, headers=headers)
        assert got.status == 401 and not is_hit(got)
    auth_requests = judge.received()
    assert len(auth_requests) == 4
    assert all(it.body == b"" and it.header("X-Original-URI") == "/x" and it.header("Content-Length") is None for it in auth_requests)
    (request,) = origin.received()
    assert request.body == BLOCK and request.header("Authorization") is None and request.header("Cookie") is None


# beacon


def test_beacon_site_serves_json_and_ssz_from_the_cache(serving, beacon):
    for accept, kind in ((JSON, "application/json"), (OCTETS, "application/octet-stream")) * 2:
        got = serving.fetch("beacon", PAGE, headers=[accept, GZIP, ("Origin", "https://a.test")])
        assert (got.status, got.header("Content-Type"), got.coding) == (200, kind, "gzip")
        assert "Accept" in got.header("Vary").split(", ") and got.header("Eth-Consensus-Version")
        assert got.all("Access-Control-Allow-Origin") == ["*"]
    assert is_hit(got)
    # the chain's preset is probed, too
    assert len(beacon.received(PAGE)) <= 2
    assert serving.fetch("beacon", "/elsewhere").status == 404


def test_beacon_site_denies_states_to_remote_clients(serving, beacon):
    serving.nginx.expect("access forbidden by rule")
    assert serving.fetch("beacon", "/eth/v2/debug/beacon/states/head", source="127.0.0.2").status == 403
    assert serving.fetch("beacon", "/eth/v2/debug/beacon/states/none").status == 404
    assert [request.path for request in beacon.received() if "debug" in request.path] == ["/eth/v2/debug/beacon/states/none"]


def test_beacon_site_streams_events_without_delay(serving, origin):
    def chunk(connection):
        return connection.take(int(connection._line(), 16) + 2)

    seen = threading.Event()
    fields = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
    first, second = chunked([b"event: head\ndata: 1\n\n", b"event: head\ndata: 2\n\n"], last=False)
    origin.answers([head(200, fields), first, WaitFor(seen), second, *chunked([])], path="/eth/v1/events")
    with serving.connect("beacon") as connection:
        request_headers = [("Accept", "text/event-stream")]
        connection.send(client.request_bytes("/eth/v1/events?topics=head", headers=request_headers, host="beacon.example.org"))
        got = connection.read_head()
        assert got.status == 200 and got.header("Content-Type") == "text/event-stream"
        assert b"data: 1" in chunk(connection)
        seen.set()
        assert b"data: 2" in chunk(connection)


# engine


def test_engine_site_serves_witnesses_at_a_socket(serving, origin, cache_directory):
    origin.answers(answer(SYNCING_RESULT))
    value = next(it for it in calls(cache_directory) if it["fork"] == "prague")
    token = ("Authorization", "Bearer a.b.c")
    for _ in range(2):
        connection = UnixConnection(f"{serving.nginx.prefix}/engine.sock")
        fields = dict([*submission_of(value), token])
        connection.request("POST", "/engine/v1/payloads/witness", bytes.fromhex(value["ssz"]), fields)
        got = connection.getresponse()
        assert (got.status, got.getheader("Content-Type")) == (200, "application/octet-stream"), got.read()
        assert got.getheader("Sszip-Type") == "PayloadStatusWithWitness;v=1"
        connection.close()
    # each request reaches the node, with its token
    requests = origin.received()
    assert [request.header("Authorization") for request in requests] == ["Bearer a.b.c"] * 2
    assert all(json.loads(request.body)["method"] == "engine_newPayloadWithWitnessV4" for request in requests)


# chains


@pytest.fixture(scope="module")
def chains(signed):
    nodes = [Chain(), Chain("--chain-id", "100", "--seed", "2")]
    server = CopiedConfig(signed, "chains", nodes=dict(zip((8545, 8645), (node.port for node in nodes), strict=True)))
    server.start()
    yield server, *nodes
    server.stop()
    for node in nodes:
        node.stop()


def test_chains_site_keeps_chains_apart(chains):
    serving, mainnet, gnosis = chains
    ids = {"/mainnet": "0x1", "/gnosis": "0x64"}

    def all_hits():
        got = {path: serving.fetch("chains", path, body=CHAIN_ID) for path in ids}
        assert {path: json.loads(one.decoded)["result"] for path, one in got.items()} == ids
        return all(is_hit(one) for one in got.values())

    # the owner knows the chains a moment after the start
    serving.nginx.wait_for(all_hits, "hits")
    assert serving.fetch("chains", "/other", body=CHAIN_ID).status == 404


@pytest.mark.parametrize("path, other", [("/mainnet", "/gnosis"), ("/gnosis", "/mainnet")])
def test_chains_site_follows_the_head_of_each_chain(chains, path, other):
    """A response about the head is a hit for a slot, but no longer than the head stays."""
    serving, mainnet, gnosis = chains
    chain = mainnet if path == "/mainnet" else gnosis

    def number(path):
        got = serving.fetch("chains", path, body=call("eth_blockNumber"))
        return int(json.loads(got.decoded)["result"], 16), is_hit(got)

    def followed():
        status = json.loads(client.fetch(serving.local, "/sszip?format=json").body)
        return {one["name"]: one["state"] for one in (status["owner"] or {}).get("chains", [])}

    both = {"mainnet": "following", "gnosis": "following"}
    serving.nginx.wait_for(lambda: followed() == both, "both chains to be followed")
    elsewhere = number(other)[0]

    def is_purged_with_its_head():
        """Whether the old head is removed before its TTL of some seconds has passed."""
        before, remaining = chain.head, []
        serving.nginx.wait_for(lambda: number(path) == (before, True), "the head to be stored")
        chain.do({"extend": 1})

        def is_new():
            got = serving.fetch("chains", path, body=call("eth_blockNumber"))
            remaining.extend(re.findall(r"; hit; ttl=(\d+)", got.header("Cache-Status")))
            return int(json.loads(got.decoded)["result"], 16) == before + 1

        serving.nginx.wait_for(is_new, "the new head")
        return "0" not in remaining

    # a follower that is not scheduled for seconds is late, and so this is repeated
    assert any(is_purged_with_its_head() for _ in range(4))
    assert number(other)[0] == elsewhere


# cdn

CDN = "127.0.0.9"
VIA = ("Via", "1.1 edge")


def test_cdn_site_sends_cache_control_and_vary(serving, beacon):
    for _ in range(2):
        got = serving.fetch("cdn", PAGE, headers=[VIA, GZIP, JSON], source=CDN)
        assert got.coding == "gzip" and {"Accept", "Accept-Encoding"} <= set(got.header("Vary").split(", "))
        assert got.all("Cache-Control") == ["public, max-age=0, s-maxage=2"]
    assert is_hit(got)
    beacon.answers(answer(b'{"data":{}}'), path="/eth/v1/config/spec")
    for target, cache_control in (("/eth/v1/config/spec", "public, max-age=0, s-maxage=60"), ("/eth/v1/node/version", "no-store")):
        got = serving.fetch("cdn", target, headers=[VIA], source=CDN)
        assert (got.status, got.all("Cache-Control")) == (200, [cache_control]), target
    missing = serving.fetch("cdn", "/eth/v2/beacon/blocks/0x" + "00" * 32, headers=[VIA], source=CDN)
    assert missing.status == 404 and missing.all("Cache-Control") == []


def test_cdn_site_serves_calls_from_the_cache(serving, node):
    got = [serving.fetch("cdn", body=BLOCK, headers=[VIA, GZIP], source=CDN) for _ in range(2)]
    assert [(is_hit(one), one.coding) for one in got] == [(False, "gzip"), (True, "gzip")]


def test_cdn_site_trusts_x_forwarded_for_of_the_cdn_only(serving, node):
    def logged(source):
        before = len(serving.lines())
        serving.fetch("cdn", body=CHAIN_ID, headers=[("X-Forwarded-For", "203.0.113.7")], source=source)
        serving.nginx.wait_for(lambda: len(serving.lines()) > before, "the log")
        return json.loads(serving.lines()[-1])["client"]

    assert logged(CDN) == "203.0.113.7"
    assert logged("127.0.0.2") == "127.0.0.2"
    # so each client has a rate of its own, instead of one for all of them
    one, two = ([("X-Forwarded-For", address)] for address in ("203.0.113.1", "203.0.113.2"))
    until_refused(serving, "cdn", source=CDN, headers=one)
    assert serving.fetch("cdn", body=CHAIN_ID, headers=two, source=CDN).status == 200


def test_cdn_site_lets_a_cache_in_front_store_both_formats(serving, beacon, start_nginx):
    """nginx as a CDN obeys Cache-Control and Vary."""
    edge = start_nginx(f"""
        proxy_cache_path @prefix@/edge keys_zone=edge:1m;
        server {{
            listen 127.0.0.1:@port@;
            location / {{
                proxy_bind {CDN};
                proxy_cache edge;
                proxy_http_version 1.1;
                proxy_set_header Host cdn.example.org;
                proxy_set_header Via "1.1 edge";
                proxy_set_header Accept-Encoding $http_accept_encoding;
                add_header X-Edge $upstream_cache_status;
                proxy_ssl_server_name on;
                proxy_ssl_name cdn.example.org;
                proxy_pass https://127.0.0.1:{serving.tls};
            }}
        }}""")
    hits = 0
    for _ in range(3):
        for accept, kind in ((JSON, "application/json"), (OCTETS, "application/octet-stream")):
            got = client.fetch(edge.port, PAGE, headers=[accept, GZIP])
            assert (got.status, got.header("Content-Type")) == (200, kind)
            assert got.decoded.startswith(b"{") == (accept == JSON)
            hits += got.header("X-Edge") == "HIT"
    assert hits > 1


# the log, and local pages


def test_access_log_has_one_json_object_a_line(serving, node):
    before = len(serving.lines())
    requests = [
        ("rpc", "/", BLOCK, []),
        ("rpc", "/", BLOCK, []),
        ("rpc", "/", b"[%b,%b]" % (BLOCK, call("debug_x", id="2")), []),
        ("rpc", "/", b"{", []),
        ("password", '/%22%5c%ff"\\', BLOCK, []),
    ]
    for number, (name, target, body, headers) in enumerate(requests, start=before + 1):
        serving.fetch(name, target, body=body, headers=headers)
        # written after the response was sent, by any worker
        serving.nginx.wait_for(lambda number=number: len(serving.lines()) >= number, "the log")
    lines = [json.loads(line.decode(errors="replace")) for line in serving.lines()[before:]]
    assert [(one["status"], one["cache"]) for one in lines] == [("200", "MISS"), ("200", "HIT"), ("200", "HIT"), ("200", "BYPASS"), ("401", "BYPASS")]
    assert lines[0]["node"] and float(lines[0]["node_seconds"]) >= 0 and not lines[1]["node"]
    assert (lines[1]["mode"], lines[1]["method"], lines[1]["client"]) == ("hit", "eth_getBlockByHash", "127.0.0.1")
    assert (lines[2]["calls"], lines[2]["hits"], lines[2]["denied"]) == ("2", "1", "1")
    assert all(isinstance(one["bytes"], int) and isinstance(one["seconds"], (int, float)) for one in lines)


def test_status_and_purge_are_served_locally(serving, node):
    assert [is_hit(serving.fetch("rpc", body=BLOCK)) for _ in range(2)] == [False, True]

    def counted_hits():
        return json.loads(client.fetch(serving.local, "/sszip?format=json").body)["hits"]

    # a hit is counted when its response has been sent
    serving.nginx.wait_for(counted_hits, "the hit to be counted")
    purged(serving.nginx, serving.local, "/sszip/purge?namespace=mainnet")
    assert not is_hit(serving.fetch("rpc", body=BLOCK))


def test_readme_lists_each_file():
    """The README.md of the folder, or of the nearest one above it."""
    files = [path for path in CONFIGS.rglob("*") if path.is_file() and path.suffix != ".md"]
    assert files
    missing = []
    for path in files:
        readme = next(folder / "README.md" for folder in path.parents if (folder / "README.md").exists())
        if f"({path.relative_to(readme.parent).as_posix()})" not in readme.read_text():
            missing.append(path)
    assert missing == []

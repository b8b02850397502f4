"""Failures of the node, and the host's local replies for a failing node, are counted by kind, and
not as responses."""

import socket
import threading

import pytest

from harness import client
from harness.envoy import Envoy, address, cluster, empty, route
from harness.nginx import Nginx, free_port
from harness.origin import CLOSE, RESET, WaitFor, answer, chunked, head
from harness.rpc import call
from harness.fixtures import starting
from harness.sandbox import WasmEnvoy
from harness.status import metrics, read_status

CALL = call("eth_chainId")
JSON = ("Content-Type", "application/json")
CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace main;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location /plain { sszip_cache off; proxy_pass http://@origin@; }
    location /away { proxy_pass http://127.0.0.1:%(away)d; }
    location /plain/away { sszip_cache off; proxy_pass http://127.0.0.1:%(away)d; }
    location /full { proxy_connect_timeout 300ms; proxy_pass http://127.0.0.1:%(full)d; }
    location /silent { proxy_read_timeout 300ms; proxy_pass http://127.0.0.1:%(silent)d; }
    location /nothing { sszip_cache off; return 204; }
    location = /status { sszip_status on; }
    location = /purge { sszip_cache_purge on; }
}
"""
EXPECTED = "Connection refused|timed out|prematurely closed|reset by peer|invalid header|no valid HTTP|owner|response ended"
ERRORS = {
    "a": -32601,
    "eth_call": 3,
    "eth_getBalance": -32000,
    "eth_getCode": -32602,
    "eth_getLogs": 429,
    "eth_sendRawTransaction": -32003,
}


@pytest.fixture(scope="module")
def silent():
    """The port of a node that accepts requests and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def take():
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        for connection in taken:
            connection.close()


@pytest.fixture(scope="module")
def full():
    """The port of a node whose accept queue is full, so that no connection is opened."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(("127.0.0.1", port))
        yield port
        for connection in waiting:
            connection.close()


def nginx(origin, **ports):
    nginx = Nginx(CONFIG % ports, origin=origin)
    nginx.expect(EXPECTED)
    return nginx


def envoy(host, origin, away, full, silent):
    empty_cluster = cluster("empty", address(1))
    empty_cluster["load_assignment"]["endpoints"] = []
    again = {"retry_on": "connect-failure", "num_retries": 2}
    each = {"retry_on": "5xx", "num_retries": 0, "per_try_timeout": "0.3s"}
    none = {"max_connections": 0, "max_pending_requests": 0}
    kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
    pages = [route("/status", {"status": True})] if host == "native" else []
    return kind(
        [
            *pages,
            route("/purge", {"cache_purge": True}),
            route("/away", None, "away"),
            route("/retried", None, "away", retry_policy=again),
            route("/plain/away", {"cache": False}, "away"),
            route("/plain", {"cache": False}),
            route("/empty", None, "empty"),
            route("/full", None, "full"),
            route("/broken", None, "broken"),
            route("/silent", None, "silent") | {"route": {"cluster": "silent", "timeout": "0.3s"}},
            route("/each", None, "silent", retry_policy=each),
            empty("/nothing"),
            route("/"),
        ],
        origin=origin,
        settings={
            "cache": True,
            "cache_namespace": "main",
            **({"cache_path": "@prefix@/cache max_size=64m memory=16m"} if host == "native" else {}),
        },
        clusters=[
            cluster("away", address(away)),
            empty_cluster,
            cluster("full", address(full), connect_timeout="0.3s"),
            cluster("silent", address(silent)),
            cluster("broken", address(silent), circuit_breakers={"thresholds": [none]}),
        ],
    )


@pytest.fixture(scope="module")
def server(host, session_origin, silent, full):
    ports = {"away": free_port(), "full": full, "silent": silent}

    def make():
        return nginx(session_origin, **ports) if host == "nginx" else envoy(host, session_origin, **ports)

    for start in starting(make):
        yield start()


@pytest.fixture
def errors(host, server):
    """A function that returns the counts of node errors by kind."""

    def by_counters():
        found = server.stats(r"node\.error\.")
        counts = {name.rpartition("node.error.")[2]: count for name, count in found.items()}
        return {name: count for name, count in counts.items() if count}

    return by_counters if host != "nginx" else lambda: read_status(server)["node"]["errors"]


def added(before, **kinds):
    return {**before, **{kind: before.get(kind, 0) + count for kind, count in kinds.items()}}


def reach(server, errors, expected):
    """Waits until the sum of the counts is reached, which must be the expected ones."""
    server.wait_for(lambda: sum(errors().values()) >= sum(expected.values()), f"{expected}")
    assert errors() == expected


def fails(server, errors, path, status, kind):
    before = errors()
    response = server.post(path, CALL)
    assert response.status == status, response
    assert "hit" not in (response.header("Cache-Status") or "")
    reach(server, errors, added(before, **{kind: 1}))


def answers(server):
    """The status page's counts of upstream requests, and of 2xx responses."""
    node = read_status(server)["node"]
    return node["requests"], node["statuses"].get("2xx", 0)


@pytest.mark.parametrize(
    "path, kind, status_in_nginx, status_in_envoy",
    [
        ("/away", "connect", 502, 503),
        ("/plain/away", "connect", 502, 503),
        ("/full", "timeout", 504, 503),
        ("/silent", "timeout", 504, 504),
    ],
)
def test_local_reply_for_an_unreachable_node_is_counted_by_kind(
    host, server, errors, path, kind, status_in_nginx, status_in_envoy
):
    before = answers(server) if host != "wasm" else None
    for _ in range(2):
        fails(server, errors, path, status_in_nginx if host == "nginx" else status_in_envoy, kind)
    if host != "wasm":
        assert answers(server) == before


@pytest.mark.hosts("native", "wasm")
@pytest.mark.parametrize(
    "path, kind, status",
    [("/retried", "connect", 503), ("/empty", "connect", 503), ("/broken", "connect", 503), ("/each", "timeout", 504)],
)
def test_local_reply_of_envoy_for_a_failed_cluster_or_retry_is_counted_by_kind(server, errors, path, kind, status):
    for _ in range(2):
        fails(server, errors, path, status, kind)


@pytest.mark.parametrize("path", ["/", "/plain"])
@pytest.mark.parametrize(
    "script, in_nginx, in_envoy",
    [
        ([CLOSE], ("reset", 502), ("reset", 503)),
        ([RESET], ("reset", 502), ("reset", 503)),
        ([b"HTTP/1.1 200 OK\r\nX: y", CLOSE], ("reset", 502), ("invalid-header", 502)),
        ([b"HTTP/1.1 200 OK\r\n\0: x\r\n\r\n", CLOSE], ("invalid-header", 502), ("invalid-header", 502)),
        (answer(b"busy" * 500, status=503, type="text/plain"), ("http-5xx", 503), ("http-5xx", 503)),
        (answer(b"busy" * 500, status=500, type="text/plain"), ("http-5xx", 500), ("http-5xx", 500)),
    ],
    ids=["close", "reset", "half", "garbage", "503", "500"],
)
def test_failure_of_the_node_is_counted_by_kind(host, server, errors, origin, path, script, in_nginx, in_envoy):
    before = answers(server) if host != "wasm" else None
    origin.answers(script)
    kind, status = in_nginx if host == "nginx" else in_envoy
    for _ in range(2):
        fails(server, errors, path, status, kind)
    if host != "wasm":
        assert answers(server) == before


def refuse(method, id="1"):
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}' % (id.encode(), ERRORS[method])


def test_rpc_errors_are_counted_by_class(host, server, errors, origin):
    has_page = host != "wasm"
    before, page = errors(), read_status(server) if has_page else None
    for method in ERRORS:
        origin.answers(answer(refuse(method)))
        assert server.post("/", call(method, '["0x00","latest"]')).status == 200
    kinds = {"rpc-method-not-found": 1, "rpc-revert": 1, "rpc-server": 2, "rpc-invalid": 1, "rpc-other": 1}
    reach(server, errors, added(before, **kinds))
    batch = b"[" + b",".join([refuse("eth_call"), refuse("eth_getCode", "2")]) + b"]"
    origin.answers(answer(batch))
    calls = [call("eth_call", '[{},"latest"]'), call("eth_getCode", '["0x00","latest"]', "2")]
    assert server.post("/", b"[" + b",".join(calls) + b"]").status == 200
    reach(server, errors, added(before, **{**kinds, "rpc-revert": 2, "rpc-invalid": 2}))
    if has_page:
        now = read_status(server)
        assert now["node"]["requests"] == page["node"]["requests"] + 7
        assert now["node"]["statuses"]["2xx"] == page["node"]["statuses"].get("2xx", 0) + 7
        rows = {row["name"]: row["node"] for row in now["methods"]}
        assert rows["eth_getBalance"] == 1 and rows["other"] == 1
        found = metrics(server)
        assert found["sszip_node_errors_total", "rpc-server"] == 2
        assert found["sszip_node_rpc_seconds_total", "eth_getBalance"] > 0


def test_truncated_responses_are_counted(server, errors, origin):
    before = errors()
    fields = [JSON, ("Content-Length", "90000")]
    origin.answers(lambda request: [head(200, fields), b"[1," * 9000, CLOSE])
    assert server.get("/plain", "gzip").status == 502
    reach(server, errors, added(before, cut=1))


def test_response_whose_client_disconnects_is_not_counted_as_truncated(host, server, errors, origin):
    before, go_on = errors(), threading.Event()
    fields = [JSON, ("Transfer-Encoding", "chunked")]
    origin.answers([head(200, fields), *chunked([b"[1," * 3000], last=False), WaitFor(go_on)])
    uri = server.uri("/plain")
    with server.connect() as connection:
        connection.send(client.request_bytes(uri, headers=[("Accept-Encoding", "gzip")]))
        connection.read_head()
    assert server.wait_for(lambda: server.logged(uri), "the request's line")["mode"] == "stream"
    go_on.set()
    # counters of a request that ended before are not later than this one's
    origin.answers([CLOSE])
    assert server.post("/", CALL).status == (502 if host == "nginx" else 503)
    reach(server, errors, added(before, reset=1))


def test_local_reply_without_an_upstream_is_not_counted_as_an_error(server, errors):
    before = errors()
    with server.connect() as connection:
        assert connection.exchange("/nothing").status == 204
    assert errors() == before


@pytest.mark.hosts("nginx", "native")
def test_status_page_has_the_errors_of_the_counters(server, errors):
    server.wait_for(lambda: read_status(server)["node"]["errors"] == errors(), "the page to have them")
    found = {labels[0]: value for (name, *labels), value in metrics(server).items() if name == "sszip_node_errors_total"}
    assert found == errors()


@pytest.mark.hosts("nginx", "native")
def test_purges_and_status_pages_are_not_counted(server):
    def purge():
        return client.fetch(server.port, "/purge?everything", method="POST", body=b"").status == 200

    counted = ("requests", "cache", "reasons")
    before = {name: read_status(server)[name] for name in counted}
    server.wait_for(purge, "a purge")
    after = read_status(server)
    assert {name: after[name] for name in counted} == before

"""Envoy's own replies for a node that fails, and the node's failures, are counted by kind, and are
no answers."""

import socket
import threading

import pytest

from harness.envoy import address, cluster, empty, route
from harness.origin import CLOSE, RESET, answer, head
from harness.rpc import call
from test_status_envoy import told

HOSTS = ("native", "wasm")
CALL = call("eth_chainId")
JSON = ("Content-Type", "application/json")


@pytest.fixture(scope="module")
def silent():
    """A node that takes requests and never responds: its port."""
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
    """A node whose queue of connections is full, so that no other one is opened: its port."""
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


@pytest.fixture(scope="module")
def envoy(host, start_envoy, silent, full):
    away = socket.create_server(("127.0.0.1", 0))
    port = away.getsockname()[1]
    away.close()
    empty_cluster = cluster("empty", address(1))
    empty_cluster["load_assignment"]["endpoints"] = []
    again = {"retry_on": "connect-failure", "num_retries": 2}
    each = {"retry_on": "5xx", "num_retries": 0, "per_try_timeout": "0.3s"}
    none = {"max_connections": 0, "max_pending_requests": 0}
    return start_envoy(
        [
            *([route("/status", {"status": True})] if host == "native" else []),
            route("/away", None, "away"),
            route("/retried", None, "away", retry_policy=again),
            route("/plain/away", {"cache": False}, "away"),
            route("/empty", None, "empty"),
            route("/full", None, "full"),
            route("/broken", None, "broken"),
            route("/silent", None, "silent") | {"route": {"cluster": "silent", "timeout": "0.3s"}},
            route("/each", None, "silent", retry_policy=each),
            empty("/nothing"),
            route("/"),
        ],
        settings={"cache": True, "cache_namespace": "main"},
        clusters=[
            cluster("away", address(port)),
            empty_cluster,
            cluster("full", address(full), connect_timeout="0.3s"),
            cluster("silent", address(silent)),
            cluster("broken", address(silent), circuit_breakers={"thresholds": [none]}),
        ],
    )


def errors(envoy):
    """Counters of node errors by kind."""
    found = envoy.stats(r"node\.error\.")
    counts = {name.rpartition("node.error.")[2]: count for name, count in found.items()}
    return {name: count for name, count in counts.items() if count}


def fails(envoy, path, status, kind):
    before = errors(envoy)
    response = envoy.post(path, CALL)
    assert response.status == status, response
    assert "hit" not in (response.header("Cache-Status") or "")
    expected = {**before, kind: before.get(kind, 0) + 1} if kind else before
    envoy.wait_for(lambda: sum(errors(envoy).values()) >= sum(expected.values()), f"a {kind} of {path}")
    assert errors(envoy) == expected, path


@pytest.mark.parametrize(
    "path, status, kind",
    [
        ("/away", 503, "connect"),
        ("/retried", 503, "connect"),
        ("/plain/away", 503, "connect"),
        ("/empty", 503, "connect"),
        ("/broken", 503, "connect"),
        ("/full", 503, "timeout"),
        ("/silent", 504, "timeout"),
        ("/each", 504, "timeout"),
    ],
)
def test_reply_of_envoy_for_a_node_that_is_not_there_is_counted_by_kind(envoy, path, status, kind):
    for _ in range(2):
        fails(envoy, path, status, kind)


CUT = [head(200, [JSON, ("Content-Length", "90000")]), b"[1," * 9000, CLOSE]


@pytest.mark.parametrize(
    "script, status, kind",
    [
        ([CLOSE], 503, "reset"),
        ([RESET], 503, "reset"),
        ([b"SSH-2.0-none\r\n\r\n", CLOSE], 502, "invalid-header"),
        (answer(b"busy" * 500, status=503, type="text/plain"), 503, "http-5xx"),
        (answer(b"busy" * 500, status=500, type="text/plain"), 500, "http-5xx"),
    ],
    ids=["close", "reset", "garbage", "503", "500"],
)
def test_failure_of_the_node_is_counted_by_kind(envoy, origin, script, status, kind):
    origin.answers(script)
    for _ in range(2):
        fails(envoy, "/", status, kind)


def test_reply_of_envoy_that_is_not_about_the_node_is_no_error(envoy):
    before = errors(envoy)
    with envoy.connect() as connection:
        assert connection.exchange("/nothing").status == 204
    assert errors(envoy) == before


@pytest.mark.native("the sandbox has no status page")
def test_page_has_the_errors_of_the_counters(envoy):
    for path, status, kind in (("/away", 503, "connect"), ("/silent", 504, "timeout")):
        fails(envoy, path, status, kind)
    envoy.wait_for(lambda: told(envoy)["node"]["errors"] == errors(envoy), "the page to have them")

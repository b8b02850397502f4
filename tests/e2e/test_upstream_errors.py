"""Failures of the node are counted by kind, and are no answers."""

import socket
import threading

import pytest

from harness import client
from harness.origin import CLOSE, answer, head
from harness.rpc import call
from test_status import metrics, told

CONFIG = """
sszip on;
server {
    listen 127.0.0.1:@port@;
    location / { sszip_cache on; sszip_cache_namespace main; proxy_pass http://@origin@; }
    location /plain { proxy_pass http://@origin@; }
    location /away { sszip_cache on; proxy_pass http://127.0.0.1:1; }
    location /away/plain { sszip_cache off; proxy_pass http://127.0.0.1:1; }
    location /silent { sszip_cache on; proxy_pass http://@silent@; proxy_read_timeout 300ms; }
    location = /status { sszip_status on; }
}
"""
ERRORS = {
    "a": -32601,
    "eth_call": 3,
    "eth_getBalance": -32000,
    "eth_getCode": -32602,
    "eth_getLogs": 429,
    "eth_sendRawTransaction": -32003,
}


def refuse(method, id="1"):
    return b'{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}' % (
        id.encode(),
        ERRORS[method],
    )


@pytest.fixture
def silent():
    """A node that takes requests and says nothing."""
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


@pytest.fixture
def nginx(start_nginx, origin, silent):
    nginx = start_nginx(CONFIG.replace("@silent@", f"127.0.0.1:{silent}"))
    for line in ["Connection refused", "timed out", "prematurely closed"]:
        nginx.expect(line)
    return nginx


def errors(nginx):
    return told(nginx)["node"]["errors"]


def test_rpc_errors_are_counted_by_class(nginx, origin):
    for method in ERRORS:
        origin.answers(answer(refuse(method), type="application/json"))
        assert nginx.post("/", call(method, '["0x00","latest"]')).status == 200
    expected = {
        "rpc-method-not-found": 1,
        "rpc-revert": 1,
        "rpc-server": 2,
        "rpc-invalid": 1,
        "rpc-other": 1,
    }
    nginx.wait_for(lambda: errors(nginx) == expected, "all to be counted")
    batch = b"[" + b",".join([refuse("eth_call"), refuse("eth_getCode", "2")]) + b"]"
    origin.answers(answer(batch, type="application/json"))
    calls = [call("eth_call", '[{},"latest"]'), call("eth_getCode", '["0x00","latest"]', "2")]
    assert nginx.post("/", b"[" + b",".join(calls) + b"]").status == 200
    expected |= {"rpc-revert": 2, "rpc-invalid": 2}
    nginx.wait_for(lambda: errors(nginx) == expected, "the batch's")
    status = told(nginx)
    assert status["node"]["requests"] == 7 and status["node"]["statuses"] == {"2xx": 7}
    rows = {row["name"]: row["node"] for row in status["methods"]}
    assert rows["eth_getBalance"] == 1 and rows["other"] == 1
    found = metrics(nginx)
    assert found["sszip_node_errors_total", "rpc-server"] == 2
    assert found["sszip_node_rpc_seconds_total", "eth_getBalance"] > 0


@pytest.mark.parametrize("path", ["/away", "/away/plain"])
def test_connection_failures_are_no_answers(nginx, path):
    assert nginx.post(path, call("eth_chainId")).status == 502
    nginx.wait_for(lambda: errors(nginx) == {"connect": 1}, "the failure")
    status = told(nginx)
    assert status["node"]["requests"] == 0 and status["node"]["statuses"] == {}


def test_timeouts_resets_and_statuses_are_told_apart(nginx, origin):
    assert nginx.post("/silent", call("eth_chainId")).status == 504
    nginx.wait_for(lambda: errors(nginx) == {"timeout": 1}, "the time-out")
    origin.answers(lambda request: [CLOSE])
    assert nginx.post("/", call("eth_chainId")).status == 502
    nginx.wait_for(lambda: errors(nginx) == {"timeout": 1, "reset": 1}, "the reset")
    for path in ["/", "/plain"]:
        origin.answers(answer(b"busy" * 500, status=503, type="text/plain"))
        assert nginx.post(path, call("eth_chainId")).status == 503
    expected = {"timeout": 1, "reset": 1, "http-5xx": 2}
    nginx.wait_for(lambda: errors(nginx) == expected, "the statuses")
    status = told(nginx)
    assert status["node"]["requests"] == 0 and status["node"]["statuses"] == {"5xx": 2}


def test_responses_that_end_early_are_counted(nginx, origin):
    fields = [("Content-Type", "application/json"), ("Content-Length", "90000")]
    origin.answers(lambda request: [head(200, fields), b"[1," * 9000, CLOSE])
    nginx.expect("sszip: the response ended")
    assert nginx.get("/plain", "gzip").status == 502
    nginx.wait_for(lambda: errors(nginx).get("cut") == 1, "the cut")


def test_purges_and_status_pages_are_not_counted(start_nginx, session_origin):
    config = (
        CONFIG.replace("@silent@", "127.0.0.1:1")
        .replace(
            "sszip on;", "sszip on;\nsszip_cache_path @prefix@/cache max_size=64m memory=16m;", 1
        )
        .replace(
            "location = /status {",
            "location = /purge { sszip_cache on; sszip_cache_purge on; }\n    location = /status {",
        )
    )
    nginx = start_nginx(config)
    nginx.expect("owner")

    def purge():
        return client.fetch(nginx.port, "/purge?everything", method="POST", body=b"").status == 200

    nginx.wait_for(purge, "a purge")
    status = told(nginx)
    assert status["requests"] == 0 and status["cache"] == {} and status["reasons"] == {}

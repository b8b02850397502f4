"""Requests that are rejected by their head, in Envoy: the response precedes a body that may
never end, or that its client does not send."""

import json

import pytest
import websockets.sync.client
from websockets.exceptions import InvalidStatus

from harness.client import Connection
from harness.envoy import address, cluster, route
from harness.origin import answer
from harness.rpc import Node, call
from harness.websocket_server import websocket_server

HOSTS = ("native", "wasm")
RULES = {"method": "deny debug_*"}
WEBSOCKET = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
CALL = call("eth_chainId")
CHAIN = {"jsonrpc": "2.0", "id": 1, "result": "0x1"}


@pytest.fixture(scope="module")
def sockets():
    """The port of a WebSocket echo."""
    with websocket_server() as port:
        yield port


@pytest.fixture(scope="module")
def envoy(start_envoy, sockets):
    return start_envoy(
        [
            route("/allowed", {**RULES, "upgrade": "websocket"}, "sockets"),
            route("/denied", RULES, "sockets"),
            route("/short", {"max_answer": "eth_getLogs 1m"}),
            route("/none", {"method": "allow *"}),
            route("/free", {}),
            route("/", RULES),
        ],
        clusters=[cluster("sockets", address(sockets))],
        http={
            "upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "other"}],
            "proxy_100_continue": True,
            "http2_protocol_options": {"allow_connect": True},
        },
        hops="http2",
    )


@pytest.fixture(autouse=True)
def node(origin):
    node = Node({"eth_chainId": b'"0x1"'})
    origin.answers(node)
    return node


def head_alone(envoy, path, fields, method=b"POST", port=None):
    """The status and the response to a request without the body that it announces."""
    with Connection(port or envoy.direct) as connection:
        connection.send(b"%b %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (method, path, fields))
        response = connection.read(method.decode())
        return response.status, response


@pytest.mark.parametrize("path", [b"/", b"/short", b"/none", b"/denied"])
@pytest.mark.parametrize("port", ["direct", "port"], ids=["HTTP/1.1", "HTTP/2"])
def test_upgrade_under_a_rule_is_rejected_at_the_head(envoy, origin, path, port):
    """Over HTTP/2 it is an extended CONNECT."""
    for fields in (WEBSOCKET, WEBSOCKET.replace(b"websocket", b"other")):
        status, response = head_alone(envoy, path, fields, b"GET", getattr(envoy, port))
        assert status == 403
        # over HTTP/2 the hop in front forwards no body of a rejected tunnel
        assert port == "port" or json.loads(response.body)["error"]["code"] == -32600
    assert not origin.received()


@pytest.mark.parametrize("port", ["direct", "port"], ids=["HTTP/1.1", "HTTP/2"])
def test_allowed_websocket_is_forwarded(envoy, port):
    uri = f"ws://127.0.0.1:{getattr(envoy, port)}"
    with websockets.sync.client.connect(f"{uri}/allowed", proxy=None) as connection:
        for message in ("0x1", "x" * 100000):
            connection.send(message)
            assert connection.recv(30) == message
    with pytest.raises(InvalidStatus) as refused:
        websockets.sync.client.connect(f"{uri}/denied", proxy=None)
    assert refused.value.response.status_code == 403


def test_upgrade_other_than_websocket_is_rejected(envoy):
    fields = WEBSOCKET.replace(b"websocket", b"other")
    assert head_alone(envoy, b"/allowed", fields, b"GET")[0] == 403


def test_long_body_is_rejected_at_the_head(envoy, origin):
    fields = b"Content-Type: application/json\r\nContent-Length: 99999999\r\n"
    assert head_alone(envoy, b"/", fields)[0] == 413
    assert not origin.received()


@pytest.mark.parametrize("length", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_body_with_an_unsupported_coding_is_rejected_at_the_head(envoy, origin, length):
    fields = b"Content-Type: application/json\r\nContent-Encoding: br\r\n" + length
    assert head_alone(envoy, b"/", fields)[0] == 415
    assert not origin.received()


def test_request_other_than_post_is_rejected_at_the_head(envoy, origin):
    assert head_alone(envoy, b"/", b"Content-Length: 5\r\n", b"PUT")[0] == 405
    assert head_alone(envoy, b"/?method=debug_x", b"", b"GET")[0] == 405
    assert not origin.received()


@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue"])
def test_expect_continue_is_rejected_at_the_head_under_a_rule(envoy, origin, value):
    fields = b"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: %b\r\n"
    status, response = head_alone(envoy, b"/", fields % (len(CALL), value))
    assert status == 417, response
    assert not origin.received()


def test_request_with_another_expectation_is_forwarded(envoy, origin):
    fields = b"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: foo\r\n\r\n"
    with Connection(envoy.direct) as connection:
        connection.send(b"POST / HTTP/1.1\r\nHost: x\r\n" + fields % len(CALL) + CALL)
        response = connection.read("POST")
    assert (response.status, json.loads(response.body)) == (200, CHAIN)
    assert json.loads(origin.received()[0].body)["method"] == "eth_chainId"


def test_expect_continue_is_forwarded_without_rules(envoy, origin):
    origin.answers(answer(b"{}", headers=[("Content-Type", "application/json")]))
    fields = b"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    with Connection(envoy.direct) as connection:
        connection.send(b"POST /free HTTP/1.1\r\nHost: x\r\n" + fields % len(CALL) + CALL)
        assert connection.read("POST").status == 200
    assert origin.received()[0].body == CALL

"""Connections that become tunnels without rules, in Envoy: CONNECT under rules is rejected, and
a 101 that was not allowed is a bad gateway."""

import pytest

from harness.client import Connection
from harness.envoy import route
from harness.origin import CloseWithoutResponse
from harness.rpc import Node, call

HOSTS = ("native", "wasm")
RULES = {"method": "deny debug_*"}
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\n"
CONNECT = {"upgrade_type": "CONNECT", "connect_config": {}}


def connects(name, settings, **more):
    """A route for CONNECT requests to that host."""
    found = route("/", settings)
    found["match"] = {"connect_matcher": {}}
    return found


@pytest.fixture(scope="module")
def envoy(start_envoy):
    tunnel = connects("x", RULES)
    tunnel["route"]["upgrade_configs"] = [CONNECT]
    upgrades = [{"upgrade_type": "websocket"}, {"upgrade_type": "h2c"}, {"upgrade_type": "CONNECT"}]
    return start_envoy(
        [tunnel, route("/allowed", {**RULES, "upgrade": "websocket"}), route("/free", {}), route("/", RULES)],
        http={"upgrade_configs": upgrades, "http2_protocol_options": {"allow_connect": True}},
    )


def test_connect_under_a_rule_is_rejected(envoy, origin):
    origin.answers([b"HTTP/1.1 200 OK\r\n\r\n", CloseWithoutResponse(1)])
    for sent in (b"", call("debug_x")):
        with Connection(envoy.direct) as connection:
            connection.send(b"CONNECT node:8545 HTTP/1.1\r\nHost: node:8545\r\n\r\n" + sent)
            assert connection.read("POST").status in (403, 405)
    assert not origin.received()


@pytest.mark.parametrize("path, requested, protocol, status", [
    ("/", None, b"h2c", 502),
    ("/", None, b"websocket", 502),
    ("/allowed", None, b"websocket", 502),
    ("/allowed", b"websocket", b"h2c", 502),
    ("/allowed", b"websocket", b"websocket", 101),
    ("/free", b"websocket", b"websocket", 101),
])  # fmt: skip
def test_switch_of_protocols_is_forwarded_only_when_it_was_allowed(envoy, origin, path, requested, protocol, status):
    origin.answers([SWITCHED % protocol, CloseWithoutResponse(1)])
    fields = b"Upgrade: %b\r\nConnection: Upgrade\r\n" % requested if requested else b""
    with Connection(envoy.direct) as connection:
        connection.send(b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (path.encode(), fields))
        response = connection.read_head()
    # Envoy itself rejects an unsolicited 101 as invalid in HTTP/1.1
    assert response.status == status or (requested is None and response.status in (502, 503))
    assert len(origin.received()) == 1


def test_calls_are_evaluated_after_a_rejected_switch_of_protocols(envoy, origin):
    origin.answers([SWITCHED % b"h2c", CloseWithoutResponse(1)])
    with Connection(envoy.direct) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.read("GET").status in (502, 503)
    origin.answers(Node({"eth_chainId": b'"0x1"'}))
    assert b"-32601" in envoy.fetch("/", call("debug_x")).decoded
    assert b"0x1" in envoy.fetch("/", call("eth_chainId")).decoded

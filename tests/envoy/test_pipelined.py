"""Pipelined requests. Envoy closes an HTTP/1 connection on which more than two responses wait to
be sent, and sends none while it reads."""

import json
from contextlib import ExitStack

import pytest

from harness.client import gunzip, request_bytes
from harness.envoy import route
from harness.http2 import Http2Client
from harness.origin import answer
from harness.rpc import Node, call
from harness.sandbox import WasmEnvoy

HOSTS = ("native", "wasm")

JSON = ("Content-Type", "application/json")
NUMBER = 40


def block(number, whole, id=0):
    params = '["0x%064x",%s]' % (number, json.dumps(whole))
    return call("eth_getBlockByHash", params, str(id))


def text(params):
    return b'"0x%b"' % (b"ab" * (200_000 if params[1] else 2_000))


@pytest.fixture(scope="module")
def envoy(start_envoy):
    routes = [
        route("/purge", {"cache_purge": True}),
        route("/eth", {"ssz": True, "ssz_preset": "mainnet"}),
        route("/limited", {"method": ["deny admin_*"], "cache": True}),
        route("/", {"cache": True, "cache_valid": ["immutable 1h"]}),
    ]
    return start_envoy(routes, workers=5)


@pytest.fixture
def stored(envoy, origin):
    """A node whose short and long blocks are stored."""
    node = Node({"eth_getBlockByHash": text, "eth_syncing": b"false"})
    origin.answers(node)
    for number in range(NUMBER):
        for whole in (False, True):
            envoy.fetch("/", block(number, whole))
            assert is_hit(envoy.fetch("/", block(number, whole)))
    node.received_calls.clear()
    return node


def is_hit(response):
    return (response.header("Cache-Status") or "").startswith("sszip; hit")


def sent(bodies, path="/"):
    return b"".join(request_bytes(path, method="POST", headers=[JSON], body=body) for body in bodies)


def test_pipelined_hits_are_in_order(envoy, stored):
    with envoy.connect() as connection:
        connection.send(sent(block(number, False, number) for number in range(NUMBER)))
        for number in range(NUMBER):
            response = connection.read("POST")
            assert is_hit(response) and json.loads(response.decoded)["id"] == number
    assert stored.received_calls == []


def test_pipelined_hits_and_misses_are_in_order(envoy, stored):
    """In several orders. The client may have a node's response before its end is sent."""
    for period in (2, 3, 5):
        others = {number for number in range(NUMBER) if number % period == 0}
        bodies = [
            call("eth_syncing", id=str(number)) if number in others else block(number, False, number)
            for number in range(NUMBER)
        ]
        with envoy.connect() as connection:
            connection.send(sent(bodies))
            for number in range(NUMBER):
                response = connection.read("POST")
                assert is_hit(response) == (number not in others)
                assert json.loads(response.decoded)["id"] == number


def test_pipelined_local_replies_are_in_order(envoy, stored):
    """The module has no store that could be purged here, the Wasm filter has its daemon's."""
    expected = 200 if isinstance(envoy, WasmEnvoy) else 503
    with envoy.connect() as connection:
        connection.send(request_bytes("/purge?everything", method="POST") * NUMBER)
        for _ in range(NUMBER):
            assert connection.read("POST").status == expected
    envoy.expect("purge of")


def test_pipelined_denied_calls_are_answered_in_order(envoy, stored):
    """Denied calls alone, and among calls that the node answers."""
    for period in (1, 2, 3):
        denied = {number for number in range(NUMBER) if number % period == 0}
        bodies = [
            call("admin_peers" if number in denied else "eth_syncing", id=str(number))
            for number in range(NUMBER)
        ]
        with envoy.connect() as connection:
            connection.send(sent(bodies, "/limited"))
            for number in range(NUMBER):
                response = json.loads(connection.read("POST").decoded)
                assert response["id"] == number
                assert ("error" in response) == (number in denied)


def test_pipelined_purges_with_another_method_are_rejected_in_order(envoy, stored):
    """The filter rejects them itself, at once."""
    with envoy.connect() as connection:
        connection.send(request_bytes("/purge?everything", method="PUT") * NUMBER)
        for _ in range(NUMBER):
            assert connection.read("PUT").status == 405


def test_pipelined_502s_among_hits_are_in_order(envoy, stored, origin):
    """The module sends 502s among hits: the JSON of a long response is not buffered any more
    when it turns out to be invalid."""
    path = "/eth/v2/beacon/blocks/head"
    long = b'{"version":"electra","data":{"message":' + b" " * (5 << 20) + b"1}}"
    origin.answers(answer(long, headers=[("Eth-Consensus-Version", "electra")]), path)
    wants = [("Accept", "application/octet-stream, */*;q=0.5")]
    fails = request_bytes(path, headers=wants)
    for order in ([fails], [fails, fails, sent([block(1, False)])], [sent([block(1, False)]), fails]):
        with envoy.connect() as connection:
            connection.send(b"".join(order) * 4)
            for request in order * 4:
                response = connection.read("GET" if request == fails else "POST")
                assert response.status == (502 if request == fails else 200)


def test_pipelined_hits_are_in_order_when_requests_arrive_in_pieces(envoy, stored):
    body = sent(block(number, False, number) for number in range(NUMBER))
    for length in (1, 333, 1000):
        with envoy.connect() as connection:
            for at in range(0, len(body), length):
                connection.send(body[at : at + length])
            for number in range(NUMBER):
                response = connection.read("POST")
                assert is_hit(response) and json.loads(response.decoded)["id"] == number


def test_pipelined_hits_of_many_connections_are_in_order(envoy, stored):
    """Their requests arrive in pieces by turns: the filter recognizes by another connection's
    request that a response has been sent."""
    bodies = [
        sent(block(number, False, number) if number % 7 else call("eth_syncing", id=str(number)) for number in range(NUMBER))
        for _ in range(10)
    ]
    with ExitStack() as stack:
        connections = [stack.enter_context(envoy.connect()) for _ in bodies]
        for length in (777, 5000):
            for at in range(0, len(bodies[0]), length):
                for connection, body in zip(connections, bodies, strict=True):
                    connection.send(body[at : at + length])
            for connection in connections:
                for number in range(NUMBER):
                    response = connection.read("POST")
                    assert is_hit(response) == bool(number % 7)
                    assert json.loads(response.decoded)["id"] == number


def test_streams_end_when_a_client_aborts_with_pending_responses(envoy, stored):
    for number in range(50):
        with envoy.connect() as connection:
            connection.send(sent(block(number, number % 2 > 0, number) for number in range(number % 7 + 2)))
    envoy.wait_for(lambda: envoy.active() == 0, "requests of those who left")
    assert is_hit(envoy.fetch("/", block(0, False)))


def test_concurrent_http2_hits_have_the_ids_of_their_calls(envoy, stored):
    with Http2Client(envoy.port) as client:
        bodies = [block(number, False, number) for number in range(NUMBER)]
        streams = [client.fetch("/", method="POST", body=body) for body in bodies]
        client.finish(*streams)
        for number, stream in enumerate(streams):
            assert json.loads(gunzip(bytes(client.bodies[stream])))["id"] == number
    assert stored.received_calls == []

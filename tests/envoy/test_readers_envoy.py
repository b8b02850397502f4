"""No node reads a denied method in what passes the rules, in Envoy; tests/e2e/test_readers.py
says more."""

import os
import random

import pytest

from harness.client import Connection, request_bytes
from harness.envoy import route
from harness.origin import answer
from harness.readers import READINGS, Readers, any_request, encoded

HOSTS = ("native", "wasm")
NUMBER = int(os.environ.get("SSZIP_READINGS", "200"))
SEED = 129
PLACES = ("/open", "/closed", "/cached")
DENY = "deny debug_* eth_sign"


@pytest.fixture(scope="module")
def envoy(start_envoy):
    return start_envoy(
        [
            route("/closed", {"method": ["allow eth_*", "deny eth_sign"]}),
            route("/cached", {"method": DENY, "cache": True}),
            route("/", {"method": DENY}),
        ]
    )


@pytest.fixture(scope="module")
def readers(cache_directory):
    readers = Readers(cache_directory)
    yield readers
    readers.close()


@pytest.fixture(autouse=True)
def node(origin):
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":1}', headers=[("Content-Type", "application/json")]))


def send(port, place, method, query, headers, body):
    target = f"{place}?{query}" if query else place
    with Connection(port) as connection:
        connection.send(request_bytes(target, method=method, headers=[*headers, ("Connection", "close")], body=body or None))
        return connection.read(method).status


def test_no_reader_finds_a_denied_method(envoy, origin, readers):
    for _, method, query, kind, body in READINGS:
        for place in PLACES:
            send(envoy.port, place, method, query, [("Content-Type", kind)], encoded(body))
    for request in origin.received():
        assert not readers.denied(request)


def test_no_reader_finds_a_denied_method_in_random_requests(envoy, origin, readers):
    print(f"{NUMBER} requests of seed {SEED}")
    chance, passed = random.Random(SEED), 0
    for number in range(NUMBER):
        request = any_request(chance)
        origin.requests.clear()
        send(envoy.port, PLACES[number % len(PLACES)], *request)
        for seen in origin.received():
            assert not readers.denied(seen), (number, request)
            passed += 1
    print(f"{passed} of them have reached the node")
    assert passed > NUMBER // 50

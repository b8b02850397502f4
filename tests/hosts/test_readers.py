"""No node reads a denied method in a request that passes the rules, however leniently it reads
(docs/policy.md). SSZIP_READINGS is the number of random requests."""

import os
import random

import pytest

from harness.client import Connection, request_bytes
from harness.origin import answer
from harness.json_readers import IN_PYTHON, READINGS, Readers, any_request, encoded, is_denied

pytestmark = pytest.mark.carried("the core reads what the host gives it whole")

DENY = "deny debug_* eth_sign"
PLACES = {
    "/": {"method": [DENY]},
    "/closed": {"method": ["allow eth_*", "deny eth_sign"]},
    "/cached": {"method": [DENY], "cache": True},
}
NUMBER = int(os.environ.get("SSZIP_READINGS", "200"))
# each host gets other requests
SEED = {"nginx": 128, "native": 129, "wasm": 130}


@pytest.fixture(scope="module")
def server(start_server):
    return start_server(PLACES)


@pytest.fixture(scope="module")
def readers(cache_directory):
    readers = Readers(cache_directory)
    yield readers
    readers.close()


@pytest.fixture(autouse=True)
def node(origin):
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":1}', headers=[("Content-Type", "application/json")]))


def send(server, place, method, query, headers, body):
    target = f"{place}?{query}" if query else place
    with Connection(server.port) as connection:
        connection.send(request_bytes(target, method=method, headers=[*headers, ("Connection", "close")], body=body or None))
        connection.read(method)


@pytest.mark.parametrize("reading", READINGS, ids=range(len(READINGS)))
def test_request_is_rejected_when_a_lenient_reader_finds_a_denied_method(server, origin, readers, reading):
    reader, method, query, kind, body = reading
    body = encoded(body)
    found = readers.all[reader](method, query, {"content-type": kind}, body)
    assert any(is_denied(name) for name in found if name), "that reader would not call it"
    for place in PLACES:
        send(server, place, method, query, [("Content-Type", kind)], body)
    assert [readers.denied(request) for request in origin.received()] == [[]] * len(origin.received())


def test_random_requests_that_pass_have_no_denied_method_for_any_reader(host, server, origin, readers):
    print(f"{NUMBER} requests of seed {SEED[host]}")
    chance, passed = random.Random(SEED[host]), 0
    for number in range(NUMBER):
        request = any_request(chance)
        origin.requests.clear()
        send(server, list(PLACES)[number % len(PLACES)], *request)
        for seen in origin.received():
            assert not readers.denied(seen), (number, request)
            passed += 1
    print(f"{passed} of them have reached the node")
    assert passed > NUMBER // 50


def test_readers_have_one_reading_at_least():
    assert set(IN_PYTHON) | {"go"} == {reader for reader, *_ in READINGS}

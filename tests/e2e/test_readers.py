"""No node reads a denied method in what passes the rules, however leniently it reads
(docs/policy.md). SSZIP_READINGS is how many random requests are sent."""

import os
import random

import pytest

from harness.client import Connection, request_bytes
from harness.origin import answer
from harness.readers import IN_PYTHON, READINGS, Readers, any_request, encoded, is_denied

pytestmark = pytest.mark.carried("the core reads what the module gives it whole")

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_method deny debug_* eth_sign;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location /closed { sszip_method allow eth_*; sszip_method deny eth_sign; proxy_pass http://@origin@; }
    location /cached { sszip_cache on; proxy_pass http://@origin@; }
}
"""
NUMBER = int(os.environ.get("SSZIP_READINGS", "200"))
SEED = 128
PLACES = ("/", "/closed", "/cached")


@pytest.fixture(scope="module")
def readers(cache_directory):
    readers = Readers(cache_directory)
    yield readers
    readers.close()


@pytest.fixture(autouse=True)
def node(origin):
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":1}', headers=[("Content-Type", "application/json")]))


def send(port, place, method, query, headers, body):
    """Its answer's status."""
    target = f"{place}?{query}" if query else place
    with Connection(port) as connection:
        connection.send(request_bytes(target, method=method, headers=[*headers, ("Connection", "close")], body=body or None))
        return connection.read(method).status


@pytest.mark.parametrize("reading", READINGS, ids=range(len(READINGS)))
def test_reader_reads_more_leniently_than_sszip(nginx, origin, readers, reading):
    who, method, query, kind, body = reading
    body = encoded(body)
    found = readers.all[who](method, query, {"content-type": kind}, body)
    assert any(is_denied(name) for name in found if name), "that reader would not call it"
    for place in PLACES:
        send(nginx.port, place, method, query, [("Content-Type", kind)], body)
    assert [readers.denied(request) for request in origin.received()] == [[]] * len(origin.received())


def test_no_reader_finds_a_denied_method_in_random_requests(nginx, origin, readers):
    print(f"{NUMBER} requests of seed {SEED}")
    chance, passed = random.Random(SEED), 0
    for number in range(NUMBER):
        request = any_request(chance)
        origin.requests.clear()
        send(nginx.port, PLACES[number % len(PLACES)], *request)
        for seen in origin.received():
            assert not readers.denied(seen), (number, request)
            passed += 1
    print(f"{passed} of them have reached the node")
    assert passed > NUMBER // 50


def test_each_reader_has_a_reading_of_its_own():
    assert set(IN_PYTHON) | {"go"} == {who for who, *_ in READINGS}

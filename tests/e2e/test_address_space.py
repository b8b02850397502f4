"""Lack of memory costs speed, never a response: a live worker is limited to almost no
address space, and the limit is removed again.

An allocation of nginx itself that fails has the same effect as without sszip: a 500, or
a connection that is closed. Never allowed are a worker that dies, a response that is
wrong, missing, or truncated without a sign, and a worker that does not recover when
there is memory again.
"""

import json
import random
import re
import resource
import threading

import pytest

from harness.client import Truncated, request_bytes
from harness.nginx import SANITIZED
from harness.origin import answer
from harness.rpc import Node, call

# AddressSanitizer can refuse the program memory, but does not survive failures of its own
pytestmark = [
    pytest.mark.bare,
    pytest.mark.shipped("failures on demand need thread-local memory, without which glibc ends a thread"),
    pytest.mark.skipif(
        SANITIZED,
        reason="AddressSanitizer ends a process that it can't map memory of its own for: see test_refused_memory.py",
    ),
]

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_memory 64m;
sszip_cache_namespace all;
sszip_cache_valid tip 1h;
sszip_cache_valid unfinalized 1h;
proxy_http_version 1.1;
proxy_set_header Connection "";
client_body_buffer_size 64k;
server {
    listen 127.0.0.1:@port@ backlog=1024;
    location / { proxy_pass http://@origin@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin@; }
    location /chunked { proxy_pass http://@origin@; }
    location /beacon { proxy_pass http://@origin@; }
    location /status { sszip off; stub_status; }
}
"""

MIB = 1 << 20
CLIENTS = 8
ROUNDS = 3
LARGE, MIDDLE, SMALL = 3_000_000, 100_000, 300
HEADERS = [("Content-Type", "application/json"), ("Connection", "close")]


class Chain:
    """The node's result for each block, so that every byte is known."""

    def __init__(self):
        self._results = {}
        self._lock = threading.Lock()

    def result(self, size, number):
        with self._lock:
            known = self._results.get((size, number))
        if known is None:
            noise = random.Random(f"{size} {number}").randbytes(size // 4).hex()
            known = b'"0x' + noise.encode() + b"0" * (size - len(noise)) + b'"'
            with self._lock:
                self._results[size, number] = known
        return known


CHAIN = Chain()
# no newline: a response that was stored out of a batch has none either
RESULTS = {"eth_getBlockByHash": lambda params: CHAIN.result(int(params[0][2:34], 16), int(params[0][34:], 16))}
NODE = Node(RESULTS, newline=b"")
CHUNKED = Node(RESULTS, newline=b"", framing="chunked")


def params(size, number):
    """Returns a block hash that contains the length of the result and the number."""
    return f'["0x{size:032x}{number:032x}",true]'


def block(size, number, id):
    return call("eth_getBlockByHash", params(size, number), str(id))


def serve(origin):
    origin.answers(NODE)
    origin.answers(CHUNKED, "/stream")
    origin.answers(CHUNKED, "/chunked")

    def beacon(request):
        number = int(re.search(r"=(\d+)", request.target)[1])
        return answer(CHAIN.result(MIDDLE, number), headers=[("Cache-Control", "max-age=60")])

    origin.answers(beacon, "/beacon")


class CheckedRequest:
    """One request, and the check of its response."""

    def __init__(self, chance):
        self.path = chance.choices(["/", "/stream", "/chunked", "/beacon"], [6, 2, 2, 1])[0]
        self.accept = chance.choice(["gzip", None])
        self.id = chance.randrange(10**6)
        # a few values only: hits, and coalesced requests
        self.size = chance.choice([LARGE, LARGE, MIDDLE, SMALL])
        self.numbers = [chance.randrange(6)]
        if self.path == "/" and chance.random() < 0.3:
            self.numbers = chance.sample(range(8), chance.randint(2, 4))

    def request(self):
        headers = HEADERS + ([("Accept-Encoding", self.accept)] if self.accept else [])
        if self.path == "/beacon":
            return request_bytes(f"/beacon?n={self.numbers[0]}", headers=headers)
        calls = [block(self.size, number, self.id + place) for place, number in enumerate(self.numbers)]
        body = calls[0] if len(calls) == 1 else b"[" + b",".join(calls) + b"]"
        return request_bytes(self.path, method="POST", headers=headers, body=body)

    def verify(self, response):
        results = [CHAIN.result(MIDDLE if self.path == "/beacon" else self.size, n) for n in self.numbers]
        if self.path == "/beacon":
            assert response.decoded == results[0]
        elif len(results) == 1:
            expected = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (self.id, results[0])
            assert response.decoded == expected
        else:
            # JSON-RPC lets a batch come in any order
            answers = {one["id"]: one["result"].encode() for one in json.loads(response.decoded)}
            assert answers == {self.id + place: result.strip(b'"') for place, result in enumerate(results)}


def send(nginx, one):
    """`"whole"`, or the outcome of a failure of nginx itself."""
    try:
        with nginx.connect(timeout=30) as connection:
            connection.send(one.request())
            response = connection.read()
    except (Truncated, ConnectionError):
        return "cut"
    if response.status in (500, 502, 503, 504):
        return "error"
    assert response.status == 200
    one.verify(response)
    return "whole"


def load(nginx, seed, requests):
    """The outcomes of `requests` requests from each of the clients, at the same time."""
    outcomes, faults = [], []

    def client(number):
        chance = random.Random(f"{seed} {number}")
        try:
            for _ in range(requests):
                outcomes.append(send(nginx, CheckedRequest(chance)))
        except BaseException as fault:  # a thread can't raise
            faults.append(fault)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    return outcomes


def leave(pid, margin):
    """Limits a process to its present address space and `margin` bytes; `None`: no limit."""
    limit = resource.RLIM_INFINITY
    if margin is not None:
        with open(f"/proc/{pid}/status") as status:
            size = int(next(line for line in status if line.startswith("VmSize")).split()[1])
        limit = size * 1024 + margin
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


@pytest.fixture(scope="module")
def nginx(start_nginx):
    nginx = start_nginx(CONFIG)
    # failed allocations of nginx itself
    nginx.expect(r"(malloc|posix_memalign|mmap|calloc)\(.*(failed|Cannot allocate)|Cannot allocate memory")
    return nginx


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("margin", [0, 1, 4, 16], ids="{}-MiB".format)
def test_worker_survives_and_recovers_when_its_address_space_is_limited(nginx, origin, margin, warm):
    serve(origin)
    (worker,) = nginx.workers()
    for seed in range(ROUNDS):
        if warm:
            load(nginx, f"warm {seed}", 2)
        leave(worker, margin * MIB)
        try:
            outcomes = load(nginx, f"{seed} {margin}", 6)
        finally:
            assert nginx.workers() == [worker], nginx.all_logs()[-2000:]
            leave(worker, None)
        if margin >= 4:
            assert "whole" in outcomes

    # there is memory again
    number = random.Random(f"{margin} {warm}").randrange(10**9)

    def fetch(id):
        body = block(MIDDLE, number, id)
        response = nginx.post("/", body)
        assert response.status == 200
        return response

    nginx.wait_for(lambda: fetch(1).coding == "gzip", "answers to be compressed again")
    nginx.wait_for(lambda: (fetch(2).header("Cache-Status") or "").startswith("sszip; hit"), "answers to be stored again")
    assert fetch(3).decoded == b'{"jsonrpc":"2.0","id":3,"result":%b}' % CHAIN.result(MIDDLE, number)
    assert all(outcome == "whole" for outcome in load(nginx, "after", 3))
    assert nginx.workers() == [worker]

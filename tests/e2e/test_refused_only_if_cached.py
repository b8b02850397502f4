"""Cache-Control: only-if-cached while each allocation fails in turn, of nginx itself and of the core: the
client receives the stored response, the 504 or an error, and the node receives nothing."""

import itertools
import json

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.nginx_state import wait_until_stable
from harness.preload import LIBRARIES, OTHER_THREADS
from harness.rpc import Node, call
from tiers import by_tier

# a pool has room for next to nothing: its size decides which allocations fit into its rest, and which
# are their own
POOLS = by_tier((112, 144), (112, 128, 144, 176, 208))
CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
proxy_http_version 1.1;
client_body_buffer_size 1m;
sszip_cache_max_request 1m;
server { listen 127.0.0.1:@port@; location /status { sszip off; stub_status; } }
"""
CONFIG += "".join(
    f"""
server {{
    listen 127.0.0.1:@port_{pool}@;
    request_pool_size {pool};
    location / {{ proxy_pass http://@origin@; }}
    location /limited {{ sszip_method deny admin_*; proxy_pass http://@origin@; }}
    location /fallback {{ error_page 500 502 503 504 = @fallback; proxy_pass http://@origin@; }}
    location @fallback {{ proxy_pass http://@origin@; }}
}}
"""
    for pool in POOLS
)

ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")
JSON = ("Content-Type", "application/json")
# lengths of bodies: shorter allocations come from the core's reserve
LONG = (65 << 10, 1 << 40)
TEXT = bodies.json(300_000).hex()
HASH = b"ab" * 32
SHORT, STORED = call("eth_chainId"), call("eth_getBlockByHash", '["0x%s",true]' % HASH.decode())
NEW = call("eth_getBlockByHash", '["0x%s",false]' % HASH.decode(), id="2")
BATCH = b"[%b,%b]"
_numbers = itertools.count(1)
# path, headers and body of a request, and the status of its response
REQUESTS = {
    "hit": ("/", [JSON], SHORT, 200),
    "long-hit": ("/", [JSON], STORED, 200),
    "miss": ("/", [JSON], NEW, 504),
    "hits": ("/", [JSON], BATCH % (STORED, SHORT), 200),
    "mixed": ("/", [JSON], BATCH % (STORED, NEW), 504),
    "unread": ("/", [("Content-Type", "text/plain")], SHORT, 504),
    "credentials": ("/", [JSON, ("Authorization", "Bearer a")], SHORT, 504),
    "policy": ("/limited", [JSON], NEW, 504),
    "fallback": ("/fallback", [JSON], NEW, 504),
    "fallback-hit": ("/fallback", [JSON], SHORT, 200),
}


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    nginx = start_nginx(CONFIG, environment=preload.environment)
    # nginx logs each of its own failures
    nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")
    return nginx


@pytest.fixture
def stored(nginx, origin):
    """The hash of the block whose response is stored, compressed only."""
    block = b"%064x" % next(_numbers)
    node = Node({"eth_chainId": b'"0x1"', "eth_getBlockByHash": b'"%b"' % TEXT.encode()}, newline=b"")
    origin.answers(node)
    for body in (SHORT, STORED.replace(HASH, block)):
        nginx.post("/", body, port=f"port_{POOLS[0]}")
        # the first hit has read the entry
        nginx.wait_for(lambda: send(nginx, POOLS[0], "/", [JSON], body, "gzip") == 200, "an entry")  # noqa: B023
    origin.requests.clear()
    return block


def send(nginx, pool, path, headers, body, accept=None):
    """The status of a right response, or `"cut"`."""
    headers = [*headers, ONLY_IF_CACHED, ("Connection", "close")]
    if accept:
        headers.append(("Accept-Encoding", accept))
    with nginx.connect(f"port_{pool}") as connection:
        connection.send(request_bytes(path, method="POST", headers=headers, body=body))
        try:
            response = connection.read("POST")
        except (Truncated, ConnectionError):
            return "cut"
    if response.status == 200:
        calls, answers = json.loads(body), json.loads(response.decoded)
        pairs = zip(calls, answers, strict=True) if isinstance(calls, list) else [(calls, answers)]
        for sent, received in pairs:
            assert received["id"] == sent["id"]
            assert received["result"] == ("0x1" if sent["method"] == "eth_chainId" else TEXT)
    elif response.status == 504:
        assert response.body == b'{"status":504,"detail":"not cached: only-if-cached"}'
    return response.status


def outcomes_of(nginx, origin, preload, stored, name, pool, accept=None, **which):
    """The outcomes of a request while each allocation in turn fails, until none does."""
    path, headers, body, expected = REQUESTS[name]
    body = body.replace(HASH, stored)
    (worker,) = nginx.workers()
    outcomes = []
    for skip in itertools.count():
        with preload.refusing(worker, skip=skip, **which):
            outcomes.append(send(nginx, pool, path, headers, body, accept))
        assert nginx.workers() == [worker], nginx.error_log()[-2000:]
        if not preload["refused"]:
            break
        assert send(nginx, pool, path, headers, body, accept) == expected
    assert outcomes[-1] == expected
    assert origin.received() == [], (name, outcomes)
    wait_until_stable(nginx)
    return outcomes


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("pool", POOLS)
def test_node_receives_nothing_when_any_allocation_of_nginx_fails(nginx, origin, stored, preload, pool, name):
    outcomes = outcomes_of(nginx, origin, preload, stored, name, pool, "gzip")
    assert len(outcomes) > 10
    assert set(outcomes) <= {REQUESTS[name][3], 504, 400, 500, "cut"}, outcomes


@pytest.mark.parametrize("name", ["long-hit", "hits"])
def test_entry_that_cannot_be_decoded_is_not_fetched(nginx, origin, stored, preload, name):
    which = {"sizes": LONG, "caller": LIBRARIES, "thread": OTHER_THREADS}
    assert outcomes_of(nginx, origin, preload, stored, name, POOLS[-1], **which) == [504, 200]


def test_long_body_that_cannot_be_copied_is_not_forwarded(nginx, origin, stored, preload):
    (worker,) = nginx.workers()
    body = SHORT[:-1] + b" " * 200_000 + b"}"
    outcomes = []
    for skip in itertools.count():
        with preload.refusing(worker, sizes=LONG, skip=skip):
            outcomes.append(send(nginx, POOLS[-1], "/", [JSON], body))
        if not preload["refused"]:
            break
    # the buffer of the body, and its copy
    assert set(outcomes[:-1]) == {500, 504} and outcomes[-1] == 200
    assert origin.received() == []

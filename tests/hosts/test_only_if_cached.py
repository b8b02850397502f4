"""Cache-Control: only-if-cached (RFC 9111, 5.2.1.7): the node receives no request, and the next request
for the same waits for nothing."""

import contextlib

import pytest

from harness import client
from harness.client import Truncated, request_bytes
from harness.owner import owner_of, wait_until_linked
from harness.rpc import Node, call
from harness.stands import cache_key

ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")
JSON = ("Content-Type", "application/json")
BODY = call("eth_chainId")


@pytest.fixture(scope="module")
def server(start_server, host):
    places = {
        "/purge": {"cache_purge": True},
        "/limited": {"method": ["deny admin_*"]},
        # a request that waits for a lease does so for longer than a test
        "/": {"cache_namespace": "main", "cache_lock_timeout": "1h"},
    }
    general = {"cache": True}
    if host != "wasm":
        # the sandbox has a daemon
        general["cache_path"] = "@prefix@/cache max_size=64m memory=32m"
    server = start_server(places, general, workers=2)
    if host != "wasm":
        wait_until_linked(server)
    return server


@pytest.fixture
def node(server, origin):
    results = {"eth_chainId": b'"0x1"', "net_version": b'"1"', "eth_gasPrice": b'"0x2"', "eth_blockNumber": b'"0x3"'}
    node = Node(results)
    origin.answers(node)
    return node


def owner(server):
    return getattr(server, "owner", None) or owner_of(server)


def fetch_if_cached(server, body):
    return server.fetch("/", body, headers=[ONLY_IF_CACHED])


def cache_status(response):
    return response.header("Cache-Status") or ""


def is_stored(server, body):
    return cache_status(fetch_if_cached(server, body)).startswith("sszip; hit")


def test_node_receives_no_request_and_no_lease_is_left(server, node):
    body = call("net_version")
    response = fetch_if_cached(server, body)
    assert response.status == 504
    assert cache_status(response).startswith("sszip; detail=miss; key=")
    key = cache_key(response)
    assert node.count() == 0
    server.wait_for(lambda: owner(server).status()["leases"] == 0, "the lease to be returned")
    # on any worker
    for _ in range(4):
        assert server.fetch("/", body).status == 200
    server.wait_for(lambda: is_stored(server, body), "the response to be stored")
    assert cache_key(fetch_if_cached(server, body)) == key
    server.wait_for(lambda: owner(server).request("GET", f"/v1/entries/{key}")[0] == 200, "the owner to have it")
    _, fields, _ = owner(server).request("GET", f"/v1/entries/{key}")
    assert fields["sszip-method"] == "net_version"
    before = node.count()
    for number in range(20):
        fetch_if_cached(server, call("eth_chainId", f"[{number}]"))
    assert node.count() == before


def test_later_requests_do_not_wait_for_a_batch_that_is_not_cached(server, node):
    calls = [call("eth_gasPrice"), call("eth_blockNumber", id="2")]
    batch = b"[" + b",".join(calls) + b"]"
    response = fetch_if_cached(server, batch)
    assert response.status == 504
    assert cache_status(response) == "sszip; detail=miss"
    assert node.count() == 0
    # on any worker
    for body in [*calls, batch] * 4:
        assert server.fetch("/", body).status == 200


def test_purge_is_no_request_to_the_cache(server, node):
    response = client.fetch(server.port, "/purge?everything", method="POST", headers=[ONLY_IF_CACHED])
    assert response.status == 200


@pytest.mark.hosts("nginx")
def test_connection_is_kept_after_a_body_that_is_not_read(server, node):
    """Envoy closes an HTTP/1 connection in this case."""
    with server.connect() as connection:
        for _ in range(2):
            response = connection.exchange(
                "/", method="POST", headers=[ONLY_IF_CACHED, ("Content-Type", "text/plain")], body=b"x" * 100_000
            )
            assert response.status == 504
            assert cache_status(response) == "sszip; detail=content-type"
            response = connection.exchange("/", method="POST", headers=[JSON], body=BODY)
            assert response.status == 200


@pytest.mark.parametrize("type, status", [("text/plain", 504), ("application/json", 200)])
def test_request_that_expects_100_continue_is_not_forwarded(server, host, origin, node, type, status):
    server.fetch("/", BODY)
    server.wait_for(lambda: is_stored(server, BODY), "the response to be stored")
    origin.requests.clear()
    fields = [("Content-Type", type), ONLY_IF_CACHED, ("Expect", "100-continue"), ("Content-Length", str(len(BODY)))]
    with server.connect() as connection:
        connection.send(request_bytes("/", method="POST", headers=fields))
        head = connection.read_head()
        if head.status == 100:
            # Envoy's connection manager sends it in any case
            assert host != "nginx" or status == 200
            connection.send(BODY)
            head = connection.read_head()
        assert head.status == status
    assert origin.received() == []


UNREAD = {
    "only-if-cached": ("/", [ONLY_IF_CACHED, ("Content-Type", "text/plain")], 504),
    "policy": ("/limited", [JSON, ("Content-Encoding", "br")], 415),
}


@pytest.mark.parametrize("name", UNREAD)
def test_pipelined_request_that_is_rejected_by_its_head_is_not_forwarded(server, origin, node, name):
    """Its body arrives while the response waits for the one before it."""
    path, headers, status = UNREAD[name]
    server.fetch("/", BODY)
    server.wait_for(lambda: is_stored(server, BODY), "the response to be stored")
    origin.requests.clear()
    hit = request_bytes("/", method="POST", headers=[JSON], body=BODY)
    with server.connect() as connection:
        connection.send(hit + request_bytes(path, method="POST", headers=headers, body=b"unread"))
        assert connection.read("POST").status == 200
        # Envoy may close the connection of a request that it has not read
        with contextlib.suppress(Truncated, ConnectionError):
            assert connection.read("POST").status == status
    assert server.fetch("/", call("eth_gasPrice")).status == 200
    assert all(b"unread" not in request.body for request in origin.received())

"""Background updates as Envoy's own requests: the rows of test_background_update.py that depend
on the host."""

import itertools
import json
import os
import random
import threading
import time

import pytest

from harness import bodies, client
from harness.client import Malformed, Truncated
from harness.envoy import Envoy, route
from harness.guards import GUARD_SECONDS
from harness.nginx_state import wait_until_expired
from harness.origin import CLOSE, RESET, CloseWithoutResponse
from harness.rpc import Node, call
from test_background_update import TestBackgroundUpdate as Rows
from test_background_update import exchange_or_abort, random_response, updated
from test_stale import RpcClient, failing, result_of
from tiers import by_tier, times

SETTINGS = {
    "cache": True,
    "cache_valid": "tip 1ms",
    "cache_use_stale": "error updating",
    "cache_background_update": True,
}
WORKERS = 5
ROUTES = [
    route("/place"),
    route("/onlyupdating", {"cache_use_stale": "updating"}),
    route("/noupdating", {"cache_use_stale": "error"}),
    route("/short", timeout="1s"),
    {
        **route("/rewritten/", prefix_rewrite="/deep/", host_rewrite_literal="node.test"),
        "request_headers_to_add": [{"header": {"key": "x-token", "value": "let-me"}}],
        "request_headers_to_remove": ["x-secret"],
    },
]
Rows.__test__ = False


def settings_of(**more):
    return {**SETTINGS, **more}


class EnvoyRpcClient(RpcClient):
    def settle(self, path):
        pass


@pytest.fixture(scope="module")
def envoy(start_envoy):
    return start_envoy(ROUTES, settings=SETTINGS, workers=WORKERS)


@pytest.fixture
def rpc(envoy, origin):
    return EnvoyRpcClient(envoy, origin)


@pytest.mark.parametrize("path", ["/place", "/rewritten/a"])
def test_clients_get_the_stale_response_until_the_update_is_stored(rpc, envoy, origin, path):
    path = f"{path}/{rpc.chain}"
    upstream_path = path.replace("/rewritten/", "/deep/")
    rpc(path, headers=[("X-Client", "0"), ("X-Secret", "0")])
    node = rpc.serve(b'"0x2"')
    gate = node.gates["eth_blockNumber"] = threading.Event()
    for id in range(4):
        response = rpc(path, str(id), headers=[("X-Client", str(id + 1)), ("X-Secret", "1")])
        assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":"0x1"}\n' % id
        assert response.header("Cache-Status").startswith("sszip; hit; ttl=")
    envoy.wait_for(node.count, "the update")
    # body, head and target of the first request, as the router makes them
    assert node.received_calls == [{"jsonrpc": "2.0", "id": 0, "method": "eth_blockNumber", "params": []}]
    first, request = origin.received(upstream_path)
    assert request.target == f"{upstream_path}?chain={rpc.chain}" and request.method == "POST"
    assert request.header("Accept-Encoding") == "identity"
    assert request.header("X-Client") == "1"
    assert request.header("Host") == first.header("Host")
    assert request.header("Content-Length") == str(len(request.body))
    if path.startswith("/rewritten/"):
        assert request.header("Host") == "node.test"
        assert request.header("X-Token") == "let-me"
        assert request.header("X-Secret") is None
    gate.set()
    updated(rpc, path)


def test_client_waits_for_the_update_when_its_route_was_not_used_before(rpc, origin):
    """A target whose route is unknown, with a stored response: as after a restart with a
    store."""
    rpc("/place")
    rpc.serve(b'"0x2"')
    chain = rpc.chain
    # another host is another route to the router, and another key to the cache
    with rpc.nginx.connect() as connection:
        fields = [("Content-Type", "application/json"), ("Host", "b.test")]
        target = f"/place?chain={chain}"
        response = connection.exchange(target, method="POST", headers=fields, body=call("eth_blockNumber"))
    assert result_of(response) == "0x2"


@pytest.mark.parametrize(
    "length, accept, framing",
    by_tier(
        [(30_000, "gzip", "length"), (30_000, None, "chunked"), (600_000, "gzip", "close"), (600_000, None, "length")],
        list(itertools.product((30_000, 600_000), ("gzip", None), ("length", "chunked", "close"))),
    ),
)
def test_long_response_is_replaced_by_the_update(rpc, framing, accept, length):
    text = bodies.json(length).hex().encode()
    old, new = b'"0x1%b"' % text, b'"0x2%b"' % text
    rpc.serve(old)
    assert rpc("/place", accept=accept).decoded == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % old
    rpc.nginx.wait_for(lambda: "hit" in rpc("/place", accept=accept).header("Cache-Status"), "it to be stored")
    rpc.origin.answers(Node({"eth_blockNumber": new}, framing=framing))
    rpc.nginx.wait_for(
        lambda: (response := rpc("/place", accept=accept)).decoded
        == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % new
        and "hit" in response.header("Cache-Status"),
        "the new one",
    )


@pytest.mark.parametrize(
    "script",
    [[CLOSE], [RESET], *map(failing, (503, 404, 408, 499))],
    ids=["close", "reset", "503", "404", "408", "499"],
)
def test_clients_get_the_stale_response_when_the_update_fails(rpc, envoy, script):
    path = f"/place/{rpc.chain}"
    rpc(path)
    rpc.fails(script)
    for id in range(3):
        before = len(rpc.origin.received(path))
        # the update before it may still be in flight
        envoy.wait_for(
            lambda: result_of(rpc(path, str(id))) == "0x1" and len(rpc.origin.received(path)) > before,  # noqa: B023
            "an update",
        )
    rpc.serve(b'"0x2"')
    updated(rpc, path)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_truncated_update_is_not_stored(rpc, envoy, framing):
    Rows().test_truncated_update_is_not_stored(rpc, envoy, framing)


def test_update_that_sets_a_cookie_is_not_stored(rpc):
    Rows().test_update_that_sets_a_cookie_is_not_stored(rpc)


@pytest.mark.parametrize("leaves", ["close", "reset"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_update_is_stored_when_the_client_aborts(rpc, envoy, leaves, when):
    Rows().test_update_is_stored_when_the_client_aborts(rpc, envoy, leaves, when)


def test_stale_resource_is_revalidated_with_its_etag(envoy, origin):
    Rows().test_stale_resource_is_revalidated_with_its_etag(envoy, origin)


@pytest.mark.parametrize("number", [None, b"null"])
def test_stale_response_is_removed_when_the_node_reports_an_error_or_null(rpc, number):
    Rows().test_stale_response_is_removed_when_the_node_reports_an_error_or_null(rpc, number)


@pytest.mark.parametrize("path", ["/noupdating", "/onlyupdating"])
def test_entry_is_not_updated_when_use_stale_is_incomplete(rpc, path):
    Rows().test_entry_is_not_updated_when_use_stale_is_incomplete(rpc, path)


def test_update_is_aborted_after_the_timeout_of_the_route(rpc, envoy, origin):
    path = f"/short/{rpc.chain}"
    rpc(path)
    hangs = CloseWithoutResponse(seconds=60)
    rpc.fails([hangs])
    assert result_of(rpc(path)) == "0x1"
    # the timeout of this route is a second; other routes have a minute
    assert hangs.seen.wait(30)
    rpc.serve(b'"0x2"')
    updated(rpc, path)


def test_number_of_simultaneous_updates_is_limited(rpc, envoy, origin):
    """A request beyond the limit receives the stale response, and a later one tries again."""
    paths = [f"/place/{rpc.chain}/{number}" for number in range(100)]
    for path in paths:
        rpc(path)
    gate = threading.Event()
    rpc.serve(b'"0x2"').gates["eth_blockNumber"] = gate
    try:
        for path in paths:
            assert result_of(rpc(path)) == "0x1"

        def count_updates():
            return sum(len(origin.received(path)) - 1 for path in paths)

        envoy.wait_for(lambda: count_updates() == 64, "updates")
        # no other update was sent, or waits for a connection
        assert envoy.stats(r"^cluster\.node\.upstream_rq_(pending_)?active$") == {
            "cluster.node.upstream_rq_active": 64,
            "cluster.node.upstream_rq_pending_active": 0,
        }
    finally:
        gate.set()
    for path in paths:
        updated(rpc, path)


def test_envoy_exits_during_an_update(start_envoy, origin):
    envoy = start_envoy(ROUTES, settings=SETTINGS)
    rpc = EnvoyRpcClient(envoy, origin)
    # a path without updates of other tests
    path = f"/place/{rpc.chain}/ends"
    rpc(path)
    rpc.fails([CloseWithoutResponse()])
    assert result_of(rpc(path)) == "0x1"
    envoy.wait_for(lambda: len(origin.received(path)) == 2, "the update")
    envoy.process.terminate()
    assert envoy.process.wait(GUARD_SECONDS) == 0


def test_update_ends_with_the_filter_of_a_replaced_listener(session_origin, origin):
    """The old listener's filter ends with its background requests; the new one serves the
    stored entry, and fetches it again."""
    envoy = Envoy(ROUTES, origin=session_origin, settings=SETTINGS, workers=2)
    resources = envoy.configuration["static_resources"]
    (listener,) = resources.pop("listeners")
    path = envoy.prefix / "listeners.json"

    def put(comp_level):
        chain = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
        value = settings_of(comp_level=comp_level)
        next(one for one in chain if one["name"] == "sszip")["typed_config"]["filter_config"]["value"] = value
        kind = "type.googleapis.com/envoy.config.listener.v3.Listener"
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"resources": [{"@type": kind, **listener}]}))
        os.replace(new, path)

    put(1)
    envoy.configuration["node"] = {"id": "test", "cluster": "test"}
    envoy.configuration["dynamic_resources"] = {
        "lds_config": {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}
    }
    command = envoy._command
    envoy._command = lambda *more: command("--drain-time-s", "1", *more)
    envoy.start()
    try:
        rpc = EnvoyRpcClient(envoy, origin)
        envoy.wait_for(lambda: answers(rpc), "the listener")
        for level in (2, 3, 4):
            rpc.serve(b'"0x2"')
            updated(rpc, "/place")
            hangs = CloseWithoutResponse()
            before = len(origin.received("/place"))
            rpc.fails([hangs])
            # no client waits for it
            envoy.wait_for(
                lambda: result_of(rpc("/place")) == "0x2" and len(origin.received("/place")) > before,  # noqa: B023
                "an update",
            )
            put(level)
            # it ends with the filter that sent it
            assert hangs.seen.wait(GUARD_SECONDS)
            rpc.serve(b'"0x1"')
            updated(rpc, "/place", "0x1")
    finally:
        envoy.stop()


def answers(rpc):
    try:
        return rpc("/place").status == 200
    except OSError:
        return False


def test_responses_never_go_back_when_clients_and_node_abort_at_random(envoy, origin):
    """Clients abort at any moment, and the node fails in every way: each client that stays
    receives one of the node's own responses, and stored ones never go back: after a stored response
    to a request that began at a time T, a client receives none to a request that the node had
    received before T."""
    chance = random.Random(7)
    versions = itertools.count(1)
    # of each version: the time at which the request of the client began, and the time at which the
    # node received its request; a thread has sent the latter in between
    spans = {}

    def node(request):
        version = next(versions)
        spans[version] = (int(request.header("Began")), time.monotonic_ns())
        return random_response(chance, request, version)

    origin.answers(node)
    faults = []
    counts = {True: 0, False: 0}

    def client_of(seed):
        chance = random.Random(seed)
        newest = {}
        for number in range(times(60, 150)):
            path = f"/place/all/{chance.randrange(3)}"
            accept = chance.choice([[], [("Accept-Encoding", "gzip")]])
            fields = [("Content-Type", "application/json"), ("Began", str(time.monotonic_ns())), *accept]
            body = call("eth_blockNumber", id=str(number))
            try:
                with envoy.connect() as connection:
                    request = client.request_bytes(path, method="POST", headers=fields, body=body)
                    response = exchange_or_abort(chance, connection, request)
                if response is None:
                    continue
            except (Malformed, Truncated, OSError):
                continue  # the node aborted after the head was sent
            if response.status != 200 or "result" not in (reply := json.loads(response.decoded)):
                continue
            version = int(reply["result"].strip("_"), 16)
            began, received = spans[version]
            stored = response.header("Cache-Status").startswith("sszip; hit")
            counts[stored] += 1
            if reply["id"] != number or stored and received < newest.get(path, 0):
                faults.append((path, reply["id"], number, version, spans[version], newest.get(path)))
            if stored:
                newest[path] = max(began, newest.get(path, 0))

    clients = [threading.Thread(target=client_of, args=(seed,)) for seed in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert not faults
    assert counts[True] > times(60, 200) and counts[False] > 0, counts
    origin.answers(Node({"eth_blockNumber": b'"0xffff"'}))

    def is_last(path):
        wait_until_expired()
        with envoy.connect() as connection:
            fields = [("Content-Type", "application/json")]
            response = connection.exchange(path, method="POST", headers=fields, body=call("eth_blockNumber"))
        return response.status == 200 and json.loads(response.decoded).get("result") == "0xffff"

    for number in range(3):
        envoy.wait_for(lambda: is_last(f"/place/all/{number}"), "the last version")  # noqa: B023

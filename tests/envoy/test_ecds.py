"""Filters with discovered configuration (ECDS): streams in flight keep the previous
configuration, and the last of them ends it, on its worker, with the filter's background
requests."""

import contextlib
import json
import socket
import threading

import pytest

from harness.client import request_bytes
from harness.ecds import OTHER, EcdsModuleEnvoy, EcdsSandboxEnvoy
from harness.load import Load
from harness.origin import WaitFor, answer, chunked, head
from harness.rpc import Node, call
from tiers import times

HOSTS = ("native", "wasm")

SETTINGS = {
    "cache": True,
    "cache_namespace": "all",
    "cache_valid": "tip 1ms",
    "cache_use_stale": "updating",
    "ssz": True,
}
# additional settings of each host
OWN = {
    # longer than a client waits: a follower without a leader fails its test
    "native": {"cache_background_update": True, "cache_lock_timeout": "60s"},
    "wasm": {"cache_owner": "cluster:sszip_cached", "cache_lock_timeout": "1s"},
}
CALL = call("eth_blockNumber")
JSON = [("Content-Type", "application/json")]
SPEC = b'{"data":{"PRESET_BASE":"minimal"}}'


@pytest.fixture
def envoy(host, origin):
    kind = {"native": EcdsModuleEnvoy, "wasm": EcdsSandboxEnvoy}[host]
    envoy = kind(origin, {**SETTINGS, **OWN[host]}, workers=2)
    yield envoy.start()
    envoy.stop()


@pytest.mark.native("a sandbox asks nodes in the name of its root, on its worker")
def test_filter_config_ends_on_a_worker_during_its_background_request(envoy, origin):
    """The node is slow with the background request."""
    for turn in range(times(25, 100)):
        with under_way(envoy, origin, turn) as (slow, go_on, gate):
            envoy.publish_and_wait(min_length=turn + 1)
            go_on.set()
            assert slow._chunks() == b"12"
        gate.set()
        envoy.wait_for(lambda: envoy.active() == 0, "all to end")
        envoy.check()


@pytest.mark.native("the same")
def test_worker_waits_for_background_requests_of_a_removed_filter(envoy, origin):
    """The filter is not notified: its worker waits for the background request."""
    for turn in range(times(3, 10)):
        with under_way(envoy, origin, turn) as (slow, go_on, gate):
            envoy.publish_and_wait(OTHER)
            origin.answers(answer(b"after"), "/after")
            before = missed_watchdogs(envoy)
            go_on.set()
            slow.send(request_bytes("/after"))
            # its worker waits, and sends no other response meanwhile
            envoy.wait_for(lambda before=before: missed_watchdogs(envoy) > before, "its worker to wait")
            assert b"HTTP/1.1" not in unread(slow)
            gate.set()
            assert slow._chunks() == b"12"
            assert slow.read("GET").body == b"after"
        envoy.wait_for(lambda: envoy.active() == 0, "all to end")
        assert envoy.fetch(f"/calls/{turn}", CALL).header("Cache-Status") is None
        envoy.check()
        envoy.publish_and_wait()
    # no request was reset by a thread that does not own it
    assert sum(envoy.stats(r"node\.upstream_rq_tx_reset$").values()) == 0


def missed_watchdogs(envoy):
    """How often a worker has not touched its watchdog for 200 ms."""
    return sum(envoy.stats(r"^workers\.watchdog_miss$").values())


def unread(connection):
    """The bytes that have arrived, and are still to be read."""
    connection.socket.setblocking(False)
    try:
        data = connection.socket.recv(65536, socket.MSG_PEEK)
    except BlockingIOError:
        data = b""
    connection.socket.settimeout(30)
    return bytes(connection.buffer) + data


@contextlib.contextmanager
def under_way(envoy, origin, turn):
    """A stream that waits, and an update."""
    path = f"/calls/{turn}"
    origin.answers(Node({"eth_blockNumber": b'"0x1"'}), path)
    envoy.fetch(path, CALL)
    node = Node({"eth_blockNumber": b'"0x2"'})
    gate = node.gates["eth_blockNumber"] = threading.Event()
    origin.answers(node, path)
    go_on = threading.Event()
    steps = [head(200, [*JSON, ("Transfer-Encoding", "chunked")]), *chunked([b"1"], last=False)]
    origin.answers([*steps, WaitFor(go_on), *chunked([b"2"])], f"/slow/{turn}")
    with envoy.connect() as slow:
        slow.send(request_bytes(f"/slow/{turn}"))
        slow.read_head()
        envoy.wait_for(lambda: origin.received(f"/slow/{turn}"), "the node to receive a request")
        # the stored response is sent, and the update starts
        assert json.loads(envoy.fetch(path, CALL).decoded)["result"] == "0x1"
        envoy.wait_for(node.count, "the update")
        yield slow, go_on, gate


def test_responses_are_right_when_the_filter_config_changes_under_load(envoy, origin, host):
    """Updates and probes are in flight all the time: no response is wrong or lost."""
    path = "/eth/v1/beacon/states/9/pending_consolidations"
    value = b'{"version":"electra","data":[]}'
    fields = [("Eth-Consensus-Version", "electra")]
    origin.answers(answer(SPEC), "/eth/v1/config/spec")
    origin.answers(answer(value, headers=fields), path)
    origin.answers(Node({"eth_blockNumber": b'"0x1"'}, newline=b""), "/calls")
    whole = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
    requests = [((path, []), value), (("/calls", JSON, CALL), whole)]
    with Load(envoy.port, requests, clients=6) as load:
        for number in range(times(3, 15)):
            envoy.publish_and_wait(min_length=number + 1)
        envoy.wait_for(lambda: load.answered > 100 or load.faults, "answers", 60)
    assert load.faults == []
    # the lease of a sandbox that is gone ends after ten seconds; its followers continue after one
    assert host == "native" or load.longest < 8
    envoy.wait_for(lambda: envoy.active() == 0, "all to end")


def test_responses_are_right_when_the_filter_is_removed_and_added_under_load(envoy, origin, host):
    """Meanwhile there is no filter, or a stream has the removed one."""
    whole = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % (b"1" * 3000)
    origin.answers(Node({"eth_blockNumber": b'"0x%b"' % (b"1" * 3000)}, newline=b""))
    fields = [*JSON, ("Accept-Encoding", "gzip")]
    requests = [(("/calls", fields, CALL), whole), (("/others", fields, CALL), whole)]

    def is_there():
        return bool(envoy.fetch("/calls", CALL).header("Cache-Status"))

    with Load(envoy.port, requests, clients=6) as load:
        for number in range(times(1, 5)):
            envoy.publish_and_wait(OTHER)
            envoy.wait_for(lambda: not is_there(), "it to be gone")
            envoy.publish_and_wait(min_length=number + 1)
            envoy.wait_for(is_there, "it to be back")
        envoy.wait_for(lambda: load.answered > 100 or load.faults, "answers", 60)
    assert load.faults == []
    # the lease of a sandbox that is gone ends after ten seconds; its followers continue after one
    assert host == "native" or load.longest < 8
    envoy.wait_for(lambda: envoy.active() == 0, "all to end")

"""A store whose disk is slow when Envoy ends, or replaces it: Envoy exits in time, and does not
destroy objects that its threads still use; the next Envoy has the store."""

import json
import os
import time

import pytest

from harness.envoy import Envoy, route
from harness.owner import Client
from harness.preload import ANY_PROCESS
from harness.rpc import Node
from test_heads_by_xds import chain, dynamic
from test_store_life import by_hash, wait_until_linked

# pytest finds the fixtures by these names
__all__ = ["chain", "dynamic"]

# longer than any test waits: a test that continues does not wait for the disk
DELAY = 600_000
SETTINGS = {
    "cache": True,
    "cache_path": "@prefix@/cache max_size=64m",
    "cache_namespace": "main",
    "cache_valid": "immutable 1h",
}


@pytest.fixture
def make(session_origin, preload):
    made = []

    def make():
        envoy = Envoy([route("/")], origin=session_origin, settings=SETTINGS, workers=2)
        envoy.environment = preload.environment
        made.append(envoy)
        return envoy

    yield make
    for envoy in reversed(made):
        envoy.stop()


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": lambda params: b'"%b"' % (params[0].encode() * 300)})
    origin.answers(node)
    return node


def send(envoy, numbers=range(30)):
    return [envoy.post("/", by_hash(number)).body for number in numbers]


def fill(envoy, numbers=range(30)):
    """Sends calls, and returns the responses when the owner has them."""
    owner = Client(envoy.prefix / "cache/owner.sock")
    bodies = send(envoy, numbers)

    def are_stored():
        # a response is not stored while an owner that was slow is not queried
        assert send(envoy, numbers) == bodies
        return owner.status()["fills"]["kept"] >= len(bodies)

    envoy.wait_for(are_stored, "the store to have them")
    return bodies


def filled(envoy):
    """Starts Envoy; returns its responses, which are stored."""
    envoy.start()
    wait_until_linked(envoy)
    return fill(envoy)


def ends(envoy):
    """Ends Envoy, which must exit by itself, whatever its disk does."""
    envoy.end()
    envoy.check()


def test_clients_do_not_wait_for_a_slow_disk(make, node, preload):
    """New entries are sent and stored in memory while they are written; a lookup that the owner
    does not answer in time is sent to the node."""
    envoy = make()
    bodies = filled(envoy)
    ends(envoy)
    envoy.start()
    wait_until_linked(envoy)
    with preload.slow_disk(envoy.process.pid, DELAY):
        assert send(envoy) == bodies
        new = send(envoy, range(30, 60))
        before = node.count()
        assert send(envoy, range(60)) == bodies + new
        assert node.count() == before
        ends(envoy)
        assert preload["delayed"]


def test_envoy_exits_in_time_when_the_disk_is_slow(make, node, preload):
    envoy = make()
    bodies = filled(envoy)
    with preload.slow_disk(envoy.process.pid, DELAY):
        ends(envoy)
        assert preload["delayed"]
    # the store opens as after a crash
    envoy.start()
    wait_until_linked(envoy)
    assert send(envoy) == bodies


def test_envoy_exits_in_time_when_the_disk_is_slow_from_the_start(make, node, preload):
    """Envoy ends at several stages of opening the store."""
    envoy = make()
    for wait in (0, 0.03, 0.1, None):
        # every process that starts from here on
        with preload.slow_disk(ANY_PROCESS, DELAY):
            envoy.start()
            if wait is None:
                envoy.wait_for(lambda: preload["delayed"], "the store to wait for its disk")
            else:
                time.sleep(wait)
            assert len(send(envoy, range(2))) == 2
            ends(envoy)
    bodies = filled(envoy)
    ends(envoy)
    envoy.start()
    wait_until_linked(envoy)
    before = node.count()
    assert send(envoy) == bodies
    assert node.count() <= before + 6


def test_hot_restart_succeeds_when_the_disk_of_the_old_envoy_is_slow(make, node, preload):
    """The old Envoy's disk is slow; the new one, whose disk is fast, takes over the store."""
    base = ["--base-id", str(os.getpid() % 30000 + 2), "--parent-shutdown-time-s", "2",
            "--drain-time-s", "1", "--drain-strategy", "immediate"]  # fmt: skip
    first = make()
    first.options, first.restarts = [*base, "--restart-epoch", "0"], True
    bodies = filled(first)
    second = make()
    second.options, second.restarts = [*base, "--restart-epoch", "1"], True
    text = json.dumps(first.configuration).replace("@prefix@", str(first.prefix))
    second.configuration = json.loads(text)
    second.port = second.direct = first.port
    second.admin = first.admin
    with preload.slow_disk(first.process.pid, DELAY):
        second.start()
        first.wait_for(lambda: first.process.poll() is not None, "it to end")
        assert preload["delayed"]
    assert first.process.returncode == 0
    first.check()
    owner = Client(first.prefix / "cache/owner.sock")

    def serves():
        try:
            return owner.status()["pid"] == second.process.pid
        except (OSError, AssertionError, ValueError):
            return False

    second.wait_for(serves, "the next one to have the store")
    assert send(second) == bodies


def test_owner_is_replaced_while_its_disk_is_slow(dynamic, preload):
    """The old owner still writes, and Envoy ends meanwhile."""
    dynamic.end()
    dynamic.environment = preload.environment
    dynamic.start()
    wait_until_linked(dynamic)
    fill(dynamic, range(10))
    main = {**dynamic.store, "cache_namespace": "main"}
    with preload.slow_disk(dynamic.process.pid, DELAY):
        dynamic.settings(**main, cache_head=dynamic.head)
        dynamic.wait_for(lambda: preload["delayed"], "the owner to be ended")
        # Envoy waits two seconds for the old owner, and logs nothing; the test passes at any moment
        time.sleep(3)
        assert len(send(dynamic, range(2))) == 2
        ends(dynamic)

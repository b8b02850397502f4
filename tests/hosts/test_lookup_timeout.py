"""The time for which a request waits for a lookup at the owner."""

import itertools
import os
import signal
import threading
import time

import pytest

from harness.guards import GUARD_SECONDS
from harness.owner import Owner, wait_until_linked
from harness.processes import stop
from harness.rpc import Node
from harness.stands import cache_key
from test_store_life import LARGE, by_hash, hits

pytestmark = pytest.mark.bare

ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")
_numbers = itertools.count(2_000)


@pytest.fixture(scope="module")
def daemon():
    owner = Owner(max_size="64m", memory="32m").start()
    yield owner
    owner.close()


@pytest.fixture(scope="module")
def start(daemon, host, start_server):
    """Starts a server with the daemon's store and this timeout."""

    def start(timeout):
        settings = {"cache": True, "cache_namespace": "main", "cache_lookup_timeout": timeout}
        if host == "wasm":
            return start_server({"/": {}}, settings, owner=daemon)
        return start_server({"/": {}}, {**settings, "cache_owner": f"unix:{daemon.socket}"})

    return start


@pytest.fixture(scope="module")
def patient(start):
    return start("1s")


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    return node


def wait_for_hit(server):
    """Waits until the server is linked to the daemon: before, it sends no hits."""
    number = next(_numbers)
    server.wait_for(lambda: hits(server, [number]), "a hit")


def store(server, daemon):
    """Requests new blocks until the daemon has one, and returns its number. A server that is not linked
    to the daemon stores none."""
    keys = {}

    def stored_number():
        number = next(_numbers)
        keys[number] = cache_key(server.post("/", by_hash(number), headers=[ONLY_IF_CACHED]))
        assert hits(server, [number]) == 0
        entries = {number: f"/v1/entries/{key}" for number, key in keys.items()}
        return next((number for number, entry in entries.items() if daemon.request("GET", entry)[0] == 200), None)

    return server.wait_for(stored_number, "a block to be stored")


def test_lookup_in_a_stopped_owner_is_a_miss_after_the_timeout_only(start, patient, node, daemon):
    impatient = start("20ms")

    def is_hit(server, number, seconds=None):
        """Looks up while the daemon is stopped, for `seconds` or until there is a response."""
        before = node.count()
        stop(daemon.process.pid)
        resumption = threading.Timer(seconds or 0, os.kill, (daemon.process.pid, signal.SIGCONT))
        if seconds:
            resumption.start()
        try:
            answer = server.post("/", by_hash(number))
        finally:
            resumption.cancel()
            os.kill(daemon.process.pid, signal.SIGCONT)
        assert LARGE in answer.decoded
        return node.count() == before

    # each server looks up entries that the other one has stored
    wait_for_hit(impatient)
    assert not is_hit(impatient, store(patient, daemon))
    until = time.monotonic() + GUARD_SECONDS
    while time.monotonic() < until:
        # a server closes its connection to a daemon that was stopped for long
        patient.wait_for(lambda: hits(patient, [store(impatient, daemon)]), "a hit of the daemon")
        number = store(impatient, daemon)
        began = time.monotonic()
        if is_hit(patient, number, seconds=0.1):
            return
        # a miss is right only if the machine took longer than the timeout
        assert time.monotonic() - began > 1
    raise AssertionError("the machine is too busy: each lookup took longer than a second")


@pytest.mark.hosts("native", "wasm")
def test_hundreds_of_lookups_that_time_out_together_are_answered(patient, node, daemon):
    """The daemon sends nothing more; the stack of a sandbox limits simultaneous wakeups."""
    wait_for_hit(patient)
    got = []
    threads = [threading.Thread(target=lambda n=n: got.append(patient.post("/", by_hash(n)))) for n in range(1000, 1600)]
    stop(daemon.process.pid)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert [(answer.status, LARGE in answer.decoded) for answer in got] == [(200, True)] * len(threads)


# a configuration of Envoy has no order
@pytest.mark.hosts("nginx")
@pytest.mark.parametrize("order", [1, -1], ids=["after", "before"])
def test_lookup_timeout_may_precede_or_follow_the_store(start_server, order):
    settings = [("cache_path", "@prefix@/cache max_size=64m"), ("cache_lookup_timeout", "1s")]
    wait_until_linked(start_server({"/": {"cache": True}}, dict(settings[::order])))

"""The time for which a request waits for the store: a setting of a filter."""

import os
import signal
import threading
import time

import pytest

from harness.envoy import Envoy, route
from harness.processes import stop
from harness.rpc import Node
from harness.sandbox import WasmEnvoy
from test_store_life import LARGE, by_hash, hits

HOSTS = ("native", "wasm")


@pytest.fixture(scope="module")
def make(session_origin, daemon):
    """Starts Envoys with the same daemon, which run until the file's tests end."""
    made = []

    def make(host, timeout):
        settings = {"cache": True, "cache_namespace": "main", "cache_lookup_timeout": timeout}
        if host == "wasm":
            envoy = WasmEnvoy([route("/")], origin=session_origin, settings=settings, owner=daemon)
        else:
            settings["cache_owner"] = f"unix:{daemon.socket}"
            envoy = Envoy([route("/")], origin=session_origin, settings=settings)
        made.append(envoy)
        return envoy.start()

    yield make
    for envoy in made:
        envoy.stop()


@pytest.fixture(scope="module")
def patient(host, make):
    return make(host, "1s")


def test_lookup_in_a_stopped_daemon_is_a_miss_after_the_timeout_only(host, make, patient, origin, daemon):
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    daemon.purge(everything=True)
    numbers = range(2, 12)
    # the module stores; the others, with nothing in memory, look it up
    stores = make("native", "1s")
    impatient = make(host, "20ms")
    stores.wait_for(lambda: hits(stores, [1]), "it to be stored")
    for envoy in (patient, impatient):
        # each has a connection to the daemon
        envoy.wait_for(lambda envoy=envoy: hits(envoy, [1]), "a hit")
    stores.wait_for(lambda: hits(stores, numbers) == len(numbers), "more to be stored")

    def is_hit(envoy, number, seconds=None):
        """Looks up while the daemon is stopped, for `seconds` or until there is a response."""
        before = node.count()
        stop(daemon.process.pid)
        resumption = threading.Timer(seconds or 0, os.kill, (daemon.process.pid, signal.SIGCONT))
        if seconds:
            resumption.start()
        try:
            answer = envoy.post("/", by_hash(number))
        finally:
            resumption.cancel()
            os.kill(daemon.process.pid, signal.SIGCONT)
        assert LARGE in answer.decoded
        return node.count() == before

    assert not is_hit(impatient, 2)
    for number in numbers[1:]:
        began = time.monotonic()
        if is_hit(patient, number, seconds=0.1):
            return
        # a miss is right only if the machine took longer than the timeout
        assert time.monotonic() - began > 1
        patient.wait_for(lambda: hits(patient, [1]), "a hit")
    raise AssertionError("the machine is too busy: each look-up took longer than a second")


def test_hundreds_of_lookups_that_time_out_together_are_answered(patient, origin, daemon):
    """The daemon sends nothing more; the stack of a sandbox limits simultaneous wakeups."""
    envoy = patient
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    envoy.wait_for(lambda: hits(envoy, [1]), "a hit")
    got = []
    threads = [threading.Thread(target=lambda n=n: got.append(envoy.post("/", by_hash(n)))) for n in range(1000, 1600)]
    stop(daemon.process.pid)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert [(answer.status, LARGE in answer.decoded) for answer in got] == [(200, True)] * len(threads)

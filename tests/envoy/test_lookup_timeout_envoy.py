"""For how long a request waits for what the store knows: a setting of a filter."""

import os
import signal
import threading
import time

import pytest

from harness.envoy import Envoy, route
from harness.owner import Owner
from harness.processes import stop
from harness.rpc import Node
from harness.sandbox import Sandboxed
from test_store_life import LARGE, by_hash, hits

HOSTS = ("native", "wasm")


@pytest.fixture
def daemon():
    owner = Owner(max_size="64m", memory="32m").start()
    yield owner
    owner.close()


@pytest.fixture
def make(host, session_origin, daemon):
    made = []

    def make(**more):
        settings = {"cache": True, "cache_namespace": "main", **more}
        if host == "wasm":
            envoy = Sandboxed([route("/")], origin=session_origin, settings=settings, owner=daemon)
        else:
            settings["cache_owner"] = f"unix:{daemon.socket}"
            envoy = Envoy([route("/")], origin=session_origin, settings=settings)
        made.append(envoy)
        return envoy.start()

    yield make
    for envoy in made:
        envoy.stop()


def test_a_daemon_that_takes_its_time(make, origin, daemon):
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    # who is patient has it stored, and one of them finds it
    stores, patient = (make(cache_lookup_timeout="1s") for _ in range(2))
    impatient = make(cache_lookup_timeout="20ms")
    stores.wait_for(lambda: hits(stores, [1]), "it to be stored")
    for envoy in (patient, impatient):
        # each has a connection to it
        envoy.wait_for(lambda envoy=envoy: hits(envoy, [1]), "a hit")
    stores.wait_for(lambda: hits(stores, [2, 3]) == 2, "more to be stored")
    for envoy, number, asked in ((impatient, 2, 1), (patient, 3, 0)):
        before = node.count()
        stop(daemon.process.pid)
        goes_on = threading.Timer(0.25, os.kill, (daemon.process.pid, signal.SIGCONT))
        goes_on.start()
        try:
            answer = envoy.post("/", by_hash(number))
        finally:
            goes_on.join()
        assert LARGE in answer.decoded
        assert node.count() == before + asked
        # what was learnt of a daemon that is slow is forgotten
        time.sleep(0.3)


def test_hundreds_whose_time_is_over_at_once(make, origin, daemon):
    """A daemon that says nothing more: a sandbox has a stack for only so many at a time."""
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    envoy = make(cache_lookup_timeout="1s")
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

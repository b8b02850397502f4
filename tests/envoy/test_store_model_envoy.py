"""The store's model on Envoy: random requests, purges, kills and restarts, with a second Envoy
that has the same store, or a daemon that is killed and restarted."""

import signal

import pytest

from harness.envoy import Envoy, route
from harness.owner import Owner
from test_store_life import owner_of
from test_store_model import CHAINS, STEPS, Run
from tiers import seeds, times

PURGE = {
    "name": "purge",
    "match": {"path": "/purge"},
    "direct_response": {"status": 404},
    "typed_per_filter_config": route("/", {"cache_purge": True})["typed_per_filter_config"],
}


def route_of_chain(chain):
    found = route("/", {"cache_namespace": chain})
    found["match"]["query_parameters"] = [{"name": "chain", "string_match": {"exact": chain}}]
    return found


def envoy_of(origin, store):
    settings = {
        "cache": True,
        "cache_memory": "2m",
        "cache_valid": ["immutable 1h", "unfinalized 1h"],
        **store,
    }
    envoy = Envoy(
        [PURGE, *map(route_of_chain, CHAINS)],
        origin=origin,
        settings=settings,
        workers=4,
    )
    # log lines about purges without an owner
    envoy.expect("purge of|store|owner")
    return envoy


class SharedStoreRun(Run):
    """Two Envoys with one store; each request goes to one of them."""

    def __init__(self, seed, origin):
        super().__init__(seed, origin)
        store = {"cache_path": "@prefix@/cache max_size=64m memory=16m"}
        first = envoy_of(origin, store)
        shared = {"cache_path": f"{first.prefix}/cache max_size=64m memory=16m"}
        self.envoys = [first, envoy_of(origin, shared)]
        self.nginx = first
        self.owner = owner_of(first)

    def start(self):
        for envoy in self.envoys:
            envoy.start()

    def stop(self):
        for envoy in reversed(self.envoys):
            envoy.stop()

    def request(self):
        self.nginx = self.dice.choice(self.envoys)
        super().request()

    def kill_owner(self):
        self.again(signal.SIGKILL)

    def restart(self):
        self.again(signal.SIGTERM)

    def again(self, number):
        envoy = self.dice.choice(self.envoys)
        envoy.end(number)
        envoy.start()

    def kill_all(self):
        for envoy in self.envoys:
            envoy.end(signal.SIGKILL)
        self.start()

    def settle(self):
        pids = {str(envoy.process.pid) for envoy in self.envoys}
        self.nginx.wait_for(lambda: pids <= self.owner.pids(), "both to reach the owner")


class WithDaemon(SharedStoreRun):
    def __init__(self, seed, origin):
        Run.__init__(self, seed, origin)
        self.owner = Owner(max_size="64m", memory="16m").start()
        store = {"cache_owner": f"unix:{self.owner.socket}"}
        self.envoys = [envoy_of(origin, store) for _ in range(2)]
        self.nginx = self.envoys[0]

    def stop(self):
        super().stop()
        self.owner.close()

    def kill_owner(self):
        self.owner.kill(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
        self.owner.start()


@pytest.mark.parametrize("kind", [SharedStoreRun, WithDaemon])
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_responses_equal_the_model_after_random_purges_and_crashes(seed, kind, origin):
    run = kind(seed, origin)
    steps = [(weight, getattr(kind, step.__name__)) for weight, step in STEPS]
    steps = [(weight, step) for weight, step in steps if step not in (Run.kill_worker, Run.reload)]
    weights, steps = zip(*steps, strict=True)
    done = []
    try:
        run.start()
        run.settle()
        for step in run.dice.choices(steps, weights, k=times(80, 120)):
            done.append(step.__name__)
            step(run)
    except AssertionError as error:
        raise AssertionError(f"after {done}") from error
    finally:
        run.stop()
    assert run.acknowledged >= 2

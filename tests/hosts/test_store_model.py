"""Random requests, purges, crashes and restarts, compared with a slow and obvious model: an nginx with a
store of its own, and two Envoys that share the store of one of them, or a daemon."""

import signal

import pytest

from harness.envoy import Envoy
from harness.guards import SHIPPED_LEASE
from harness.nginx import Nginx
from harness.owner import Owner, owner_of, wait_until_linked
from harness.processes import kill_all
from harness.store_model import Run, envoy_routes
from test_store_life import end, kill_manager
from tiers import seeds, times

pytestmark = [
    pytest.mark.carried("what is purged stays purged by the owner's doing; processes that come and go are test_store_life's"),
]

TIMES = {"SSZIP_TIMES": SHIPPED_LEASE}

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
sszip_cache_memory 2m;
sszip_cache_valid immutable 1h;
sszip_cache_valid unfinalized 1h;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace $arg_chain; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
}
"""


class NginxRun(Run):
    def __init__(self, seed, origin):
        super().__init__(seed, origin)
        self.server = Nginx(CONFIG, origin=origin, workers=2, environment=TIMES)
        self.server.expect("exited on signal 9")

    def start(self):
        self.server.start()

    def stop(self):
        self.server.stop()

    def kill_owner(self):
        kill_manager(self.server)

    def kill_worker(self):
        self.server.kill(self.dice.choice(self.server.workers()))

    def reload(self):
        self.server.reload()

    def restart(self):
        end(self.server, self.dice.choice([signal.SIGTERM, signal.SIGQUIT]))
        self.start()

    def kill_all(self):
        kill_all(self.server)
        self.start()

    def settle(self):
        wait_until_linked(self.server)


def envoy_of(origin, store):
    settings = {
        "cache": True,
        "cache_memory": "2m",
        "cache_valid": ["immutable 1h", "unfinalized 1h"],
        **store,
    }
    envoy = Envoy(envoy_routes(), origin=origin, settings=settings, workers=4, environment=TIMES)
    # log lines about purges without an owner
    envoy.expect("purge of|store|owner")
    return envoy


class EnvoysRun(Run):
    """Two Envoys with one store; each request goes to one of them."""

    STEPS = [step for step in Run.STEPS if step[1] not in ("kill_worker", "reload")]

    def __init__(self, seed, origin):
        super().__init__(seed, origin)
        self.envoys = self.create_envoys(origin)
        self.server = self.envoys[0]

    def start(self):
        for envoy in self.envoys:
            envoy.start()

    def stop(self):
        for envoy in reversed(self.envoys):
            envoy.stop()

    def request(self):
        self.server = self.dice.choice(self.envoys)
        super().request()

    def restart(self):
        self.end_one(signal.SIGTERM)

    def end_one(self, number):
        envoy = self.dice.choice(self.envoys)
        envoy.end(number)
        envoy.start()

    def kill_all(self):
        for envoy in self.envoys:
            envoy.end(signal.SIGKILL)
        self.start()

    def settle(self):
        pids = {str(envoy.process.pid) for envoy in self.envoys}
        self.server.wait_for(lambda: pids <= self.owner.pids(), "both to reach the owner")


class SharedStoreRun(EnvoysRun):
    """The store is in the folder of the first Envoy."""

    def create_envoys(self, origin):
        first = envoy_of(origin, {"cache_path": "@prefix@/cache max_size=64m memory=16m"})
        self.owner = owner_of(first)
        return [first, envoy_of(origin, {"cache_path": f"{first.prefix}/cache max_size=64m memory=16m"})]

    def kill_owner(self):
        self.end_one(signal.SIGKILL)


class DaemonRun(EnvoysRun):
    """The store is a daemon's."""

    def create_envoys(self, origin):
        self.owner = Owner(max_size="64m", memory="16m", environment=TIMES).start()
        return [envoy_of(origin, {"cache_owner": f"unix:{self.owner.socket}"}) for _ in range(2)]

    def stop(self):
        super().stop()
        self.owner.close()

    def kill_owner(self):
        self.owner.kill(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
        self.owner.start()


RUNS = [
    pytest.param(NginxRun, marks=pytest.mark.hosts("nginx")),
    pytest.param(SharedStoreRun, marks=pytest.mark.hosts("native")),
    pytest.param(DaemonRun, marks=pytest.mark.hosts("native")),
]


# sandboxes share a daemon with both other hosts in test_shared_wasm
@pytest.mark.parametrize("run_type", RUNS)
@pytest.mark.parametrize("seed", seeds(1, 8))
def test_responses_equal_the_model_after_random_purges_and_crashes(run_type, seed, origin):
    run_type(seed, origin).take_steps(times(90, 120))

"""Random requests while a chain changes and processes end, compared with a slow and obvious model."""

import contextlib
import signal

import pytest

from harness import client
from harness.chain_model import Run
from harness.load import ClientThreads
from harness.stands import EnvoyStand, Stand
from test_store_life import kill_manager
from tiers import seeds, times

pytestmark = [
    pytest.mark.carried("the owner follows, one library for every nginx; how workers hear of it test_cache_head tries on each"),
]


class NginxRun(Run):
    stand_type = Stand

    def __init__(self, seed):
        super().__init__(seed)
        self.stand.nginx.expect("exited on signal 9")

    def kill_owner(self):
        kill_manager(self.stand.nginx)

    def kill_worker(self):
        self.stand.nginx.kill(self.dice.choice(self.stand.nginx.workers()))

    def reload(self):
        self.stand.nginx.reload()


class RepeatingClients(ClientThreads):
    """Clients that repeat a run's requests all the time, and ignore the responses."""

    def __init__(self, run):
        super().__init__(clients=times(3, 6))
        self.run = run

    def _send_requests(self, number):
        while not self._stop.wait(0.003):
            calls = list(self.run.calls)
            if not calls:
                continue
            number += 1
            with contextlib.suppress(OSError, client.Truncated, AssertionError):
                self.run.stand.fetch(calls[number % len(calls)])
                self.answered += 1


class EnvoyRun(Run):
    """Envoy, whose workers and owner are one process, among requests of other clients."""

    stand_type = EnvoyStand
    STEPS = [step for step in Run.STEPS if step[1] != "kill_worker"]

    def take_steps(self, count):
        with RepeatingClients(self) as clients:
            super().take_steps(count)
        assert clients.answered > 100

    def kill_owner(self):
        self.restart(signal.SIGKILL)

    def reload(self):
        self.restart(signal.SIGTERM)

    def restart(self, number):
        self.stand.nginx.end(number)
        self.stand.nginx.start()


RUNS = [
    pytest.param(NginxRun, marks=pytest.mark.hosts("nginx")),
    # sandboxes follow a chain with both other hosts in test_shared_wasm
    pytest.param(EnvoyRun, marks=pytest.mark.hosts("native")),
]


@pytest.mark.parametrize("run_type", RUNS)
@pytest.mark.parametrize("seed", seeds(1, 6))
def test_responses_equal_those_of_an_honest_node_of_a_moment_ago(run_type, seed):
    run = run_type(seed)
    with run.stand:
        run.take_steps(times(250, 400))

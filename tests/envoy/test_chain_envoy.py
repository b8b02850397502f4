"""Envoy follows a chain that the test changes: nginx's tests and model, on Envoy with four
workers, with clients that send requests all the time."""

import contextlib

import pytest

import test_chain
import test_chain_model
from harness import client
from harness.chain import Chain
from harness.envoy import Envoy, address, cluster, route
from harness.load import ClientThreads
from harness.owner import Client
from harness.stands import EnvoyStand
from test_chain import (
    test_response_of_before_a_reorg_is_not_stored as late_response,
)
from test_chain import (
    test_stored_entries_are_sent_while_the_node_is_unreachable as unreachable_node,
)
from test_chain import test_orphaned_block_is_a_hit_by_its_hash as orphaned_block
from test_chain import test_node_gets_few_requests_when_clients_poll_the_head as polled_head
from test_chain import (
    test_method_rows_of_the_operator_expire_as_built_in_methods_do as operator_rows,
)
from test_chain import (
    test_receipts_are_current_when_a_reorg_moves_their_transactions as moved_receipts,
)
from test_chain import test_tip_entries_expire_with_the_head as tip_entries
from test_chain import test_head_never_decreases_for_a_client as monotonic_head
from test_chain import test_entries_of_replaced_blocks_are_removed_by_a_reorg as replaced_blocks
from test_store_life import wait_until_linked
from tiers import by_tier, seeds, times


@pytest.fixture(autouse=True)
def on_envoy(monkeypatch):
    monkeypatch.setattr(test_chain, "Stand", EnvoyStand)
    monkeypatch.setattr(test_chain_model, "Stand", EnvoyStand)


@pytest.mark.parametrize("depth, by", by_tier([(3, 4)], [(1, 1), (3, 4), (8, 8)]))
def test_entries_of_replaced_blocks_are_removed_by_a_reorg(depth, by):
    replaced_blocks(depth, by)


def test_method_rows_of_the_operator_expire_on_envoy():
    operator_rows()


def test_receipts_are_current_after_a_reorg_on_envoy():
    moved_receipts()


def test_orphaned_block_is_a_hit_on_envoy():
    orphaned_block()


def test_response_of_before_a_reorg_is_not_stored_on_envoy():
    late_response()


def test_tip_entries_expire_with_the_head_on_envoy():
    tip_entries()


def test_head_never_decreases_for_a_client_on_envoy():
    monotonic_head()


def test_node_gets_few_requests_when_clients_poll_the_head():
    polled_head()


def test_stored_entries_are_sent_while_the_node_is_down_on_envoy():
    unreachable_node()


class Crowd(ClientThreads):
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


def restart(run):
    run.stand.nginx.end()
    run.stand.nginx.start()


def kill(run):
    run.stand.nginx.end(9)
    run.stand.nginx.start()


OF_NGINX = {"kill_owner": kill, "kill_worker": None, "reload": restart}


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_responses_equal_those_of_an_honest_node_of_a_moment_ago(seed):
    run = test_chain_model.Run(seed)
    steps = [
        (weight, OF_NGINX.get(step.__name__, step)) for weight, step in test_chain_model.STEPS
    ]
    weights, steps = zip(*[(weight, step) for weight, step in steps if step], strict=True)
    done = []
    with run.stand, Crowd(run) as crowd:
        try:
            for step in run.dice.choices(steps, weights, k=times(200, 300)):
                done.append(step.__name__)
                step(run)
            run.request_until_hits()
        except AssertionError as error:
            raise AssertionError(f"after {done}") from error
    assert crowd.answered > 100


class TestRoutes:
    """Head sources of routes, which are known after the filter's."""

    def test_head_is_followed_when_the_route_sets_the_namespace(self):
        self.follows({}, {"cache_namespace": "main"})

    def test_head_is_followed_when_the_filter_sets_the_namespace(self):
        self.follows({"cache_namespace": "main"}, {})

    def follows(self, of_filter, of_route):
        chain = Chain()
        settings = {
            "cache": True,
            "cache_path": "@prefix@/cache max_size=64m",
            **of_filter,
        }
        own = {"cache_head": f"http://{chain.address} interval=100ms", **of_route}
        envoy = Envoy(
            [route("/", own)],
            settings=settings,
            clusters=[cluster("node", address(chain.port))],
        )
        try:
            envoy.start()
            wait_until_linked(envoy)
            envoy.get("/")
            owner = Client(envoy.prefix / "cache/owner.sock")

            def follows():
                with contextlib.suppress(OSError, AssertionError, ValueError):
                    chains = owner.status()["chains"]
                    return chains and chains[0]["state"] == "following"

            envoy.wait_for(follows, "the chain to be followed")
        finally:
            envoy.stop()
            chain.stop()

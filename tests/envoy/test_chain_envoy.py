"""Envoy follows a chain that the test changes: the tests and the model of nginx, on Envoy
with four workers, beside clients that ask all the time."""

import contextlib
import threading

import pytest

import test_chain
import test_chain_model
from harness import client
from harness.chain import Chain
from harness.envoy import Envoy, address, cluster, route
from harness.owner import Client
from harness.stands import EnvoyStand
from test_chain import (
    test_a_late_answer_from_before_a_reorganisation_is_not_kept as a_late_answer,
)
from test_chain import (
    test_a_node_that_is_down_leaves_what_is_stored as a_node_that_is_down,
)
from test_chain import test_an_orphan_is_still_read_by_its_hash as an_orphan
from test_chain import test_many_polls_are_few_for_the_node as many_polls
from test_chain import (
    test_methods_of_an_operator_are_kept_and_gone_as_ours_are as methods_of_an_operator,
)
from test_chain import (
    test_receipts_of_transactions_that_are_included_elsewhere as receipts,
)
from test_chain import test_the_tip_goes_with_the_head_and_is_kept_until_then as the_tip
from test_chain import test_the_tip_never_goes_back_for_a_client as the_tip_never_goes_back
from test_chain import test_what_was_replaced_is_gone as what_was_replaced
from test_store_life import wait_until_linked
from tiers import seeds


@pytest.fixture(autouse=True)
def on_envoy(monkeypatch):
    monkeypatch.setattr(test_chain, "Stand", EnvoyStand)
    monkeypatch.setattr(test_chain_model, "Stand", EnvoyStand)


@pytest.mark.parametrize("depth, by", [(1, 1), (3, 4), (8, 8)])
def test_what_was_replaced_is_gone(depth, by):
    what_was_replaced(depth, by)


def test_methods_of_an_operator():
    methods_of_an_operator()


def test_receipts():
    receipts()


def test_an_orphan():
    an_orphan()


def test_a_late_answer():
    a_late_answer()


def test_the_tip():
    the_tip()


def test_the_tip_never_goes_back():
    the_tip_never_goes_back()


def test_many_polls_are_few_for_the_node():
    many_polls()


def test_a_node_that_is_down():
    a_node_that_is_down()


class Crowd:
    """Asks what a run asks, all the time, whatever comes of it."""

    def __init__(self, run, clients=6):
        self.run = run
        self.answered = 0
        self.faults = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self):
        number = 0
        while not self._stop.wait(0.003):
            questions = list(self.run.questions)
            if not questions:
                continue
            number += 1
            with contextlib.suppress(OSError, client.Truncated, AssertionError):
                self.run.stand.ask(questions[number % len(questions)])
                self.answered += 1


def restart(run):
    run.stand.nginx.end()
    run.stand.nginx.start()


def kill(run):
    run.stand.nginx.end(9)
    run.stand.nginx.start()


OF_NGINX = {"kill_owner": kill, "kill_worker": None, "reload": restart}


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_nothing_that_an_honest_node_would_not_have_said(seed):
    run = test_chain_model.Run(seed)
    steps = [
        (weight, OF_NGINX.get(step.__name__, step)) for weight, step in test_chain_model.STEPS
    ]
    weights, steps = zip(*[(weight, step) for weight, step in steps if step], strict=True)
    done = []
    with run.stand, Crowd(run) as crowd:
        try:
            for step in run.dice.choices(steps, weights, k=300):
                done.append(step.__name__)
                step(run)
        except AssertionError as error:
            raise AssertionError(f"after {done}") from error
    assert run.hits > 20 and crowd.answered > 100, f"{run.hits} of {run.asked}"


class TestRoutes:
    """Nodes that routes name, which are known after the filter."""

    def test_a_route_with_a_namespace_of_its_own(self):
        self.follows({}, {"cache_namespace": "main"})

    def test_a_route_whose_filter_names_it(self):
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

"""Leases of the fleet: a response that takes the node long is fetched by one machine."""

import json

import pytest
from slow_fleet import SlowBeaconFleet

from harness.rpc import call


def test_slow_response_is_fetched_once_when_all_machines_request_it(new_fleet):
    fleet = new_fleet(kinds=["daemon"] * 3)
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(machine, body) for machine in fleet.machines]
        fleet.wait_for_count("waited", 2)
        assert len(fleet.leases) == 1
    fleet.assert_right(body, *results)
    assert fleet.node_requests == requests + 1
    assert [fleet.count(result) for result in ("leased", "waited", "received", "abandoned")] == [1, 2, 2, 0]
    assert fleet.leases == [], "the value has replaced the lease"
    # each machine has the entry
    for machine in fleet.machines:
        assert machine.requested(body) == 0


def test_workers_of_a_machine_wait_for_another_machine_together(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(a, body)]
        fleet.wait_for_count("leased", 1)
        results += [fleet.send(b, body) for _ in range(5)]
        fleet.wait_for_count("waited", 1)
    fleet.assert_right(body, *results)
    assert fleet.node_requests == requests + 1
    assert fleet.count("waited", b) == 1


def test_machine_fetches_when_the_holder_of_the_lease_is_killed(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        of_a = fleet.send(a, body)
        fleet.wait_for_count("leased", 1)
        of_b = fleet.send(b, body)
        fleet.wait_for_count("waited", 1)
        a.owner.kill()
        # the lease expires
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, of_a, of_b)
    assert (fleet.count("received", b), fleet.count("abandoned", b)) == (0, 1)
    a.owner.start()
    a.wait_until_ready()


@pytest.mark.parametrize("fault", [("stall", 0), ("drop",), ("refuse",)], ids=lambda fault: fault[0])
def test_machine_fetches_when_the_fleet_fails_meanwhile(world, new_fleet, fault):
    redis = world.redis()
    proxy = world.proxy(redis)
    fleet = new_fleet(redis=redis, url=proxy.url, is_patient=True)
    _, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
        getattr(proxy, fault[0])(*fault[1:])
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, *results)
    assert (fleet.count("received", b), fleet.count("abandoned", b)) == (0, 1)
    proxy.forward()
    for machine in fleet.machines:
        machine.wait_until_used()


def test_worker_fetches_for_the_others_when_the_wait_for_a_machine_is_abandoned(world, new_fleet):
    redis = world.redis()
    proxy = world.proxy(redis)
    fleet = new_fleet(redis=redis, url=proxy.url, options={"lock_timeout": "2m"})
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(a, body)]
        fleet.wait_for_count("leased", 1)
        results += [fleet.send(b, body) for _ in range(6)]
        fleet.wait_for_count("waited", 1)
        proxy.refuse()
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, *results)
    assert fleet.node_requests == requests + 2
    assert (fleet.count("waited", b), fleet.count("abandoned", b)) == (1, 1)
    proxy.forward()
    for machine in fleet.machines:
        machine.wait_until_used()


def test_lease_wait_limits_the_wait(new_fleet):
    fleet = new_fleet(lease_wait="300ms")
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(machine, body) for machine in (a, b)]
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, *results)
    assert fleet.node_requests == requests + 2
    assert fleet.count("received") == 0
    assert fleet.count("abandoned") == fleet.count("waited")


@pytest.mark.parametrize("settings", [{"lease_wait": "0"}, {"cost": "1m"}], ids=["off", "cost"])
def test_machines_without_leases_fetch_at_once(new_fleet, settings):
    # a second fill is shared whatever its cost
    fleet = new_fleet(**settings)
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(machine, body) for machine in fleet.machines]
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, *results)
    assert [fleet.count(result) for result in ("leased", "waited")] == [0, 0]


def test_slow_page_is_fetched_once_when_all_machines_request_it(new_fleet):
    fleet = new_fleet(kind=SlowBeaconFleet)
    path, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(path)
        assert len(fleet.leases) == 1
    fleet.assert_right(path, *results)
    assert fleet.node_requests == requests + 1
    assert (fleet.count("received"), fleet.count("abandoned")) == (1, 0)


def test_pages_of_another_route_take_no_lease(new_fleet):
    fleet = new_fleet(kind=SlowBeaconFleet)
    path = fleet.next_call().removesuffix("root").replace("blocks", "states") + "finality_checkpoints"
    requests = fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(machine, path) for machine in fleet.machines]
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(path, *results)
    assert [fleet.count(result) for result in ("leased", "waited")] == [0, 0]


def batch_of(*calls):
    """A batch of calls, whose ids are their positions from 1 on."""
    numbered = [body.replace(b'"id":1', b'"id":%d' % n) for n, body in enumerate(calls, 1)]
    return b"[" + b",".join(numbered) + b"]"


def assert_batch_right(fleet, response, *calls):
    answers = sorted(json.loads(response.result().decoded), key=lambda answer: answer["id"])
    assert [answer["id"] for answer in answers] == list(range(1, len(calls) + 1))
    assert [answer["result"] for answer in answers] == fleet.chains[0].honest(*calls)


def test_equal_batches_of_slow_calls_are_fetched_once(new_fleet):
    fleet = new_fleet(kinds=["daemon"] * 3)
    calls, requests = [fleet.next_call(), fleet.next_call()], fleet.node_requests
    first, *others = fleet.machines
    with fleet.delayed_responses():
        responses = [fleet.run(first.fetch, batch_of(*calls))]
        fleet.wait_for_count("leased", 2)
        responses += [fleet.run(machine.fetch, batch_of(*calls)) for machine in others]
        fleet.wait_for_count("waited", 4)
        assert fleet.node_requests == requests + 2
    for response in responses:
        assert_batch_right(fleet, response, *calls)
    assert fleet.node_requests == requests + 2
    assert [fleet.count(result) for result in ("leased", "received", "abandoned")] == [2, 4, 0]
    assert fleet.leases == [], "the values have replaced the leases"


def test_batch_waits_for_a_call_of_another_machine_and_fetches_the_others(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    calls, requests = [fleet.next_call(), fleet.next_call()], fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(a, calls[0])]
        fleet.wait_for_count("leased", 1)
        responses = [fleet.run(b.fetch, batch_of(*calls)) for _ in range(2)]
        fleet.wait_for_count("waited", 1, b)
        assert fleet.node_requests == requests + 1
        # batches without a slow call are not delayed
        assert len(json.loads(b.fetch(batch_of(call("eth_chainId"), call("eth_blockNumber"))).decoded)) == 2
    fleet.assert_right(calls[0], *results)
    for response in responses:
        assert_batch_right(fleet, response, *calls)
    # both batches wait for the same poll
    assert [fleet.count(result, b) for result in ("leased", "waited", "received", "abandoned")] == [1, 1, 1, 0]


def test_single_call_waits_for_the_batch_of_another_machine(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    calls, requests = [fleet.next_call(), fleet.next_call()], fleet.node_requests
    with fleet.delayed_responses():
        response = fleet.run(a.fetch, batch_of(*calls))
        fleet.wait_for_count("leased", 2)
        results = [fleet.send(b, calls[1])]
        fleet.wait_for_count("waited", 1)
    assert_batch_right(fleet, response, *calls)
    fleet.assert_right(calls[1], *results)
    assert fleet.node_requests == requests + 2


def test_batch_fetches_when_the_holder_of_the_lease_is_killed(new_fleet):
    # the lease ends before the wait does
    fleet = new_fleet(options={"lock_timeout": "2m"})
    a, b = fleet.machines
    calls, requests = [fleet.next_call(), fleet.next_call()], fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(a, calls[0])]
        fleet.wait_for_count("leased", 1)
        response = fleet.run(b.fetch, batch_of(*calls))
        fleet.wait_for_count("waited", 1)
        a.owner.kill()
        # the lease expires
        fleet.wait_for_node_requests(requests + 3)
    fleet.assert_right(calls[0], *results)
    assert_batch_right(fleet, response, *calls)
    assert (fleet.count("received", b), fleet.count("abandoned", b)) == (0, 1)
    a.owner.start()
    a.wait_until_ready()


def test_batch_with_a_transaction_does_not_wait(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(a, body)]
        fleet.wait_for_count("leased", 1)
        response = fleet.run(b.fetch, batch_of(body, call("eth_sendRawTransaction", '["0x00"]')))
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, *results)
    assert len(json.loads(response.result().decoded)) == 2
    assert [fleet.count(result) for result in ("leased", "waited")] == [1, 0]


def test_batches_without_leases_are_fetched_by_each_machine(new_fleet):
    fleet = new_fleet(lease_wait="0")
    calls, requests = [fleet.next_call(), fleet.next_call()], fleet.node_requests
    with fleet.delayed_responses():
        responses = [fleet.run(machine.fetch, batch_of(*calls)) for machine in fleet.machines]
        fleet.wait_for_node_requests(requests + 4)
    for response in responses:
        assert_batch_right(fleet, response, *calls)
    assert [fleet.count(result) for result in ("leased", "waited")] == [0, 0]

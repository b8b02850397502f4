"""Leases of the fleet: a response that takes the node long is fetched by one machine."""

import json

import pytest
from slow_fleet import SlowBeaconFleet


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
    fleet = new_fleet(redis=redis, url=proxy.url, timeout="200ms")
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = [fleet.send(a, body)]
        fleet.wait_for_count("leased", 1)
        results.append(fleet.send(b, body))
        fleet.wait_for_count("waited", 1)
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
    options = {"lock_timeout": "2m"}
    fleet = new_fleet(redis=redis, url=proxy.url, timeout="200ms", options=options)
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


def test_calls_of_a_batch_take_no_lease_and_wait_for_none(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    batch = b"[" + body + b"," + fleet.next_call().replace(b'"id":1', b'"id":2') + b"]"
    with fleet.delayed_responses():
        results = [fleet.send(a, body)]
        fleet.wait_for_count("leased", 1)
        batch_response = fleet.run(b.fetch, batch)
        # the batch is sent to the node, though the other machine has the lease of one of its calls
        fleet.wait_for_node_requests(requests + 3)
    assert len(json.loads(batch_response.result().decoded)) == 2
    fleet.assert_right(body, *results)
    assert [fleet.count(result) for result in ("leased", "waited")] == [1, 0]

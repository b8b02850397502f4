"""Reloads, restarts and deaths of a machine while requests wait for another machine's fetch."""

import pytest

from tiers import by_tier


@pytest.mark.parametrize("kind", ["daemon", "nginx"])
def test_requests_that_wait_for_a_machine_are_answered_across_a_reload(new_fleet, kind):
    fleet = new_fleet(kinds=["daemon", kind], is_patient=True)
    _, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
        b.server.reload()
        b.wait_until_ready()
        b.wait_until_used()
        # a new worker handles this request
        results.append(fleet.send(b, body))
        if kind == "nginx":
            # the new manager finds the lease
            fleet.wait_for_count("waited", 1, b)
    fleet.assert_right(body, *results)
    # the machine that has the lease has sent a request, and the old worker may have sent another one
    assert requests < fleet.node_requests <= requests + 2
    assert fleet.leases == []


@pytest.mark.parametrize("topology", by_tier(["redis"], ["redis", "cluster"]))
def test_requests_that_wait_for_a_machine_are_answered_across_a_hot_restart(world, new_fleet, topology):
    redis = getattr(world, topology)()
    fleet = new_fleet(redis=redis, kinds=["envoy", "envoy"], is_patient=True, options={"can_restart": True})
    _, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
        former = b.restart_hot()
        # the new Envoy handles this request, and uses the owner in the former Envoy
        results.append(fleet.send(b, body))
    fleet.assert_right(body, *results)
    assert requests < fleet.node_requests <= requests + 2
    b.wait_for(lambda: former.process.poll() is not None, "the former Envoy to end")
    assert former.process.returncode == 0
    b.wait_for(lambda: b.owner.pid() == b.server.process.pid, "the new Envoy to be the owner")
    b.wait_until_ready()
    b.wait_until_used()
    # the new owner takes and finds leases
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
    fleet.assert_right(body, *results)
    assert fleet.node_requests == requests + 1


@pytest.mark.parametrize("kind", by_tier(["daemon"], ["daemon", "nginx"]))
def test_machines_fetch_once_each_when_the_holder_of_the_lease_is_killed(new_fleet, kind):
    # no wait of a follower times out
    fleet = new_fleet(kinds=["daemon", kind, kind], options={"lock_timeout": "2m"})
    a, b, c = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
        # other workers handle these requests, or they join the flight of the first request
        results += [fleet.send(b, body) for _ in range(4)]
        a.owner.kill()
        # a waiting machine sends a request once the lease has expired
        fleet.wait_for_node_requests(requests + 2)
        fleet.wait_for_count("abandoned", 1, b, c)
    fleet.assert_right(body, *results)
    # the machine whose wait ends last may wait again, for the other machine's fetch
    assert requests + 2 <= fleet.node_requests <= requests + 3
    assert fleet.count("waited", b, c) == 2
    a.owner.start()
    a.wait_until_ready()


def test_machines_wait_for_each_other_again_when_the_killed_owner_is_back(new_fleet):
    fleet = new_fleet()
    a, b = fleet.machines
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
        a.owner.kill()
        fleet.wait_for_node_requests(requests + 2)
    fleet.assert_right(body, *results)
    a.owner.start()
    a.wait_until_ready()
    a.wait_until_used()
    # the owner has no node times after its restart: the other machine takes the lease
    fleet.machines.reverse()
    body, requests = fleet.next_call(), fleet.node_requests
    with fleet.delayed_responses():
        results = fleet.send_to_each(body)
    fleet.assert_right(body, *results)
    assert fleet.node_requests == requests + 1

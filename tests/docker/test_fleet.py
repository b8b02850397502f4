"""The profile fleet: two machines, a daemon and an nginx each, that share final responses over
Redis."""

import pytest

from known_calls import call, fetch, send_call
from stack import Stack, wait_for

MACHINES = ("nginx", "nginx-2")
SERVICES = ("redis", "cached-2", "nginx-2")
# The simulated chain has 200 blocks, and up to 128 final ones.
FINAL = iter(range(64, 128))
# Blocks that one machine shares. A lookup in the fleet has 10 ms, which a busy machine exceeds at
# times; then the node has one more request.
SHARED = 7
# The owners follow the chain with requests of other methods, which they repeat after a purge of everything.
METHOD = "eth_getBlockReceipts"


def owner_status(stack, machine):
    answer = fetch(stack.local(machine), "/sszip/owner?format=json")
    return answer.json() if answer.status == 200 else {}


def is_sharing(stack, machine):
    """Whether the machine uses the fleet, and knows its chain's final blocks."""
    status = owner_status(stack, machine)
    chains = status.get("chains") or [{}]
    return (status.get("fleet") or {}).get("up") and chains[0].get("final")


@pytest.fixture(scope="module")
def fleet_stack():
    with Stack(
        "node.yml",
        COMPOSE_PROFILES="replay,fleet",
        NODE_OPTIONS="--chain",
        HEAD_URL="http://node:9545",
        FLEET_URL="redis://redis:6379",
    ) as one:
        yield one


@pytest.fixture(scope="module")
def fleet(fleet_stack):
    fleet_stack.up("node", "redis", "cached", "nginx", "cached-2", "nginx-2")
    for machine in MACHINES:
        wait_for(f"{machine} shares", lambda m=machine: is_sharing(fleet_stack, m))
    return fleet_stack


def node_requests(stack):
    return fetch(stack.url("node"), "/stats").json()["methods"].get(METHOD, 0)


def status_of(stack, machine, request):
    answer = send_call(stack.url(machine), request)
    assert answer.json() == send_call(stack.url("node"), request).json()
    return answer.fields["cache-status"]


def stored_values(stack, machine):
    return owner_status(stack, machine)["fleet"]["stores"]["done"]


def share_a_block(stack, machine):
    """Fetches a final block through a machine, and waits until the fleet has it."""
    request = call(METHOD, [hex(next(FINAL))])
    before = stored_values(stack, machine)
    assert "fwd=" in status_of(stack, machine, request)
    wait_for("the fleet has the block", lambda: stored_values(stack, machine) > before)
    return request


def test_final_blocks_of_one_machine_are_hits_on_the_other(fleet):
    requests = [share_a_block(fleet, "nginx") for _ in range(SHARED)]
    before = node_requests(fleet)
    statuses = [send_call(fleet.url("nginx-2"), request).fields["cache-status"] for request in requests]
    hits = sum(status.startswith("sszip; hit") for status in statuses)
    assert hits > SHARED / 2, statuses
    assert node_requests(fleet) == before + SHARED - hits


def test_purge_of_one_machine_is_in_effect_on_both(fleet):
    request = share_a_block(fleet, "nginx")
    wait_for("a hit", lambda: "hit" in status_of(fleet, "nginx-2", request))
    purge = fetch(fleet.local("nginx-2"), "/sszip/purge?everything", body="")
    assert purge.status == 200
    report = purge.json()["fleet"]
    assert (report["owners"], report["confirmed"]) == (2, 2)
    before = node_requests(fleet)
    assert "fwd=" in send_call(fleet.url("nginx"), request).fields["cache-status"]
    assert node_requests(fleet) == before + 1


def test_requests_are_answered_while_redis_is_down(fleet):
    fleet.compose("stop", "--timeout", "5", "redis")
    for machine in MACHINES:
        wait_for(f"{machine} has noticed", lambda m=machine: not is_sharing(fleet, m))
        request = call(METHOD, [hex(next(FINAL))])
        assert "fwd=" in status_of(fleet, machine, request)
    fleet.up("redis")
    for machine in MACHINES:
        wait_for(f"{machine} shares again", lambda m=machine: is_sharing(fleet, m))


@pytest.mark.parametrize("service", SERVICES)
def test_container_of_the_fleet_has_no_privileges(fleet, service):
    found = fleet.inspect(service)
    assert found["State"]["Health"]["Status"] == "healthy"
    assert found["HostConfig"]["ReadonlyRootfs"] and found["HostConfig"]["CapDrop"] == ["ALL"]
    for ports in found["NetworkSettings"]["Ports"].values():
        assert all(each["HostIp"] == "127.0.0.1" for each in ports or [])

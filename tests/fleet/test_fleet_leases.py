"""Leases of the fleet: a response that takes the node long is fetched by one machine."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from machines import share

from harness.rpc import call

METHOD = "trace_block"
# Node time from which the owners know that the method is slow; leases last twice as long.
SLOW_MS = 2_000
# Holds a response until the test releases it.
UNTIL_RELEASED_MS = 600_000


def trace(number):
    return call(METHOD, f'["0x{number:x}"]')


class SlowFleet:
    """Machines with a node each, whose owners know that the method takes the node long."""

    def __init__(self, world, url, redis, machines=2, **fleet):
        self._redis = redis
        self.chains = [world.chain() for _ in range(machines)]
        self.machines = [world.machine(chain, url, **fleet) for chain in self.chains]
        self._number = self.chains[0].final
        assert all(chain.final == self._number for chain in self.chains)
        self._delay_responses(SLOW_MS)
        for machine in self.machines:
            share(machine, redis, self.next_call())
        self._clients = ThreadPoolExecutor(max_workers=8)

    def next_call(self):
        """A call about a final block that no machine has sent yet."""
        self._number -= 1
        return trace(self._number)

    def _delay_responses(self, milliseconds):
        for chain in self.chains:
            chain.do({"hold": {"method": METHOD, "ms": milliseconds}})

    @contextlib.contextmanager
    def delayed_responses(self):
        """The nodes send their responses at the end of the block."""
        self._delay_responses(UNTIL_RELEASED_MS)
        try:
            yield
        finally:
            self._delay_responses(0)

    def send(self, machine, body):
        """Sends a call in the background."""
        return self._clients.submit(machine.result, body)

    def assert_right(self, body, *results):
        (honest,) = self.chains[0].honest(body)
        assert [result.result() for result in results] == [honest] * len(results)

    @property
    def node_requests(self):
        return sum(chain.count(METHOD) for chain in self.chains)

    def wait_for_node_requests(self, number):
        self.machines[0].wait_for(lambda: self.node_requests >= number, f"request {number} of the nodes")

    def count(self, result, *machines):
        return sum(machine.fleet.json["leases"][result] for machine in machines or self.machines)

    def wait_for_count(self, result, number):
        self.machines[0].wait_for(lambda: self.count(result) >= number, f"{number} {result}")

    @property
    def leases(self):
        return [value for value in self._redis.values().values() if value and value.startswith(b"sszip lease 1 ")]

    def close(self):
        self._clients.shutdown()


@pytest.fixture
def new_fleet(world):
    with contextlib.ExitStack() as stack:

        def new_fleet(proxy=None, redis=None, **options):
            redis = redis or world.redis()
            fleet = SlowFleet(world, (proxy or redis).url, redis, **options)
            stack.callback(fleet.close)
            return fleet

        yield new_fleet


def test_slow_response_is_fetched_once_when_all_machines_request_it(new_fleet):
    fleet = new_fleet(machines=3)
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
    fleet = new_fleet(proxy, redis, timeout="200ms")
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
    fleet = new_fleet(proxy, redis, timeout="200ms")
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

"""Machines whose owners know that a kind of requests takes the node long, so that they take leases."""

import contextlib
import itertools
import json
from concurrent.futures import ThreadPoolExecutor

from machines import share

from harness.rpc import call

METHOD = "trace_block"
# Node time from which the owners know that the requests are slow; leases last twice as long.
SLOW_MS = 2_000
# Delay of a response that the test releases.
UNTIL_RELEASED_MS = 600_000


def trace(number):
    return call(METHOD, f'["0x{number:x}"]')


class SlowFleet:
    """Machines with a node each, whose owners know that METHOD takes the node long.

    `kinds`: the kind of each machine. `is_patient`: no time limit ends a wait for another machine."""

    # method of the requests that the nodes delay
    delayed_method = METHOD

    def __init__(self, world, redis, url=None, kinds=("daemon", "daemon"), is_patient=False, options=None, **fleet):
        self._redis = redis
        self._is_patient = is_patient
        self.chains = [world.chain() for _ in kinds]
        options = dict(options or {})
        if is_patient:
            fleet |= {"lease_wait": "1m"}
            options |= {"lock_timeout": "2m"}
        settings = [world.settings(url or redis.url, **fleet) for _ in kinds]
        self.machines = [
            world.new_machine(chain, machine_settings, kind, **options, **self._node_options(world)).start()
            for chain, machine_settings, kind in zip(self.chains, settings, kinds, strict=True)
        ]
        for machine in self.machines:
            machine.wait_until_used()
        self._number = self._final(self.chains[0])
        assert all(self._final(chain) == self._number for chain in self.chains)
        self._delay_responses(SLOW_MS)
        for machine in self.machines:
            self._share(machine, self.next_call())
        self._clients = ThreadPoolExecutor(max_workers=8)

    def _node_options(self, world):
        """Options of a machine for further nodes."""
        return {}

    def _final(self, chain):
        return chain.final

    def next_call(self):
        """A call about a final block that no machine has sent yet."""
        self._number -= 1
        return trace(self._number)

    def _share(self, machine, body):
        share(machine, self._redis, body)

    def _result(self, machine, body):
        return machine.result(body)

    def _honest(self, body):
        (honest,) = self.chains[0].honest(body)
        return honest

    def _node_requests(self, chain):
        return chain.count(METHOD)

    def _delay_responses(self, milliseconds):
        for chain in self.chains:
            chain.do({"hold": {"method": self.delayed_method, "ms": milliseconds}})

    @contextlib.contextmanager
    def delayed_responses(self):
        """The nodes send their responses at the end of the block."""
        self._delay_responses(UNTIL_RELEASED_MS)
        try:
            yield
        finally:
            self._delay_responses(0)

    def send(self, machine, body):
        """Sends a request in the background."""
        return self.run(self._result, machine, body)

    def run(self, function, *arguments):
        """Calls a function in the background."""
        return self._clients.submit(function, *arguments)

    def send_to_each(self, body):
        """Sends a request to the first machine, which takes the lease, then to the others, which wait."""
        first, *others = self.machines
        leased, waited = (self.count(result) for result in ("leased", "waited"))
        results = [self.send(first, body)]
        self.wait_for_count("leased", leased + 1)
        if self._is_patient:
            self._prolong_leases()
        results += [self.send(machine, body) for machine in others]
        self.wait_for_count("waited", waited + len(others))
        return results

    def assert_right(self, body, *results):
        assert [result.result() for result in results] == [self._honest(body)] * len(results)

    @property
    def node_requests(self):
        return sum(map(self._node_requests, self.chains))

    def wait_for_node_requests(self, number):
        self.machines[0].wait_for(lambda: self.node_requests >= number, f"request {number} of the nodes")

    def count(self, result, *machines):
        return sum(machine.fleet.json["leases"][result] for machine in machines or self.machines)

    def wait_for_count(self, result, number, *machines):
        self.machines[0].wait_for(lambda: self.count(result, *machines) >= number, f"{number} {result}")

    @property
    def leases(self):
        return [value for value in self._redis.values().values() if value and value.startswith(b"sszip lease 1 ")]

    def _prolong_leases(self):
        """Lets the present leases last until their values replace them."""
        for name, value in self._redis.values().items():
            if value and value.startswith(b"sszip lease 1 "):
                self._redis.primary_of(name).execute("PEXPIRE", name, UNTIL_RELEASED_MS)

    def close(self):
        self._clients.shutdown()


class SlowBeaconFleet(SlowFleet):
    """Machines whose owners know that a route of the Beacon API takes the node long."""

    # the requests are GETs of pages
    delayed_method = "GET"

    def _node_options(self, world):
        # a further node for the owner, whose pages are neither delayed nor counted
        return {"beacon": world.chain()}

    def _final(self, chain):
        return chain.state["finalized"]["slot"]

    def next_call(self):
        self._number -= 1
        return f"/eth/v1/beacon/blocks/{self._number}/root"

    def _share(self, machine, path):
        names = self._redis.value_names()
        paths = itertools.chain([path], iter(self.next_call, None))

        def is_stored():
            # a page that a worker requests before it knows the chain is not shared later
            machine.page(next(paths))
            return self._redis.value_names() - names

        machine.wait_for(is_stored, "a value of a page")

    def _result(self, machine, path):
        return json.loads(machine.page(path).decoded)

    def _honest(self, path):
        return self.chains[0].honest_page(path)

    def _node_requests(self, chain):
        return chain.page_request_count

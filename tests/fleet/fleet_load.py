"""Clients of two machines, whose requests are misses of the first and hits of the fleet on the
second."""

import collections
import itertools
import threading

from machines import balance, receipts

from harness.load import ClientThreads

# calls whose results are fetched from the node at a time
_GROUP = 16
# groups of calls by which the second machine is behind the first
_LAG = 2


class FleetLoad(ClientThreads):
    """Each call is sent to one machine, then to the other. All responses are compared with the
    results of an honest node; a request that fails is a fault."""

    def __init__(self, first, second, clients=3):
        super().__init__(clients)
        self._machines = first, second
        self._final = first.chain.final
        self._accounts = itertools.count(1)
        self._lock = threading.Lock()

    def _send_requests(self, number):
        first, second = self._machines
        # calls of the first machine, whose entries are being stored in the fleet
        stored = collections.deque()
        while not self._stop.is_set():
            calls = self._next_calls()
            try:
                stored.append(list(zip(calls, first.chain.honest(*calls), strict=True)))
            except Exception as error:  # raised in the test's thread
                self._add_fault(repr(error))
                return
            for body, expected in stored[-1]:
                self._compare(first, body, expected)
            if len(stored) > _LAG:
                for body, expected in stored.popleft():
                    self._compare(second, body, expected)

    def _next_calls(self):
        with self._lock:
            accounts = list(itertools.islice(self._accounts, _GROUP))
        calls = [balance(self._final - account % 40, account) for account in accounts]
        # a longer one, which most often is a hit
        return [*calls, receipts(self._final - accounts[0] // _GROUP % 100)]

    def _compare(self, machine, body, expected):
        try:
            result = machine.result(body)
        except Exception as error:  # no response, or an invalid one
            self._add_fault(f"{body}: {error!r}")
            return
        if result != expected:
            self._add_fault(f"{body}: {result!r}, expected {expected!r}")
        with self._lock:
            self.answered += 1

    def _add_fault(self, text):
        with self._lock:
            self.faults.append(text)

    def wait_for_responses(self, count):
        """Waits until `count` more responses were received."""
        end = self.answered + count
        self._machines[0].wait_for(lambda: self.faults or self.answered >= end, f"{count} responses")
        assert not self.faults, self.faults[:3]

    def wait_for_hits(self, count=30):
        """Waits until `count` more lookups of the second machine were hits of the fleet."""
        machine = self._machines[1]
        # counters of an owner begin at 0 only when it starts, which it does not here
        end = machine.fleet.hits + count
        machine.wait_for(lambda: self.faults or machine.fleet.hits >= end, "hits of the fleet")
        assert not self.faults, self.faults[:3]

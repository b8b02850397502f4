"""Clients that abort large exchanges, and the resources of the worker afterwards."""

import time

from .nginx import open_descriptors, resident
from .nginx_state import wait_until_stable


def abort_at_stage(stage, chance, connection, nginx, node, earlier_requests, length):
    """Aborts by close or reset: while the "node" sends, during the conversion by the "coder", or
    while the "client" receives. `length` is the length of the JSON."""
    if stage == "client":
        connection.take(chance.randrange(length // 4))
    else:
        expected = {"requests": earlier_requests + 1, "in_flight": 1 if stage == "node" else 0}
        nginx.wait_for(lambda: expected.items() <= node.stats().items(), "the node to send it")
        time.sleep(chance.uniform(0, 0.2))
    chance.choice([connection.close, connection.reset])()
    nginx.wait_for(lambda: node.stats()["in_flight"] == 0, "the node to be left")


def assert_resources_released(nginx, worker, memory, descriptors, slack):
    """Asserts that the worker has no more than `memory` KiB, with this slack, and `descriptors`."""
    wait_until_stable(nginx)
    assert nginx.workers() == [worker]
    nginx.wait_for(lambda: open_descriptors(worker) <= descriptors, f"no more than {descriptors} descriptors")
    nginx.wait_for(lambda: resident(worker) < memory + slack, f"no more than {memory} KiB, not {resident(worker)}")

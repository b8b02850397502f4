"""Entries that machines share through the nodes of a cluster."""

import itertools

from machines import balance


def assert_shared_with(machine, calls):
    """Checks that values of the fleet are used for these calls."""
    timeouts_before, hits_before = machine.fleet.lookups("timeout"), machine.fleet.hits
    requested = machine.requested(*calls)
    # a busy machine may delay single replies for longer than the timeout, which a fault exceeds soon
    late = machine.fleet.lookups("timeout") - timeouts_before
    assert late < len(calls) / 2
    assert (requested, machine.fleet.hits - hits_before) == (late, len(calls) - late)


def wait_until_all_are_shared(fleet):
    """Waits until entries of all nodes that each machine stores are hits on the other, twice in a row.

    A connection that the fault has stalled is replaced some time after its first use, and may open the
    breaker before. An entry is offered once, and is lost if the connection to its node is silent then.
    So both machines store and look up: the connection of stores also has the purge stream, without
    which no lookup is sent."""
    accounts = itertools.count(2 * 10**6)
    pairs = (fleet.a, fleet.b), (fleet.b, fleet.a)
    stored = {}
    rounds = 0

    def are_shared():
        nonlocal rounds
        is_shared = True
        for first, second in pairs:
            # stored while the other machine has sent its calls
            calls = stored.get(first, [])
            hits_before = second.fleet.hits
            if calls:
                second.assert_right(*calls)
            is_shared &= bool(calls) and second.fleet.hits == hits_before + len(calls)
            stored[first] = [balance(fleet.final, next(accounts)) for _ in range(24)]
            first.assert_right(*stored[first])
        rounds = rounds + 1 if is_shared else 0
        return rounds == 2

    fleet.b.wait_for(are_shared, "the entries of all nodes to be shared")

"""Three machines whose nodes have different views of one chain: one follows it, one lags, one is on
another branch from time to time. Each response is the one of the machine's own node."""

import json
import random

import pytest
from fleet_status import assert_confirmed
from machines import balance, receipts

from harness.chain import calls_for_transactions
from harness.client import request_bytes
from harness.rpc import call
from tiers import seeds, times

# changes of the views, and requests after each
STEPS, REQUESTS = times(10, 100), 200
# blocks of a branch, and the number of blocks between the forks
BRANCH, DISTANCE = 10, 3
# maximum number of blocks by which a node lags
LAG = 8
# blocks that are not final; no branch that a node follows begins below
UNFINAL = 24
HEADERS = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
ACCOUNTS = 3


class Tree:
    """A trunk with branches, which all nodes have; a node's view is the block that is its head.

    Blocks are created by the same commands on all nodes, and none later: so all have the same."""

    def __init__(self, chains, steps):
        self.first = chains[0].head
        # the nodes are at most a branch ahead of the last step
        self.last = self.first + 2 * steps + 2 * BRANCH
        self.trunk = {self.first: chains[0].state["head"]["hash"]}
        while len(self.trunk) <= self.last - self.first:
            head = self._change(chains, {"extend": 1})
            self.trunk[head["number"]] = head["hash"]
        # the last block of each branch, by the last block of the trunk below it
        self.branches = {
            fork: self._change(chains, {"adopt": self.trunk[fork + 3]}, {"reorg": {"depth": 3, "length": BRANCH}})
            for fork in range(self.first, self.last - BRANCH, DISTANCE)
        }
        self._change(chains, {"adopt": self.trunk[self.first]})

    @staticmethod
    def _change(chains, *commands):
        """Changes all nodes; returns their head."""
        heads = [chain.do(*commands)["head"] for chain in chains]
        assert heads == heads[:1] * len(heads), heads
        return heads[0]


class View:
    """The view of one node. The number of its head never decreases: to an owner, a node whose head
    goes back lags."""

    def __init__(self, machine, tree, lag=0, branch_percent=0):
        self.machine, self.chain = machine, machine.chain
        self._tree = tree
        self._lag, self._branch_percent = lag, branch_percent
        self.head, self.final = tree.first, self.chain.final
        # the last block of the trunk on the node's branch; None on the trunk
        self.fork = None
        self._reorgs = 0

    @property
    def reorgs(self):
        """Number of reorganisations that the owner has seen."""
        (status,) = self.machine.owner.status()["chains"]
        return status["reorgs"]

    def change(self, dice, height):
        """Chooses a head near `height`, and a final block below all branches that the node follows."""
        before, head_before = self.fork, self.head
        forks = [
            fork
            for fork, last in self._tree.branches.items()
            if max(self.final, height - 7) < fork < height and last["number"] >= self.head and fork != before
        ]
        commands = []
        if before is not None and dice.randrange(2):
            # it remains on its branch
            pass
        elif forks and dice.randrange(100) < self._branch_percent:
            self.fork = dice.choice(forks)
            last = self._tree.branches[self.fork]
            self.head = last["number"]
            commands = [{"adopt": last["hash"]}]
        else:
            self.fork = None
            self.head = max(self.head, height - dice.randint(0, self._lag))
            commands = [{"adopt": self._tree.trunk[self.head]}]
        final = height - UNFINAL if self.fork is None else min(height - UNFINAL, self.fork - 1)
        if final > self.final and dice.randrange(2):
            self.final = final
            commands.append({"finalize": final})
        # two blocks with one number: the owner's status does not show which of them it has
        is_reorg = self.fork != before and (before is not None or head_before > self.fork)
        self._reorgs = self.reorgs + is_reorg
        if commands:
            self.chain.do(*commands)

    def wait_until_followed(self):
        self.machine.wait_for(lambda: self.reorgs >= self._reorgs, "the owner to see a reorganisation")
        self.machine.wait_until_ready()


class Walk:
    def __init__(self, world, seed):
        self.dice = random.Random(seed)
        redis = world.redis()
        chains = [world.chain("--seed", seed + 1) for _ in range(3)]
        self.tree = Tree(chains, STEPS)
        machines = [world.machine(chain, redis.url) for chain in chains]
        right, lagging, other = machines
        self.views = [
            View(right, self.tree, branch_percent=10),
            View(lagging, self.tree, lag=LAG),
            View(other, self.tree, branch_percent=80),
        ]
        self.height = self.tree.first
        self.sent = 0

    def step(self):
        self.height += self.dice.choice([0, 1, 1, 2])
        for view in self.views:
            view.change(self.dice, self.height)
        for view in self.views:
            view.wait_until_followed()
        self._purge()
        by_number, by_hash = self._new_calls(), self._new_calls_by_hash()
        calls = [
            by_number + [body for number, body in by_hash if number <= view.head] for view in self.views
        ]
        connections = [view.machine.server.connect() for view in self.views]
        try:
            for _ in range(REQUESTS):
                at = self.dice.randrange(len(self.views))
                self._send(self.views[at], connections[at], self.dice.sample(calls[at], self.dice.choice([1, 1, 1, 4])))
        finally:
            for connection in connections:
                connection.close()

    def _purge(self):
        """Purges by any machine. Events are applied in order: all processes know the views when all
        machines have confirmed it."""
        machine = self.dice.choice(self.views).machine
        block = self.height - self.dice.randrange(UNFINAL)
        few = {"namespace": machine.namespace, "blocks": [block, block + 2]}
        scopes = [{"key": "0" * 64}] * 7 + [few, {"method": "eth_getBlockReceipts"}, {"everything": True}]
        assert_confirmed(machine.purge(**self.dice.choice(scopes)), owners=len(self.views))

    def _new_calls(self):
        """Calls about blocks around the heads and the final blocks, and about transactions."""
        top = max(view.head for view in self.views) + 1
        low = min(view.final for view in self.views) - 3
        numbers = [self.dice.randint(low, top) for _ in range(8)]
        numbers += [top - self.dice.randint(0, BRANCH + LAG) for _ in range(12)]
        calls = []
        for number in numbers:
            block = f'"0x{number:x}"'
            calls += [
                receipts(number),
                balance(number, self.dice.randint(1, ACCOUNTS)),
                call("eth_getBlockByNumber", f"[{block},{self.dice.choice(['true', 'false'])}]"),
                call("eth_getLogs", f'[{{"fromBlock":{block},"toBlock":{block}}}]'),
            ]
        chain = self.dice.choice(self.views).chain
        calls += calls_for_transactions(chain, chain.head - self.dice.randint(0, LAG))
        return list(dict.fromkeys(calls))

    def _new_calls_by_hash(self):
        """Calls about blocks by their hashes, with the numbers of the blocks. A node has all blocks of
        the tree, and an owner must not learn of a block above its node's head."""
        blocks = [view.chain.state["head"] for view in self.views]
        blocks += [block for fork, block in self.tree.branches.items() if fork < self.height][-4:]
        found = [(block["number"], block["hash"]) for block in blocks]
        found += [(number, self.tree.trunk[number]) for number in range(max(self.height - LAG, self.tree.first), self.height)]
        calls = {}
        for number, block in found:
            calls[call("eth_getBlockByHash", f'["{block}",true]')] = number
            calls[call("eth_getBlockTransactionCountByHash", f'["{block}"]')] = number
        return [(number, body) for body, number in calls.items()]

    def _send(self, view, connection, calls):
        """Sends calls, as a batch if there are more than one, and compares the results with the own
        node's, whose view does not change meanwhile."""
        bodies = [body.replace(b'"id":1', b'"id":%d' % n, 1) for n, body in enumerate(calls)]
        body = bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]"
        connection.send(request_bytes("/", method="POST", headers=HEADERS, body=body))
        response = connection.read("POST")
        assert response.status == 200, response.body
        messages = json.loads(response.decoded)
        messages = messages if isinstance(messages, list) else [messages]
        results = {message["id"]: message.get("result", message.get("error")) for message in messages}
        for number, (sent, honest) in enumerate(zip(calls, view.chain.honest(*calls), strict=True)):
            assert results[number] == honest, (
                f"{sent}: {results[number]}, and the node's result is {honest}; head {view.head}, final "
                f"{view.final}, fork {view.fork}; {response.header('Cache-Status')}"
            )
        self.sent += 1


def used_values(fleet):
    """Number of lookups whose response is a value of the fleet."""
    return fleet.hits - fleet.rejected() - sum(fleet.json["not_servable"].values())


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_responses_equal_those_of_the_own_node_when_three_views_share_a_fleet(world, seed):
    print(f"seed {seed}")
    walk = Walk(world, seed)
    final_before = max(view.final for view in walk.views)
    for number in range(STEPS):
        try:
            walk.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {error}") from error
    assert walk.sent == STEPS * REQUESTS
    fleets = [view.machine.fleet for view in walk.views]
    used = [used_values(fleet) for fleet in fleets]
    refused = [fleet.json["not_servable"] for fleet in fleets]
    print(f"{walk.sent} requests, 0 wrong; values of the fleet on each machine: {used}; not servable: {refused}")
    assert min(used) > 0
    # the views differ: without a comparison some of these values would be wrong responses
    assert sum(counts["other_branch"] + counts["unknown_block"] + counts["not_final"] for counts in refused) > 0
    assert walk.views[-1].reorgs > 0
    assert min(view.final for view in walk.views) > final_before

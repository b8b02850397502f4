"""A slow and obvious model of a chain that changes, for random requests: each response is one that
an honest, synced node would have given a moment ago, and none contradicts a final block."""

import http.client
import json
import random
import time

from .chain import TIP, calls_for_block, calls_for_transactions
from .owner import wait_until_linked
from .random_steps import take_random_steps
from .rpc import call

from harness.guards import GUARD_SECONDS, SHIPPED_LEASE

# Polls of the follower by which a change of the chain is known to workers. The follower knows it
# after two, and workers a moment later; while the machine is busy or the node is down there are
# fewer polls. No entry expires, so that one that is not removed by then stays.
POLLS = 50


class Model:
    """For each call, the results of the honest node, and when each was true, in polls."""

    def __init__(self, chain):
        self.chain = chain
        self.histories = {}

    def count_polls(self):
        """Number of polls so far. Only the follower queries this method, once with each poll."""
        return self.chain.count("eth_syncing")

    def record_honest_results(self, calls):
        """Records the results of the honest node, with the time in polls."""
        at = self.count_polls()
        for call_body, answer in zip(calls, self.chain.honest(*calls), strict=True):
            history = self.histories.setdefault(call_body, [])
            if history and history[-1][1] == answer:
                history[-1][2] = at
            else:
                history.append([at, answer, at])

    def check_result(self, call_body, answer, sent_at):
        """Checks that the honest node had this result when the call was sent, or a moment before."""
        history = self.histories[call_body]
        # a result is true until the next entry begins
        for (_, result, _), following in zip(history, [*history[1:], None], strict=True):
            until = following[0] if following else float("inf")
            if result == answer and until >= sent_at - POLLS:
                return
        raise AssertionError(f"{call_body}: {answer}, and of {sent_at} there is {history}")


class Run:
    """Random steps in front of a stand. A subclass has the stand's type, and the steps of its processes."""

    STEPS = [
        (100, "request"),
        (20, "generate_calls"),
        (5, "check_all_calls"),
        (10, "extend"),
        (8, "reorg"),
        (4, "finalize"),
        (2, "rollback"),
        (1, "down"),
        (2, "syncing"),
        (1, "kill_owner"),
        (1, "kill_worker"),
        (1, "reload"),
        (4, "settle"),
        (10, "rest"),
    ]

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.stand = self.stand_type("--seed", seed, times=SHIPPED_LEASE)
        self.chain = self.stand.chain
        self.model = Model(self.chain)
        self.calls = []
        self.sent_requests = self.hits = 0

    def take_steps(self, count):
        """Takes this number of steps, and sends requests until there were hits."""
        take_random_steps(self, self.STEPS, count, last=["request_until_hits"])

    def generate_calls(self):
        """Generates calls about the present state of the chain."""
        head = self.chain.head
        # most changes are near the head
        number = max(head + 2 - int(self.dice.expovariate(1 / 4)), 1)
        pool = calls_for_block(number) + TIP
        if number <= head:
            pool += calls_for_transactions(self.chain, number)
        pool.append(call("eth_getLogs", f'[{{"fromBlock":"0x{max(number - 2, 0):x}","toBlock":"0x{number + 2:x}"}}]'))
        pool.append(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
        self.calls = (self.calls + self.dice.sample(pool, 6))[-40:]

    def request(self):
        if not self.calls:
            self.generate_calls()
        chosen = self.dice.sample(self.calls, min(len(self.calls), self.dice.choice([1, 1, 1, 5])))
        self.send_calls(list(dict.fromkeys(chosen)))

    def request_until_hits(self, count=20):
        """Sends requests until there were more hits: a cache that stores nothing is never wrong. Some
        hits were sent while the chain changed."""
        assert self.hits >= 3, f"{self.hits} hits of {self.sent_requests} during changes"
        until = time.monotonic() + GUARD_SECONDS
        while self.hits <= count:
            assert time.monotonic() < until, f"{self.hits} hits of {self.sent_requests}"
            self.request()

    def check_all_calls(self):
        """Sends all calls when the owner must know the head."""
        self.stand.nginx.wait_for(lambda: self.chain.head == self.head_of_owner(), "the head to be known")
        for call_body in dict.fromkeys(self.calls):
            self.stand.nginx.wait_for(
                lambda call_body=call_body: self.chain.honest(call_body) == [self.stand.result(call_body)],
                f"the result of {call_body}",
            )

    def head_of_owner(self):
        try:
            return self.stand.status["head"]
        except (OSError, http.client.HTTPException):
            return None

    def send_calls(self, chosen):
        # the results that are true now, and after
        self.model.record_honest_results(chosen)
        sent_at = self.model.count_polls()
        bodies = [call_body.replace(b'"id":1', b'"id":%d' % id, 1) for id, call_body in enumerate(chosen)]
        body = b"[" + b",".join(bodies) + b"]" if len(bodies) > 1 else bodies[0]
        response = self.stand.fetch(body, self.dice.choice(["gzip", "identity"]))
        self.model.record_honest_results(chosen)
        messages = json.loads(response.decoded)
        messages = messages if isinstance(messages, list) else [messages]
        assert [one["id"] for one in messages] == list(range(len(chosen)))
        for call_body, one in zip(chosen, messages, strict=True):
            self.model.check_result(call_body, one.get("result", one.get("error")), sent_at)
        self.sent_requests += 1
        self.hits += "; hit" in (response.header("Cache-Status") or "")

    def change(self, *commands):
        # the results that were true until then
        self.model.record_honest_results(self.calls or TIP)
        self.chain.do(*commands)
        self.model.record_honest_results(self.calls or TIP)

    def extend(self):
        self.change({"extend": self.dice.choice([1, 1, 1, 3])})

    def reorg(self):
        state = self.chain.state
        most = state["head"]["number"] - state["finalized"]["number"] - 1
        if most < 1:
            return
        depth = min(most, self.dice.choice([1, 1, 1, 2, 3, 8]))
        self.change({"reorg": {"depth": depth, "length": depth + self.dice.choice([-1, 0, 0, 1, 1, 2]) or 1}})

    def rollback(self):
        """A lower head of the same chain, as after debug_setHead."""
        state = self.chain.state
        most = state["head"]["number"] - state["finalized"]["number"] - 1
        if most > 0:
            self.change({"rollback": min(most, self.dice.choice([1, 2, 5]))})

    def finalize(self):
        state = self.chain.state
        head, final = state["head"]["number"], state["finalized"]["number"]
        if head - final > 8:
            self.change({"finalize": self.dice.randrange(final, head - 4)})

    def down(self):
        self.change({"down": True})
        time.sleep(self.dice.choice([0.05, 0.5]))
        self.change({"down": False})

    def syncing(self):
        self.change({"syncing": not self.chain.state["syncing"]})

    def settle(self):
        wait_until_linked(self.stand.nginx)

    def rest(self):
        time.sleep(self.dice.choice([0.02, 0.1, 0.3]))

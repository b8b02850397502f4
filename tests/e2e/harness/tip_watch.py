"""Clients in front of a growing chain, which compare the blocks that they read at the head with
blocks that were shown to them: none may be older.

SSZIP_HEAD_READS is the number of reads at the head by all clients (fewer in `make test`),
SSZIP_HEAD_SEED their seed."""

import json
import os
import random
import threading
import time

from .chain import ADDRESS, calls_for_transactions
from .rpc import call

from harness.guards import GUARD_SECONDS
from tiers import times

READS = int(os.environ.get("SSZIP_HEAD_READS", times(600, 4000)))
SEED = int(os.environ.get("SSZIP_HEAD_SEED", "1"))
CLIENTS = 4

BALANCE = call("eth_getBalance", f'[{ADDRESS},"latest"]')
HEADS = [
    call("eth_blockNumber"),
    call("eth_getBlockByNumber", '["latest",false]'),
    call("eth_getBlockReceipts", '["latest"]'),
    BALANCE,
]


class TipWatcher:
    """A growing chain, when each of its blocks was shown, and the block of each balance."""

    def __init__(self, stand):
        self.stand = stand
        self.lock = threading.Lock()
        self.balances = {}
        self.shows = []
        self.note()

    def note(self):
        chain = self.stand.chain
        head = chain.head
        (balance,) = chain.honest(BALANCE)
        block = f'"0x{head:x}"'
        shows = calls_for_transactions(chain, head)
        shows += [
            call("eth_getBlockByNumber", f"[{block},true]"),
            call("eth_getBlockByNumber", f"[{block},false]"),
            call("eth_getBlockReceipts", f"[{block}]"),
            call("eth_getBalance", f"[{ADDRESS},{block}]"),
            call("eth_feeHistory", '["0x2","latest",[]]'),
            call("eth_getLogs", f'[{{"fromBlock":{block},"toBlock":{block}}}]'),
            call("trace_block", f"[{block}]"),
        ]
        with self.lock:
            self.balances.setdefault(balance, head)
            self.shows = [(body, head) for body in shows]

    def grow(self, over):
        while not over.wait(0.03):
            self.stand.chain.do({"extend": 1})
            self.note()


def blocks_in(value):
    """The highest block that a response names."""
    if isinstance(value, list):
        return max(map(blocks_in, value), default=0)
    if not isinstance(value, dict):
        return 0
    numbers = [value.get("blockNumber")]
    if "parentHash" in value:
        numbers.append(value["number"])
    if "oldestBlock" in value:
        return int(value["oldestBlock"], 16) + len(value["gasUsedRatio"]) - 1
    known = [
        int(number, 16) if isinstance(number, str) else number
        for number in numbers
        if number is not None
    ]
    return max([*known, blocks_in(list(value.values()))])


class Client:
    def __init__(self, stand, watcher, dice):
        self.stand, self.watcher, self.dice = stand, watcher, dice
        self.seen = self.reads = self.hits = 0
        # the block of a balance, which names none, and reads that were older
        self.implied = self.older_than_implied = 0
        self.failures = []
        self.status = self.shown_by = ""

    def results(self, *bodies):
        body = bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]"
        response = self.stand.fetch(body, self.dice.choice(["gzip", "identity"]))
        decoded = json.loads(response.decoded)
        self.status = response.header("Cache-Status") or "none"
        self.hits += "; hit" in self.status
        return [one.get("result") for one in (decoded if isinstance(decoded, list) else [decoded])]

    def height(self, body, result):
        if body == BALANCE:
            return self.watcher.balances.get(result)
        if body == HEADS[0]:
            return int(result, 16)
        return blocks_in(result) or None

    def read(self):
        with self.watcher.lock:
            shows, number = self.dice.choice(self.watcher.shows)
        (result,) = self.results(shows)
        seen = blocks_in(result)
        if result and b"eth_getBalance" in shows:
            seen = number
        self.sees(seen, shows)
        self.judge(*self.dice.sample(HEADS, self.dice.choice([1, 1, 2])))

    def sees(self, height, body):
        if height > self.seen:
            self.seen, self.shown_by = height, f"{body} ({self.status})"

    def judge(self, *bodies):
        floor, implied = self.seen, self.implied
        for body, result in zip(bodies, self.results(*bodies), strict=True):
            self.reads += 1
            height = self.height(body, result)
            if height is None:
                continue
            if height < floor:
                self.failures.append(
                    f"{bodies}: {body} of {height}, and {floor} was shown by {self.shown_by}; "
                    f"{self.status}; {self.stand.status}"
                )
            self.older_than_implied += floor <= height < implied
            if body == BALANCE:
                # clients cannot see the block of a balance
                self.implied = max(self.implied, height)
            else:
                self.sees(height, body)

    def run(self, reads):
        while self.reads < reads and len(self.failures) < 3:
            self.read()


def follow_growing_chain(stand):
    """Makes READS reads through a stand whose node grows by a block each 30 ms."""
    print(f"SSZIP_HEAD_READS={READS} SSZIP_HEAD_SEED={SEED}")
    watcher, over = TipWatcher(stand), threading.Event()
    clients = [Client(stand, watcher, random.Random(SEED * 1000 + n)) for n in range(CLIENTS)]
    threads = [threading.Thread(target=one.run, args=(READS // CLIENTS,)) for one in clients]
    grows = threading.Thread(target=watcher.grow, args=(over,))
    for thread in [grows, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    grows.join()
    names = ("reads", "hits", "older_than_implied")
    reads, hits, older = (sum(getattr(one, name) for one in clients) for name in names)
    print(f"{reads} reads, {hits} hits of all requests, {len(watcher.balances)} heads")
    print(f"{older} reads are older than the block of a balance that was read, which names none")
    failures = [failure for one in clients for failure in one.failures]
    print(*failures, sep="\n")
    assert not failures
    # a client that ended by an exception has made fewer reads
    assert reads >= READS // CLIENTS * CLIENTS
    assert hits > 0


def show_blocks_of_all_kinds(stand, accept):
    """Checks that each kind of response that shows a new block ends older ones, in every worker
    of a stand whose node is not polled."""
    chain = stand.chain
    heads = [call("eth_blockNumber"), BALANCE]

    def fetch_result(body):
        return json.loads(stand.fetch(body, accept).decoded)["result"]

    for kind in range(8):
        # all workers know the block
        until = time.monotonic() + GUARD_SECONDS
        while (before := [fetch_result(body) for body in heads * 6])[:2] != before[-2:]:
            assert time.monotonic() < until
        chain.do({"extend": 1})
        head = chain.head
        block = f'"0x{head:x}"'
        shows = [
            *calls_for_transactions(chain, head)[:3],
            call("eth_getBlockByNumber", f"[{block},true]"),
            call("eth_getBlockReceipts", f"[{block}]"),
            call("eth_getBalance", f"[{ADDRESS},{block}]"),
            call("eth_feeHistory", '["0x2","latest",[]]'),
            call("trace_block", f"[{block}]"),
        ]
        assert fetch_result(shows[kind]), shows[kind]
        honest = chain.honest(*heads)
        for _ in range(6):
            assert [fetch_result(body) for body in heads] == honest, shows[kind]

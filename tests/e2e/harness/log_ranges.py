"""A server of a host in front of nodes that relay requests to a simulated chain, and the log filters
of a reference implementation."""

import collections
import contextlib
import itertools
import json
import re
import threading
import time

from . import client, hosts
from .chain import Chain
from .guards import GUARD_SECONDS
from .origin import answer
from .owner import owner_of, wait_until_linked
from .rpc import call
from .stands import VALID

# blocks of a piece, and the number of pieces that are fetched at a time
PIECE, CONCURRENT = 16, 2
# the head of the chain, and its last final block
HEAD, FINAL = 200, 150
# few transactions, so that memory has room for all responses
CHAIN = ("--chain-length", HEAD, "--chain-transactions", 4)
JSON = [("Content-Type", "application/json")]
# the method of the calls that prove a range
PROOF = "eth_getBlockTransactionCountByNumber"
NO_BATCHES = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batches are not supported"}}'


def logs(first, last=None, more="", id="1"):
    """A call of eth_getLogs; the ends are numbers of blocks, or JSON."""
    ends = {"fromBlock": first, "toBlock": last}
    members = [
        f'"{name}":' + (f'"0x{value:x}"' if isinstance(value, int) else value)
        for name, value in ends.items()
        if value is not None
    ]
    return call("eth_getLogs", "[{" + ",".join(members) + more + "}]", id)


def batch_of(*calls):
    return b"[" + b",".join(calls) + b"]"


def is_piece_request(request):
    """Whether a request has the proof of a range before the call for its logs."""
    return (
        isinstance(request, list)
        and [one["method"] for one in request[:2]] == ["eth_chainId", PROOF]
        and request[-1]["method"] == "eth_getLogs"
    )


class RelayNode:
    """Relays requests to a chain, or in turns to several, and records them."""

    def __init__(self, *chains):
        self.chains = chains
        self.bodies = []
        self.has_batches = True
        # changes the body of each response
        self.change = lambda request, body: body
        # headers of the response to a request
        self.headers = lambda request: []
        # number of bytes after which the body of the response to a batch is cut
        self.batch_cut = None
        # requests wait for this event
        self.gate = None
        self.in_flight = self.most_in_flight = 0
        self._lock = threading.Lock()

    def __call__(self, request):
        with self._lock:
            chain = self.chains[len(self.bodies) % len(self.chains)]
            self.bodies.append(request.body)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            gate = self.gate
            if gate:
                gate.wait(GUARD_SECONDS)
            return self._script(chain, request)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _script(self, chain, request):
        is_batch = request.body.lstrip().startswith(b"[")
        if is_batch and not self.has_batches:
            return answer(NO_BATCHES)
        response = client.fetch(chain.port, "/", method="POST", headers=JSON, body=request.body)
        body = self.change(request, response.body)
        cut_at = self.batch_cut if is_batch else None
        return answer(body, status=response.status, headers=self.headers(request), cut_at=cut_at)

    def requests(self, since=0):
        """The requests as lists of calls; a call outside of a batch is no list."""
        with self._lock:
            return [json.loads(body) for body in self.bodies[since:]]

    def ranges(self, since=0):
        """The ranges of the pieces."""
        pieces = [request for request in self.requests(since) if is_piece_request(request)]
        filters = [calls[-1]["params"][0] for calls in pieces]
        return [(it["fromBlock"], it.get("toBlock")) for it in filters]

    def client_requests(self, since=0):
        """The requests of clients, or the parts of their batches that were forwarded."""
        return [request for request in self.requests(since) if not is_piece_request(request)]

    def single_calls(self, since=0):
        return [calls for calls in self.requests(since) if isinstance(calls, dict)]


def hex_ranges(first, last):
    """The pieces of a range of blocks: they begin at multiples of PIECE."""
    starts = [first, *range((first // PIECE + 1) * PIECE, last + 1, PIECE)]
    return [(f"0x{start:x}", f"0x{min((start // PIECE + 1) * PIECE - 1, last):x}") for start in starts]


def direct_response(chain, body):
    """The body of the node's own response."""
    return client.fetch(chain.port, "/", method="POST", headers=JSON, body=body).body


_filters = itertools.count(1)


def new_filter(chain):
    """Members of a filter that no earlier call had, and that selects logs of most blocks."""
    (found,) = chain.honest(logs(FINAL - 50, FINAL))
    first_topics = collections.Counter(log["topics"][0] for log in found if log["topics"])
    topics = [topic for topic, _ in first_topics.most_common(3)]
    return ',"topics":[' + json.dumps([*topics, f"0x{next(_filters):064x}"]) + "]"


def wait_until_followed(server, chains):
    """Waits until all workers know the head and the final block of the chain of each namespace."""
    owner = owner_of(server)

    def are_known():
        found = {status["name"]: status for status in owner.status()["chains"]}
        return found.keys() == chains.keys() and all(
            (status["state"], status["head"], status["final"])
            == ("following", chains[name].head, chains[name].final)
            for name, status in found.items()
        )

    server.wait_for(are_known, "the owner to know the chains")
    # a purge ends when each worker has handled the events before it
    owner.purge(key="0" * 64)


class LogStand:
    """A server in front of a relay node, whose owner follows the chain."""

    def __init__(self, host, origin, *, workers=1, lags=(), places=None, settings=None):
        self.workers = workers
        self.chain = Chain(*CHAIN)
        self.chain.do({"finalize": FINAL})
        # nodes with the same blocks, whose heads are behind
        self.lagging = [Chain(*CHAIN) for _ in lags]
        for chain, lag in zip(self.lagging, lags, strict=True):
            chain.do({"finalize": FINAL}, {"lag": lag})
        self.node = RelayNode(self.chain, *self.lagging)
        self.origin = origin
        settings = settings or {"logs_split": f"{PIECE} concurrent={CONCURRENT}"}
        route = {
            "cache_namespace": "main",
            "cache_valid": VALID,
            "cache_lock_timeout": "60s",
            "cache_head": f"http://{self.chain.address} api=execution interval=100ms",
            "zstd": True,
            **settings,
        }
        general = {"cache": True, "cache_path": "@prefix@/cache max_size=64m memory=32m"}
        places = {**(places or {}), "/": route}
        self.server = hosts.server(host, origin, places, general, workers=workers)

    def __enter__(self):
        self.origin.answers(self.node)
        try:
            self.server.start()
            wait_until_linked(self.server)
            self.follow()
            self.detect_filters()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.server.stop()
        finally:
            for chain in (self.chain, *self.lagging):
                chain.stop()

    @property
    def store_owner(self):
        return owner_of(self.server)

    def detect_filters(self, target="/"):
        """Sends calls through all workers of nginx: it splits no request before a response has shown
        that no other filter changes bodies."""
        for _ in range(4 * self.workers):
            body = call("eth_syncing", "[]")
            client.fetch(self.server.port, target, method="POST", headers=JSON, body=body)
        self.node.bodies.clear()

    def follow(self):
        """Waits until all workers know the head and the final block."""
        wait_until_followed(self.server, {"main": self.chain})

    @property
    def reorgs(self):
        """Number of reorganisations that the owner has seen."""
        (status,) = self.store_owner.status()["chains"]
        return status["reorgs"]

    def change(self, *commands):
        """Changes the chain of all nodes, and waits until the workers know it."""
        before = self.reorgs
        for chain in (self.chain, *self.lagging):
            chain.do(*commands)
        if any("reorg" in command for command in commands):
            self.server.wait_for(lambda: self.reorgs > before, "a reorganisation to be seen")
        self.follow()

    def fetch(self, body, accept="identity"):
        headers = [*JSON, ("Accept-Encoding", accept)]
        response = client.fetch(self.server.port, "/", method="POST", headers=headers, body=body)
        assert response.status == 200, response.body
        return response

    def direct(self, body, chain=None):
        """The body of the node's own response."""
        return direct_response(chain or self.chain, body)

    def assert_equal_to_direct(self, body):
        """Compares the response with the node's own, and returns it."""
        response = self.fetch(body)
        assert response.decoded.rstrip() == self.direct(body).rstrip(), body
        return response


@contextlib.contextmanager
def closed_gate(node):
    """Requests wait at the node until the block ends."""
    node.gate = threading.Event()
    try:
        yield node.gate
    finally:
        node.gate.set()
        node.gate = None


def pause_for_unexpected_requests():
    """Waits for requests that must not occur."""
    time.sleep(0.3)


def select_logs(receipts, log_filter):
    """The logs in the receipts of a block that a filter selects, as the execution API defines it."""
    addresses = log_filter.get("address") or []
    addresses = {it.lower() for it in (addresses if isinstance(addresses, list) else [addresses])}
    positions = [
        None if it is None else {topic.lower() for topic in (it if isinstance(it, list) else [it])}
        for it in log_filter.get("topics", [])
    ]
    selected = []
    for log in (log for receipt in receipts for log in receipt["logs"]):
        topics = [topic.lower() for topic in log["topics"]]
        if addresses and log["address"].lower() not in addresses:
            continue
        if len(topics) < len(positions):
            continue
        if all(not any_of or topic in any_of for topic, any_of in zip(topics, positions, strict=False)):
            selected.append(log)
    return selected


def random_filter(dice, all_logs):
    """A filter that selects some of these logs, or none."""
    chosen = {}
    one = dice.choice(all_logs)
    absent = "0x" + "%040x" % dice.getrandbits(160)
    address = dice.choice([one["address"], one["address"].upper().replace("0X", "0x"), absent])
    match dice.randrange(4):
        case 0:
            chosen["address"] = address
        case 1:
            chosen["address"] = [address, absent, dice.choice(all_logs)["address"]]
    if dice.randrange(2) and one["topics"]:
        count = dice.randint(1, len(one["topics"]))
        chosen["topics"] = [random_topic(dice, topic, all_logs) for topic in one["topics"][:count]]
    return chosen


def random_topic(dice, topic, all_logs):
    others = [other for log in all_logs for other in log["topics"]]
    return dice.choice([None, topic, topic, [topic, dice.choice(others)], [dice.choice(others)]])


def permissive_blooms(body):
    """Receipts with bloom filters that exclude nothing: the simulated chain has filters of its own."""
    return re.sub(rb'"logsBloom":"0x[0-9a-f]{512}"', b'"logsBloom":"0x' + b"ff" * 256 + b'"', body)

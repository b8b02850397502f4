"""A slow and obvious model of the cache with its store, for random sequences of requests, purges,
crashes and restarts."""

import json
import random

from . import client
from .envoy import route
from .origin import answer
from .random_steps import take_random_steps
from .rpc import call

CHAINS = ("a", "b")
METHODS = ("eth_getBlockByNumber", "eth_getBlockReceipts")
BLOCKS = range(6)


class Model:
    """For each call: the oldest version that may be sent, and the version of the node."""

    def __init__(self):
        self.version = 1
        self.floor = {(chain, method, block): 1 for chain in CHAINS for method in METHODS for block in BLOCKS}

    def purged(self, covers):
        for thing in self.floor:
            if covers(*thing):
                self.floor[thing] = self.version

    def judge(self, thing, version):
        assert self.floor[thing] <= version <= self.version, f"{thing}: version {version}, purged up to {self.floor[thing]}, now {self.version}"


def serve(model):
    def node(request):
        calls = json.loads(request.body)
        chain = request.target.partition("chain=")[2][0]
        answers = [one(call, chain) for call in (calls if isinstance(calls, list) else [calls])]
        return answer(json.dumps(answers if isinstance(calls, list) else answers[0]).encode())

    def one(call, chain):
        block = call["params"][0]
        result = {"chain": chain, "method": call["method"], "number": block, "hash": "0x" + "0" * 64, "version": model.version, "rest": "00112233" * 300}
        if call["method"] == "eth_getBlockReceipts":
            result = [{"blockNumber": block, "blockHash": "0x" + "0" * 64, **result}]
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    return node


def call_for(method, block, id):
    params = f'["0x{block:x}",true]' if method == "eth_getBlockByNumber" else f'["0x{block:x}"]'
    return call(method, params, id=str(id))


def envoy_routes():
    """The route of purges, and one for each chain."""
    purges = {
        "name": "purge",
        "match": {"path": "/purge"},
        "direct_response": {"status": 404},
        "typed_per_filter_config": route("/", {"cache_purge": True})["typed_per_filter_config"],
    }
    routes = [purges]
    for chain in CHAINS:
        found = route("/", {"cache_namespace": chain})
        found["match"]["query_parameters"] = [{"name": "chain", "string_match": {"exact": chain}}]
        routes.append(found)
    return routes


class Run:
    """Random steps. A subclass has `server`, which receives the next request, and the steps of its
    processes."""

    STEPS = [
        (60, "request"),
        (6, "new_version"),
        (8, "purge"),
        (3, "kill_owner"),
        (2, "kill_worker"),
        (2, "reload"),
        (1, "restart"),
        (1, "kill_all"),
        (6, "settle"),
    ]

    def __init__(self, seed, origin):
        self.dice = random.Random(seed)
        self.model = Model()
        origin.answers(serve(self.model))
        self.acknowledged = 0

    def take_steps(self, count):
        """Starts the processes, takes this number of steps, and stops them."""
        try:
            self.start()
            self.settle()
            take_random_steps(self, self.STEPS, count)
        finally:
            self.stop()
        assert self.acknowledged >= 2

    def request(self):
        chain = self.dice.choice(CHAINS)
        calls = [(self.dice.choice(METHODS), self.dice.choice(BLOCKS)) for _ in range(self.dice.choice([1, 1, 1, 4]))]
        bodies = [call_for(method, block, id) for id, (method, block) in enumerate(calls)]
        body = b"[" + b",".join(bodies) + b"]" if len(bodies) > 1 else bodies[0]
        response = self.server.post(f"/?chain={chain}", body, self.dice.choice(["gzip", "identity"]))
        assert response.status == 200
        replies = json.loads(response.decoded)
        replies = replies if isinstance(replies, list) else [replies]
        assert [one["id"] for one in replies] == list(range(len(calls)))
        for one, (method, block) in zip(replies, calls, strict=True):
            result = one["result"][0] if isinstance(one["result"], list) else one["result"]
            assert (result["chain"], result["method"], result["number"]) == (chain, method, f"0x{block:x}")
            self.model.judge((chain, method, block), result["version"])

    def new_version(self):
        self.model.version += 1

    def purge(self):
        chain, method = self.dice.choice(CHAINS), self.dice.choice(METHODS)
        low = self.dice.choice(BLOCKS)
        high = self.dice.randrange(low, len(BLOCKS))
        query, covers = self.dice.choice(
            [
                ("everything", lambda *_: True),
                (f"namespace={chain}", lambda c, m, b: c == chain),
                (f"method={method}", lambda c, m, b: m == method),
                (f"method={method}&namespace={chain}", lambda c, m, b: (c, m) == (chain, method)),
                (f"namespace={chain}&blocks={low}-{high}", lambda c, m, b: c == chain and low <= b <= high),
                (f"namespace={chain}&blocks={low}-{high}", lambda c, m, b: c == chain and low <= b <= high),
            ]
        )
        self.model.version += 1
        response = client.fetch(self.server.port, f"/purge?{query}", method="POST")
        if response.status == 200:
            self.acknowledged += 1
            self.model.purged(covers)
        else:
            assert response.status in (502, 503, 504)

"""Calls with the shares of a provider's traffic, and the file from which wrk reads them."""

import json
import random
from dataclasses import dataclass, field

import http_client
from bodies import compact

# Digits that are inserted when a request is sent; see calls.lua.
ID, KEY = b"\1" * 9, b"\2" * 9
_ID, _KEY = 555_000_111, 555_000_222
# erigontech/rpc-tests, perf/pattern/mainnet/config/mixed.profile, in percent.
PROVIDER = {
    "eth_call": 35.8,
    "eth_getBlockByNumber": 19.9,
    "eth_getLogs": 6.42,
    "eth_getTransactionReceipt": 5.74,
    "eth_blockNumber": 4.26,
    "debug_traceBlockByHash": 3.91,
    "eth_getBalance": 3.73,
    "net_listening": 3.42,
    "eth_getTransactionByHash": 2.62,
    "eth_getBlockReceipts": 2.25,
    "eth_getBlockByHash": 1.45,
    "eth_chainId": 1.22,
    "eth_getTransactionCount": 1.07,
}
LENGTH = 4_000
# Methods that such clients do not send in batches; net_listening is not called by any library.
HEAVY = ("debug_", "eth_getBlockB", "eth_getBlockR", "eth_getLogs", "net_listening")
# ethers v6 collects calls for 10 ms, at most 100, with ids from 1.
BATCHES, SHORTEST, LONGEST = 40, 10, 100
# Maximum number of different calls per method, and maximum length of their responses.
MOST, LONGEST_ANSWER = 12, 700_000


@dataclass(frozen=True)
class Call:
    """A request: `body` contains the marks, and is None for a GET."""

    name: str
    body: bytes | None
    path: str = "/"

    def sent(self, id=100_000_001, key=100_000_000):
        if self.body is None:
            return None
        return self.body.replace(ID, b"%d" % id).replace(KEY, b"%d" % key)


@dataclass
class Workload:
    """Calls in an order, with the properties of their requests."""

    name: str
    title: str
    calls: list
    order: list = field(default_factory=list)
    coding: str = "gzip"
    media: str = ""
    connections: int = 32
    keys: int = 0
    skew: float = 0
    # Options of the node that responds.
    node: tuple = ()
    note: str = ""

    def write(self, path, coding, prefix=""):
        """Writes the file for wrk, with the row's own coding if it has one. `prefix` is the
        server's own path."""
        lines = []
        for index in self.order or range(len(self.calls)):
            call = self.calls[index]
            method = "GET" if call.body is None else "POST"
            lines.append(
                b"\t".join(
                    [method.encode(), http_client.joined_path(prefix, call.path).encode()]
                    + [coding.encode(), self.media.encode()]
                    + [call.body or b""]
                )
            )
        path.write_bytes(b"\n".join(lines) + b"\n")


def marked(text):
    return text.replace(b"%d" % _ID, ID).replace(b"%d" % _KEY, KEY)


def call(method, params, id=_ID):
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return Call(method, marked(compact(body)))


def get(path):
    return Call(f"GET {path}", None, path)


def batch(members):
    """Returns a batch like ethers makes it: ids from 1 in each new client."""
    bodies = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(members, 1)
    ]
    return Call(f"batch of {len(bodies)}", compact(bodies))


def keyed_hash():
    """Returns a block hash that ends in the key's digits."""
    return "0x" + "ab" * 27 + "c" + str(_KEY)


def ordered(by_method, length=LENGTH, seed=1):
    """Returns calls, and an order of them with the provider's shares; the first calls of a
    method are the most frequent."""
    dice = random.Random(seed)
    calls, of_method = [], {}
    for method, members in by_method.items():
        of_method[method] = range(len(calls), len(calls) + len(members))
        calls += members
    methods = list(of_method)
    order = []
    for method in dice.choices(methods, [PROVIDER[m] for m in methods], k=length):
        members = of_method[method]
        weights = [1 / (n + 1) for n in range(len(members))]
        order += dice.choices(members, weights)
    return calls, order


def batches(by_method, seed=2):
    """Returns batches of light calls, as wallets and dashboards send them."""
    dice = random.Random(seed)
    light = {m: c for m, c in by_method.items() if not m.startswith(HEAVY)}
    members = [(m, json.loads(one.sent())["params"]) for m, of in light.items() for one in of]
    weights = [PROVIDER[m] / len(of) for m, of in light.items() for one in of]
    return [
        batch(dice.choices(members, weights, k=dice.randint(SHORTEST, LONGEST)))
        for _ in range(BATCHES)
    ]


def recorded_calls(pairs):
    """Returns the recorded calls of the mix by method, and additional pairs: methods that were
    not recorded have known responses."""
    found, added = {}, []
    for _, pair in pairs:
        request, response = pair["request"], pair["response"]
        if not isinstance(request, dict) or not isinstance(response, dict):
            continue
        method, result = request["method"], response.get("result")
        if method in PROVIDER and result not in (None, []):
            if len(compact(response)) <= LONGEST_ANSWER:
                found.setdefault(method, {})[compact(request["params"])] = request["params"]
    for method, params, result in KNOWN:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        added.append({"request": request, "response": {"jsonrpc": "2.0", "id": 1, "result": result}})
        found.setdefault(method, {})[compact(params)] = params
    # in the order of the profile, independent of the folder's
    return {
        method: [call(method, params) for params in list(found[method].values())[:MOST]]
        for method in PROVIDER
        if method in found
    }, added


_BALANCE_OF = "0x70a08231000000000000000000000000000000000000000000000000000000000000"
KNOWN = [
    ("eth_blockNumber", [], "0x1406f40"),
    ("net_listening", [], True),
    ("eth_chainId", [], "0x1"),
    *(
        (
            "eth_call",
            [{"to": "0xdac17f958d2ee523a2206206994597c13d831ec7", "data": f"{_BALANCE_OF}{n:04x}"}]
            + ["latest"],
            f"0x{n * 7_919:064x}",
        )
        for n in range(1, 5)
    ),
]


def discovered(peer, blocks=12):
    """Returns calls about the node's data: its last blocks, and what they name. Methods that
    the node does not support are omitted."""
    head = int(peer.call("eth_blockNumber"), 16)
    known, transactions, addresses = [], [], []
    for number in range(head, max(0, head - 10 * blocks), -1):
        block = peer.call("eth_getBlockByNumber", hex(number), True)
        if block:
            known.append(block)
            for one in block["transactions"][:8]:
                transactions.append(one["hash"])
                addresses += [one["to"]] if one.get("to") else []
        if len(known) == blocks:
            break
    if not known:
        raise SystemExit(f"the node returned no block up to its head {head}; use a node that has recent blocks")
    numbers, hashes = [b["number"] for b in known], [b["hash"] for b in known]
    transactions = transactions[: 2 * MOST]
    addresses = list(dict.fromkeys(addresses))[:MOST] or ["0x" + "11" * 20]
    token = "0x70a08231" + "00" * 12
    wanted = {
        "eth_call": [[{"to": a, "data": token + a[2:]}, "latest"] for a in addresses],
        "eth_getBlockByNumber": [["latest", False], ["latest", True]]
        + [[n, full] for n in numbers for full in (True, False)],
        "eth_getLogs": [[{"fromBlock": n, "toBlock": n}] for n in numbers],
        "eth_getTransactionReceipt": [[h] for h in transactions],
        "eth_blockNumber": [[]],
        "debug_traceBlockByHash": [[h, {"tracer": "callTracer"}] for h in hashes],
        "eth_getBalance": [[a, "latest"] for a in addresses],
        "net_listening": [[]],
        "eth_getTransactionByHash": [[h] for h in transactions],
        "eth_getBlockReceipts": [[n] for n in numbers],
        "eth_getBlockByHash": [[h, True] for h in hashes],
        "eth_chainId": [[]],
        "eth_getTransactionCount": [[a, "latest"] for a in addresses],
    }
    found = {}
    for method, of in wanted.items():
        good = [params for params in of if peer.call(method, *params) is not None]
        if good:
            found[method] = [call(method, params) for params in good[: 2 * MOST]]
    return found

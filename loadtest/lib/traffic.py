"""Traffic of an RPC provider's clients, about a chain that grows."""

import json
import random

ADDRESSES = [f"0x{n:040x}" for n in range(1, 400)]
SELECTOR = "0x70a08231"

# Shares of requests in percent. Wallets and dashboards poll the head; indexers read each new
# block with its receipts and logs; explorers read old blocks.
MIX = [
    (18, "head number"),
    (8, "latest block"),
    (4, "gas price"),
    (3, "chain id"),
    (14, "call on latest"),
    (6, "balance on latest"),
    (12, "recent block"),
    (8, "recent receipts"),
    (9, "recent logs"),
    (8, "recent transaction"),
    (4, "state of a recent block"),
    (4, "old block"),
    (2, "old receipts"),
]


class Traffic:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.head, self.final = 0, 0
        # transactions of blocks that were received
        self.transactions = {}

    def next(self):
        """Returns a kind of request, and its method and params."""
        weights = [weight for weight, _ in MIX]
        (kind,) = self.dice.choices([kind for _, kind in MIX], weights)
        return kind, *self.call(kind)

    def recent(self):
        """Returns the number of a block near the head, the newest most often."""
        return max(self.head - min(int(self.dice.expovariate(1 / 4)), 200), 0)

    def old(self):
        return self.dice.randrange(max(self.final, 1))

    def address(self):
        # most requests are about a few contracts
        return ADDRESSES[min(int(self.dice.paretovariate(1.1)) - 1, len(ADDRESSES) - 1)]

    def call(self, kind):
        if kind == "head number":
            return "eth_blockNumber", []
        if kind == "latest block":
            return "eth_getBlockByNumber", ["latest", False]
        if kind == "gas price":
            return "eth_gasPrice", []
        if kind == "chain id":
            return "eth_chainId", []
        if kind == "call on latest":
            return "eth_call", [{"to": self.address(), "data": SELECTOR}, "latest"]
        if kind == "balance on latest":
            return "eth_getBalance", [self.address(), "latest"]
        if kind == "recent block":
            return "eth_getBlockByNumber", [hex(self.recent()), self.dice.random() < 0.5]
        if kind == "recent receipts":
            return "eth_getBlockReceipts", [hex(self.recent())]
        if kind == "recent logs":
            last = self.recent()
            first = max(last - self.dice.choice([0, 0, 0, 2, 10]), 0)
            return "eth_getLogs", [{"fromBlock": hex(first), "toBlock": hex(last)}]
        if kind == "recent transaction":
            return self.transaction()
        if kind == "state of a recent block":
            return "eth_getBalance", [self.address(), hex(self.recent())]
        if kind == "old block":
            return "eth_getBlockByNumber", [hex(self.old()), False]
        return "eth_getBlockReceipts", [hex(self.old())]

    def transaction(self):
        if not self.transactions:
            return "eth_blockNumber", []
        newest = max(self.transactions)
        number = newest - min(int(self.dice.expovariate(1 / 4)), len(self.transactions) - 1)
        hashes = self.transactions.get(number) or self.transactions[newest]
        if not hashes:
            return "eth_blockNumber", []
        method = self.dice.choice(["eth_getTransactionReceipt", "eth_getTransactionReceipt", "eth_getTransactionByHash"])
        return method, [self.dice.choice(hashes)]

    def learn(self, method, answer):
        """Records the transactions of a received block."""
        if method != "eth_getBlockByNumber" or not isinstance(answer.get("result"), dict):
            return
        block = answer["result"]
        hashes = [one if isinstance(one, str) else one["hash"] for one in block["transactions"]]
        self.transactions[int(block["number"], 16)] = hashes
        while len(self.transactions) > 64:
            del self.transactions[min(self.transactions)]


def body(method, params, id):
    call = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(call, separators=(",", ":")).encode()

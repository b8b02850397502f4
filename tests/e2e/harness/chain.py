"""A node whose chain a test changes, and the results of an honest node."""

import json

from . import client
from .replay import ReplayNode
from .rpc import call

ADDRESS = '"0xdac17f958d2ee523a2206206994597c13d831ec7"'
# calls about the head
TIP = [
    call("eth_blockNumber"),
    call("eth_gasPrice"),
    call("eth_getBlockByNumber", '["latest",false]'),
    call("eth_getBlockReceipts", '["latest"]'),
    call("eth_getBalance", f"[{ADDRESS}]"),
    call("eth_getBalance", f'[{ADDRESS},"latest"]'),
    call("eth_call", f'[{{"to":{ADDRESS},"data":"0x70a08231"}},"latest"]'),
    call("eth_getLogs", '[{"fromBlock":"latest"}]'),
    call("eth_getBlockByNumber", '["safe",false]'),
    call("eth_getBlockByNumber", '["finalized",false]'),
]


class Chain(ReplayNode):
    def __init__(self, *arguments):
        super().__init__("--chain", *arguments)

    def _exchange(self, method, target, body=None):
        headers = [("Content-Type", "application/json")] if body is not None else []
        response = client.fetch(self.port, target, method=method, headers=headers, body=body)
        assert response.status == 200, (target, body, response.body[:500])
        return json.loads(response.body)

    def do(self, *commands):
        """Changes the chain in one step; returns its state after that."""
        return self._exchange("POST", "/chain", json.dumps(commands).encode())

    @property
    def state(self):
        return self._exchange("GET", "/chain")

    @property
    def head(self):
        return self.state["head"]["number"]

    @property
    def final(self):
        return self.state["finalized"]["number"]

    def honest(self, *calls):
        """The results (or errors) that an honest, synced node would return now."""
        batch = b"[" + b",".join(calls) + b"]"
        answers = self._exchange("POST", "/chain/answer", batch)
        return [answer.get("result", answer.get("error")) for answer in answers]

    def honest_page(self, path):
        return self._exchange("GET", f"/chain/answer?path={path}")

    def count(self, method=None):
        """Number of requests that the node has received."""
        methods = self._exchange("GET", "/stats")["methods"]
        return sum(methods.values()) if method is None else methods.get(method, 0)

    @property
    def page_request_count(self):
        """Number of pages of the Beacon API that clients have requested."""
        return self._exchange("GET", "/stats")["pages"]


def calls_for_transactions(chain, number):
    """Calls about a block's transactions."""
    (block,) = chain.honest(call("eth_getBlockByNumber", f'["0x{number:x}",false]'))
    bodies = []
    for transaction in block["transactions"][:3]:
        bodies += [
            call("eth_getTransactionByHash", f'["{transaction}"]'),
            call("eth_getTransactionReceipt", f'["{transaction}"]'),
            call("trace_transaction", f'["{transaction}"]'),
        ]
    return bodies


def calls_for_block(number):
    """Calls that name a block by its number."""
    block = f'"0x{number:x}"'
    return [
        call("eth_getBlockByNumber", f"[{block},true]"),
        call("eth_getBlockByNumber", f"[{block},false]"),
        call("eth_getBlockReceipts", f"[{block}]"),
        call("eth_getBlockTransactionCountByNumber", f"[{block}]"),
        call("eth_getTransactionByBlockNumberAndIndex", f'[{block},"0x0"]'),
        call("eth_getUncleCountByBlockNumber", f"[{block}]"),
        call("eth_getBalance", f"[{ADDRESS},{block}]"),
        call("eth_getBalance", f'[{ADDRESS},{{"blockNumber":{block}}}]'),
        call("eth_getCode", f"[{ADDRESS},{block}]"),
        call("eth_getTransactionCount", f"[{ADDRESS},{block}]"),
        call("eth_getStorageAt", f'[{ADDRESS},"0x0",{block}]'),
        call("eth_call", f'[{{"to":{ADDRESS},"data":"0x70a08231"}},{block}]'),
        call("eth_feeHistory", f'["0x2",{block},[]]'),
        call("eth_getLogs", f'[{{"fromBlock":"0x{number - 3:x}","toBlock":{block}}}]'),
        call("debug_traceBlockByNumber", f'[{block},{{"tracer":"callTracer"}}]'),
        call("trace_block", f"[{block}]"),
    ]

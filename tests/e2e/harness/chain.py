"""A node whose chain a test changes, and the results of an honest node."""

import json

from . import client
from .replay import ReplayNode
from .rpc import call

ADDRESS = '"0xdac17f958d2ee523a2206206994597c13d831ec7"'


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

"""Servers in front of two simulated chains, with the settings about logs and QUERY: the calls of clients,
and comparisons of responses with the nodes' own."""

import base64
import itertools
import json

from .chain import Chain
from .log_ranges import CHAIN, FINAL, HEAD, PIECE, RelayNode, direct_response, hex_ranges, logs, wait_until_followed
from .origin import answer
from .owner import wait_until_linked
from .rpc import call
from .third_party import decoded

WORKERS = 5
# the widest range that is permitted
LIMIT = 190
FIRST = 20
# the first block that is in no complete piece of final blocks
REST = (FINAL + 1) // PIECE * PIECE
# the pieces of the range from FIRST to the head
RANGES = [*hex_ranges(FIRST, REST - 1), (f"0x{REST:x}", "latest")]
# the error of the range from block 1 to the head
TOO_WIDE = {
    "code": -32602,
    "message": f"the block range from 1 to {HEAD} ({HEAD} blocks) is longer than the limit of {LIMIT}",
}
PASSWORD = ("Authorization", "Basic " + base64.b64encode(b"me:secret").decode())
WRONG_PASSWORD = ("Authorization", "Basic " + base64.b64encode(b"me:guess").decode())
UNAUTHORIZED = b'{"error":"unauthorized"}'
_numbers = itertools.count(1)


def wide_call(members):
    """A call for the logs from FIRST to the head."""
    return logs(FIRST, '"latest"', members)


def too_wide_call(members):
    """A call for more blocks than LIMIT."""
    return logs(1, HEAD, members)


def new_balance_call():
    """A call that the node has not received before."""
    return call("eth_getBalance", f'["0x{next(_numbers):040x}","latest"]')


def error_of(response):
    assert response.status == 200, response.body
    return json.loads(decoded(response))["error"]


def vary_names(response):
    """The names of headers in `Vary`, in lower case."""
    return {word.strip().lower() for word in ",".join(response.all("Vary")).split(",")}


def geth_cors(request):
    """Headers of a node that permits all origins."""
    origin = request.header("Origin")
    return [("Vary", "Origin"), *([("Access-Control-Allow-Origin", origin)] if origin else [])]


class GuardedNode(RelayNode):
    """A node that requires a password."""

    def __call__(self, request):
        if request.header("Authorization") != PASSWORD[1]:
            return answer(UNAUTHORIZED, status=401, headers=[("WWW-Authenticate", "Basic")])
        return super().__call__(request)


class LogSite:
    """A server that follows two chains, in the namespaces `main` and `other`; subclasses create it."""

    def __init__(self):
        self.chain = Chain(*CHAIN)
        self.other_chain = Chain(*CHAIN, "--seed", 7, "--chain-id", 2)
        # the relay node of the test in front of the first chain
        self.node = None
        self.server = None

    def __enter__(self):
        try:
            for chain in (self.chain, self.other_chain):
                chain.do({"finalize": FINAL})
            self.server.start()
            wait_until_linked(self.server)
            wait_until_followed(self.server, {"main": self.chain, "other": self.other_chain})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.server.stop()
        finally:
            for chain in (self.chain, self.other_chain):
                chain.stop()

    def assert_right(self, response, body, chain=None):
        """Compares the response with the node's own."""
        assert response.status == 200, response.body
        assert decoded(response).rstrip() == direct_response(chain or self.chain, body).rstrip(), body

    def assert_fetched_in_pieces(self, ranges=RANGES, since=0):
        """Asserts that the node has received these pieces once each, and no other request."""
        assert sorted(self.node.ranges(since)) == sorted(ranges)
        assert self.node.single_calls(since) == []

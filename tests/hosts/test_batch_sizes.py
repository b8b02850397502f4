"""Batches of stored small responses are as short as an encoder of the whole text makes them."""

import json
import random
import zlib

import pytest

from harness.rpc import Node, call

CALLS = 16
# Each response occurs twice in the batch.
BLOCKS = 8


@pytest.fixture(scope="module")
def server(start_server):
    return start_server({"/cached": {"cache": True, "cache_namespace": "batches"}, "/": {}})


def block(number):
    """Returns a result of 1.4 KB, above `min_length`: its entry is stored compressed."""
    return b'"0x%b"' % random.Random(number).randbytes(700).hex().encode()


@pytest.mark.wasm_thorough("the core assembles the batch; rows of the table have batches of hits in a sandbox")
def test_batch_of_hits_has_the_bytes_of_gzip_1(server, origin):
    node = Node({"eth_getBlockByHash": lambda params: block(int(params[0], 16))}, newline=b"")
    origin.answers(node)
    calls = [call("eth_getBlockByHash", f'["0x{n % BLOCKS + 1:064x}",false]', id=str(n)) for n in range(CALLS)]
    batch = b"[" + b",".join(calls) + b"]"
    headers = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
    with server.connect() as connection:
        connection.exchange("/cached", method="POST", headers=headers, body=batch)
        node.received_calls.clear()
        hit = connection.exchange("/cached", method="POST", headers=headers, body=batch)
    assert (node.count(), hit.coding) == (0, "gzip")
    assert "; hit" in hit.header("Cache-Status")
    whole = hit.decoded
    assert [one["id"] for one in json.loads(whole)] == list(range(CALLS))
    assert len(hit.body) <= 1.1 * len(zlib.compress(whole, 1, wbits=31))

"""Default lifetimes follow the block time of the followed chain, in every worker."""

import re

import pytest

from harness.rpc import call
from harness.stands import WORKERS, stand_of_host

pytestmark = pytest.mark.once("the core decides; the block time arrives with the head")

# Of the simulated chain, in seconds. The lifetimes without a block time are 1 and 2 seconds.
BLOCK_TIME = 12


def remaining_ttl(response):
    """The TTL of a hit in seconds; 0 for other responses."""
    hit = re.search(r"; hit; ttl=(\d+)", response.header("Cache-Status") or "")
    return int(hit[1]) if hit else 0


def test_default_lifetimes_equal_the_block_time(host):
    with stand_of_host(host, interval="100ms", valid=[]) as stand:
        stand.nginx.wait_for(lambda: stand.status["block_time"] == BLOCK_TIME, "the block time")
        # it is published with the next head
        stand.change({"extend": 1})
        head = stand.chain.head
        # connections are spread over the workers
        for account in range(4 * WORKERS):
            for block in ("latest", f"0x{head:x}"):
                body = call("eth_getBalance", f'["0x{account:040x}","{block}"]')
                stand.nginx.wait_for(
                    lambda body=body: 2 < remaining_ttl(stand.fetch(body)) <= BLOCK_TIME,
                    f"a hit for {block} that is fresh for longer than without a block time",
                )


@pytest.mark.wasm_thorough("the core decides; the block time arrives as in the first test")
def test_lifetimes_of_the_operator_replace_the_block_time(host):
    with stand_of_host(host, interval="100ms", valid=["tip 1h"]) as stand:
        stand.nginx.wait_for(lambda: stand.status["block_time"] == BLOCK_TIME, "the block time")
        stand.change({"extend": 1})
        body = call("eth_getBalance", f'["0x{7:040x}","latest"]')
        stand.nginx.wait_for(
            lambda: remaining_ttl(stand.fetch(body)) > BLOCK_TIME, "a hit with the operator's TTL"
        )

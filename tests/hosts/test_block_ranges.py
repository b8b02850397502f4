"""sszip_logs_max_range: open ranges are resolved by the head of the followed chain, in every
worker."""

import json

import pytest

from harness.rpc import call
from harness.stands import WORKERS, stand_of_host

pytestmark = pytest.mark.once("the core decides; the head arrives as test_tip_floor tries on each")

LIMIT = 50


def logs(first, last=None):
    end = "" if last is None else f',"toBlock":"{last}"'
    return call("eth_getLogs", f'[{{"fromBlock":"0x{first:x}"{end}}}]')


def error_of(stand, body):
    return json.loads(stand.fetch(body).decoded).get("error")


def too_wide(first, last):
    return {
        "code": -32602,
        "message": f"the block range from {first} to {last} ({last - first + 1} blocks) is longer than the limit of {LIMIT}",
    }


def test_open_range_is_limited_by_the_head_in_every_worker(host):
    with stand_of_host(host, interval="100ms", settings={"logs_max_range": str(LIMIT)}) as stand:

        def refusal(body):
            if host == "wasm":
                # a sandbox has no limit until it knows the chain, after its first request
                return stand.nginx.wait_for(lambda: error_of(stand, body), "a limit in each sandbox")
            return error_of(stand, body)

        for _ in range(2):
            head = stand.chain.state["served_head"]["number"]
            first = head - LIMIT
            # connections are spread over the workers
            for _ in range(4 * WORKERS):
                assert refusal(logs(first)) == too_wide(first, head)
                assert refusal(logs(first, "latest")) == too_wide(first, head)
                assert error_of(stand, logs(first + 1)) is None
            stand.change({"extend": 1})

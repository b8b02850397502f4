"""A namespace that follows a node of one API and receives requests of the other: responses that
depend on the head are never stored, with a reason; those about a block or a slot are stored."""

import json
import re

from .rpc import call

CALLS = {
    True: [
        call("eth_blockNumber"),
        call("eth_gasPrice"),
        call("eth_getBlockByNumber", '["latest",false]'),
        call("eth_getLogs", '[{"fromBlock":"latest"}]'),
    ],
    False: [call("eth_chainId")],
}
PAGES = {
    True: ["/eth/v1/beacon/headers/head", "/eth/v1/beacon/blocks/head/root"],
    False: ["/eth/v1/beacon/headers/%s", "/eth/v1/beacon/blocks/%s/root"],
}
FOLLOWED = ["execution", "beacon"]
LINE = re.compile(r'namespace "main" follows an? (\w+) node: responses of the .* that depend on the head are not cached there \(reason other-api\)')


def check_response(stand, api, reasons, workers):
    """Checks the stand; `reasons()`: the counts by reason; `workers`: number of log lines."""
    if api == "beacon":
        fetch, honest = stand.fetch, lambda body: stand.chain.honest(body)[0]
        requests = CALLS
    else:
        (root,) = [stand.chain.honest_page("/eth/v1/beacon/blocks/head/root")["data"]["root"]]
        fetch, honest = stand.page, stand.chain.honest_page
        requests = {True: PAGES[True], False: [page % root for page in PAGES[False]]}
    # a log line of level error, once for each process or sandbox
    stand.nginx.expect(LINE.pattern)
    before = reasons().get("other-api", 0)
    rounds = 4
    for _ in range(rounds):
        for one in requests[True]:
            response = fetch(one)
            status = response.header("Cache-Status")
            assert "hit" not in status and "detail=other-api" in status, (one, status)
            value = json.loads(response.decoded)
            assert (value if api == "execution" else value["result"]) == honest(one), one
        stand.chain.do({"extend": 1})
    count = before + rounds * len(requests[True])
    stand.nginx.wait_for(lambda: reasons().get("other-api", 0) == count, f"{count} of the reason")
    for one in requests[False]:
        stand.nginx.wait_for(
            lambda one=one: "; hit" in fetch(one).header("Cache-Status"), f"a hit of {one}"
        )
    assert reasons().get("other-api", 0) == count
    lines = stand.nginx.wait_for(lambda: LINE.findall(stand.nginx.error_log()), "a line in the log")
    assert set(lines) == {api} and len(lines) <= workers

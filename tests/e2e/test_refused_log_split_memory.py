"""Failed allocations of nginx itself, each in turn, while a request waits for the pieces of its log
range, which subrequests fetch: the client receives the node's logs or an error, and later requests
are served."""

import itertools

import pytest

from harness.chain import Chain
from harness.client import Truncated, request_bytes
from harness.nginx import Nginx
from harness.nginx_state import wait_until_stable
from harness.rpc import call
from test_log_split_requests import FINAL, JSON, PROOF, LogRange, LogStand, assert_right_logs
from tiers import by_tier

# number of routes: a failure of the node ends the splitting of calls on its route for ten seconds
ROUTES = 40
# a pool of 112 bytes has room for next to nothing, so that most allocations are their own
CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
sszip_cache_memory 16m;
sszip_cache_valid immutable 1h;
sszip_cache_namespace main;
sszip_cache_lock_timeout 60s;
proxy_http_version 1.1;
client_body_buffer_size 128k;
server {
    listen 127.0.0.1:@port@;
    request_pool_size 112;
    sszip_cache_head http://%(node)s interval=100ms;
    sszip_logs_split 10 concurrent=4;
    location /status { sszip off; stub_status; }
    %(locations)s
}
"""
LOCATION = "location = /%d { sszip_logs_split 10 concurrent=4; proxy_pass http://%s; }"


class PreloadedLogStand(LogStand):
    def __init__(self, environment):
        self.chain = Chain()
        node = self.chain.address
        locations = "\n    ".join(LOCATION % (number, node) for number in range(ROUTES))
        config = CONFIG % {"node": node, "locations": locations}
        self.nginx = Nginx(config, environment=environment)
        self.paths = itertools.cycle(f"/{number}" for number in range(ROUTES))

    def detect_filters(self):
        for number in range(ROUTES):
            assert self.post(f"/{number}", call("eth_syncing", "[]")).status == 200

    def fetch_logs(self, path):
        """The outcome of a call whose filter no earlier call had: `"whole"`, a status, or `"cut"`;
        and whether it was split."""
        body = LogRange(self).call()
        proofs = self.chain.count(PROOF)
        headers = [JSON, ("Connection", "close")]
        try:
            with self.nginx.connect() as connection:
                connection.send(request_bytes(path, method="POST", headers=headers, body=body))
                response = connection.read("POST")
        except (Truncated, ConnectionError):
            outcome = "cut"
        else:
            outcome = response.status
            if outcome == 200:
                assert_right_logs(self, response, body)
                outcome = "whole"
            else:
                assert outcome in (400, 500, 502), response
        return outcome, self.chain.count(PROOF) > proofs

    def next_path(self):
        """The next route, once it splits calls."""
        path = next(self.paths)
        self.nginx.wait_for(lambda: self.fetch_logs(path) == ("whole", True), f"{path} to split calls")
        return path


@pytest.fixture(scope="module")
def stand(preload):
    with PreloadedLogStand(preload.environment) as stand:
        # nginx logs each of its own failures
        stand.nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")
        stand.change({"finalize": FINAL})
        stand.wait_for_final(FINAL)
        stand.detect_filters()
        yield stand


def test_logs_are_right_or_an_error_when_an_allocation_fails_while_pieces_are_fetched(stand, preload):
    (worker,) = stand.nginx.workers()
    path = stand.next_path()
    outcomes = []
    for skip in itertools.count(0, by_tier(7, 1)):
        with preload.refusing(worker, skip=skip):
            outcome, is_split = stand.fetch_logs(path)
        assert stand.nginx.workers() == [worker], stand.nginx.error_log()[-2000:]
        if not preload["refused"]:
            assert (outcome, is_split) == ("whole", True)
            break
        outcomes.append(outcome)
        # the next call is served: neither a flight nor a shortage of memory is left
        outcome, is_split = stand.fetch_logs(path)
        assert outcome == "whole"
        if not is_split:
            path = stand.next_path()
    assert len(outcomes) > by_tier(10, 50)
    assert "whole" in outcomes
    wait_until_stable(stand.nginx)
    stand.nginx.check()

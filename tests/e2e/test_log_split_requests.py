"""Background subrequests of a request that waits for the pieces of its log range: clients that
abort, streams that are reset, limits, keep-alive and reloads."""

import itertools
import json

import pytest

from harness.chain import Chain
from harness.client import fetch, request_bytes
from harness.http2 import Http2Client
from harness.nginx import Nginx
from harness.owner import wait_until_linked
from harness.nginx_state import wait_for_earlier_events, wait_until_stable
from harness.rpc import call
from harness.stands import Stand, hit

JSON = ("Content-Type", "application/json")
LOGS = "eth_getLogs"
PROOF = "eth_getBlockTransactionCountByNumber"
FINAL = 150
FIRST, LAST, PIECE = 100, 149, 10
PIECES = (LAST + 1 - FIRST) // PIECE
# pieces that are fetched at a time
WAVE = 4

CONFIG = """
limit_conn_zone $uri zone=connections:1m;
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
sszip_cache_memory 16m;
sszip_cache_valid immutable 1h;
sszip_cache_valid unfinalized 1h;
sszip_cache_valid tip 1h;
sszip_cache_namespace main;
# longer than any request of these tests waits
sszip_cache_lock_timeout 60s;
proxy_http_version 1.1;
client_body_buffer_size 128k;
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_h2@ http2;
    sszip_cache_head http://%(node)s interval=100ms;
    sszip_logs_split 10 concurrent=4;
    add_header X-Key $sszip_cache_key;
    location / { proxy_pass http://%(node)s; }
    location /few { limit_conn connections 1; limit_conn_status 429; proxy_pass http://%(node)s; }
    location /most { sszip_logs_split 4 concurrent=32; proxy_pass http://%(node)s; }
    location /logged { log_subrequest on; proxy_pass http://%(node)s; }
    location /status { sszip off; stub_status; }
    location = /worker { sszip off; return 200 $pid; }
}
"""
_numbers = itertools.count(1)


class LogStand(Stand):
    """One worker of nginx, which splits log ranges, in front of a chain that it follows."""

    def __init__(self):
        self.chain = Chain()
        self.nginx = Nginx(CONFIG % {"node": self.chain.address})

    @property
    def log_calls(self):
        return self.chain.count(LOGS)

    def post(self, path, body):
        return fetch(self.nginx.port, path, method="POST", headers=[JSON], body=body)

    def detect_filters(self):
        """Sends a call to each location: no request is split before a response has shown that no
        other filter changes bodies."""
        for path in ("/", "/few", "/most", "/logged"):
            assert self.post(path, call("eth_syncing", "[]")).status == 200

    def wait_for_calls(self, number):
        self.nginx.wait_for(lambda: self.log_calls >= number, f"{number} calls, and it has {self.log_calls}")

    def wait_for_hit(self, body):
        self.nginx.wait_for(lambda: hit(self.fetch(body)), f"{body} to be stored")


@pytest.fixture(scope="module")
def started():
    with LogStand() as stand:
        stand.change({"finalize": FINAL})
        stand.wait_for_final(FINAL)
        stand.detect_filters()
        yield stand


@pytest.fixture
def stand(started):
    wait_until_stable(started.nginx)
    yield started
    started.release(LOGS)
    wait_until_stable(started.nginx)
    started.nginx.check()


class LogRange:
    """A filter that no other test has, with all addresses of the chain, so that it has logs."""

    def __init__(self, stand):
        (everything,) = stand.chain.honest(call(LOGS, f'[{{"fromBlock":"0x0","toBlock":"0x{LAST:x}"}}]'))
        addresses = {log["address"] for log in everything}
        self.addresses = [*sorted(addresses), f"0x{next(_numbers):040x}"]

    def call(self, first=FIRST, last=LAST):
        filter = {"fromBlock": hex(first), "toBlock": hex(last), "address": self.addresses}
        return call(LOGS, json.dumps([filter], separators=(",", ":")))

    def pieces(self):
        return [self.call(first, first + PIECE - 1) for first in range(FIRST, LAST, PIECE)]


def logs_of(body):
    return json.loads(body)["result"]


def assert_right_logs(stand, response, body):
    assert response.status == 200
    (honest,) = stand.chain.honest(body)
    assert honest, "the range has no logs"
    assert logs_of(response.decoded) == honest


@pytest.mark.parametrize("path", ["/", "/logged"])
def test_pieces_are_fetched_in_waves_and_later_ranges_are_assembled_of_them(stand, path):
    logs = LogRange(stand)
    before, proofs = stand.log_calls, stand.chain.count(PROOF)
    stand.delay(LOGS)
    with stand.nginx.connect() as connection:
        connection.send(request_bytes(path, method="POST", headers=[JSON], body=logs.call()))
        stand.wait_for_calls(before + WAVE)
        wait_for_earlier_events(stand.nginx)
        assert stand.log_calls == before + WAVE
        stand.release(LOGS)
        assert_right_logs(stand, connection.read("POST"), logs.call())
        # each piece has a proof for both of its ends
        assert stand.log_calls == before + PIECES
        assert stand.chain.count(PROOF) == proofs + 2 * PIECES
        for piece in logs.pieces():
            stand.wait_for_hit(piece)
        # the connection is kept alive, and stored pieces are not fetched again
        shorter = logs.call(FIRST, LAST - PIECE)
        again = connection.exchange(path, method="POST", headers=[JSON], body=shorter)
        assert_right_logs(stand, again, shorter)
        assert stand.log_calls == before + PIECES


def test_32_subrequests_of_one_request_run_at_a_time(stand):
    logs = LogRange(stand)
    body = logs.call(0, LAST)
    before = stand.log_calls
    stand.delay(LOGS)
    with stand.nginx.connect() as connection:
        connection.send(request_bytes("/most", method="POST", headers=[JSON], body=body))
        stand.wait_for_calls(before + 32)
        wait_for_earlier_events(stand.nginx)
        assert stand.log_calls == before + 32
        stand.release(LOGS)
        assert_right_logs(stand, connection.read("POST"), body)
    # 150 blocks, 4 in a piece
    assert stand.log_calls == before + 38


@pytest.mark.parametrize("ends", ["close", "reset"])
def test_pieces_in_flight_are_stored_and_no_more_are_fetched_when_the_client_aborts(stand, ends):
    logs = LogRange(stand)
    before = stand.log_calls
    stand.delay(LOGS)
    leaving = stand.nginx.connect()
    leaving.send(request_bytes("/few", method="POST", headers=[JSON], body=logs.call()))
    stand.wait_for_calls(before + WAVE)
    getattr(leaving, ends)()
    wait_for_earlier_events(stand.nginx)
    # the request keeps its slot of limit_conn: decision 144
    assert stand.post("/few", call("eth_chainId")).status == 429
    stand.release(LOGS)
    wait_until_stable(stand.nginx)
    assert stand.post("/few", call("eth_chainId")).status == 200
    for piece in logs.pieces()[:WAVE]:
        stand.wait_for_hit(piece)
    assert stand.log_calls == before + WAVE
    assert_right_logs(stand, stand.post("/", logs.call()), logs.call())
    assert stand.log_calls == before + PIECES


def test_follower_gets_the_response_when_the_client_that_splits_the_range_aborts(stand):
    logs = LogRange(stand)
    before = stand.log_calls
    stand.delay(LOGS)
    with stand.nginx.connect() as follower:
        with stand.nginx.connect() as leaving:
            leaving.send(request_bytes("/", method="POST", headers=[JSON], body=logs.call()))
            stand.wait_for_calls(before + WAVE)
            follower.send(request_bytes("/", method="POST", headers=[JSON], body=logs.call()))
            wait_for_earlier_events(stand.nginx)
        wait_for_earlier_events(stand.nginx)
        stand.release(LOGS)
        assert_right_logs(stand, follower.read("POST"), logs.call())


def test_other_streams_are_served_when_a_stream_that_waits_for_pieces_is_reset(stand):
    logs = LogRange(stand)
    before = stand.log_calls
    stand.delay(LOGS)
    with Http2Client(stand.nginx.ports["port_h2"]) as client:
        aborted = client.fetch("/", method="POST", body=logs.call())
        stand.wait_for_calls(before + WAVE)
        client.reset(aborted)
        client.answers_pings()
        stand.release(LOGS)
        again = client.fetch("/", method="POST", body=logs.call())
        client.finish(again)
        assert logs_of(client.checked_body(again)) == stand.chain.honest(logs.call())[0]


def test_range_is_assembled_over_http2(stand):
    logs = LogRange(stand)
    before = stand.log_calls
    with Http2Client(stand.nginx.ports["port_h2"]) as client:
        streams = [client.fetch("/", method="POST", body=logs.call()) for _ in range(3)]
        client.finish(*streams)
        for stream in streams:
            assert logs_of(client.checked_body(stream)) == stand.chain.honest(logs.call())[0]
    assert stand.log_calls == before + PIECES


def test_waiting_request_gets_its_response_from_the_old_worker_after_a_reload(stand):
    logs = LogRange(stand)
    before = stand.log_calls
    stand.delay(LOGS)
    with stand.nginx.connect() as connection:
        connection.send(request_bytes("/", method="POST", headers=[JSON], body=logs.call()))
        stand.wait_for_calls(before + WAVE)
        stand.nginx.reload()
        stand.release(LOGS)
        assert_right_logs(stand, connection.read("POST"), logs.call())
    wait_until_linked(stand.nginx)
    stand.follows()
    stand.wait_for_final(FINAL)
    stand.detect_filters()

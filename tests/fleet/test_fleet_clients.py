"""Clients that abort while their lookups wait for a slow fleet: no lease, request or connection
remains, and the next client is served."""

import itertools
import json

import pytest
from machines import balance, share

from harness.client import Connection, gunzip, request_bytes
from harness.http2 import Http2Client
from harness.nginx import open_descriptors
from harness.nginx_state import wait_until_stable
from tiers import by_tier, times

# Seconds by which replies are late. Commands of the purge stream have 500 ms.
DELAY = 0.25
HEADERS = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
ABORTS = ["close", "reset"]
# of a test, at least and at most
ROUNDS, MOST_ROUNDS = times(1, 12), 30
# how a client aborts, the number of calls that it sends, and whether the fleet has values of them
REPRESENTATIVE_ABORTS = [("reset", 1, True), ("close", 4, False)]
ALL_ABORTS = list(itertools.product(ABORTS, (1, 4), (True, False)))

# One worker, whose connections and descriptors are counted.
SERVER = """
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_h2@ http2;
    location / { proxy_pass http://@node@; }
    location = /status { sszip off; stub_status; }
}
"""


class Site:
    """A machine that stores entries in the fleet, and one that queries it through a proxy."""

    def __init__(self, world, kind, **options):
        self.redis = world.redis()
        self.proxy = world.proxy(self.redis)
        self.chain = world.chain(final_blocks=60)
        self.first = world.machine(self.chain, self.redis.url)
        settings = world.settings(self.proxy.url)
        self.machine = world.new_machine(self.chain, settings, kind, **options).start().wait_until_used()
        self._accounts = itertools.count(1)

    def calls(self, count, is_shared=False):
        """Calls that no client has sent; if `is_shared`, the fleet has their values."""
        accounts = itertools.islice(self._accounts, count)
        calls = [balance(self.chain.final - account % 40, account) for account in accounts]
        if is_shared:
            share(self.first, self.redis, *calls)
        return calls

    def connect(self):
        return Connection(self.machine.server.port)

    def slow_lookups(self, count, send):
        """Delays the fleet, and waits until `count` lookups that `send` causes are at its server.
        Returns a function whose value is the number of those that have ended."""
        self.machine.wait_until_used()
        before, sent_before = self.machine.fleet.lookups(), self.redis.calls("get")
        self.proxy.delay(DELAY)
        send()
        self.machine.wait_for(lambda: self.redis.calls("get") >= sent_before + count, "lookups at the server")
        return lambda: self.machine.fleet.lookups() - before

    def wait_until_released(self):
        status = self.machine.owner.status
        self.machine.wait_for(lambda: status()["leases"] == 0, f"leases to end, of {status()}")

    def close(self):
        self.proxy.forward()


def rounds(waited):
    """Rounds of a test, which adds to `waited` whether clients have aborted during a lookup. A busy
    machine may be too slow for that."""
    for number in range(MOST_ROUNDS):
        yield number
        if number + 1 >= ROUNDS and any(waited):
            return
    raise AssertionError("no client has aborted during its lookup")


def post(body):
    return request_bytes("/", method="POST", headers=HEADERS, body=body)


def batch(calls):
    """A batch, or one call without an array."""
    if len(calls) == 1:
        return calls[0]
    return b"[" + b",".join(body.replace(b'"id":1', b'"id":%d' % n, 1) for n, body in enumerate(calls)) + b"]"


def assert_batch(body, honest):
    """Checks the decoded response to a batch."""
    results = {message["id"]: message["result"] for message in json.loads(body)}
    assert results == dict(enumerate(honest))


@pytest.fixture(scope="module")
def file_site(file_world):
    site = Site(file_world, "configured", config=SERVER, workers=1)
    nginx = site.machine.server
    # connections of a first request remain
    site.machine.assert_right(*site.calls(2))
    wait_until_stable(nginx)
    (site.worker,) = nginx.workers()
    site.descriptors = open_descriptors(site.worker)
    return site


@pytest.fixture
def site(file_site):
    """The site; at the end of a test none of its connections may remain."""
    nginx = file_site.machine.server
    yield file_site
    file_site.close()
    wait_until_stable(nginx)
    assert nginx.all_workers() == [file_site.worker]
    few = file_site.descriptors + 1
    nginx.wait_for(lambda: open_descriptors(file_site.worker) <= few, f"no more than {few} descriptors")
    file_site.wait_until_released()


@pytest.mark.parametrize("abort, count, is_shared", by_tier(REPRESENTATIVE_ABORTS, ALL_ABORTS))
def test_next_client_is_served_when_a_client_aborts_during_its_lookup(site, abort, count, is_shared):
    waited = []
    for _ in rounds(waited):
        calls = site.calls(count, is_shared)
        client = site.connect()
        ended = site.slow_lookups(count, lambda client=client, calls=calls: client.send(post(batch(calls))))
        getattr(client, abort)()
        waited.append(ended() == 0)
        # coalesced with the lookup of the client that aborted, or the next one
        site.machine.assert_right(calls[0])
        site.proxy.forward()
        site.machine.wait_for(lambda ended=ended, count=count: ended() >= count, "the lookups to end")
        site.wait_until_released()
        site.machine.assert_right(*calls)


@pytest.mark.parametrize("count, is_shared", by_tier([(1, False), (4, True)], [row[1:] for row in ALL_ABORTS[:4]]))
def test_other_clients_get_responses_when_half_of_them_abort_during_their_lookups(site, count, is_shared):
    """Two clients for each call, or batch: one of them leads, and any of the two aborts."""
    for _ in range(ROUNDS):
        requests = [site.calls(count, is_shared) for _ in range(by_tier(8, 25))]
        clients = [(site.connect(), calls) for calls in requests for _ in range(2)]

        def send(clients=clients):
            for client, calls in clients:
                client.send(post(batch(calls)))

        # followers of a batch query the fleet as well
        site.slow_lookups(count * len(requests), send)
        # in each pair the leader or the follower, by turns
        leaving = clients[0::4] + clients[3::4]
        for number, (client, _) in enumerate(leaving):
            getattr(client, ABORTS[number % 2])()
        for client, calls in clients[1::4] + clients[2::4]:
            response = client.read("POST")
            assert response.status == 200
            honest = site.chain.honest(*calls)
            if count == 1:
                assert json.loads(response.decoded)["result"] == honest[0]
            else:
                assert_batch(response.decoded, honest)
            client.close()
        site.proxy.forward()
        site.wait_until_released()


@pytest.mark.parametrize("is_shared", by_tier([True], [True, False]))
def test_other_streams_get_responses_when_some_are_reset_during_their_lookups(site, is_shared):
    waited = []
    for _ in rounds(waited):
        requests = [site.calls(1, is_shared) for _ in range(8)] + [site.calls(4, is_shared)]
        with Http2Client(site.machine.server.ports["port_h2"]) as client:
            streams = []

            def send(client=client, requests=requests, streams=streams):
                streams += [client.fetch("/", method="POST", body=batch(calls)) for calls in requests]

            ended = site.slow_lookups(8 + 4, send)
            for stream in streams[0::2]:
                client.reset(stream)
            waited.append(ended() == 0)
            client.finish(*streams[1::2])
            for stream, calls in list(zip(streams, requests, strict=True))[1::2]:
                head, body = client.heads[stream], bytes(client.bodies[stream])
                assert head[":status"] == "200" and stream not in client.resets
                message = json.loads(gunzip(body) if head.get("content-encoding") == "gzip" else body)
                assert [message["result"]] == site.chain.honest(*calls)
        site.proxy.forward()
        site.wait_until_released()
        # calls of the streams that were reset
        site.machine.assert_right(*(calls[0] for calls in requests))


@pytest.mark.thorough("a connection for each round")
def test_next_client_is_served_when_a_connection_of_http2_ends_during_lookups(site):
    for turn in range(ROUNDS):
        calls = site.calls(12, turn % 2 == 0)
        client = Http2Client(site.machine.server.ports["port_h2"])

        def send(client=client, calls=calls):
            for body in calls:
                client.fetch("/", method="POST", body=body)

        site.slow_lookups(len(calls), send)
        client.socket.close()
        site.machine.assert_right(*calls[:2])
        site.proxy.forward()
        site.wait_until_released()
        site.machine.assert_right(*calls)


@pytest.mark.thorough("one Envoy for each")
@pytest.mark.parametrize("kind", ["envoy", "wasm"])
def test_envoy_ends_requests_when_clients_abort_during_their_lookups(world, kind):
    site = Site(world, kind)
    envoy = site.machine.server
    waited = []
    for turn in rounds(waited):
        is_shared, is_http2 = turn % 2 == 0, turn % 4 > 1
        requests = [site.calls(1, is_shared) for _ in range(4)] + [site.calls(4, is_shared)]
        clients = [(Http2Client(envoy.port) if is_http2 else site.connect()) for _ in requests]

        def send(clients=clients, requests=requests, is_http2=is_http2):
            for client, calls in zip(clients, requests, strict=True):
                if is_http2:
                    client.fetch("/", method="POST", body=batch(calls))
                else:
                    client.send(post(batch(calls)))

        ended = site.slow_lookups(4 + 4, send)
        for number, client in enumerate(clients):
            if is_http2:
                client.socket.close()
            else:
                getattr(client, ABORTS[number % 2])()
        waited.append(ended() == 0)
        site.machine.assert_right(requests[0][0], requests[-1][0])
        site.proxy.forward()
        envoy.wait_for(lambda: envoy.active() == 0, f"no request in flight, and {envoy.active()} are")
        site.wait_until_released()
        site.machine.assert_right(*(body for calls in requests for body in calls))

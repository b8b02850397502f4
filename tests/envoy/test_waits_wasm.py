"""Followers in Envoy's sandbox: the daemon reports when the response is there, or which follower
leads. And purges, which are routes."""

import itertools
import selectors
import signal
import threading

import pytest

from harness import client
from harness.processes import stop
from harness.rpc import Node
from test_shared_wasm import purge, wasm_of
from test_store_envoy import assert_purge_responses
from test_store_life import LARGE, by_hash, hits
from tiers import times

_numbers = itertools.count(1)
METHOD = "eth_getBlockByHash"


@pytest.fixture(scope="module")
def envoys(session_origin, daemon):
    """Two Envoys with one worker, so that the sandbox is known, and one with two workers."""
    envoys = [wasm_of(daemon, session_origin, workers=number) for number in (1, 1, 2)]
    for envoy in envoys:
        envoy.start()
    yield envoys
    for envoy in envoys:
        envoy.stop()


@pytest.fixture
def node(origin, envoys):
    node = Node({METHOD: LARGE})
    origin.answers(node)
    for envoy in envoys:
        warm = next(_numbers)
        envoy.wait_for(lambda envoy=envoy, warm=warm: hits(envoy, [warm]), "a hit")
    yield node
    for gate in node.gates.values():
        gate.set()


class ConcurrentClients:
    """Clients that request one key at once, from several Envoys."""

    def __init__(self, number, envoys):
        self.answers = []
        self.threads = [
            threading.Thread(target=self._send, args=(envoy, by_hash(number, id=str(id))))
            for id, envoy in enumerate(envoys)
        ]
        for thread in self.threads:
            thread.start()

    def _send(self, envoy, body):
        self.answers.append(envoy.post("/", body))

    def all(self):
        """Waits for the responses, which must be right."""
        for thread in self.threads:
            thread.join(60)
        assert len(self.answers) == len(self.threads)
        assert all(one.status == 200 and LARGE in one.decoded for one in self.answers)
        return self.answers


def under_way(envoy):
    return envoy.stats(r"^http\.test\.downstream_rq_active$")["http.test.downstream_rq_active"]


def arrived(envoys, number):
    envoys[0].wait_for(lambda: sum(map(under_way, envoys)) == number, "all to arrive")


def followers(envoy):
    return sum(envoy.stats(r"sszip\.cache\.waiting$").values())


def wait_for_followers(envoys, number):
    """Waits until this number of requests waits for the response to another one: a later one would be a hit."""
    envoys[0].wait_for(lambda: sum(map(followers, envoys)) == number, f"{number} requests to wait")


def send_call(envoy, number):
    """A connection whose client may abort."""
    connection = client.Connection(envoy.port)
    headers = [("Content-Type", "application/json")]
    connection.send(client.request_bytes("/", method="POST", headers=headers, body=by_hash(number)))
    return connection


class TestCoalescing:
    @pytest.mark.parametrize("which", [[2], [0, 1, 2]], ids=["workers", "several Envoys"])
    def test_coalesced_requests_of_all_sandboxes_reach_the_node_once(self, envoys, node, which):
        hosts = [envoys[number] for number in which]
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        clients = ConcurrentClients(number, [hosts[n % len(hosts)] for n in range(30)])
        hosts[0].wait_for(lambda: node.count() > before, "the leader")
        wait_for_followers(hosts, 29)
        gate.set()
        clients.all()
        assert node.count() == before + 1

    def test_followers_wait_beyond_one_wait_slice_of_the_daemon(self, envoys, node):
        """The daemon waits for a second at a time: each follower repeats its request."""
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        clients = ConcurrentClients(number, envoys * 2)
        envoys[0].wait_for(lambda: node.count() > before, "the leader")
        wait_for_followers(envoys, 5)
        assert not gate.wait(2.5)
        gate.set()
        clients.all()
        assert node.count() == before + 1

    def test_followers_fetch_a_response_that_may_not_be_stored(self, envoys, node, origin):
        node.options = {"headers": [("Cache-Control", "no-store")]}
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        clients = ConcurrentClients(number, envoys * 4)
        envoys[0].wait_for(lambda: node.count() > before, "the leader")
        wait_for_followers(envoys, 11)
        gate.set()
        clients.all()
        assert node.count() == before + 12


def test_hundreds_of_concurrent_lookups_of_a_few_keys_are_hits(envoys, node):
    """A request that comes too late for another one's lookup has one of its own, which does not
    end with the other request."""
    envoy = envoys[0]
    numbers = [next(_numbers) for _ in range(3)]
    envoy.wait_for(lambda: hits(envoy, numbers), "hits")
    headers = [("Content-Type", "application/json")]
    requests = [
        client.request_bytes("/", method="POST", headers=headers, body=by_hash(numbers[n % 3]))
        for n in range(32)
    ]
    waiting = selectors.DefaultSelector()
    for request in requests:
        connection = client.Connection(envoy.port)
        waiting.register(connection.socket, selectors.EVENT_READ, (connection, request))
        connection.send(request)
    before, left = node.count(), times(800, 2000)
    while left > 0:
        for ready, _ in waiting.select(10):
            connection, request = ready.data
            assert connection.read("POST").status == 200
            connection.send(request)
            left -= 1
    assert node.count() == before


class TestLeaderAborts:
    @pytest.mark.parametrize("followers", [[1], [0], [0, 1, 2]], ids=str)
    def test_follower_leads_when_the_client_of_the_leader_aborts(self, envoys, node, followers):
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        leader = send_call(envoys[0], number)
        envoys[0].wait_for(lambda before=before: node.count() > before, "the leader")
        hosts = [envoys[n] for n in followers]
        clients = ConcurrentClients(number, hosts * 4)
        wait_for_followers(hosts, 4 * len(hosts))
        was_alone = node.count() == before + 1
        leader.reset()
        # before the lease, or the wait of the followers, would end
        envoys[0].wait_for(lambda before=before: node.count() > before + 1, "another", seconds=40)
        gate.set()
        clients.all()
        assert was_alone and node.count() == before + 2

    def test_lease_is_released_when_the_only_client_aborts(self, envoys, node):
        """The lease is released: the next request need not wait for its end."""
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        leader = send_call(envoys[0], number)
        envoys[0].wait_for(lambda: node.count() > before, "the leader")
        leader.reset()
        arrived(envoys[:1], 0)
        clients = ConcurrentClients(number, [envoys[1]])
        envoys[1].wait_for(lambda: node.count() > before + 1, "the next one", seconds=40)
        gate.set()
        clients.all()

    def test_other_followers_get_the_response_when_some_abort(self, envoys, node):
        """A wait at the daemon that is shared by followers ends with one of them."""
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        leader = send_call(envoys[0], number)
        envoys[0].wait_for(lambda: node.count() > before, "the leader")
        leaving = [send_call(envoys[1], number) for _ in range(5)]
        arrived(envoys[1:2], 5)
        clients = ConcurrentClients(number, [envoys[1]] * 5)
        arrived(envoys[1:2], 10)
        for one in leaving:
            one.reset()
        arrived(envoys[1:2], 5)
        gate.set()
        clients.all()
        leader.close()
        envoys[1].wait_for(lambda: hits(envoys[1], [number]), "a hit")

    def test_clients_get_responses_when_others_abort_at_any_moment(self, envoys, node):
        for turn in range(times(20, 60)):
            number = next(_numbers)
            leaving = [send_call(envoys[turn % 3], number) for _ in range(3)]
            clients = ConcurrentClients(number, [envoys[(turn + 1) % 3]])
            for one in leaving:
                one.reset()
            clients.all()
        arrived(envoys, 0)
        for envoy in envoys:
            number = next(_numbers)
            envoy.wait_for(lambda envoy=envoy, n=number: hits(envoy, [n]), "a hit")


class TestPurges:
    def test_purge_has_the_expected_status_and_body(self, envoys, node):
        before = node.count()
        assert_purge_responses(envoys[0])
        assert node.count() == before

    def test_response_of_before_a_purge_is_not_stored(self, envoys, node):
        """A response of before the purge is not stored, and no later request receives it."""
        number = next(_numbers)
        gate = node.gates[METHOD] = threading.Event()
        before = node.count()
        clients = ConcurrentClients(number, [envoys[0]])
        envoys[0].wait_for(lambda: node.count() > before, "the first one")
        assert purge(envoys[1]) == 200
        after = ConcurrentClients(number, [envoys[1]] * 3)
        arrived(envoys[1:2], 3)
        gate.set()
        clients.all()
        after.all()
        assert node.count() > before + 1

    def test_purges_of_clients_that_abort_are_logged(self, envoys, daemon, node):
        number = next(_numbers)
        envoys[0].wait_for(lambda: hits(envoys[0], [number]), "a hit")
        stop(daemon.process.pid)
        try:
            leaving = [client.Connection(envoys[0].port) for _ in range(20)]
            for one in leaving:
                one.send(client.request_bytes("/purge?everything", method="POST"))
            arrived(envoys[:1], 20)
            for one in leaving:
                one.reset()
            arrived(envoys[:1], 0)
            left = 'purge of "everything": the client closed the connection before the response'
            envoys[0].wait_for(lambda: envoys[0].error_log().count(left) == 20, "what is said of them")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        envoys[0].wait_for(lambda: purge(envoys[0]) == 200, "a purge that holds")
        assert hits(envoys[0], [number]) == 0

    def test_purge_waits_for_a_slow_daemon(self, envoys, daemon, node):
        """A purge waits longer than a lookup does."""
        number = next(_numbers)
        envoys[0].wait_for(lambda: hits(envoys[0], [number]), "a hit")
        stop(daemon.process.pid)
        purged = []
        thread = threading.Thread(target=lambda: purged.append(purge(envoys[0])))
        try:
            thread.start()
            arrived(envoys[:1], 1)
            thread.join(0.3)
            assert purged == []
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        thread.join(30)
        assert purged == [200]
        assert hits(envoys[0], [number]) == 0


def test_first_request_of_a_sandbox_is_a_hit(session_origin, daemon, envoys, node):
    """A worker that has just started has no entry and knows of no purge."""
    number = next(_numbers)
    envoys[0].wait_for(lambda: hits(envoys[0], [number]), "it to be stored")
    before = node.count()
    settings = {"cache_namespace": "main"}
    envoy = wasm_of(daemon, session_origin, workers=1, settings=settings).start()
    try:
        assert hits(envoy, [number]) == 1
        assert node.count() == before
    finally:
        envoy.stop()

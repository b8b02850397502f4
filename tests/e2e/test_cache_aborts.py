"""Aborts of leaders and followers at any moment: no request waits longer than it may,
and the worker returns to its initial state."""

import json
import os
import pathlib
import random
import signal
import threading
import time

import pytest

from harness import bodies
from harness.client import Malformed, Truncated, request_bytes
from harness.guards import GUARD_SECONDS
from harness.nginx import open_descriptors
from harness.processes import runs
from harness.origin import CLOSE, RESET, WaitFor, scattered
from harness.rpc import Node, call
from harness.nginx_state import (
    temporary_files,
    wait_for_earlier_events,
    wait_for_followers,
    wait_until_stable,
    waiting_requests,
)
from tiers import alternate, times

pytestmark = pytest.mark.bare

JSON = ("Content-Type", "application/json")
GZIP = ("Accept-Encoding", "gzip")
LARGE = b'"0x' + bodies.json(30000).hex().encode() + b'"'
HUGE = b'"0x' + bodies.json(400000).hex().encode() + b'"'
SMALL = b'"0x10"'

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
sszip_cache_valid tip 1h;
sszip_cache_valid unfinalized 1h;
# longer than any client of these tests waits: who is stuck fails its test
sszip_cache_lock_timeout 60s;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_slow@ sndbuf=16k;
    location / { proxy_pass http://@origin@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin@; }
    location /short { sszip_cache_max_entry 20k; sszip_hold 1k 10ms; proxy_pass http://@origin@; }
    location /impatient { sszip_cache_lock_timeout 500ms; proxy_pass http://@origin@; }
    location /status { sszip off; stub_status; }
    location = /sszip-status { sszip_status on; }
    location = /worker { sszip off; return 200 $pid; }
}
"""
_numbers = iter(range(1, 10**9))


def block(number, id="1"):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id)


def fresh():
    """A key that no test has requested."""
    return 0x5515000000000000 + next(_numbers)


def post(path, body, *fields):
    return request_bytes(path, method="POST", headers=[JSON, *fields], body=body)


def whole(result, id):
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id.encode(), result)


@pytest.fixture(autouse=True)
def healthy_after(nginx, origin):
    (worker,) = nginx.workers()
    if not origin.connections:
        origin.answers(Node({}))
    nginx.get("/status", accept=None)
    wait_until_stable(nginx)
    before = open_descriptors(worker)
    yield
    assert nginx.all_workers() == [worker]
    wait_until_stable(nginx)
    # the tests' own node keeps no connection
    nginx.wait_for(lambda: open_descriptors(worker) <= before + 1, f"no more than {before} descriptors")


class RequestThread(threading.Thread):
    """One request: its `response`, or the failure."""

    def __init__(self, nginx, body, path="/", accept="gzip"):
        super().__init__()
        self.fetch = lambda: nginx.post(path, body, accept, timeout=30)
        self.response = self.failure = None
        self.start()

    def run(self):
        try:
            self.response = self.fetch()
        except Exception as failure:  # raised in the test's thread
            self.failure = failure

    def result(self):
        self.join(40)
        assert not self.is_alive(), "no answer"
        if self.failure:
            raise self.failure
        return self.response


def answers_again(nginx, origin, number, result=LARGE):
    """No flight of the key is stuck."""
    origin.answers(Node({"eth_getBlockByHash": result}))
    with nginx.connect(timeout=30) as connection:  # less than the lock timeout
        response = connection.exchange("/", method="POST", headers=[JSON, GZIP], body=block(number, '"again"'))
    assert response.decoded in (whole(LARGE, '"again"'), whole(HUGE, '"again"'))


@pytest.mark.parametrize("path, result", alternate(["/", "/unbuffered"], [LARGE, HUGE]), ids=lambda value: value if isinstance(value, str) else len(value))
def test_remaining_clients_get_the_response_when_leaders_and_followers_abort(nginx, origin, path, result):
    chance = random.Random(f"{path}{len(result)}")
    node = Node({"eth_getBlockByHash": result})

    def respond(request):
        node.options = {"split": scattered(chance.random(), 5), "framing": chance.choice(["length", "chunked", "close"])}
        return [Pause(chance.random() * 0.01), *node(request)]

    origin.answers(respond)
    for _ in range(times(30, 60) if result is LARGE else times(8, 15)):
        number = fresh()
        leaving, staying = [], []
        for n in range(chance.randint(2, 6)):
            if chance.random() < 0.6:
                connection = nginx.connect()
                data = post(path, block(number, str(n)), *([GZIP] if chance.random() < 0.5 else []))
                connection.send(data[: chance.choice([len(data)] * 4 + [chance.randrange(len(data))])])
                leaving.append(connection)
            else:
                staying.append((n, RequestThread(nginx, block(number, str(n)), path, chance.choice(["gzip", None]))))
            time.sleep(chance.random() * 0.003)
        chance.shuffle(leaving)
        for connection in leaving:
            time.sleep(chance.random() * 0.005)
            chance.choice([connection.close, connection.reset])()
        for n, asker in staying:
            assert asker.result().decoded == whole(result, str(n))
    answers_again(nginx, origin, number)


class Pause:
    """A step of a script: the node pauses."""

    def __init__(self, seconds):
        self.event, self.seconds = threading.Event(), seconds


def name_of_end(value):
    return {CLOSE: "close", RESET: "reset"}.get(value, value)


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    monkeypatch.setattr("harness.origin.WaitFor", (WaitFor, Pause))


@pytest.mark.parametrize("end, framing", alternate([CLOSE, RESET], ["length", "chunked", "close"]), ids=name_of_end)
def test_truncated_response_is_neither_shared_nor_stored_when_node_aborts(nginx, origin, end, framing):
    """A truncated response is sent to no follower and to no later request."""
    chance = random.Random(f"{framing}{end}")
    node = Node({"eth_getBlockByHash": LARGE}, framing=framing)
    state = {"cut": True}

    def respond(request):
        script = node(request)
        pieces = b"".join(step for step in script if isinstance(step, bytes))
        if state["cut"] and chance.random() < 0.7:
            pieces, last = pieces[: chance.randrange(len(pieces))], end
        else:
            last = CLOSE if framing == "close" else None
        return [Pause(chance.random() * 0.01), *scattered(chance.random(), 4)(pieces), *([last] if last else [])]

    origin.answers(respond)
    for _ in range(times(20, 40)):
        number = fresh()
        askers = [RequestThread(nginx, block(number, str(n)), accept=chance.choice(["gzip", None])) for n in range(chance.randint(1, 5))]
        for n, asker in enumerate(askers):
            try:
                response = asker.result()
            except (Truncated, Malformed, ConnectionResetError):
                continue
            if framing == "close" and response.framing in ("close", "chunked"):
                # truncation is invisible; the client has the beginning of the response
                continue
            assert response.status == 502 or response.decoded == whole(LARGE, str(n))
        state["cut"] = False
        # the stored response is complete
        for accept in ("gzip", None):
            assert nginx.post("/", block(number, "5"), accept).decoded == whole(LARGE, "5")
        state["cut"] = True


class TestWaits:
    """Requests that wait for the response to another one."""

    def two(self, nginx, origin, path="/"):
        """A leader, and a follower."""
        number = fresh()
        leader = RequestThread(nginx, block(number, "1"), path)
        nginx.wait_for(lambda: len(origin.received()) == 1, "the leader")
        return number, leader, RequestThread(nginx, block(number, "2"), path)

    def test_follower_fetches_the_response_after_the_lock_timeout(self, nginx, origin):
        gate = threading.Event()
        node = Node({"eth_getBlockByHash": LARGE})
        origin.answers(lambda request: [WaitFor(gate), *node(request)] if len(origin.received()) == 1 else node(request))
        number, leader, follower = self.two(nginx, origin, "/impatient")
        assert follower.result().decoded == whole(LARGE, "2")
        assert len(origin.received()) == 2
        gate.set()
        assert leader.result().decoded == whole(LARGE, "1")
        answers_again(nginx, origin, number)

    @pytest.mark.parametrize("kind", ["no-store", "error", "long", "long-chunked"])
    def test_follower_is_woken_at_once_when_the_response_will_not_be_stored(self, nginx, origin, kind):
        """Followers are woken at once, and each of them only once."""
        begin, finish = threading.Event(), threading.Event()
        path = "/short" if kind.startswith("long") else "/"
        options = {"no-store": {"headers": [("Cache-Control", "no-store")]}, "error": {"status": 500}}.get(kind, {})
        framing = "chunked" if kind == "long-chunked" else "length"
        node = Node({"eth_getBlockByHash": LARGE}, framing=framing, **options)

        def respond(request):
            body = b"".join(node(request))
            cut = len(body) - 1000
            return [WaitFor(begin), body[:cut], WaitFor(finish), body[cut:]]

        origin.answers(respond)
        number, leader, follower = self.two(nginx, origin, path)
        wait_for_followers(nginx, 1)
        begin.set()
        nginx.wait_for(lambda: len(origin.received()) == 2, "the follower's own request")
        wait_for_followers(nginx, 0)
        finish.set()
        for id, asker in (("1", leader), ("2", follower)):
            assert asker.result().decoded == whole(LARGE, id)
        assert len(origin.received()) == 2
        answers_again(nginx, origin, number)

    def test_last_follower_gets_the_response_when_leader_and_other_followers_aborted(self, nginx, origin):
        """The last follower receives the node's response, and the node gets one request."""
        node = Node({"eth_getBlockByHash": LARGE})
        gates = {fresh(): threading.Event() for _ in range(10)}

        def number(request):
            return int(json.loads(request.body)["params"][0], 16)

        def leaders(key):
            return sum(number(request) == key for request in origin.received())

        origin.answers(lambda request: [WaitFor(gates[number(request)]), *node(request)])
        waiting = {}
        for key in gates:
            connections = waiting[key] = []
            for n in range(8):
                connection = nginx.connect()
                connection.send(post("/", block(key, str(n)), GZIP))
                connections.append(connection)
                if n == 0:
                    nginx.wait_for(lambda key=key: leaders(key), "the leader")
        wait_for_followers(nginx, 7 * len(gates))
        for round, connections in enumerate(waiting.values()):
            for connection in connections[:-1]:
                (connection.close if round % 2 else connection.reset)()
        wait_for_followers(nginx, len(gates))
        for key, gate in gates.items():
            gate.set()
            assert waiting[key][-1].read("POST").decoded == whole(LARGE, "7")
            waiting[key][-1].close()
            assert leaders(key) == 1
        for key in gates:
            answers_again(nginx, origin, key)

    def test_key_is_fetched_again_when_leader_and_followers_abort_together(self, nginx, origin):
        gate = threading.Event()
        node = Node({"eth_getBlockByHash": LARGE})
        origin.answers(lambda request: [WaitFor(gate), *node(request)])
        for _ in range(times(10, 30)):
            number = fresh()
            connections = [nginx.connect() for _ in range(6)]
            for n, connection in enumerate(connections):
                connection.send(post("/", block(number, str(n)), GZIP))
            wait_for_followers(nginx, 5)
            for connection in connections:
                connection.reset()
            wait_for_followers(nginx, 0)
        gate.set()
        answers_again(nginx, origin, number)

    def test_followers_get_one_response_when_it_comes_near_the_lock_timeout(self, nginx, origin):
        """The response comes near the timeout, hundreds of times: waits end with it in
        any order with other events."""
        chance = random.Random(4)
        node = Node({"eth_getBlockByHash": SMALL})
        origin.answers(lambda request: [Pause(chance.random() * 0.004), *node(request)])
        for _ in range(times(50, 150)):
            number = fresh()
            with nginx.connect() as one, nginx.connect() as two, nginx.connect() as three:
                for n, connection in enumerate((one, two, three)):
                    # two requests each, the second behind the first
                    connection.send(post("/", block(number, str(n)), GZIP) + post("/", block(number + 2**32, str(n)), GZIP))
                for n, connection in enumerate((one, two, three)):
                    for _ in range(2):
                        assert connection.read("POST").decoded == whole(SMALL, str(n))


def halting_node(origin, framing):
    """A node whose response stops at 600 kB; the events that it has, and that it continues."""
    arrived, gate = threading.Event(), threading.Event()
    node = Node({"eth_getBlockByHash": HUGE}, framing=framing)

    def respond(request):
        head, *rest = node(request)
        body = b"".join(rest)
        yield head
        yield body[:600_000]
        arrived.set()
        yield WaitFor(gate)
        yield body[600_000:]

    origin.answers(respond)
    return node, arrived, gate


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_response_is_stored_when_a_client_that_does_not_read_aborts(nginx, origin, framing):
    """The client aborts when all of nginx's buffers are full of bytes that it has not
    read: the fill has buffers of its own."""
    node, arrived, gate = halting_node(origin, framing)
    number = fresh()
    connection = nginx.connect("port_slow", receive_buffer=4096)
    connection.send(post("/", block(number)))
    assert connection.read_head().status == 200
    # nginx has sent as many bytes as fit
    assert arrived.wait(GUARD_SECONDS)
    wait_for_earlier_events(nginx)
    connection.reset()
    wait_for_earlier_events(nginx)
    gate.set()
    with nginx.connect(timeout=30) as another:  # less than the lock timeout
        response = another.exchange("/", method="POST", headers=[JSON, GZIP], body=block(number, '"next"'))
    assert response.decoded == whole(HUGE, '"next"')
    assert node.count() == 1


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_response_is_stored_when_a_client_aborts_that_has_read_from_a_temporary_file(nginx, origin, framing):
    """Bytes of the file that are being sent occupy all buffers into which nginx reads the file."""
    node, arrived, gate = halting_node(origin, framing)
    number, files = fresh(), temporary_files(nginx)
    with nginx.connect("port_slow", receive_buffer=4096) as connection:
        connection.send(post("/", block(number)))
        assert connection.read_head().status == 200
        assert arrived.wait(GUARD_SECONDS)
        nginx.wait_for(lambda: temporary_files(nginx) > files, "a temporary file")
        # more than the kernel and nginx's other buffers hold
        read = 0
        while read < 200_000:
            read += len(connection.socket.recv(4096))
        wait_for_earlier_events(nginx)
        connection.reset()
    wait_for_earlier_events(nginx)
    gate.set()
    with nginx.connect(timeout=30) as another:  # less than the lock timeout
        response = another.exchange("/", method="POST", headers=[JSON, GZIP], body=block(number, '"next"'))
    assert response.decoded == whole(HUGE, '"next"')
    assert node.count() == 1


def test_older_response_does_not_replace_a_newer_one_when_its_client_reads_slowly(nginx, origin):
    """A response that a slow client has read at last is older than the entry that was
    stored meanwhile, and does not replace it."""
    heights = iter(range(100))
    node = Node({"eth_getBlockByNumber": lambda params: b'{"number":"0x%x","filler":%b}' % (next(heights), HUGE)})
    origin.answers(node)
    body = call("eth_getBlockByNumber", '["latest",false]')

    def height(path="/"):
        return json.loads(nginx.post(path, body).decoded)["result"]["number"]

    with nginx.connect("port_slow", receive_buffer=4096) as slow:
        slow.send(post("/", body))
        nginx.wait_for(lambda: node.count() == 1, "the slow client's request")
        # the request waits until its timeout, and is then sent to the node
        assert height("/impatient") == "0x1"
        assert json.loads(slow.read("POST").decoded)["result"]["number"] == "0x0"
    assert height() == "0x1"
    assert node.count() == 2


class TestProcess:
    """Followers when nginx reloads or is replaced."""

    def send_coalesced_requests(self, nginx, origin, change, counted=12):
        """Sends 12 requests, `counted` of them in flight in workers that the status counts."""
        gate = threading.Event()
        node = Node({"eth_getBlockByHash": LARGE})
        origin.answers(lambda request: [WaitFor(gate), *node(request)])
        number, before = fresh(), len(origin.received())
        askers = [RequestThread(nginx, block(number, str(n)), accept=["gzip", None][n % 2]) for n in range(8)]

        def wait_for_requests(count):
            nginx.wait_for(
                lambda: len(origin.received()) - before + waiting_requests(nginx) == count, "all to wait"
            )

        wait_for_requests(8)
        change()
        late = [RequestThread(nginx, block(number, str(n))) for n in range(8, 12)]
        wait_for_requests(counted)
        gate.set()
        for n, asker in enumerate(askers + late):
            assert asker.result().decoded == whole(LARGE, str(n))

    def test_followers_are_answered_when_nginx_reloads(self, start_nginx, origin):
        nginx = start_nginx(CONFIG, workers=2)
        for _ in range(times(2, 5)):
            self.send_coalesced_requests(nginx, origin, nginx.reload)
        nginx.wait_for(lambda: len(nginx.all_workers()) == 2, "the old workers to go")

    def test_followers_are_answered_when_nginx_is_upgraded(self, start_nginx, origin):
        nginx = start_nginx(CONFIG, workers=1, daemon=True)
        old = nginx.master

        def upgrade():
            os.kill(old, signal.SIGUSR2)
            nginx.wait_for(lambda: nginx.master_or_none() not in (None, old), "the new master")
            nginx.wait_for(nginx.workers, "the new workers")
            os.kill(old, signal.SIGQUIT)
            nginx.wait_for(lambda: "gracefully shutting down" in nginx.error_log(), "the old worker to leave")

        # the new nginx does not count the seven that wait in the old one
        self.send_coalesced_requests(nginx, origin, upgrade, counted=5)
        nginx.wait_for(lambda: not runs(old), "the old master to go", seconds=60)

    def test_responses_are_correct_when_nginx_reloads_under_load(self, start_nginx, origin):
        nginx = start_nginx(CONFIG, workers=2)
        chance = random.Random(7)
        node = Node({"eth_getBlockByHash": LARGE, "eth_syncing": b"false"})
        origin.answers(lambda request: [Pause(chance.random() * 0.01), *node(request)])
        stop = threading.Event()
        faults, counts = [], [0] * 4

        def send(index):
            own = random.Random(index)
            while not stop.is_set():
                number, id = own.randrange(10), str(own.randrange(10**6))
                try:
                    if own.random() < 0.3:
                        body = b"[" + block(number, id) + b"," + call("eth_syncing", "[]", '"s"') + b"]"
                        answers = json.loads(nginx.post("/", body).decoded)
                        right = [a["id"] for a in answers] == [int(id), "s"] and answers[0]["result"] == json.loads(LARGE)
                    else:
                        # a response out of a batch has no newline at its end
                        right = nginx.post("/", block(number, id)).decoded.rstrip() == whole(LARGE, id).rstrip()
                except Exception as failure:  # raised in the test's thread
                    right = False
                    faults.append(repr(failure))
                if not right:
                    faults.append(f"{number} {id}")
                counts[index] += 1

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(times(3, 5)):
            target = sum(counts) + 60
            nginx.wait_for(lambda target=target: sum(counts) > target or faults, "answers", seconds=60)
            nginx.reload()
        stop.set()
        for thread in threads:
            thread.join()
        assert not faults, faults[:5]
        nginx.wait_for(lambda: len(nginx.all_workers()) == 2, "the old workers to go")
        assert pathlib.Path(f"/proc/{nginx.master}").exists()

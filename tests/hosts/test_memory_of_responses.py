"""Responses that are buffered in `memory` while they arrive: one continues as a stream when its
next reservation fails, while its configuration is replaced, or its client or node aborts; and
many that announce a long body and arrive slowly, or not at all."""

import contextlib
import itertools
import json
import threading

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.ecds import EcdsModuleEnvoy, EcdsSandboxEnvoy
from harness.guards import GUARD_SECONDS
from harness.origin import CLOSE, CloseWithoutResponse, WaitFor, answer
from harness.origin import head as origin_head
from harness.status import read_status
from harness.response_stream import StreamReader
from tiers import times

GZIP = [("Accept-Encoding", "gzip")]
BODY = bodies.json(1_400_000)
# a body reserves twice the bytes that have arrived, and up to twice that: BLOCKED bytes of one and
# BUFFERED bytes of another fit into MEMORY, CHANGED bytes do not
MEMORY = "4m"
BLOCKED, BUFFERED, CHANGED = 1_000_000, 300_000, 1_200_000
LIMITS = {"cache_max_entry": "8m", "cache_lock_timeout": "60s"}
PLACES = {
    "/cached": {"memory": MEMORY, "cache": True, "cache_namespace": "all", **LIMITS},
    "/status": {"status": True},
    "/": {"memory": MEMORY},
}


@pytest.fixture(scope="module")
def server(host, start_server):
    places = {path: settings for path, settings in PLACES.items() if (host, path) != ("wasm", "/status")}
    return start_server(places)


def waiting(host, server):
    """Number of requests that wait for the response to another one."""
    if host == "nginx":
        return read_status(server)["workers"]["cache.waiting"]
    return sum(server.stats(r"sszip\.cache\.waiting$").values())


def in_use(host, server):
    """Bytes of `memory` that are reserved."""
    if host == "nginx":
        return read_status(server)["workers"]["memory.bytes"]
    return sum(server.stats(r"sszip\.memory\.bytes$").values())


class Responses:
    """A response that takes most of `memory`, and another one that changes into a stream."""

    def __init__(self, host, server, origin):
        self.host, self.server = host, server
        self.go_on = {name: threading.Event() for name in ("blocker", "change", "end")}
        self.hangup = CloseWithoutResponse()
        head, body = answer(BODY, headers=[("Cache-Control", "max-age=60")])
        until = {name: WaitFor(event) for name, event in self.go_on.items()}
        begin = [head, body[:BUFFERED], until["change"], body[BUFFERED:CHANGED]]
        origin.answers([head, body[:BLOCKED], until["blocker"], body[BLOCKED:]], "/blocker")
        for name, rest in {
            "whole": [until["end"], body[CHANGED:]],
            "cut": [until["end"], CLOSE],
        }.items():
            origin.answers([*begin, *rest], f"/{name}")
            origin.answers([*begin, *rest], f"/cached/{name}")
        origin.answers([*begin[:2], self.hangup], "/left/early")
        self.ended = threading.Event()

        def send_until_closed(connection, _request, _received):
            with contextlib.suppress(OSError):
                connection.sendall(body[BUFFERED:CHANGED])
                while connection.recv(65536):
                    pass
            self.ended.set()

        origin.answers([*begin[:3], send_until_closed], "/left/late")

    def until_in_use(self, least):
        """The reserved bytes, once they are `least`. They are reserved before they are used."""

        def enough():
            taken = in_use(self.host, self.server)
            return taken >= least and taken

        return self.server.wait_for(enough, f"{least} bytes to be taken")

    def until_free(self):
        self.server.wait_for(lambda: in_use(self.host, self.server) == 0, "all memory to be free")

    def send(self, target):
        connection = self.server.connect()
        connection.send(request_bytes(target, headers=GZIP))
        return connection

    @contextlib.contextmanager
    def buffered_client(self, target):
        """The connection of a client whose response is buffered, while the node pauses."""
        with self.send("/blocker") as blocker:
            taken = self.until_in_use(2 * BLOCKED)
            with self.send(target) as connection:
                self.until_in_use(taken + 2 * BUFFERED)
                yield connection
            self.go_on["blocker"].set()
            response = blocker.read()
        # the response of the other client is unaffected
        assert (response.coding, response.framing) == ("gzip", "length")
        assert response.decoded == BODY
        self.until_free()

    def change(self, connection):
        """The node continues, and the client receives bytes before the body is complete."""
        self.go_on["change"].set()
        reading = StreamReader(connection, connection.read_head())
        assert (reading.head.coding, reading.chunked) == ("gzip", True)
        reading.until(1)
        return reading


@pytest.fixture
def responses(host, server, origin):
    responses = Responses(host, server, origin)
    yield responses
    for event in responses.go_on.values():
        event.set()
    responses.until_free()


@pytest.mark.parametrize("path", ["", "/cached"])
def test_buffered_response_continues_as_a_stream_when_the_memory_is_full(responses, path):
    with responses.buffered_client(f"{path}/whole") as connection:
        reading = responses.change(connection)
        responses.go_on["end"].set()
        assert reading.finish() == BODY


def test_upstream_connection_ends_when_the_client_aborts_before_the_change(responses):
    with responses.buffered_client("/left/early") as connection:
        connection.reset()
        assert responses.hangup.seen.wait(GUARD_SECONDS)


def test_upstream_connection_ends_when_the_client_aborts_after_the_change(responses):
    with responses.buffered_client("/left/late") as connection:
        responses.change(connection)
        connection.reset()
        assert responses.ended.wait(GUARD_SECONDS)


def test_upstream_connection_ends_when_the_client_aborts_at_the_change(responses):
    with responses.buffered_client("/left/late") as connection:
        responses.go_on["change"].set()
        connection.reset()
        assert responses.ended.wait(GUARD_SECONDS)


@pytest.mark.parametrize("is_changed", [False, True], ids=["before", "after"])
def test_follower_gets_a_complete_response_when_its_leader_aborts_at_the_change(host, server, responses, is_changed):
    with responses.buffered_client("/cached/whole") as connection, responses.send("/cached/whole") as follower:
        server.wait_for(lambda: waiting(host, server) == 1, "the follower to wait")
        if is_changed:
            responses.change(connection)
        connection.reset()
        responses.go_on["change"].set()
        responses.go_on["end"].set()
        assert follower.read().decoded == BODY


@pytest.mark.parametrize("path", ["", "/cached"])
def test_stream_is_visibly_truncated_when_the_node_aborts(responses, server, path):
    server.expect("prematurely closed|response ended")
    with responses.buffered_client(f"{path}/cut") as connection:
        reading = responses.change(connection)
        responses.go_on["end"].set()
        with pytest.raises((Truncated, ConnectionError)):
            reading.finish()


@pytest.fixture(scope="module")
def replaceable(host, start_server, session_origin):
    """A server whose configuration can be replaced, and the function that replaces it."""
    if host == "nginx":
        server = start_server({"/": {"memory": MEMORY}, "/status": {"status": True}})
        yield server, server.reload
        return
    kind = {"native": EcdsModuleEnvoy, "wasm": EcdsSandboxEnvoy}[host]
    settings = {"memory": MEMORY}
    if host == "wasm":
        settings |= {"cache_owner": "cluster:sszip_cached", "buffer_limit": "64m"}
    levels = iter(range(1, 10))
    server = kind(session_origin, settings)
    server.start()
    yield server, lambda: server.publish_and_wait(comp_level=next(levels))
    server.stop()


@pytest.mark.wasm_thorough("test_reloads replaces the configuration of a stream in a sandbox")
@pytest.mark.parametrize("is_changed", [False, True], ids=["before", "after"])
def test_stream_is_complete_when_the_configuration_is_replaced_at_the_change(host, replaceable, origin, is_changed):
    server, replace = replaceable
    responses = Responses(host, server, origin)
    with responses.buffered_client("/whole") as connection:
        reading = None
        if is_changed:
            reading = responses.change(connection)
        replace()
        if not is_changed:
            reading = responses.change(connection)
        responses.go_on["end"].set()
        assert reading.finish() == BODY
    assert server.get("/whole").decoded == BODY


WORKERS = 5


def workers_with_a_budget(host):
    """Number of parts of the server with `memory` each: Envoy's module has one for all workers."""
    return 1 if host == "native" else WORKERS


@pytest.fixture(scope="module")
def workers(host, start_server):
    places = {"/": {"memory": MEMORY}}
    if host != "wasm":
        places["/status"] = {"status": True}
    return start_server(places, workers=WORKERS)


@pytest.mark.wasm_thorough("each sandbox has a limit of its own, which the tests of one worker reach")
def test_memory_of_five_workers_is_limited_while_all_buffer_responses(host, workers, origin):
    clients, go_on, under_way = 30, threading.Event(), []
    head, body = answer(BODY)

    def node(request):
        yield head
        yield body[:BLOCKED]
        under_way.append(request)
        yield WaitFor(go_on)
        yield body[BLOCKED:]

    origin.answers(node)
    responses, failures, taken = [], [], []

    def send_call():
        try:
            with workers.connect(timeout=60) as connection:
                connection.send(request_bytes("/", headers=GZIP))
                responses.append(connection.read())
        except BaseException as failure:  # a thread can't raise
            failures.append(failure)

    def are_under_way():
        taken.append(in_use(host, workers))
        return len(under_way) == clients or failures

    threads = [threading.Thread(target=send_call) for _ in range(clients)]
    try:
        threads[0].start()
        workers.wait_for(lambda: in_use(host, workers) >= 2 * BLOCKED, "memory to be taken")
        for thread in threads[1:]:
            thread.start()
        workers.wait_for(are_under_way, "all to be under way", 60)
    finally:
        go_on.set()
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join(60)
    assert not failures
    assert [response.decoded == BODY for response in responses] == [True] * clients
    # the memory was not enough for all
    assert any(response.framing == "chunked" or not response.coding for response in responses)
    assert 2 * BLOCKED <= max(taken) <= workers_with_a_budget(host) * (4 << 20)
    workers.wait_for(lambda: in_use(host, workers) == 0, "all memory to be free")


SSZ = {"ssz": True, "ssz_preset": "mainnet", "memory": "64m"}
CONSOLIDATIONS = "/eth/v1/beacon/states/head/pending_consolidations"
OCTETS = "application/octet-stream"
# (Accept, Content-Type): SSZ converted from JSON, and JSON from SSZ
WANTED = {OCTETS: "application/json", "application/json": OCTETS}


def consolidations(count):
    """The response of a node in each format."""
    text = {"version": "electra", "data": [{"source_index": "1", "target_index": "2"}] * count}
    ssz = (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    return {"application/json": json.dumps(text, separators=(",", ":")).encode(), OCTETS: ssz * count}


@pytest.fixture(scope="module")
def transcoding(host, start_server):
    places = {"/": SSZ}
    if host != "wasm":
        places["/status"] = {"status": True}
    return start_server(places)


def test_truncated_responses_leak_no_memory_when_transcoded(host, transcoding, origin):
    """Hundreds announce 8 MB: one half is aborted by clients, the other half by the node."""
    server = transcoding
    server.expect("prematurely closed|response ended|timed out|reset")
    numbers, bodies_of = itertools.count(1), consolidations(100_000)
    ended = threading.Semaphore(0)

    def node(connection, request, _received):
        type = WANTED[request.header("X-Wanted")]
        fields = [("Content-Type", type), ("Eth-Consensus-Version", "electra"), ("Content-Length", "8000000")]
        # the proxy may have closed the connection at any of these
        with contextlib.suppress(OSError):
            connection.sendall(origin_head(200, fields))
            connection.sendall(bodies_of[type][: int(request.header("X-Sent"))])
            while request.header("X-Ends") == "client" and connection.recv(65536):
                pass
        ended.release()

    origin.answers([node], CONSOLIDATIONS)
    for _ in range(times(4, 20)):
        connections = []
        for wanted, ended_by, sent in itertools.product(WANTED, ("client", "node"), (0, 1, 5_000, 70_000, 1_000_000)):
            for accept in ([], GZIP, []):
                fields = [("Accept", wanted), ("X-Wanted", wanted), ("X-Ends", ended_by), ("X-Sent", str(sent)), *accept]
                connection = server.connect()
                connection.send(request_bytes(f"{CONSOLIDATIONS}?n={next(numbers)}", headers=fields))
                connections.append((ended_by, connection))
        count = len(connections)
        server.wait_for(lambda count=count: len(origin.received(CONSOLIDATIONS)) == count, "all requests at the node")
        for ended_by, connection in connections:
            if ended_by == "client":
                connection.reset()
                continue
            # no complete response can be made of a truncated one
            with contextlib.suppress(Truncated, ConnectionError), connection:
                assert connection.read().status >= 400
        for _ in range(count):
            assert ended.acquire(timeout=GUARD_SECONDS)
        origin.requests.clear()
    assert next(numbers) > times(200, 1_000)
    server.wait_for(lambda: in_use(host, server) == 0, "all memory to be free")
    for wanted, type in WANTED.items():
        body = bodies_of[type]
        origin.answers(answer(body, type=type, headers=[("Eth-Consensus-Version", "electra")]), CONSOLIDATIONS)
        response = server.fetch(CONSOLIDATIONS, headers=[("Accept", wanted)])
        assert (response.status, response.header("Content-Type")) == (200, wanted)
        if wanted == OCTETS:
            assert response.decoded == bodies_of[OCTETS]
        else:
            assert json.loads(response.decoded)["data"] == json.loads(bodies_of[wanted])["data"]
    server.wait_for(lambda: in_use(host, server) == 0, "all memory to be free")

"""Failures of the daemon of Envoy's Wasm filter: it is missing, dies, stops, returns with less
data, or is another server. Clients receive the node's responses meanwhile, and hits once it is
back."""

import itertools
import re
import shutil
import signal
import threading

import pytest

from harness import client
from harness.envoy import route
from harness.guards import SHIPPED_LEASE
from harness.origin import CLOSE, RESET, CloseWithoutResponse, Origin, WaitFor, answer, head
from harness.owner import Owner
from harness.processes import stop
from harness.rpc import Node
from harness.sandbox import WasmEnvoy
from test_store_life import Clients, by_hash
from tiers import by_tier, times

ROUTES = [route("/purge", {"cache_purge": True}), route("/")]
SETTINGS = {
    "cache": True,
    "cache_valid": ["immutable 1h", "unfinalized 1h", "tip 1h"],
    "cache_namespace": "main",
}
RESULT = b'"0x' + b"00112233" * 600 + b'"'

# beyond the numbers that Clients use
_numbers = itertools.count(1000)


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    return node


def envoy_of(origin, owner, workers):
    envoy = WasmEnvoy(
        ROUTES, origin=origin, settings=SETTINGS, owner=owner, workers=workers
    )
    envoy.options = ["--component-log-level", "wasm:info"]
    return envoy


@pytest.fixture(scope="module")
def late_daemon():
    """A daemon that a test starts after Envoy."""
    owner = Owner(max_size="64m", memory="32m")
    yield owner
    owner.close()


@pytest.fixture(scope="module")
def envoy_before_daemon(session_origin, late_daemon):
    """An Envoy that is started before its daemon."""
    envoy = envoy_of(session_origin, late_daemon, workers=1)
    envoy.expect("purge of")
    envoy.start()
    yield envoy
    envoy.stop()


@pytest.fixture(scope="module")
def daemon_under_load():
    """A daemon that tests end and start again."""
    owner = Owner(max_size="64m", memory="32m", environment={"SSZIP_TIMES": SHIPPED_LEASE}).start()
    yield owner
    if owner.process.poll() is None:
        owner.process.send_signal(signal.SIGCONT)
    owner.close()


@pytest.fixture(scope="module")
def envoy_under_load(session_origin, daemon_under_load):
    """One Envoy for all tests that lose the daemon under load."""
    envoy = envoy_of(session_origin, daemon_under_load, workers=4)
    # purges that are sent while the daemon is unreachable
    envoy.expect("purge of")
    envoy.start()
    yield envoy
    envoy.stop()


def send(envoy, number):
    """Whether the response, which must be right, is a hit."""
    response = envoy.post("/", by_hash(number, id=str(number)))
    assert response.status == 200
    assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (number, RESULT)
    return "; hit" in (response.header("Cache-Status") or "")


def purge(envoy):
    return client.fetch(envoy.port, "/purge?everything", method="POST").status


def new():
    """A number that no test has requested."""
    return next(_numbers)


def hits_come(envoy):
    """Waits until a repeated request is a hit, for two new numbers."""
    for number in (new(), new()):
        envoy.wait_for(lambda number=number: send(envoy, number), "a hit")


def lines(envoy, text):
    return len(re.findall(f"sszip: the cache's owner in the cluster .*{text}", envoy.error_log()))


class TestDaemon:
    def test_purge_is_a_503_while_the_daemon_is_unreachable(self, envoy_before_daemon, node):
        """Such a purge is not acknowledged, and known to have reached no process."""
        for _ in range(5):
            assert purge(envoy_before_daemon) == 503
        assert 'purge of "everything": 503' in envoy_before_daemon.error_log()

    def test_daemon_that_starts_late_is_used_and_logged_once(self, envoy_before_daemon, late_daemon, node):
        """It may start later; each change of its health is logged once."""
        envoy, number = envoy_before_daemon, new()
        envoy.wait_for(
            lambda: send(envoy, number) or lines(envoy, "does not respond"), "a line of the log"
        )
        before = node.count()
        for _ in range(30):
            assert not send(envoy, number)
        assert node.count() == before + 30
        assert lines(envoy, "does not respond") == 1 and lines(envoy, "responds again") == 0
        late_daemon.start()
        hits_come(envoy)
        envoy.wait_for(lambda: send(envoy, number) and lines(envoy, "responds again"), "the other one")
        for _ in range(30):
            send(envoy, number)
        assert lines(envoy, "does not respond") == 1 and lines(envoy, "responds again") == 1
        assert purge(envoy) == 200
        assert not send(envoy, number)

    @pytest.mark.parametrize("how", ["killed", "ended", "stopped", "emptied"])
    def test_responses_are_current_when_the_daemon_is_lost_under_load(self, envoy_under_load, daemon_under_load, origin, how):
        envoy, daemon = envoy_under_load, daemon_under_load
        clients = Clients(envoy, clients=8)
        origin.answers(clients.serve)
        # entries of the other clients of this Envoy
        envoy.wait_for(clients.purge, "a purge that holds")

        def purged():
            return clients.purge() or clients.faults

        with clients:
            clients.await_more(100)
            for _ in range(times(1, 3)):
                stored = daemon.status()["fills"]["kept"]
                if how == "stopped":
                    stop(daemon.process.pid)
                else:
                    daemon.kill(signal.SIGTERM if how == "ended" else signal.SIGKILL)
                if how == "emptied":
                    shutil.rmtree(daemon.folder / "store")
                clients.await_more(100)
                if how == "stopped":
                    daemon.process.send_signal(signal.SIGCONT)
                else:
                    daemon.start()
                assert stored
                clients.await_more(30)
                envoy.wait_for(purged, "a purge that holds")
                clients.await_more(100)
        assert clients.faults == []
        origin.answers(Node({"eth_getBlockByHash": RESULT}))
        hits_come(envoy)


class Between:
    """Forwards requests to a daemon, and its replies as changed by `mangled`."""

    def __init__(self, owner, folder):
        self.owner = owner
        self.server = Origin(folder)
        self.socket = self.server.path
        # makes a script of status, headers and body; None: replies are forwarded
        self.mangled = None
        self.count = 0
        self.server.answers(self._answer)

    def _answer(self, request):
        fields = [line.decode().split(": ", 1) for line in request.head.split(b"\r\n")[1:]]
        status, fields, body = self.owner.request(
            request.method, request.target, request.body, fields
        )
        fields = {name.lower(): value for name, value in fields.items()}
        if self.mangled is None:
            return written(status, fields, body)
        self.count += 1
        return self.mangled(status, fields, body)

    def close(self):
        self.server.close()
        assert not self.server.errors, self.server.errors


@pytest.fixture(scope="module")
def all_between(tmp_path_factory):
    """One proxy for all tests that change replies."""
    owner = Owner(max_size="64m", memory="32m").start()
    between = Between(owner, tmp_path_factory.mktemp("between"))
    yield between
    between.close()
    owner.close()


@pytest.fixture(scope="module")
def shared_envoy(session_origin, all_between):
    envoy = envoy_of(session_origin, all_between, workers=2)
    # purges that are sent while replies are changed
    envoy.expect("purge of")
    envoy.start()
    yield envoy
    envoy.stop()


@pytest.fixture(scope="module")
def single_worker_envoy(session_origin, all_between):
    """An Envoy with one worker, so that each change is logged once."""
    envoy = envoy_of(session_origin, all_between, workers=1).start()
    yield envoy
    envoy.stop()


@pytest.fixture
def envoy(shared_envoy, all_between):
    yield shared_envoy
    all_between.mangled = None


def written(status, fields, body):
    return [head(status, fields.items()), *([body] if body else [])]


def with_body(change):
    def mangled(status, fields, body):
        body = change(body)
        return written(status, {**fields, "content-length": str(len(body))}, body)

    return mangled


def cut(status, fields, body):
    return [*written(status, fields, body[: len(body) // 2]), CLOSE]


def cut_in_its_head(status, fields, body):
    return [head(status, fields.items())[:-10], CLOSE]


def in_chunks_that_break_off(status, fields, body):
    fields = {n: v for n, v in fields.items() if n != "content-length"}
    reply_head = head(status, [*fields.items(), ("transfer-encoding", "chunked")])
    return [reply_head, b"%x\r\n%b" % (len(body) + 1, body), CLOSE]


def slowly(status, fields, body):
    """Sends a quarter of the reply at a time: together they exceed the timeout."""
    reply = b"".join(written(status, fields, body))
    step = len(reply) // 4 + 1
    pause = WaitFor(threading.Event(), seconds=0.03)
    return [one for at in range(0, len(reply), step) for one in (pause, reply[at : at + step])]


def fixed(*arguments, **options):
    return lambda *_: answer(*arguments, **options)


def bytes_of(*script):
    return lambda *_: list(script)


PROBLEM = b'{"title":"there is too much at a time","status":503}\n'
# Replies that no owner sends, and that must have no effect.
NOT_OURS = {
    "bytes": bytes_of(b"\0\xff\x16\x03\x01 garbage\r\n\r\n" * 9, CLOSE),
    "nothing": bytes_of(CLOSE),
    "a reset": bytes_of(RESET),
    "silence": lambda *_: [CloseWithoutResponse()],
    "another server": fixed(b"<html>It works!</html>", type="text/html"),
    "another server's 404": fixed(b"not found", status=404, type="text/plain"),
    "an endless redirect": fixed(status=302, headers=[("Location", "/v1/entries/")]),
    "204": fixed(status=204, framing="none"),
    "400": fixed(PROBLEM, status=400, type="application/problem+json"),
    "503": fixed(PROBLEM, status=503, type="application/problem+json"),
    "too old": fixed(PROBLEM, status=404, type="application/problem+json"),
    "another version": with_body(lambda body: body[:3] + bytes(version + 1 for version in body[3:4]) + body[4:]),
    "another protocol": with_body(lambda body: b"HTTP" + body[4:]),
    "empty": with_body(lambda _: b""),
    "a preface alone": with_body(lambda body: body[:4]),
    "its first half": with_body(lambda body: body[: len(body) // 2]),
    "its second half": with_body(lambda body: body[len(body) // 2 :]),
    "noise": with_body(lambda body: body[:4] + bytes(range(256)) * 20),
    "lengths beyond it": with_body(lambda body: body[:4] + b"\xff" * 24 + body[28:]),
    "flags": with_body(lambda body: body[:10] + b"\x01\x00" + body[12:]),
    "messages of a process": with_body(lambda body: body[:12] + b"\x02" + body[13:]),
    "more": with_body(lambda body: body + b"more"),
    "cut": cut,
    "cut in its head": cut_in_its_head,
    "cut in a chunk": in_chunks_that_break_off,
}


def and_more(*answer):
    """A right reply, followed by bytes that are no reply to the next request."""
    return [*written(*answer), b"more"]


# The test under load has the others, too.
REPRESENTATIVE_REPLIES = [
    "bytes", "silence", "another server's 404", "503", "another version", "empty",
    "its first half", "lengths beyond it", "cut in a chunk",
]  # fmt: skip


def wait_for_end_of_leases(envoy, number):
    """The last valid reply permits hits from memory for a second."""
    envoy.wait_for(lambda: not any(send(envoy, number) for _ in range(30)), "the end of the send leases")


class TestInvalidReplies:
    @pytest.mark.parametrize("reply_name", by_tier(REPRESENTATIVE_REPLIES, list(NOT_OURS)))
    def test_invalid_reply_of_the_daemon_is_a_miss(self, envoy, all_between, node, reply_name):
        between = all_between
        known, fresh = new(), [new() for _ in range(5)]
        envoy.wait_for(lambda: send(envoy, known), "a hit")
        between.mangled = NOT_OURS[reply_name]
        wait_for_end_of_leases(envoy, known)
        before, hits = between.count, 0
        while between.count < before + 6:
            hits += send(envoy, known)
            send(envoy, fresh[between.count % 5])
        assert hits == 0
        between.mangled = None
        envoy.wait_for(lambda: send(envoy, known), "a hit")
        for number in [*fresh, new()]:
            envoy.wait_for(lambda number=number: send(envoy, number), "a hit")
        envoy.check()

    def test_responses_are_current_with_invalid_replies_under_load(self, envoy, all_between, origin):
        between = all_between
        clients = Clients(envoy, clients=8)
        origin.answers(clients.serve)
        # entries of the other tests of this Envoy
        envoy.wait_for(clients.purge, "a purge that holds")
        with clients:
            clients.await_more(60)
            for mangled in [*NOT_OURS.values(), slowly, and_more]:
                before, between.mangled = between.count, mangled
                envoy.wait_for(
                    lambda before=before: between.count > before + 3 or clients.faults, "its answers"
                )
                between.mangled = None
                clients.await_more(10)
            envoy.wait_for(lambda: clients.purge() or clients.faults, "a purge that holds")
            clients.await_more(60)
        assert clients.faults == []


VERSIONS = ["too old", "another version", "another server's 404"]


class TestVersions:
    """The path and the first bytes have a version."""

    @pytest.mark.parametrize("reply_name", by_tier(VERSIONS[:2], VERSIONS))
    def test_daemon_of_another_version_is_logged_once(self, single_worker_envoy, all_between, node, reply_name):
        envoy, number = single_worker_envoy, new()
        text = "does not speak the protocol of this version"
        hits_come(envoy)
        lines_before, versions_before = lines(envoy, ""), lines(envoy, text)
        all_between.mangled = NOT_OURS[reply_name]
        try:
            envoy.wait_for(
                lambda: [send(envoy, number), lines(envoy, text) > versions_before][1], "a line of the log"
            )
            wait_for_end_of_leases(envoy, number)
            before = node.count()
            for _ in range(30):
                assert not send(envoy, number)
            assert node.count() == before + 30
            assert lines(envoy, "") == lines_before + 1
        finally:
            # the daemon is replaced by one of this version
            all_between.mangled = None
        hits_come(envoy)
        assert lines(envoy, text) == versions_before + 1 and lines(envoy, "does not respond") == 0
        assert lines(envoy, "") == lines_before + 2

    def test_two_versions_of_the_daemon_are_independent(self, envoy_under_load, daemon_under_load, envoy, all_between, node):
        """Neither version reads, or damages, the entries of the other."""
        all_between.mangled = NOT_OURS["another server's 404"]
        other, ours = envoy, envoy_under_load
        number, before = new(), daemon_under_load.status()["fills"]["kept"]
        ours.wait_for(lambda: send(ours, number), "a hit")
        wait_for_end_of_leases(other, new())
        for _ in range(20):
            assert not send(other, number)
        ours.wait_for(lambda: send(ours, number), "a hit")
        assert daemon_under_load.status()["fills"]["kept"] <= before + 2

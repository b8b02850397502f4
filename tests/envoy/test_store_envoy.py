"""A store of Envoy's own, or of a daemon: its entries outlive Envoy and are shared with others,
and purged entries are not sent any more."""

import json
import os
import pathlib
import re
import signal
import threading
import time

import pytest

from harness import client
from harness.envoy import Envoy, route
from harness.guards import SHIPPED_LEASE
from harness.nginx import Nginx
from harness.origin import answer
from harness.owner import Client, Owner, wait_until_open
from harness.processes import stop
from harness.rpc import Node, call
from test_store_life import LARGE, Clients, by_hash, hits, owner_of, wait_until_linked
from tiers import times

OWN = {"cache_path": "@prefix@/cache max_size=64m memory=16m"}
ROUTES = [route("/purge", {"cache_purge": True}), route("/")]


def settings(owner=OWN, **more):
    return {
        "cache": True,
        "cache_memory": "8m",
        "cache_valid": ["immutable 1h", "unfinalized 1h", "tip 1h"],
        "cache_namespace": "main",
        **owner,
        **more,
    }


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": LARGE, "eth_chainId": b'"0x1"'})
    origin.answers(node)
    return node


@pytest.fixture
def make(session_origin):
    """Envoys that end with the test."""
    made = []

    def make(owner=OWN, workers=2, **more):
        envoy = Envoy(
            ROUTES,
            origin=session_origin,
            settings=settings(owner, **more),
            workers=workers,
            environment={"SSZIP_TIMES": SHIPPED_LEASE},
        )
        made.append(envoy)
        return envoy

    yield make
    for envoy in reversed(made):
        envoy.stop()


@pytest.fixture
def daemon():
    owner = Owner(max_size="64m", memory="32m", environment={"SSZIP_TIMES": SHIPPED_LEASE}).start()
    yield owner
    owner.close()


def linked(envoy, owner):
    envoy.wait_for(lambda: str(envoy.process.pid) in owner.pids(), "the link to the owner")


def purge(server, query="everything"):
    return client.fetch(server.port, f"/purge?{query}", method="POST")


def shared(envoy):
    """The settings of another Envoy with the same store."""
    return {"cache_path": f"{envoy.prefix}/cache max_size=64m memory=16m"}


def shares(host, numbers):
    """Whether the host has all entries of another one."""
    return hits(host, numbers) == len(numbers)


def store(envoy, bodies):
    """Repeats each call until it is a hit, and until the owner has its response: a slow owner is
    not queried for a moment."""

    def is_hit(body):
        return "; hit" in envoy.post("/", body).header("cache-status")

    bodies = list(bodies)
    for body in bodies:
        envoy.wait_for(lambda body=body: is_hit(body), "it to be stored")
    entries = len(bodies)
    envoy.wait_for(lambda: owner_of(envoy).status()["memory"]["entries"] == entries, "the owner to have the entries")


def assert_stored(envoy, node, numbers):
    before = node.count()
    assert shares(envoy, numbers)
    assert node.count() == before


def thread_waits(pid, name):
    """Returns the number of times that the threads with this name have begun to wait."""
    count = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            status = (task / "status").read_text()
            count += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])
    return count


def test_misses_wake_no_thread_of_the_link_or_the_owner(make, node):
    envoy = make().start()
    wait_until_linked(envoy)
    store(envoy, [by_hash(0)])
    before = {
        name: thread_waits(envoy.process.pid, name) for name in ("sszip-link", "sszip-serving")
    }
    misses = range(100, 500)
    assert hits(envoy, misses) == 0
    for name, count in before.items():
        # send leases and timers wake them some times a second
        assert 0 < count <= thread_waits(envoy.process.pid, name) < count + len(misses) / 2


def test_entries_survive_a_restart(make, node):
    envoy = make().start()
    wait_until_linked(envoy)
    store(envoy, map(by_hash, range(20)))
    for _ in range(times(2, 3)):
        envoy.end()
        envoy.start()
        wait_until_open(envoy)
        assert_stored(envoy, node, range(20))


def test_kill_loses_entries_in_memory_only(make, node):
    envoy = make().start()
    wait_until_linked(envoy)
    store(envoy, map(by_hash, range(20)))
    envoy.end()
    envoy.start()
    wait_until_linked(envoy)
    envoy.end(signal.SIGKILL)
    envoy.start()
    wait_until_open(envoy)
    assert_stored(envoy, node, range(20))
    assert hits(envoy, range(20, 30)) == 0
    assert purge(envoy).status == 200
    envoy.end(signal.SIGKILL)
    envoy.start()
    wait_until_linked(envoy)
    assert hits(envoy, range(30)) == 0


def test_stop_at_any_moment_of_the_start_is_clean(make):
    envoy = make(workers=1)
    for turn in range(10):
        envoy.start()
        time.sleep(turn * 0.02)
        envoy.end()
        envoy.check()


def test_second_envoy_shares_the_store_and_takes_it_over(make, node):
    first = make().start()
    wait_until_linked(first)
    owner = owner_of(first)
    second = make(shared(first)).start()
    linked(second, owner)
    assert owner.pid() == first.process.pid
    fills = owner.status()["fills"]["kept"]
    for turn in (1, 2):
        assert hits(first, range(10)) == 0
        # a response is in the memory of the first one before the owner has it
        first.wait_for(lambda n=fills + 10 * turn: owner.status()["fills"]["kept"] >= n, "all to be stored")
        assert shares(second, range(10))
        if turn == 1:
            assert purge(second).status == 200
    first.end()
    second.wait_for(lambda: owner.pid() == second.process.pid, "the other one to take over")
    wait_until_open(second, owner)
    assert shares(second, range(10))
    assert purge(second).status == 200
    second.end(signal.SIGKILL)
    second.start()
    linked(second, owner)
    assert hits(second, range(10)) == 0
    assert node.count() == 30


def test_entries_in_memory_are_sent_while_the_owner_is_down(make, daemon, node):
    envoy = make({"cache_owner": f"unix:{daemon.socket}"}).start()
    linked(envoy, daemon)
    assert hits(envoy, range(5)) == 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        daemon.kill(number)
        # no purge can be acknowledged, and entries in memory may be sent
        for _ in range(30):
            answers = [envoy.post("/", by_hash(number)) for number in range(5)]
            assert all(answer.status == 200 for answer in answers)
        assert purge(envoy).status == 503
        envoy.expect("purge of")
        daemon.start()
        linked(envoy, daemon)
        assert hits(envoy, range(5, 10)) <= 5
        assert hits(envoy, range(5, 10)) == 5
        assert purge(envoy).status == 200
        assert hits(envoy, range(5)) == 0


def test_purge_of_a_client_that_aborts_is_logged(make, daemon):
    """The owner performs the purge as soon as it can."""
    envoy = make({"cache_owner": f"unix:{daemon.socket}"}).start()
    linked(envoy, daemon)
    stop(daemon.process.pid)
    with envoy.connect() as connection:
        connection.send(client.request_bytes("/purge?everything", method="POST"))
        envoy.wait_for(lambda: envoy.active() == 1, "it to wait")
    line = 'purge of "everything": the client closed the connection'
    envoy.wait_for(lambda: line in envoy.error_log(), "a line of the log")
    daemon.process.send_signal(signal.SIGCONT)
    assert purge(envoy).status == 200


def test_coalesced_requests_of_all_workers_reach_the_node_once(make, node):
    envoy = make(workers=4).start()
    wait_until_linked(envoy)
    active = "http.test.downstream_rq_active"

    gate = node.gates["eth_getBlockByHash"] = threading.Event()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(envoy.post("/", by_hash(1)))) for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    envoy.wait_for(lambda: envoy.stats(f"^{active}$")[active] == 40, "all to arrive")
    gate.set()
    for thread in threads:
        thread.join()
    assert len(answers) == 40 and all(answer.status == 200 for answer in answers)
    assert node.count() == 1
    assert hits(envoy, [1] * 20) == 20


def test_batch_is_looked_up_in_the_store(make, node):
    envoy = make().start()
    wait_until_linked(envoy)
    store(envoy, [*map(by_hash, range(10)), call("eth_chainId")])
    envoy.end()
    envoy.start()
    wait_until_linked(envoy)
    before = node.count()
    for number in range(0, 10, 2):
        calls = [by_hash(number, "5"), by_hash(number + 1, "6"), call("eth_chainId", id="7")]
        response = envoy.post("/", b"[" + b",".join(calls) + b"]")
        assert [b'"id":%d' % id in response.decoded for id in (5, 6, 7)] == [True] * 3
    assert node.count() == before


NGINX = """
sszip on;
sszip_cache on;
sszip_cache_owner unix:%s;
sszip_cache_valid immutable 1h;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
}
"""


def test_entries_of_a_daemon_are_shared_by_nginx_and_envoy(make, daemon, origin, node):
    envoy = make({"cache_owner": f"unix:{daemon.socket}"}).start()
    nginx = Nginx(NGINX % daemon.socket, origin=origin, workers=2)
    try:
        nginx.start()
        linked(envoy, daemon)
        nginx.wait_for(lambda: len(daemon.pids()) == 3, "all to be linked")
        numbers = range(10)

        def stored():
            before = daemon.status()["fills"]["kept"]
            return lambda: daemon.status()["fills"]["kept"] >= before + 10

        for proxy, other in ((envoy, nginx), (nginx, envoy)):
            is_stored = stored()
            assert hits(proxy, numbers) == 0
            proxy.wait_for(is_stored, "all to be stored")
            assert shares(other, numbers)
            # entries in the memory of both
            assert purge(other).status == 200
            assert hits(proxy, numbers) == 0
            assert purge(proxy).status == 200
            assert hits(other, numbers) == 0
            daemon.purge(method="eth_getBlockByHash")
    finally:
        nginx.stop()


def assert_purge_responses(envoy):
    """Asserts the statuses and bodies of purges, valid or not, short or long."""
    for method, query, status, expected in (
        ("POST", "everything", 200, b'"generation":'),
        ("PURGE", "method=eth_chainId", 200, b'"generation":'),
        ("GET", "everything", 405, b"POST and PURGE"),
        ("POST", "", 400, b"the query must select entries"),
        ("POST", "blocks=1-2", 200, b'"generation":'),
        ("POST", "method=a&method=b", 400, b"twice"),
    ):
        response = client.fetch(envoy.port, f"/purge?{query}", method=method)
        assert (response.status, expected in response.body) == (status, True), response.body
    body = b"x" * 300_000
    assert client.fetch(envoy.port, "/purge?everything", method="POST", body=body).status == 200


class TestPurging:
    def test_purge_has_the_expected_status_and_body(self, make, node):
        envoy = make().start()
        wait_until_linked(envoy)
        assert_purge_responses(envoy)
        assert node.count() == 0

    def test_purge_without_a_store_is_a_503(self, start_envoy, origin):
        envoy = start_envoy([route("/purge", {"cache_purge": True})])
        envoy.expect("purge of")
        response = purge(envoy)
        assert response.status == 503 and b"no link to a cache's owner" in response.body

    def test_purge_succeeds_after_clients_aborted_theirs(self, make, node):
        envoy = make().start()
        wait_until_linked(envoy)
        for turn in range(20):
            with envoy.connect() as leaving:
                leaving.send(client.request_bytes("/purge?everything", method="POST"))
                time.sleep(turn * 0.0005)
                leaving.reset()
        assert purge(envoy).status == 200

    @pytest.mark.parametrize("owner", ["own", "daemon"])
    def test_purged_entries_are_never_sent(self, make, daemon, origin, owner):
        own = owner == "own"
        envoy = make(OWN if own else {"cache_owner": f"unix:{daemon.socket}"}, workers=4).start()
        by = owner_of(envoy) if own else daemon
        linked(envoy, by)
        clients = Clients(envoy, clients=8)
        origin.answers(clients.serve)
        with clients:
            for _ in range(times(6, 20)):
                clients.await_more(60)
                assert clients.purge()
                clients.await_more(60)
                # over the owner's own socket
                clients.version += 1
                version = clients.version
                by.purge(everything=True)
                clients.floor = version
        assert clients.faults == []


def test_responses_are_current_when_an_envoy_restarts_under_load(make, origin):
    """Two Envoys share a store, and one after the other is killed, or ends."""
    first = make().start()
    wait_until_linked(first)
    second = make(shared(first)).start()
    owner = owner_of(first)
    linked(second, owner)
    clients = Clients(second, clients=6)
    origin.answers(clients.serve)
    with clients:
        for number in (signal.SIGTERM, signal.SIGKILL):
            clients.await_more(60)
            first.end(number)
            clients.await_more(60)
            second.wait_for(lambda: owner.pid() == second.process.pid, "the other one to take over")
            linked(second, owner)
            assert clients.purge()
            clients.await_more(60)
            # it owns the store again once the other one releases it
            first.start()
            linked(first, owner)
            assert clients.purge()
            clients.await_more(60)
    assert clients.faults == []


def test_store_survives_hot_restarts_under_load(make, origin):
    """The new Envoy takes over the old one's sockets, uses its store, and owns it in the end."""
    clients = None
    envoys = []
    base = ["--base-id", str(os.getpid() % 30000 + 1), "--parent-shutdown-time-s", "3",
            "--drain-time-s", "1", "--drain-strategy", "immediate"]  # fmt: skip
    for epoch in range(times(2, 3)):
        envoy = make()
        envoy.options, envoy.restarts = [*base, "--restart-epoch", str(epoch)], True
        if envoys:
            first, before = envoys[0], envoys[-1]
            text = json.dumps(first.configuration).replace("@prefix@", str(first.prefix))
            envoy.configuration = json.loads(text)
            envoy.port, envoy.admin = first.port, first.admin
        envoys.append(envoy.start())
        owner = owner_of(envoys[0])
        linked(envoy, owner)
        if clients is None:
            clients = Clients(envoy, clients=4)
            origin.answers(clients.serve)
            with clients:
                clients.await_more(100)
            continue
        assert owner.pid() == before.process.pid
        now = Clients(envoy, clients=4)
        now.version = clients.version
        origin.answers(now.serve)
        with now:
            now.await_more(60)
            assert now.purge()
            envoy.wait_for(lambda old=before: old.process.poll() is not None, "the old one's end")
            envoy.wait_for(lambda by=owner, own=envoy: by.pid() == own.process.pid, "it to take over")
            linked(envoy, owner)
            now.await_more(60)
            assert now.purge()
            now.await_more(60)
        assert now.faults == []
        assert before.process.returncode == 0
        clients = now


class TestConfiguration:
    def test_validation_does_not_open_the_store(self, make):
        envoy = make()
        status, text = envoy.validate()
        assert status == 0, text
        assert not (envoy.prefix / "cache").exists()

    @pytest.mark.parametrize(
        "wrong, message",
        [
            ({"cache_path": "relative"}, '"cache_path" has an invalid value "relative"'),
            ({"cache_path": "/x max_size=1"}, '"max_size=1": it must be a size of at least 64m'),
            ({"cache_owner": "/run/x"}, '"cache_owner" has an invalid value'),
            ({"cache_owner": "unix:/x", "cache_path": "/x"}, "is already set"),
            ({"cache_path": "/x max_size=20gb"}, 'at least 64m; did you mean "20g"?'),
            ({"cache_purge": True}, '"cache_purge" needs a store'),
            ({"cache_head": "http://127.0.0.1:1"}, '"cache_head" needs "cache_path"'),
            ({"cache_fleet": "redis://127.0.0.1"}, '"cache_fleet" needs "cache_path"'),
            (
                {"cache_owner": "unix:/x", "cache_fleet": "redis://127.0.0.1"},
                'with "cache_owner" the daemon connects to the fleet; move it to the table [fleet] of cached.toml',
            ),
            (
                OWN | {"cache_fleet": "redis+clusters://a,b"},
                '"cache_fleet" has an invalid value "redis+clusters://a,b": it must be a URL that begins with "redis://", "rediss://"',
            ),
            (OWN | {"cache_fleet": "redis://me:secret@a"}, '"cache_fleet" has an invalid value "redis://...@a"'),
            (OWN | {"cache_fleet": "redis://a timout=1ms"}, 'did you mean "timeout="?'),
            (OWN | {"cache_fleet": ["redis://a timeout=1ms", "redis://b timeout=1ms"]}, '"cache_fleet" is already set'),
            (OWN | {"cache_fleet": "redis://a key_file=key"}, '"key_file=key": it must be a file with an absolute path'),
            (OWN | {"cache_fleet": "redis://a password_file=/no/file"}, 'cannot read the password file "/no/file" (2: No such'),
            (OWN | {"cache_fleet": "redis://a password_file=/etc/passwd"}, 'has a password file that other users can read: "/etc/passwd"'),
            (OWN | {"cache_fleet": "rediss://a ca=/etc/passwd"}, 'it must contain complete certificates in PEM'),
        ],
        ids=str,
    )
    def test_invalid_store_settings_are_rejected(self, make, wrong, message):
        status, text = make(wrong).validate()
        assert status != 0 and message in text

    @pytest.mark.parametrize(
        "more, text",
        [
            ({"cache_fleet": "redis://10.0.0.1"}, '"cache_fleet" shares entries through redis://10.0.0.1:6379 without encryption'),
            ({"cache_fleet": "redis://127.0.0.1 timeout=501ms"}, '"cache_fleet" has a timeout of 501ms, above half of "cache_lookup_timeout" (1s)'),
            ({"cache_fleet": "redis://127.0.0.1", "cache_head": "off"}, '"cache_fleet" shares no entries: no namespace has a "cache_head"'),
            ({"cache_fleet": "redis://127.0.0.1 timeout=500ms"}, None),
            ({"cache_fleet": "rediss://10.0.0.1"}, None),
        ],
        ids=str,
    )
    def test_suspicious_fleet_is_warned_of(self, make, more, text):
        settings = {"cache_head": "http://127.0.0.1:1", "cache_lookup_timeout": "1s"}
        status, log = make(**{**settings, **more}).validate()
        assert status == 0, log
        warnings = [line for line in log.splitlines() if "cache_fleet" in line]
        assert len(warnings) == (text is not None), log
        assert text is None or text in warnings[0]

    def test_store_settings_are_rejected_in_a_route(self, session_origin):
        for wrong in ({"cache_path": "/x"}, {"cache_owner": "unix:/x"}, {"cache_fleet": "redis://a"}):
            envoy = Envoy([route("/", wrong)], origin=session_origin)
            status, text = envoy.validate()
            envoy.stop()
            assert status != 0 and "move it to the filter_config" in text

    def test_folder_with_other_files_is_rejected(self, make):
        envoy = make()
        (envoy.prefix / "cache").mkdir()
        (envoy.prefix / "cache/notes").write_text("mine")
        with pytest.raises(AssertionError, match="a folder of its own"):
            envoy.start()
        envoy.process = None

    def test_missing_owner_library_is_reported(self, make):
        envoy = make()
        pathlib.Path(envoy.prefix / "libsszip_owner.so").unlink()
        with pytest.raises(AssertionError, match="next to the module"):
            envoy.start()
        envoy.process = None


def test_private_response_is_not_in_the_store(make, origin):
    envoy = make().start()
    wait_until_linked(envoy)
    for private in ("no-store", "private"):
        origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}', headers=[("Cache-Control", private)]))
        for _ in range(3):
            assert "hit" not in envoy.post("/", by_hash(1)).header("Cache-Status")
    assert Client(envoy.prefix / "cache/owner.sock").status()["fills"]["kept"] == 0

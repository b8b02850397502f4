"""nginx with the cache's owner: a response that one process has fetched is a hit for all, and
after the next start."""

import functools
import json
import os
import re
import shutil
import signal
import socket
import threading

import pytest

from harness import bodies, client
from harness.guards import SHIPPED_LEASE
from harness.nginx import MODULE, Nginx
from harness.owner import Owner, owner_of, wait_until_linked, wait_until_open
from harness.processes import stop
from harness.rpc import Node, call
from harness.nginx_state import wait_for_earlier_events, wait_for_followers


LARGE = b'"0x' + bodies.json(30000).hex().encode() + b'"'

HASH = '"0x' + "ab" * 32 + '"'


def block(params=f"[{HASH},true]", id="1"):
    return call("eth_getBlockByHash", params, id=id)


def chain_id(id="1"):
    return call("eth_chainId", id=id)


CALLS = {"eth_getBlockByHash": block, "eth_chainId": chain_id}

CONFIG = """
sszip on;
sszip_cache on;
@owner@
sszip_cache_valid tip 1h;
sszip_cache_valid unfinalized 1h;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location = /sszip-status { sszip_status on; }
    location = /worker { sszip off; return 200 $pid; }
    location / { sszip_cache_namespace $arg_chain; add_header X-Key $sszip_cache_key; proxy_pass http://@origin@; }
    location /unlocked { sszip_cache_namespace $arg_chain; sszip_cache_lock off; proxy_pass http://@origin@; }
    location /impatient { sszip_cache_namespace $arg_chain; sszip_cache_lock_timeout 200ms; proxy_pass http://@origin@; }
    location = /purge { allow 127.0.0.1; deny all; sszip_cache_purge on; }
    location = /purge-own { sszip_cache_namespace own; sszip_cache_purge on; }
    location = /purge-denied { deny all; sszip_cache_purge on; }
}
"""

TIMES = {"SSZIP_TIMES": SHIPPED_LEASE}

_places = iter(range(10**6))


@pytest.fixture(scope="module")
def daemon():
    owner = Owner(max_size="64m", memory="32m", environment=TIMES).start()
    yield owner
    owner.close()


@pytest.fixture(scope="module", params=["daemon", "own"])
def run(start_nginx, daemon, request):
    """nginx with a daemon, or with a store of its own. Each connection reaches any of its
    workers. Tests have namespaces of their own, and share the servers."""

    @functools.cache
    def run(workers=1):
        if request.param == "daemon":
            nginx = start_nginx(config(f"sszip_cache_owner unix:{daemon.socket};"), workers=workers, environment=TIMES)
            nginx.owner = daemon
        else:
            nginx = start_nginx(config("sszip_cache_path @prefix@/cache max_size=64m memory=32m;"), workers=workers, environment=TIMES)
            nginx.owner = owner_of(nginx)
        wait_until_linked(nginx)
        return nginx

    return run


def config(owner):
    return CONFIG.replace("@owner@", owner)


def reload(nginx):
    """Reloads; the new workers are linked to the owner that stays."""
    nginx.reload()
    wait_until_open(nginx)


class RpcClient:
    def __init__(self, nginx, origin, results, **options):
        self.nginx = nginx
        self.node = Node(results, **options)
        origin.answers(self.node)
        self.chain = f"chain{next(_places)}"

    def __call__(self, body, path="/", accept="gzip", **request):
        return self.nginx.post(f"{path}?chain={self.chain}", body, accept, **request)


@pytest.fixture
def new_rpc_client(run, origin):
    def new_rpc_client(nginx=None, results=None, **options):
        return RpcClient(nginx or run(), origin, results or {"eth_chainId": b'"0x1"', "eth_getBlockByHash": LARGE}, **options)

    return new_rpc_client


def await_stored(rpc, *answers):
    """Waits until the owner has these answers: a worker sends them after it has responded."""
    keys = [answer.header("x-key") for answer in answers]
    owner = rpc.nginx.owner
    rpc.nginx.wait_for(
        lambda: all(owner.request("GET", f"/v1/entries/{key}")[0] == 200 for key in keys), "all to be stored"
    )


def purge(nginx, query, path="/purge", method="POST"):
    return client.fetch(nginx.port, f"{path}?{query}", method=method)


class TestTwoProcesses:
    def test_response_of_one_worker_is_a_hit_in_the_others(self, run, new_rpc_client):
        nginx = run(workers=4)
        rpc = new_rpc_client(nginx)
        for id in range(40):
            answer = rpc(block(id=str(id)))
            assert answer.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (id, LARGE)
        assert rpc.node.count() == 1

    @pytest.mark.parametrize("accept", ["gzip", "identity"])
    def test_entries_survive_a_reload(self, run, new_rpc_client, accept):
        nginx = run()
        rpc = new_rpc_client(nginx)
        await_stored(rpc, rpc(block()), rpc(call("eth_chainId")))
        reload(nginx)
        for method, result in (("eth_getBlockByHash", LARGE), ("eth_chainId", b'"0x1"')):
            answer = rpc(CALLS[method](id="7"), accept=accept)
            assert answer.decoded == b'{"jsonrpc":"2.0","id":7,"result":%b}\n' % result
            assert answer.header("cache-status").startswith("sszip; hit")
        assert rpc.node.count() == 2

    def test_batch_is_looked_up_in_the_store(self, run, new_rpc_client):
        nginx = run()
        rpc = new_rpc_client(nginx, {"eth_getBlockByHash": LARGE, "eth_chainId": b'"0x1"', "eth_gasPrice": b'"0x5"'})
        await_stored(rpc, rpc(block()), rpc(call("eth_chainId")))
        reload(nginx)
        # a worker merges batches once it has seen a response that no filter changes
        rpc(call("eth_syncing"))
        batch = b"[" + b",".join([call("eth_chainId", id="5"), call("eth_gasPrice", id="6"), block(id="7")]) + b"]"
        answer = rpc(batch)
        assert json.loads(answer.decoded)[0] == {"jsonrpc": "2.0", "id": 5, "result": "0x1"}
        assert [one["id"] for one in json.loads(answer.decoded)] == [5, 6, 7]
        assert [one["method"] for one in rpc.node.received_calls[3:]] == ["eth_gasPrice"]


class TestCoalescingAcrossWorkers:
    def test_coalesced_requests_of_all_workers_reach_the_node_once(self, run, new_rpc_client):
        nginx = run(workers=4)
        rpc = new_rpc_client(nginx)
        gate = rpc.node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(rpc(block()))) for _ in range(40)]
        for thread in threads:
            thread.start()
        # followers in any worker
        wait_for_followers(nginx, 39)
        gate.set()
        for thread in threads:
            thread.join()
        assert len(answers) == 40 and all(answer.status == 200 for answer in answers)
        assert rpc.node.count() == 1

    def test_followers_of_all_workers_get_the_response_when_the_leader_aborts(self, run, new_rpc_client):
        nginx = run(workers=2)
        rpc = new_rpc_client(nginx)
        gate = rpc.node.gates["eth_getBlockByHash"] = threading.Event()
        body = block()
        first = nginx.connect()
        first.send(
            b"POST /?chain=%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (rpc.chain.encode(), len(body), body)
        )
        nginx.wait_for(lambda: rpc.node.count() == 1, "the first to arrive")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(rpc(body))) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 8)
        first.close()
        wait_for_earlier_events(nginx)
        gate.set()
        for thread in threads:
            thread.join()
        assert len(answers) == 8 and all(answer.status == 200 for answer in answers)
        assert rpc.node.count() == 1

    @pytest.mark.parametrize("path", ["/unlocked", "/impatient"], ids=["lock off", "timeout"])
    def test_requests_are_not_coalesced_without_the_lock_or_after_its_timeout(self, run, new_rpc_client, path):
        rpc = new_rpc_client(run())
        gate = rpc.node.gates["eth_getBlockByHash"] = threading.Event()
        threads = [threading.Thread(target=lambda: rpc(block(), path=path)) for _ in range(3)]
        for thread in threads:
            thread.start()
        rpc.nginx.wait_for(lambda: rpc.node.count() == 3, "all to arrive")
        gate.set()
        for thread in threads:
            thread.join()


class TestReading:
    """A long response is stored unchecked; the owner checks it when it is requested."""

    def stored(self, rpc, key):
        """A function of the entry's flags, or `None` without an entry."""

        def look():
            status, _, body = rpc.nginx.owner.request("GET", f"/v1/entries/{key}")
            assert status in (200, 404)
            return body[8] if status == 200 else None

        return look

    def test_short_response_is_checked_before_it_is_stored(self, run, new_rpc_client):
        rpc = new_rpc_client(run())
        flags = self.stored(rpc, rpc(block()).header("x-key"))
        assert rpc.nginx.wait_for(lambda: flags() is not None and [flags()], "it to be stored") == [0]

    def test_long_response_is_checked_by_the_owner(self, run, new_rpc_client):
        long = b'"0x' + bodies.json(200_000).hex().encode() + b'"'
        rpc = new_rpc_client(run(), {"eth_getBlockByHash": long})
        flags = self.stored(rpc, rpc(block()).header("x-key"))
        first = rpc.nginx.wait_for(lambda: (found := flags()) is not None and [found], "it to be stored")
        assert first == [1]
        rpc.nginx.wait_for(lambda: flags() == 0, "it to be read")
        reload(rpc.nginx)
        answer = rpc(block(id="7"))
        assert answer.decoded == b'{"jsonrpc":"2.0","id":7,"result":%b}\n' % long
        assert answer.header("cache-status").startswith("sszip; hit") and rpc.node.count() == 1

    @pytest.mark.parametrize("length", [20_000, 400_000])
    def test_invalid_response_is_removed_by_the_owner(self, run, new_rpc_client, length):
        wrong = b'["0x' + b"ab" * (length // 2) + b'",,"1"]'
        rpc = new_rpc_client(run(), {"eth_getBlockByHash": wrong})
        fills = rpc.nginx.owner.status()["fills"]["kept"]
        key = rpc(block()).header("x-key")
        rpc.nginx.wait_for(lambda: rpc.nginx.owner.status()["fills"]["kept"] > fills, "it to be stored")
        rpc.nginx.wait_for(lambda: self.stored(rpc, key)() is None, "it to be read")
        reload(rpc.nginx)
        for id in ("7", "8"):
            assert rpc(block(id=id)).decoded == b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id.encode(), wrong)
        assert rpc.node.count() == 3


class TestRecompressing:
    """An entry that a second worker requests is recompressed on its way to the disk."""

    def send_until_stored(self, nginx, rpc):
        hits = []

        def is_stored():
            # each worker queries the owner once, whichever of them a connection reaches
            answer = rpc(block(id="59"))
            if answer.header("cache-status").startswith("sszip; hit"):
                hits.append(answer)
            return nginx.owner.status()["stores"]["done"] == 1

        nginx.wait_for(is_stored, "it to be stored")
        return hits[0]

    @pytest.mark.parametrize("parameter,expected", [("", True), ("recompress=on", True), ("recompress=off", False)])
    def test_entry_is_recompressed_when_it_is_written_to_disk(self, start_nginx, new_rpc_client, parameter, expected):
        path = f"sszip_cache_path @prefix@/cache max_size=64m memory=32m {parameter};"
        nginx = start_nginx(config(path), workers=4)
        nginx.owner = owner_of(nginx)
        wait_until_linked(nginx)
        rpc = new_rpc_client(nginx)
        before = self.send_until_stored(nginx, rpc)
        status = nginx.owner.status()
        nginx.reload()
        wait_until_linked(nginx)
        after = rpc(block(id="59"))
        assert after.header("cache-status").startswith("sszip; hit")
        assert after.decoded == before.decoded
        assert rpc(block(id="7"), accept="identity").decoded == b'{"jsonrpc":"2.0","id":7,"result":%b}\n' % LARGE
        saved = int(before.header("content-length")) - int(after.header("content-length"))
        assert (saved > 0) == expected
        assert status["recompressed"] == {"entries": int(expected), "saved": saved}
        assert rpc.node.count() == 1


class TestPurging:
    def fill(self, rpc):
        """Stores both entries in the owner, for whichever worker is next: a slow lookup on a
        busy machine is sent to the node."""

        def is_stored(method):
            return rpc(CALLS[method]()).header("cache-status").startswith("sszip; hit")

        for method in ("eth_getBlockByHash", "eth_chainId"):
            rpc(CALLS[method]())
            rpc.nginx.wait_for(lambda method=method: is_stored(method), f"{method} to be kept")

    def hits(self, rpc):
        return [method for method in ("eth_getBlockByHash", "eth_chainId") if rpc(CALLS[method]()).header("cache-status").startswith("sszip; hit")]

    @pytest.mark.parametrize(
        "query,left",
        [
            ("everything", []),
            ("namespace=@chain@", []),
            ("namespace=other", ["eth_getBlockByHash", "eth_chainId"]),
            ("method=eth_getBlockByHash", ["eth_chainId"]),
            ("method=eth_getBlockByHash&namespace=@chain@", ["eth_chainId"]),
            ("method=eth_getBlockByHash&namespace=other", ["eth_getBlockByHash", "eth_chainId"]),
        ],
    )
    @pytest.mark.parametrize("workers", [1, 3])
    def test_purge_removes_its_entries_in_all_workers(self, run, new_rpc_client, query, left, workers):
        nginx = run(workers=workers)
        rpc = new_rpc_client(nginx)
        for _ in range(4 * workers):
            self.fill(rpc)
        answer = purge(nginx, query.replace("@chain@", rpc.chain))
        assert answer.status == 200, answer.decoded
        purged = json.loads(answer.decoded)
        assert purged["generation"] > 0
        assert len(left) < 2 or purged["entries"] == 0
        before = rpc.node.count()
        assert self.hits(rpc) == left
        for _ in range(3 * workers):
            assert len(self.hits(rpc)) == 2
        assert rpc.node.count() - before == 2 - len(left)

    @pytest.mark.parametrize("query,why", [("", "must select entries"), ("all", "unknown"), ("blocks=5", "namespace")])
    def test_purge_with_an_unclear_scope_is_rejected(self, run, query, why):
        answer = purge(run(), query)
        assert answer.status == 400 and why in json.loads(answer.decoded)["detail"]
        assert answer.header("content-type") == "application/problem+json"

    def test_purge_by_key_removes_one_entry(self, run, new_rpc_client):
        rpc = new_rpc_client(run())
        self.fill(rpc)
        key = rpc(block()).header("x-key")
        assert len(key) == 64 and key != rpc(chain_id()).header("x-key")
        assert purge(rpc.nginx, f"key={key}").status == 200
        assert self.hits(rpc) == ["eth_chainId"]
        assert purge(rpc.nginx, "key=12").status == 400

    def test_purge_location_has_access_rules_of_its_own(self, run):
        nginx = run()
        assert purge(nginx, "everything", "/purge-denied").status == 403
        assert purge(nginx, "everything", method="GET").status == 405
        assert purge(nginx, "everything", method="PURGE").status == 200

    def test_purge_succeeds_while_a_worker_is_stopped(self, run, new_rpc_client):
        nginx = run(workers=2)
        rpc = new_rpc_client(nginx)
        for _ in range(10):
            self.fill(rpc)
        stopped = nginx.workers()[0]
        stop(stopped)
        try:
            nginx.owner.purge(everything=True)
        finally:
            os.kill(stopped, signal.SIGCONT)
        # that worker, too, fetches the entries again
        before = rpc.node.count()
        for _ in range(20):
            self.hits(rpc)
        assert rpc.node.count() == before + 2


class TestWithoutAnOwner:
    def test_requests_are_forwarded_when_the_owner_is_unreachable(self, start_nginx, new_rpc_client, tmp_path):
        nginx = start_nginx(config(f"sszip_cache_owner unix:{tmp_path}/nobody;"))
        rpc = new_rpc_client(nginx)
        for method in ("eth_getBlockByHash", "eth_chainId"):
            assert rpc(CALLS[method]()).status == 200
        assert rpc.node.count() == 2
        answer = purge(nginx, "everything")
        assert answer.status == 503 and "does not respond" in json.loads(answer.decoded)["detail"]

    @pytest.mark.parametrize("why", ["nobody listens", "no folder", "no store"])
    def test_hot_tier_is_used_without_an_owner(self, start_nginx, new_rpc_client, tmp_path, why):
        """The hot tier is used although no attempt to reach an owner succeeds."""
        # a worker may pause for some seconds between its attempts on a busy machine
        times = {"SSZIP_TIMES": "owner_outage_grace=500ms predecessor_lease=10s"}
        if why == "no store":
            (tmp_path / "cache/store/LOCK").mkdir(parents=True)
            nginx = start_nginx(config(f"sszip_cache_path {tmp_path}/cache max_size=64m;"), environment=times)
            nginx.wait_for(lambda: "cannot open the store in " in nginx.error_log(), "the manager's complaint")
        else:
            folder = tmp_path / ("" if why == "nobody listens" else "none")
            nginx = start_nginx(config(f"sszip_cache_owner unix:{folder}/nobody;"), environment=times)
        nginx.expect("cache's owner at .* does not respond")
        if why == "nobody listens":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"{tmp_path}/nobody")
        rpc = new_rpc_client(nginx)
        answers = []

        def outage_is_reported():
            answers.append(rpc(block()))
            return len(answers) >= 50 and "does not respond" in nginx.error_log()

        nginx.wait_for(outage_is_reported, "the outage to be logged")
        assert all(answer.status == 200 for answer in answers)
        # a lookup may wait for an attempt to reach the owner, and be late
        assert rpc.node.count() <= len(answers) // 5

    def test_worker_keeps_its_entries_while_the_owner_is_restarted(self, start_nginx, new_rpc_client):
        # A worker may send its entries for 5 s after the owner's last lease, and after each attempt
        # that finds no owner. The outage is reported after 6 s: it sends them at that time because
        # of repeated attempts. On a busy machine it may pause for some seconds between them.
        times = "memory_lease=5s predecessor_lease=5s owner_outage_grace=6s"
        own = Owner(max_size="64m", memory="32m", environment={"SSZIP_TIMES": times}).start()
        try:
            nginx = start_nginx(config(f"sszip_cache_owner unix:{own.socket};"), environment={"SSZIP_TIMES": times})
            nginx.expect("cache's owner at .* does not respond")
            wait_until_linked(nginx, own)
            rpc = new_rpc_client(nginx)
            rpc(block())
            own.kill()

            def outage_is_reported():
                assert rpc(block()).status == 200
                return "does not respond" in nginx.error_log()

            nginx.wait_for(outage_is_reported, "the outage to be logged")
            # no owner could have purged the entry
            assert rpc.node.count() == 1
            own.start()
            wait_until_linked(nginx, own)
            before = rpc.node.count()
            for _ in range(5):
                rpc(block())
            assert rpc.node.count() <= before + 1
        finally:
            own.close()

    def test_requests_are_answered_while_the_owner_hangs(self, start_nginx, new_rpc_client):
        own = Owner(max_size="64m", memory="32m").start()
        try:
            nginx = start_nginx(config(f"sszip_cache_owner unix:{own.socket};"))
            nginx.expect("cache's owner at .* does not respond")
            wait_until_linked(nginx, own)
            rpc = new_rpc_client(nginx)
            stop(own.process.pid)
            for number in range(20):
                answer = rpc(block(f'["0x{number:064x}",true]'))
                assert answer.status == 200
            own.process.send_signal(signal.SIGCONT)
            wait_until_linked(nginx, own)
        finally:
            own.close()


class TestConfiguration:
    @pytest.mark.parametrize(
        "owner,why",
        [
            ("sszip_cache_owner /run/owner;", '"sszip_cache_owner" directive has an invalid value'),
            ("sszip_cache_owner unix:;", '"sszip_cache_owner" directive has an invalid value'),
            ("sszip_cache_owner 127.0.0.1:80;", '"sszip_cache_owner" directive has an invalid value'),
            ("sszip_cache_owner unix:/a; sszip_cache_owner unix:/b;", '"sszip_cache_owner" directive is duplicate: "sszip_cache_owner" is already set'),
            ("sszip_cache_owner unix:/a; sszip_cache_path @prefix@/c;", '"sszip_cache_path" directive is duplicate: "sszip_cache_owner" is already set'),
            ("sszip_cache_path @prefix@/c; sszip_cache_owner unix:/a;", '"sszip_cache_owner" directive is duplicate: "sszip_cache_path" is already set'),
            ("sszip_cache_path /;", "must be a folder of its own"),
            ("sszip_cache_path @prefix@/c max_size=1m;", "at least 64m"),
            ("sszip_cache_path @prefix@/c max_size=lots;", "at least 64m"),
            ("sszip_cache_path @prefix@/c max_size=20gb;", 'at least 64m; did you mean "20g"?'),
            ("sszip_cache_path @prefix@/c memory=1k;", "at least 1m"),
            ("sszip_cache_path @prefix@/c inactive=30days;", 'at least 1ms; did you mean "30d"?'),
            ("sszip_cache_path @prefix@/c inactive=0;", "at least 1ms"),
            ("sszip_cache_path @prefix@/c inactive=never;", "at least 1ms"),
            ("sszip_cache_path @prefix@/c recompress=yes;", 'must be "on" or "off"'),
            ("sszip_cache_path @prefix@/c recompress=;", 'must be "on" or "off"'),
            ("sszip_cache_path @prefix@/c levels=1:2;", '"max_size=SIZE", "memory=SIZE", "inactive=TIME" or "recompress=on|off"'),
            (f"sszip_cache_path @prefix@/{'c' * 120};", "too long"),
            ("", '"sszip_cache_purge" needs a store: set "sszip_cache_path" or "sszip_cache_owner"'),
        ],
    )
    def test_invalid_store_configuration_is_rejected(self, origin, owner, why):
        nginx = Nginx(config(owner), origin=origin)
        status, output = nginx.test()
        nginx.stop()
        assert status == 1 and why in output, output
        assert "nginx.conf:" in output or not owner

    def test_second_store_is_rejected_with_file_and_line_of_the_first(self, origin):
        nginx = Nginx(config("sszip_cache_path @prefix@/c;\nsszip_cache_path @prefix@/d;"), origin=origin)
        status, output = nginx.test()
        nginx.stop()
        first, second = re.search(r"is already set at \S+nginx\.conf:(\d+) in \S+nginx\.conf:(\d+)", output).groups()
        assert status == 1 and int(second) == int(first) + 1

    def test_missing_owner_library_is_reported(self, origin, tmp_path):
        module = tmp_path / "module.so"
        shutil.copy(MODULE, module)
        nginx = Nginx(config("sszip_cache_path @prefix@/c;"), origin=origin, module=module)
        status, output = nginx.test()
        nginx.stop()
        assert status == 1 and "libsszip_owner.so" in output and "next to the module" in output, output

"""nginx with the cache's owner: a response that one process has fetched is a hit for all, and
after the next start."""

import json
import os
import re
import shutil
import signal
import socket
import threading
import time

import pytest

from harness import bodies, client
from harness.nginx import MODULE, Nginx
from harness.owner import Owner, owner_of, wait_until_linked
from harness.processes import stop
from harness.rpc import Node, call
from harness.watch import wait_for_followers


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
    location / { sszip_cache_namespace $arg_chain; add_header X-Key $sszip_cache_key; proxy_pass http://@origin@; }
    location /unlocked { sszip_cache_namespace $arg_chain; sszip_cache_lock off; proxy_pass http://@origin@; }
    location /impatient { sszip_cache_namespace $arg_chain; sszip_cache_lock_timeout 200ms; proxy_pass http://@origin@; }
    location = /purge { allow 127.0.0.1; deny all; sszip_cache_purge on; }
    location = /purge-own { sszip_cache_namespace own; sszip_cache_purge on; }
    location = /purge-denied { deny all; sszip_cache_purge on; }
}
"""

_places = iter(range(10**6))


@pytest.fixture(scope="module")
def daemon():
    owner = Owner(max_size="64m", memory="32m").start()
    yield owner
    owner.close()


@pytest.fixture(scope="module", params=["daemon", "own"])
def run(start_nginx, daemon, request):
    """nginx with a daemon, or with a store of its own. Each connection reaches any of its
    workers."""

    def run(workers=1):
        if request.param == "daemon":
            nginx = start_nginx(config(f"sszip_cache_owner unix:{daemon.socket};"), workers=workers)
            nginx.owner = daemon
        else:
            nginx = start_nginx(config("sszip_cache_path @prefix@/cache max_size=64m memory=32m;"), workers=workers)
            nginx.owner = owner_of(nginx)
        wait_until_linked(nginx)
        return nginx

    return run


def config(owner):
    return CONFIG.replace("@owner@", owner)


def reload(nginx):
    """Reloads; the new workers are linked to the owner that stays."""
    before = nginx.owner.status()["pid"]
    nginx.reload()
    if not isinstance(nginx.owner, Owner):
        nginx.wait_for(lambda: nginx.owner.pid() not in (None, before), "the new manager")
    wait_until_linked(nginx)


class Asker:
    def __init__(self, nginx, origin, results, **options):
        self.nginx = nginx
        self.node = Node(results, **options)
        origin.answers(self.node)
        self.chain = f"chain{next(_places)}"

    def __call__(self, body, path="/", accept="gzip", **request):
        return self.nginx.post(f"{path}?chain={self.chain}", body, accept, **request)


@pytest.fixture
def ask(run, origin):
    def ask(nginx=None, results=None, **options):
        return Asker(nginx or run(), origin, results or {"eth_chainId": b'"0x1"', "eth_getBlockByHash": LARGE}, **options)

    return ask


def purge(nginx, query, path="/purge", method="POST"):
    return client.fetch(nginx.port, f"{path}?{query}", method=method)


class TestTwoProcesses:
    def test_response_of_one_worker_is_a_hit_in_the_others(self, run, ask):
        nginx = run(workers=4)
        asks = ask(nginx)
        for id in range(40):
            answer = asks(block(id=str(id)))
            assert answer.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (id, LARGE)
        assert asks.node.count() == 1

    @pytest.mark.parametrize("accept", ["gzip", "identity"])
    def test_entries_survive_a_reload(self, run, ask, accept):
        nginx = run()
        asks = ask(nginx)
        asks(block())
        asks(call("eth_chainId"))
        reload(nginx)
        for method, result in (("eth_getBlockByHash", LARGE), ("eth_chainId", b'"0x1"')):
            answer = asks(CALLS[method](id="7"), accept=accept)
            assert answer.decoded == b'{"jsonrpc":"2.0","id":7,"result":%b}\n' % result
            assert answer.header("cache-status").startswith("sszip; hit")
        assert asks.node.count() == 2

    def test_batch_is_looked_up_in_the_store(self, run, ask):
        nginx = run()
        asks = ask(nginx, {"eth_getBlockByHash": LARGE, "eth_chainId": b'"0x1"', "eth_gasPrice": b'"0x5"'})
        asks(block())
        asks(call("eth_chainId"))
        reload(nginx)
        # a worker merges batches once it has seen a response that no filter changes
        asks(call("eth_syncing"))
        batch = b"[" + b",".join([call("eth_chainId", id="5"), call("eth_gasPrice", id="6"), block(id="7")]) + b"]"
        answer = asks(batch)
        assert json.loads(answer.decoded)[0] == {"jsonrpc": "2.0", "id": 5, "result": "0x1"}
        assert [one["id"] for one in json.loads(answer.decoded)] == [5, 6, 7]
        assert [one["method"] for one in asks.node.asked[3:]] == ["eth_gasPrice"]


class TestCoalescingAcrossWorkers:
    def test_coalesced_requests_of_all_workers_reach_the_node_once(self, run, ask):
        nginx = run(workers=4)
        asks = ask(nginx)
        gate = asks.node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(asks(block()))) for _ in range(40)]
        for thread in threads:
            thread.start()
        # followers in any worker
        wait_for_followers(nginx, 39)
        gate.set()
        for thread in threads:
            thread.join()
        assert len(answers) == 40 and all(answer.status == 200 for answer in answers)
        assert asks.node.count() == 1

    def test_followers_of_all_workers_get_the_response_when_the_leader_aborts(self, run, ask):
        nginx = run(workers=2)
        asks = ask(nginx)
        gate = asks.node.gates["eth_getBlockByHash"] = threading.Event()
        body = block()
        first = nginx.connect()
        first.send(
            b"POST /?chain=%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (asks.chain.encode(), len(body), body)
        )
        nginx.wait_for(lambda: asks.node.count() == 1, "the first to arrive")
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(asks(body))) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 8)
        first.close()
        time.sleep(0.1)
        gate.set()
        for thread in threads:
            thread.join()
        assert len(answers) == 8 and all(answer.status == 200 for answer in answers)
        assert asks.node.count() == 1

    def test_requests_are_not_coalesced_when_the_lock_is_off(self, run, ask):
        asks = ask(run())
        gate = asks.node.gates["eth_getBlockByHash"] = threading.Event()
        threads = [threading.Thread(target=lambda: asks(block(), path="/unlocked")) for _ in range(3)]
        for thread in threads:
            thread.start()
        asks.nginx.wait_for(lambda: asks.node.count() == 3, "all to arrive")
        gate.set()
        for thread in threads:
            thread.join()

    def test_followers_fetch_the_response_after_the_lock_timeout(self, run, ask):
        asks = ask(run())
        gate = asks.node.gates["eth_getBlockByHash"] = threading.Event()
        threads = [threading.Thread(target=lambda: asks(block(), path="/impatient")) for _ in range(3)]
        for thread in threads:
            thread.start()
        asks.nginx.wait_for(lambda: asks.node.count() == 3, "all to arrive")
        gate.set()
        for thread in threads:
            thread.join()


class TestReading:
    """A long response is stored unchecked; the owner checks it when it is requested."""

    def stored(self, asks, key):
        """A function of the entry's flags, or `None` without an entry."""

        def look():
            status, _, body = asks.nginx.owner.request("GET", f"/v1/entries/{key}")
            assert status in (200, 404)
            return body[8] if status == 200 else None

        return look

    def test_short_response_is_checked_before_it_is_stored(self, run, ask):
        asks = ask(run())
        flags = self.stored(asks, asks(block()).header("x-key"))
        assert asks.nginx.wait_for(lambda: flags() is not None and [flags()], "it to be stored") == [0]

    def test_long_response_is_checked_by_the_owner(self, run, ask):
        long = b'"0x' + bodies.json(200_000).hex().encode() + b'"'
        asks = ask(run(), {"eth_getBlockByHash": long})
        flags = self.stored(asks, asks(block()).header("x-key"))
        first = asks.nginx.wait_for(lambda: (found := flags()) is not None and [found], "it to be stored")
        assert first == [1]
        asks.nginx.wait_for(lambda: flags() == 0, "it to be read")
        reload(asks.nginx)
        answer = asks(block(id="7"))
        assert answer.decoded == b'{"jsonrpc":"2.0","id":7,"result":%b}\n' % long
        assert answer.header("cache-status").startswith("sszip; hit") and asks.node.count() == 1

    @pytest.mark.parametrize("length", [20_000, 400_000])
    def test_invalid_response_is_removed_by_the_owner(self, run, ask, length):
        wrong = b'["0x' + b"ab" * (length // 2) + b'",,"1"]'
        asks = ask(run(), {"eth_getBlockByHash": wrong})
        fills = asks.nginx.owner.status()["fills"]["kept"]
        key = asks(block()).header("x-key")
        asks.nginx.wait_for(lambda: asks.nginx.owner.status()["fills"]["kept"] > fills, "it to be stored")
        asks.nginx.wait_for(lambda: self.stored(asks, key)() is None, "it to be read")
        reload(asks.nginx)
        for id in ("7", "8"):
            assert asks(block(id=id)).decoded == b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id.encode(), wrong)
        assert asks.node.count() == 3


class TestRecompressing:
    """An entry that a second worker requests is recompressed on its way to the disk."""

    def send_until_stored(self, nginx, asks):
        hits = []

        def is_stored():
            # each worker queries the owner once, whichever of them a connection reaches
            answer = asks(block(id="59"))
            if answer.header("cache-status").startswith("sszip; hit"):
                hits.append(answer)
            return nginx.owner.status()["stores"]["done"] == 1

        nginx.wait_for(is_stored, "it to be stored")
        return hits[0]

    @pytest.mark.parametrize("parameter,expected", [("", True), ("recompress=on", True), ("recompress=off", False)])
    def test_entry_is_recompressed_when_it_is_written_to_disk(self, start_nginx, ask, parameter, expected):
        path = f"sszip_cache_path @prefix@/cache max_size=64m memory=32m {parameter};"
        nginx = start_nginx(config(path), workers=4)
        nginx.owner = owner_of(nginx)
        wait_until_linked(nginx)
        asks = ask(nginx)
        before = self.send_until_stored(nginx, asks)
        status = nginx.owner.status()
        nginx.reload()
        nginx.wait_for(lambda: nginx.owner.pid() not in (None, status["pid"]), "the next owner")
        wait_until_linked(nginx)
        after = asks(block(id="59"))
        assert after.header("cache-status").startswith("sszip; hit")
        assert after.decoded == before.decoded
        assert asks(block(id="7"), accept="identity").decoded == b'{"jsonrpc":"2.0","id":7,"result":%b}\n' % LARGE
        saved = int(before.header("content-length")) - int(after.header("content-length"))
        assert (saved > 0) == expected
        assert status["recompressed"] == {"entries": int(expected), "saved": saved}
        assert asks.node.count() == 1


class TestPurging:
    def fill(self, asks):
        """Stores both entries in the owner, for whichever worker is next: a slow lookup on a
        busy machine is sent to the node."""

        def is_kept(method):
            return asks(CALLS[method]()).header("cache-status").startswith("sszip; hit")

        for method in ("eth_getBlockByHash", "eth_chainId"):
            asks(CALLS[method]())
            asks.nginx.wait_for(lambda method=method: is_kept(method), f"{method} to be kept")

    def hits(self, asks):
        return [method for method in ("eth_getBlockByHash", "eth_chainId") if asks(CALLS[method]()).header("cache-status").startswith("sszip; hit")]

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
    def test_purge_removes_its_entries_in_all_workers(self, run, ask, query, left, workers):
        nginx = run(workers=workers)
        asks = ask(nginx)
        for _ in range(4 * workers):
            self.fill(asks)
        answer = purge(nginx, query.replace("@chain@", asks.chain))
        assert answer.status == 200, answer.decoded
        said = json.loads(answer.decoded)
        assert said["generation"] > 0
        assert len(left) < 2 or said["entries"] == 0
        before = asks.node.count()
        assert self.hits(asks) == left
        for _ in range(3 * workers):
            assert len(self.hits(asks)) == 2
        assert asks.node.count() - before == 2 - len(left)

    @pytest.mark.parametrize("query,why", [("", "must say what"), ("all", "unknown"), ("blocks=5", "namespace")])
    def test_purge_with_an_unclear_scope_is_rejected(self, run, query, why):
        answer = purge(run(), query)
        assert answer.status == 400 and why in json.loads(answer.decoded)["detail"]
        assert answer.header("content-type") == "application/problem+json"

    def test_purge_by_key_removes_one_entry(self, run, ask):
        asks = ask(run())
        self.fill(asks)
        key = asks(block()).header("x-key")
        assert len(key) == 64 and key != asks(chain_id()).header("x-key")
        assert purge(asks.nginx, f"key={key}").status == 200
        assert self.hits(asks) == ["eth_chainId"]
        assert purge(asks.nginx, "key=12").status == 400

    def test_purge_location_has_access_rules_of_its_own(self, run):
        nginx = run()
        assert purge(nginx, "everything", "/purge-denied").status == 403
        assert purge(nginx, "everything", method="GET").status == 405
        assert purge(nginx, "everything", method="PURGE").status == 200

    def test_purge_succeeds_while_a_worker_is_stopped(self, run, ask):
        nginx = run(workers=2)
        asks = ask(nginx)
        for _ in range(10):
            self.fill(asks)
        stopped = nginx.workers()[0]
        stop(stopped)
        try:
            nginx.owner.purge(everything=True)
        finally:
            os.kill(stopped, signal.SIGCONT)
        # that worker, too, fetches the entries again
        before = asks.node.count()
        for _ in range(20):
            self.hits(asks)
        assert asks.node.count() == before + 2


class TestWithoutAnOwner:
    def test_requests_are_forwarded_when_the_owner_is_unreachable(self, start_nginx, ask, tmp_path):
        nginx = start_nginx(config(f"sszip_cache_owner unix:{tmp_path}/nobody;"))
        asks = ask(nginx)
        for method in ("eth_getBlockByHash", "eth_chainId"):
            assert asks(CALLS[method]()).status == 200
        assert asks.node.count() == 2
        answer = purge(nginx, "everything")
        assert answer.status == 503 and "does not answer" in json.loads(answer.decoded)["detail"]

    @pytest.mark.parametrize("why", ["nobody listens", "no folder", "no store"])
    def test_hot_tier_is_used_without_an_owner(self, start_nginx, ask, tmp_path, why):
        """The hot tier is used for longer than one attempt to reach the owner, too."""
        if why == "no store":
            (tmp_path / "cache/store/LOCK").mkdir(parents=True)
            nginx = start_nginx(config(f"sszip_cache_path {tmp_path}/cache max_size=64m;"))
            nginx.wait_for(lambda: "no store: " in nginx.error_log(), "the manager's complaint")
        else:
            folder = tmp_path / ("" if why == "nobody listens" else "none")
            nginx = start_nginx(config(f"sszip_cache_owner unix:{folder}/nobody;"))
        nginx.expect("cache's owner at .* does not answer")
        if why == "nobody listens":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"{tmp_path}/nobody")
        asks = ask(nginx)
        asks(block())
        for _ in range(50):
            assert asks(block()).status == 200
            time.sleep(0.05)
        # each attempt to reach the owner may have been late
        assert asks.node.count() <= 10

    def test_worker_keeps_its_entries_while_the_owner_is_restarted(self, start_nginx, ask):
        own = Owner(max_size="64m", memory="32m").start()
        try:
            nginx = start_nginx(config(f"sszip_cache_owner unix:{own.socket};"))
            nginx.expect("cache's owner at .* does not answer")
            wait_until_linked(nginx, own)
            asks = ask(nginx)
            asks(block())
            own.kill()
            for _ in range(30):
                assert asks(block()).status == 200
                time.sleep(0.05)
            # no owner could have purged the entry
            assert asks.node.count() == 1
            own.start()
            wait_until_linked(nginx, own)
            before = asks.node.count()
            for _ in range(5):
                asks(block())
            assert asks.node.count() <= before + 1
        finally:
            own.close()

    def test_requests_are_answered_while_the_owner_hangs(self, start_nginx, ask):
        own = Owner(max_size="64m", memory="32m").start()
        try:
            nginx = start_nginx(config(f"sszip_cache_owner unix:{own.socket};"))
            nginx.expect("cache's owner at .* does not answer")
            wait_until_linked(nginx, own)
            asks = ask(nginx)
            stop(own.process.pid)
            for number in range(20):
                answer = asks(block(f'["0x{number:064x}",true]'))
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
            ("", '"sszip_cache_purge" needs an "sszip_cache_path" or an "sszip_cache_owner"'),
        ],
    )
    def test_invalid_store_configuration_is_rejected(self, origin, owner, why):
        nginx = Nginx(config(owner), origin=origin)
        status, said = nginx.test()
        nginx.stop()
        assert status == 1 and why in said, said
        assert "nginx.conf:" in said or not owner

    def test_second_store_is_rejected_with_file_and_line_of_the_first(self, origin):
        nginx = Nginx(config("sszip_cache_path @prefix@/c;\nsszip_cache_path @prefix@/d;"), origin=origin)
        status, said = nginx.test()
        nginx.stop()
        first, second = re.search(r"is already set at \S+nginx\.conf:(\d+) in \S+nginx\.conf:(\d+)", said).groups()
        assert status == 1 and int(second) == int(first) + 1

    def test_missing_owner_library_is_reported(self, origin, tmp_path):
        module = tmp_path / "module.so"
        shutil.copy(MODULE, module)
        nginx = Nginx(config("sszip_cache_path @prefix@/c;"), origin=origin, module=module)
        status, said = nginx.test()
        nginx.stop()
        assert status == 1 and "libsszip_owner.so" in said and "beside the module" in said, said

"""A store of nginx's own through reloads, upgrades, stops and kills: no response is lost or
wrong, purged entries stay purged, and stored entries are there."""

import json
import os
import random
import re
import signal
import socket
import threading
import time

import pytest

from harness import bodies, client
from harness.guards import SHIPPED_LEASE
from harness.load import ClientThreads
from harness.nginx import Nginx
from harness.origin import answer
from harness.owner import owner_of, wait_until_linked, wait_until_open
from harness.processes import runs, stop
from harness.rpc import Node, call
from tiers import times

LARGE = b'"0x' + bodies.json(30000).hex().encode() + b'"'

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
sszip_cache_memory 8m;
sszip_cache_valid immutable 1h;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
}
"""


# on a busy machine nginx takes seconds to start an owner again
TIMES = {"SSZIP_TIMES": f"purge_patience=60s {SHIPPED_LEASE}"}


def by_hash(number, id="1"):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id=id)


def end(nginx, number):
    master = nginx.master
    os.kill(master, number)
    nginx.wait_for(lambda: not runs(master), "nginx to stop")
    nginx.process.wait(30)
    (nginx.prefix / "nginx.pid").unlink(missing_ok=True)


def kill_manager(nginx):
    """The seconds until another owner responded; None: there was none to kill."""
    victim = nginx.manager()
    try:
        os.kill(victim, signal.SIGKILL)
    except (TypeError, ProcessLookupError):
        return None
    since = time.monotonic()
    # on a busy machine the kernel takes its time to end a killed process
    nginx.wait_for(lambda: owner_of(nginx).pid() not in (None, victim), "another owner", seconds=120)
    return time.monotonic() - since


def kill_manager_at_once(nginx):
    """Kills the cache manager, and does not wait for its end."""

    def is_killed():
        try:
            os.kill(nginx.manager(), signal.SIGKILL)
        except (TypeError, ProcessLookupError):
            # the one of before a reload has ended, and the log does not have the other one yet
            return False
        return True

    nginx.wait_for(is_killed, "a cache manager to kill")


def await_fills(nginx, count):
    """Waits until the last fills have reached the owner."""
    nginx.wait_for(lambda: owner_of(nginx).status()["fills"]["kept"] == count, "all to be stored")


def hits(nginx, numbers):
    """The number of these blocks that are answered without the node."""
    answers = [nginx.post("/", by_hash(number)) for number in numbers]
    assert all(answer.status == 200 for answer in answers)
    return sum(answer.header("cache-status").startswith("sszip; hit") for answer in answers)


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    return node


class Clients(ClientThreads):
    """Clients that request responses with version numbers all the time: none may be older
    than the last purge before its request."""

    def __init__(self, nginx, keys=12, clients=4):
        super().__init__(clients)
        self.nginx = nginx
        self.keys = keys
        self.version = 1
        self.floor = 1

    def serve(self, request):
        rpc_call = json.loads(request.body)
        block = int(rpc_call["params"][0], 16)
        result = {"block": block, "version": self.version, "rest": "00112233" * 700}
        body = json.dumps({"jsonrpc": "2.0", "id": rpc_call["id"], "result": result})
        return answer(body.encode())

    def _send_requests(self, number):
        dice = random.Random(number)
        connection = None
        while not self._stop.is_set():
            block, id = dice.randrange(self.keys), dice.randrange(10**6)
            floor = self.floor
            headers = [("Content-Type", "application/json"), ("Accept-Encoding", dice.choice(["gzip", "identity"]))]
            received = None
            try:
                if connection is None:
                    connection = client.Connection(self.nginx.port)
                else:
                    received = connection.received
                connection.send(
                    client.request_bytes("/", method="POST", headers=headers, body=by_hash(block, id=str(id)))
                )
                response = connection.read()
            except (OSError, client.Truncated) as error:
                # closed while idle: nginx does so when a worker ends
                is_idle = received is not None and connection.received == received
                if isinstance(error, TimeoutError) or not is_idle:
                    self.faults.append(repr(error))
                if connection is not None:
                    connection.close()
                connection = None
                continue
            if response.status != 200:
                self.faults.append(f"status {response.status}")
            else:
                reply = json.loads(response.decoded)
                result = reply["result"]
                if reply["id"] != id or result["block"] != block or len(result["rest"]) != 5600:
                    self.faults.append(f"another's answer: {response.decoded[:200]}")
                if not floor <= result["version"] <= self.version:
                    self.faults.append(f"version {result['version']} after {floor} was purged")
            self.answered += 1
            # leave the processor to nginx
            time.sleep(0.002)
            if response.header("Connection") == "close":
                connection.close()
                connection = None

    def await_more(self, count):
        target = self.answered + count
        self.nginx.wait_for(lambda: self.answered >= target or self.faults, f"{count} more answers", seconds=60)

    def purge(self):
        """Starts a new version and purges the old one; returns whether the purge was
        acknowledged."""
        self.version += 1
        version = self.version
        try:
            response = client.fetch(self.nginx.port, "/purge?everything", method="POST")
        except (OSError, client.Truncated):
            return False
        if response.status != 200:
            assert response.status in (502, 503, 504), response.status
            return False
        self.floor = version
        return True


class TestStops:
    def test_entries_survive_a_restart(self, origin, node):
        nginx = Nginx(CONFIG, origin=origin)
        try:
            nginx.start()
            wait_until_linked(nginx)
            assert hits(nginx, range(20)) == 0
            await_fills(nginx, 20)
            for start in range(times(2, 3)):
                end(nginx, signal.SIGQUIT if start % 2 else signal.SIGTERM)
                nginx.start()
                wait_until_open(nginx)
                assert hits(nginx, range(20)) == 20
            assert node.count() == 20
        finally:
            nginx.stop()

    def test_entries_survive_a_reload(self, start_nginx, node):
        nginx = start_nginx(CONFIG)
        wait_until_linked(nginx)
        assert hits(nginx, range(20)) == 0
        await_fills(nginx, 20)
        nginx.reload()
        wait_until_open(nginx)
        assert hits(nginx, range(20)) == 20

    def test_single_process_owns_the_store(self, origin, node):
        nginx = Nginx(CONFIG, origin=origin, main="master_process off;", single=True)
        try:
            for start in range(2):
                nginx.start()
                nginx.wait_for(owner_of(nginx).answers, "the owner")
                nginx.wait_for(lambda: owner_of(nginx).status()["processes"], "the link")
                assert hits(nginx, range(5)) == (5 if start else 0)
                end(nginx, signal.SIGQUIT)
                nginx.check()
        finally:
            nginx.stop()

    def test_purged_entries_stay_purged_after_a_kill(self, origin, node):
        nginx = Nginx(CONFIG, origin=origin, environment=TIMES)
        try:
            nginx.start()
            wait_until_linked(nginx)
            hits(nginx, range(5))
            nginx.reload()
            wait_until_linked(nginx)
            assert client.fetch(nginx.port, "/purge?method=eth_getBlockByHash", method="POST").status == 200
            kill_manager_at_once(nginx)
            nginx.expect("exited on signal 9")
            nginx.reload()
            wait_until_linked(nginx)
            assert hits(nginx, range(5)) == 0
        finally:
            nginx.stop()

    def test_purge_waits_for_an_owner_that_starts(self, start_nginx, origin, node):
        nginx = start_nginx(CONFIG, environment=TIMES)
        nginx.expect("exited on signal 9")
        for turn in range(times(4, 6)):
            # without waiting for the new workers and the new owner
            if turn % 2:
                kill_manager_at_once(nginx)
            else:
                nginx.reload()
            answer = client.fetch(nginx.port, "/purge?everything", method="POST")
            assert answer.status == 200, answer.decoded
            wait_until_linked(nginx)

    def test_purge_succeeds_after_a_client_aborted_its_own(self, start_nginx, origin, node):
        nginx = start_nginx(CONFIG, environment=TIMES)
        nginx.expect("exited on signal 9")
        for turn in range(times(3, 6)):
            wait_until_linked(nginx)
            hits(nginx, range(3))
            kill_manager_at_once(nginx)
            with socket.create_connection(("127.0.0.1", nginx.port)) as leaving:
                leaving.sendall(b"POST /purge?everything HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
                time.sleep(turn * 0.02)
            answer = client.fetch(nginx.port, "/purge?everything", method="POST")
            assert answer.status == 200, answer.decoded

    def test_stop_at_any_moment_of_the_start_is_clean(self, origin, node):
        nginx = Nginx(CONFIG, origin=origin)
        try:
            for turn in range(times(10, 25)):
                nginx.start()
                time.sleep(turn * 0.003)
                end(nginx, signal.SIGQUIT if turn % 2 else signal.SIGTERM)
                nginx.check()
        finally:
            nginx.stop()


class TestUnderLoad:
    def test_responses_are_current_when_nginx_reloads_under_load(self, start_nginx, origin):
        nginx = start_nginx(CONFIG, workers=2, environment=TIMES)
        clients = Clients(nginx)
        origin.answers(clients.serve)
        wait_until_linked(nginx)
        with clients:
            for _ in range(times(2, 5)):
                clients.await_more(60)
                nginx.reload()
                clients.await_more(60)
                clients.purge()
            wait_until_linked(nginx)
            assert clients.purge()
            clients.await_more(100)
        assert clients.faults == []

    def test_responses_are_current_when_nginx_is_upgraded_under_load(self, start_nginx, origin):
        nginx = start_nginx(CONFIG, workers=2, environment=TIMES, daemon=True)
        clients = Clients(nginx)
        origin.answers(clients.serve)
        wait_until_linked(nginx)
        old = nginx.master
        with clients:
            clients.await_more(60)
            os.kill(old, signal.SIGUSR2)
            nginx.wait_for(lambda: nginx.master_or_none() not in (None, old), "the new master")
            nginx.wait_for(nginx.workers, "the new workers")
            clients.await_more(60)
            # a worker that is not linked to the owner yet rejects a purge
            wait_until_linked(nginx)
            # both generations of workers have one owner
            assert clients.purge()
            clients.await_more(60)
            os.kill(old, signal.SIGQUIT)
            nginx.wait_for(lambda: not runs(old), "the old master to go", seconds=60)
            wait_until_linked(nginx)
            clients.await_more(60)
            assert clients.purge()
            clients.await_more(60)
        assert clients.faults == []

    def test_responses_are_current_when_the_owner_is_killed_at_random(self, start_nginx, origin, record_property):
        nginx = start_nginx(CONFIG, workers=2, environment=TIMES)
        nginx.expect("exited on signal 9")
        nginx.expect("cache's owner")
        clients = Clients(nginx)
        origin.answers(clients.serve)
        wait_until_linked(nginx)
        dice = random.Random(7)
        outcomes, back = [], []
        with clients:
            kills = times(12, 50)
            for _ in range(kills):
                purging = threading.Thread(target=lambda: outcomes.append(clients.purge()))
                if dice.random() < 0.7:
                    purging.start()
                time.sleep(dice.random() * 0.15)
                back.append(kill_manager(nginx))
                if purging.ident:
                    purging.join(30)
                if dice.random() < 0.3:
                    # sometimes no other owner is left whose leases the purge waits for
                    time.sleep(1.1)
                    wait_until_linked(nginx)
                    outcomes.append(clients.purge())
                clients.await_more(20)
            until = time.monotonic() + 120
            while sum(outcomes) < kills // 10:
                assert time.monotonic() < until, f"{sum(outcomes)} purges were acknowledged"
                wait_until_linked(nginx)
                outcomes.append(clients.purge())
        acknowledged = sum(outcomes)
        back = sorted(seconds for seconds in back if seconds is not None)
        assert clients.faults == []
        assert len(back) >= kills * 9 // 10
        record_property("back after", f"median {back[len(back) // 2]:.3f} s, worst {back[-1]:.3f} s")
        print(f"kills: {len(back)}, purges acknowledged: {acknowledged}, back after {back[len(back) // 2]:.3f} s, worst {back[-1]:.3f} s")

    def test_responses_are_current_when_a_worker_is_stopped_during_a_purge(self, start_nginx, origin):
        nginx = start_nginx(CONFIG, workers=2, environment=TIMES)
        clients = Clients(nginx)
        origin.answers(clients.serve)
        wait_until_linked(nginx)
        with clients:
            for turn in range(times(2, 4)):
                clients.await_more(60)
                stopped = nginx.workers()[turn % 2]
                stop(stopped)
                clients.version += 1
                version = clients.version
                owner_of(nginx).purge(everything=True)
                clients.floor = version
                os.kill(stopped, signal.SIGCONT)
                clients.await_more(60)
        assert clients.faults == []


def test_opened_store_is_logged(start_nginx, origin, node):
    nginx = start_nginx(CONFIG)
    wait_until_linked(nginx)
    nginx.wait_for(lambda: re.search(r"\[notice\].*sszip: created a new store in ", nginx.error_log()), "the line")
    nginx.reload()
    wait_until_linked(nginx)
    nginx.wait_for(lambda: re.search(r"\[notice\].*sszip: opened the store in ", nginx.error_log()), "the line")


def test_store_of_another_nginx_is_shared(origin, node):
    first = Nginx(CONFIG, origin=origin)
    second = Nginx(CONFIG.replace("@prefix@/cache", str(first.prefix / "cache")), origin=origin)
    try:
        first.start()
        wait_until_linked(first)
        second.start()
        second.wait_for(lambda: len(owner_of(first).pids()) == 2, "both to be linked")
        hits(first, range(3))
        assert hits(second, range(3)) == 3
    finally:
        second.stop()
        first.stop()

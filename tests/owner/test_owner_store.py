"""Survival of entries and purges: clean stops, crashes, a second owner, a full disk."""

import contextlib
import os
import random
import signal
import statistics
import subprocess
import threading
import time

import pytest
import tiers

from daemon import Client, Answer, Daemon, key, monotonic
from harness.guards import GUARD_SECONDS


KILLS = tiers.times(8, 50)


def test_clean_stop_keeps_storable_entries(start_daemon):
    owner = start_daemon(memory="8m")
    bodies = {n: os.urandom(random.Random(n).randrange(20_000)) for n in range(200)}
    classes = {n: ("immutable", "resource", "unfinalized", "tip")[n % 4] for n in bodies}
    for n, body in bodies.items():
        assert owner.put(n, body, method="eth_call", **{"class": classes[n]}).status == 201
    purged = owner.begin_purge(key=key(0)).wait().json()["generation"]
    for signal_number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT):
        owner.stop(signal_number)
        assert not owner.socket.exists()
        owner.start()
        assert owner.generation == purged
        for n, body in bodies.items():
            answer = owner.get(n)
            if n == 0 or classes[n] in ("unfinalized", "tip"):
                assert answer.status == 404, n
            else:
                assert (answer.status, answer.body, answer.fields["sszip-class"]) == (200, body, classes[n])
                assert 0 < int(answer.fields["sszip-fresh"]) <= 3_600_000


def test_clean_stop_keeps_more_entries_than_fit_into_the_memtables(start_daemon):
    owner = start_daemon(memory="64m", max_size="256m", max_entry="8m")
    for n in range(400):
        assert owner.put(n, n.to_bytes(4, "big") * 25_000).status == 201
    assert owner.status()["memory"]["entries"] == 400
    owner.stop()
    assert "cannot write all entries to the store" not in owner.log_text()
    owner.start()
    for n in range(400):
        assert owner.get(n).body == n.to_bytes(4, "big") * 25_000


def test_entries_are_stored_on_their_second_request_unless_unfinalized(start_daemon):
    owner = start_daemon(flush_interval="1h")
    for n, name in enumerate(("immutable", "resource", "unfinalized", "tip")):
        for copy in (0, 10, 20):
            owner.put(n + copy, b"x" * 1000, **{"class": name})
    assert owner.status()["stores"]["done"] == 0
    for n in range(4):
        owner.get(n)  # a hit
        owner.put(n + 10, b"x" * 1000, **{"class": ("immutable", "resource", "unfinalized", "tip")[n]})
    owner.wait_for(lambda: owner.status()["stores"]["done"] >= 4, "the entries to be stored")
    for n in range(4):
        owner.get(n)
    assert owner.status()["stores"] == {"done": 4, "failed": 0}


def test_entries_beyond_the_memory_limit_are_served_from_the_store(start_daemon):
    owner = start_daemon(memory="1m", max_size="64m")
    for _ in range(2):
        for n in range(300):
            assert owner.put(n, bytes([n % 256]) * 10_000).status == 201
        assert owner.status()["memory"]["bytes"] <= 1 << 20

    def is_each_entry_stored():
        if owner.status()["stores"]["done"] >= 300:
            return True
        # entries that find no place in the queue of a slow disk are stored when they are
        # requested or filled again
        for n in range(300):
            if owner.get(n).status == 404:
                owner.put(n, bytes([n % 256]) * 10_000)
        return False

    owner.wait_for(is_each_entry_stored, "the entries to be stored")
    for n in range(300):
        assert owner.get(n).body == bytes([n % 256]) * 10_000
    assert owner.status()["lookups"]["store"] > 100
    # longer than memory may hold: stored at once
    assert owner.put(1000, b"y" * 1_000_000).status == 201
    assert owner.get(1000).body == b"y" * 1_000_000
    assert owner.put(1001, b"y" * 1_000_000, **{"class": "tip"}).status == 413
    assert owner.put(1002, b"y" * 3_000_000).status == 413


def test_second_owner_waits_and_takes_over(start_daemon):
    first = start_daemon()
    first.put(1, b"one")
    second = Daemon(first.folder)
    for end in ("stop", "kill"):
        log = len(second.log_text())
        second.spawn()
        second.wait_for(
            lambda second=second, log=log: "another owner has the store" in second.log_text()[log:], "it to wait"
        )
        assert second.process.poll() is None
        assert first.status()["pid"] == first.process.pid
        generation = first.generation
        getattr(first, end)()
        second.wait()
        assert second.generation == generation
        assert second.get(1).body == b"one"
        assert oct(second.socket.stat().st_mode & 0o777) == "0o600"
        first, second = second, Daemon(first.folder)
    first.stop()


def test_waiting_owner_can_be_stopped(start_daemon):
    first = start_daemon()
    second = Daemon(first.folder).spawn()
    second.wait_for(lambda: "another owner" in second.log_text(), "it to wait")
    second.stop()
    assert first.status()["pid"] == first.process.pid


def test_acknowledged_purges_survive_repeated_kills(start_daemon):
    """Kills the daemon during puts and purges: entries whose purge was acknowledged do not
    return, and the daemon serves again."""
    owner = start_daemon(memory="2m", flush_interval="50ms")
    rng = random.Random(7)
    purged = {}  # key -> the generation that removed it
    times = []
    known = owner.generation

    def work(stop):
        client = Client(owner.socket)
        fields = {"sszip-fresh": "3600000", "sszip-class": "immutable", "sszip-namespace": "5a" * 16}
        turn = 0
        try:
            while not stop.is_set():
                turn += 1
                n = rng.randrange(200)
                generation = known_generation[0]
                body = f"{n} {generation} ".encode() * 50
                head = fields | {"sszip-generation": str(generation)}
                client.request("PUT", f"/v1/entries/{key(n)}", body, head)
                Answer(client.getresponse())
                client.request("GET", f"/v1/entries/{key(n)}")
                Answer(client.getresponse())
                if turn % 20 == 0:
                    victim = rng.randrange(200)
                    client.request("POST", "/v1/purges", f'{{"key":"{key(victim)}"}}')
                    answer = Answer(client.getresponse())
                    if answer.status == 200:
                        known_generation[0] = answer.json()["generation"]
                        purged[victim] = known_generation[0]
        except OSError:
            pass
        except Exception as error:  # noqa: BLE001 - half an answer, of any kind
            assert type(error).__module__ == "http.client", error
        finally:
            client.close()

    known_generation = [known]
    for _ in range(KILLS):
        stop = threading.Event()
        worker = threading.Thread(target=work, args=(stop,))
        worker.start()
        if rng.random() < 0.5:
            # beyond the second in which purges wait for an earlier owner
            generation = known_generation[0]
            owner.wait_for(lambda generation=generation: known_generation[0] > generation, "a purge")
        time.sleep(rng.random() * 0.3)
        owner.kill()
        began = time.monotonic()
        stop.set()
        worker.join(GUARD_SECONDS)
        owner.start()
        times.append(time.monotonic() - began)
        assert owner.generation >= known_generation[0]
        for n, generation in purged.items():
            answer = owner.get(n)
            if answer.status == 200:
                number, stored = answer.body.split()[:2]
                assert int(number) == n
                assert int(stored) >= generation, "a purged entry has come back"
        known_generation[0] = owner.generation
    assert purged
    milliseconds = sorted(round(seconds * 1000) for seconds in times)
    print(f"\nback after a kill: median {statistics.median(milliseconds)} ms, most {milliseconds[-1]} ms")
    assert "replaced the store" not in owner.log_text(), owner.log_text()


def test_damaged_store_is_set_aside(start_daemon):
    owner = start_daemon()
    owner.put(1, b"one")
    owner.stop()
    generation = owner.start().generation
    owner.stop()
    (owner.store / "db" / "CURRENT").unlink()
    owner.start()
    assert "replaced the store" in owner.log_text()
    assert owner.get(1).status == 404
    # entries that were fetched under the earlier store are older
    assert owner.generation > generation
    assert owner.put(1, generation=generation).status == 409
    assert owner.put(1).status == 201


def test_store_that_crashes_its_owners_is_set_aside(start_daemon):
    owner = start_daemon()
    owner.put(1, b"one")
    owner.get(1)
    owner.stop()
    (owner.store / "opening").write_text("x" * 5)
    owner.start()
    assert "by an empty one: the process ended several times while it opened the database" in owner.log_text()
    assert owner.get(1).status == 404
    owner.put(1, b"one")
    owner.stop()
    assert owner.start().get(1).body == b"one"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 40 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    ran = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", mounted], capture_output=True, check=False)
    if ran.returncode != 0:
        pytest.skip(f"no tmpfs here: {ran.stderr.decode()}")
    yield mounted
    subprocess.run(["umount", "-l", mounted], check=True)


def test_full_disk_is_reported_and_writes_resume_when_there_is_space(start_daemon, small_disk):
    owner = start_daemon(path=str(small_disk / "store"), max_size="32m", memory="100k", flush_interval="100ms")
    owner.put(1, b"before" * 100)
    owner.get(1)
    # without a buffer, which would be flushed once more at the end
    with open(small_disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 65_536)
    n, status = 2, 201
    end = time.monotonic() + GUARD_SECONDS
    while status == 201:
        # too long for memory: it must go to the disk
        status = owner.put(n, os.urandom(200_000)).status
        n += 1
        assert time.monotonic() < end
    assert status == 507
    while owner.purge(everything=True).status != 507:
        assert time.monotonic() < end
    # entries that fit into memory are accepted
    assert owner.put(1, b"small", **{"class": "tip"}).status == 201
    assert owner.get(1).body == b"small"
    assert owner.status()["store"]["off"]
    (small_disk / "filler").unlink()
    owner.wait_for(lambda: owner.put(n, os.urandom(200_000)).status == 201, "an entry to be stored")
    owner.wait_for(lambda: not owner.status()["store"]["off"], "writes to resume")
    for line in ("disk writes stopped", "disk writes resumed"):
        owner.wait_for(lambda line=line: line in owner.log_text(), line)
    assert owner.purge(everything=True).status == 200


def test_unusable_store_path_is_logged_once_and_retried(tmp_path, start_daemon):
    blocked = tmp_path / "owner"
    owner = Daemon(blocked)
    owner.store.write_text("a file, no folder")
    owner.spawn()
    owner.wait_for(lambda: "cannot open the store" in owner.log_text(), "the error to be logged")
    # retries have no other effect than a log line: a longer pause only allows more of them
    time.sleep(1.2)
    owner.store.unlink()
    owner.wait()
    assert owner.log_text().count("cannot open the store") == 1
    owner.stop()


def test_clock_of_the_tests_is_the_protocols_clock():
    # the tests use the clock of the protocol
    assert abs(monotonic() - time.monotonic() * 1000) < 1000

"""Purges: the entries that they remove, and their completion."""

import os
import signal
import subprocess
import time

import pytest

from daemon import NAMESPACE, key, monotonic
from harness.guards import GUARD_SECONDS

OTHER = "7b" * 16


def fill(owner):
    owner.put(1, method="eth_call", block=10)
    owner.put(2, method="eth_call", block=11)
    owner.put(3, method="eth_getLogs", block=12)
    owner.put(4, method="eth_call", block=10, namespace=OTHER)
    owner.put(5)


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ({"everything": True}, set()),
        ({"namespace": NAMESPACE}, {4}),
        ({"namespace": OTHER}, {1, 2, 3, 5}),
        ({"method": "eth_call"}, {3, 5}),
        ({"method": "eth_call", "namespace": NAMESPACE}, {3, 4, 5}),
        # entries without a block are purged, too
        ({"namespace": NAMESPACE, "blocks": [10, 11]}, {3, 4}),
        ({"namespace": NAMESPACE, "blocks": [12, 12]}, {1, 2, 4}),
        ({"namespace": OTHER, "blocks": [0, 2**64 - 1]}, {1, 2, 3, 5}),
        ({"key": key(5)}, {1, 2, 3, 4}),
    ],
    ids=str,
)
def test_purge_removes_the_entries_of_its_scope(owner, scope, left):
    fill(owner)
    before = owner.generation
    answer = owner.purge(**scope)
    assert answer.status == 200
    gone = 5 - len(left)
    entries = answer.json()["entries"]
    # entries of other tests are counted, too, if the purge removes everything
    assert entries >= gone if scope == {"everything": True} else entries == gone
    assert answer.json() == {"generation": before + 1, "entries": entries}
    assert {n for n in range(1, 6) if owner.get(n).status == 200} == left
    # a fill that was fetched before the purge is rejected, a later one is not
    for n in range(1, 6):
        gone = n not in left
        fields = {"method": "eth_getLogs" if n == 3 else None if n == 5 else "eth_call"}
        fields |= {"block": {1: 10, 2: 11, 3: 12, 4: 10}.get(n), "namespace": OTHER if n == 4 else NAMESPACE}
        assert owner.put(n, generation=before, **fields).status == (409 if gone else 201), n
        assert owner.put(n, generation=before + 1, **fields).status == 201


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "null",
        "[]",
        '{"everything":false}',
        '{"everything":true,"method":"x"}',
        '{"everything":true,"everything":true}',
        '{"namespace":"5A"}',
        '{"namespace":1}',
        '{"method":""}',
        '{"blocks":[1,2]}',
        f'{{"namespace":"{NAMESPACE}","blocks":[2,1]}}',
        f'{{"namespace":"{NAMESPACE}","blocks":[1]}}',
        f'{{"namespace":"{NAMESPACE}","blocks":[1,2,3]}}',
        f'{{"namespace":"{NAMESPACE}","blocks":[-1,2]}}',
        f'{{"namespace":"{NAMESPACE}","key":"{key(1)}"}}',
        '{"key":"1"}',
        '{"all":true}',
        '{"everything":true}x',
        "[" * 100_000,
    ],
    ids=lambda body: body[:40],
)
def test_invalid_purge_is_rejected(owner, body):
    before = owner.generation
    assert owner.request("POST", "/v1/purges", body).status in (400, 413)
    assert owner.generation == before


def test_purge_waits_for_acknowledgements_or_expired_send_leases(owner, listen):
    a, b = listen(owner, "a"), listen(owner, "b")
    purge = owner.begin_purge(key=key(9))
    _, data = a.next("purge")
    assert data == {"generation": owner.generation, "key": key(9)}
    last = b.until
    assert b.next("purge") == ("purge", data)
    # b acknowledges, or its send lease ends
    assert a.acknowledge(data["generation"]).status == 204
    last = max(last, b.until)
    assert purge.wait().json() == {"generation": data["generation"], "entries": 0}
    assert purge.at > last - 1_000
    # an acknowledgement of the last of several purges covers all
    purges = [owner.begin_purge(everything=True) for _ in range(3)]
    for _ in purges:
        _, first = a.next("purge")
        _, second = b.next("purge")
    assert first == second
    assert a.acknowledge(first["generation"]).status == 204
    assert b.acknowledge(first["generation"]).status == 204
    assert sorted(purge.wait().json()["generation"] for purge in purges)[-1] == first["generation"]


def test_purge_event_precedes_send_leases_of_its_generation(owner, listen):
    stream = listen(owner, "a")
    known = stream.generation
    purges = [owner.begin_purge(everything=True) for _ in range(5)]
    seen = 0
    while seen < 5:
        name, data = stream.next("purge", "lease")
        if name == "purge":
            seen += 1
            assert data["generation"] == known + 1
            known += 1
        else:
            assert data["generation"] == known
        stream.acknowledge(known)
    for purge in purges:
        assert purge.wait().status == 200


def test_invalid_acknowledgements_are_rejected(owner, listen):
    stream = listen(owner, "a")
    assert stream.acknowledge(owner.generation + 1).status == 409
    for body in ("", "x", "-1", "1 2", "99999999999999999999"):
        path = "/v1/acknowledgements?process=a"
        assert owner.request("POST", path, body).status == 400, body


def open_event_stream(owner, process):
    """Opens an event stream with curl, and returns its process."""
    ran = subprocess.Popen(
        ["curl", "-sN", "--unix-socket", owner.socket, f"http://o/v1/events?process={process}"],
        stdout=subprocess.PIPE,
    )
    assert b"hello" in ran.stdout.readline()
    return ran


def test_purge_waits_for_the_send_lease_of_a_stopped_process(owner):
    stopped = open_event_stream(owner, "stopped")
    hello = int(stopped.stdout.readline().split(b'"until":')[1].rstrip(b"}\n"))
    stopped.send_signal(signal.SIGSTOP)
    # it has stopped only after it was scheduled
    os.waitpid(stopped.pid, os.WUNTRACED)
    try:
        purge = owner.begin_purge(everything=True)
        assert purge.wait().status == 200
        assert purge.at > hello
        # the process is still connected, and the next purge waits again
        assert "stopped" in owner.status()["processes"]
        assert owner.purge(everything=True).status == 200
    finally:
        stopped.kill()
        stopped.wait(GUARD_SECONDS)
        stopped.stdout.close()


def test_purge_waits_for_the_send_lease_of_a_killed_process(owner):
    killed = open_event_stream(owner, "killed")
    until = int(killed.stdout.readline().split(b'"until":')[1].rstrip(b"}\n"))
    killed.kill()
    killed.wait(GUARD_SECONDS)
    killed.stdout.close()
    end = time.monotonic() + GUARD_SECONDS
    while "killed" in owner.status()["processes"]:
        assert time.monotonic() < end
    purge = owner.begin_purge(everything=True)
    assert purge.wait().status == 200
    assert purge.at > until


def test_purge_after_the_start_waits_for_send_leases_of_an_earlier_owner(start_daemon):
    before = monotonic()
    owner = start_daemon()
    purge = owner.begin_purge(everything=True)
    assert purge.wait().status == 200
    assert purge.at > before + 1_000


def test_purge_continues_when_its_client_has_gone(owner, listen):
    owner.put(77)
    stream = listen(owner, "a")
    before = owner.generation
    gone = subprocess.Popen(
        ["curl", "-s", "--unix-socket", owner.socket, "-d", '{"everything":true}', "http://o/v1/purges"],
        stdout=subprocess.DEVNULL,
    )
    stream.next("purge")
    gone.kill()
    gone.wait(GUARD_SECONDS)
    assert owner.generation == before + 1
    assert owner.get(77).status == 404

"""Purges: the entries that they remove, and their completion."""

import subprocess

import pytest

from daemon import NAMESPACE, key, monotonic
from frames import applied
from harness.guards import GUARD_SECONDS

OTHER = "7b" * 16


ENTRIES = {
    1: {"method": "eth_call", "block": 10},
    2: {"method": "eth_call", "block": 11},
    3: {"method": "eth_getLogs", "block": 12},
    4: {"method": "eth_call", "block": 10, "namespace": OTHER},
    5: {},
}


def fill(session, body, generation):
    for n, about in ENTRIES.items():
        session.store(n, body, generation=generation, **about)


def found(session):
    """The bodies of the entries that are present, by number."""
    replies = {n: session.lookup(n, lease=None) for n in ENTRIES}
    return {n: reply.body for n, reply in replies.items() if reply.name == "found"}


def event_scope(scope):
    """The scope of the event of a purge: processes distinguish keys, whole namespaces and everything."""
    (name, value), *more = scope.items()
    if more or name == "method":
        return "method or blocks", ""
    return name, "" if value is True else value


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
def test_purge_removes_the_entries_of_its_scope(owner, join, scope, left):
    a = join(owner, "a")
    before = owner.generation
    fill(a, b"old", before)
    assert found(a).keys() == ENTRIES.keys()
    later = owner.begin_purge(**scope)
    event = a.next("purge")
    assert event.scope == event_scope(scope)
    a.send(applied(event.number, event.generation))
    answer = later.wait()
    assert answer.status == 200
    gone = 5 - len(left)
    entries = answer.json()["entries"]
    # entries of other tests are counted, too, if the purge removes everything
    assert entries >= gone if scope == {"everything": True} else entries == gone
    assert answer.json() == {"generation": before + 1, "entries": entries}
    assert {n for n in ENTRIES if owner.get(n).status == 200} == found(a).keys() == left
    # a fill that was fetched before the purge is rejected, a later one is not
    fill(a, b"late", before)
    assert found(a) == dict.fromkeys(left, b"late")
    fill(a, b"new", before + 1)
    assert found(a) == dict.fromkeys(ENTRIES, b"new")
    # as by HTTP
    assert owner.put(5, generation=before).status == (201 if 5 in left else 409)


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


def test_purge_after_the_start_waits_for_send_leases_of_an_earlier_owner(start_daemon):
    before = monotonic()
    owner = start_daemon()
    purge = owner.begin_purge(everything=True)
    assert purge.wait().status == 200
    assert purge.at > before + 1_000


def test_purge_continues_when_its_client_has_gone(owner, join):
    owner.put(77)
    a = join(owner, "a")
    before = owner.generation
    gone = subprocess.Popen(
        ["curl", "-s", "--unix-socket", owner.socket, "-d", '{"everything":true}', "http://o/v1/purges"],
        stdout=subprocess.DEVNULL,
    )
    a.next("purge")
    gone.kill()
    gone.wait(GUARD_SECONDS)
    assert owner.generation == before + 1
    assert owner.get(77).status == 404

"""Sessions: processes that send frames on a connection."""

import json
import os
import pathlib

import pytest

from daemon import NAMESPACE, key, monotonic
from frames import (
    NEWER,
    OLDER,
    PATH,
    PREFACE,
    REASONS,
    VERSION,
    Connection,
    applied,
    frame,
    goodbye,
    hello,
    lookup,
    message,
    purge,
    release,
    status,
    store,
)

OTHER = "7b" * 16
SETTINGS = {"memory": "64m"}


def wait_for_processes(owner, condition):
    owner.wait_for(lambda: condition(owner.status()["processes"]), "processes")


def test_stored_entry_is_found_by_frames_and_http(owner, join):
    before = monotonic()
    a = join(owner, "a")
    assert a.welcome.generation == a.lease.generation == owner.generation
    assert before + 1_000 <= a.lease.until <= monotonic() + 1_000
    assert a.request_lease(1, lease=None) == "none"
    a.store(1, b"one", age=5_000, method="eth_call", block=7)
    reply = a.lookup(1)
    assert (reply.name, reply.body, reply.generation) == ("found", b"one", owner.generation)
    assert 3_599_000 < reply.fresh <= 3_600_000 and 5_000 <= reply.age < 60_000
    answer = owner.get(1)
    assert (answer.status, answer.body) == (200, b"one")
    owner.put(2, b"two")
    assert a.lookup(2).body == b"two"
    # an entry without bytes, and one whose method is purged
    a.store(3, b"")
    assert a.lookup(3).body == b""
    assert owner.status()["processes"] == ["a"]


def test_first_process_that_misses_leads_and_the_others_are_notified(owner, join):
    a, b, c = join(owner, "a"), join(owner, "b"), join(owner, "c")
    assert a.request_lease(10) == "granted"
    assert b.request_lease(10) == "pending"
    assert b.request_lease(10) == "pending"
    assert a.request_lease(10) == "granted"
    assert a.request_lease(10, lease=None) == "none"
    a.store(10, b"ten")
    assert b.next("filled", "given_up").name == "filled"
    assert b.lookup(10).body == b"ten"
    # the holder releases: the next process leads
    assert a.request_lease(11) == "granted"
    assert b.request_lease(11) == "pending"
    assert c.request_lease(11) == "pending"
    b.send(release(11))
    assert b.request_lease(11) == "pending"
    a.send(release(11))
    for waiter, event in ((b, 2), (c, 1)):
        event_ = waiter.next("filled", "given_up")
        assert (event_.name, event_.number, event_.key) == ("given_up", event, key(11))
    assert c.request_lease(11) == "granted"


def test_entry_that_another_process_stores_ends_the_lease(owner, join):
    a, b, c = join(owner, "a"), join(owner, "b"), join(owner, "c")
    assert a.request_lease(20) == "granted"
    assert b.request_lease(20) == "pending"
    c.store(20, generation=owner.generation)
    assert (event := b.next("filled", "given_up")).name == "filled" and event.key == key(20)
    # by HTTP, without a lease
    assert b.request_lease(21) == "granted"
    assert a.request_lease(21) == "pending"
    assert owner.put(21).status == 201
    assert (event := a.next("filled", "given_up")).name == "filled" and event.key == key(21)


def test_waiters_are_notified_of_each_stored_key(owner, join):
    leader, waiters = join(owner, "leader"), [join(owner, f"w{n}") for n in range(20)]
    keys = range(900, 920)
    for n in keys:
        assert leader.request_lease(n) == "granted"
        for waiter in waiters:
            assert waiter.request_lease(n) == "pending"
    for n in keys:
        leader.store(n, generation=owner.generation)
    for waiter in waiters:
        events = [waiter.next("filled", "given_up") for _ in keys]
        assert [(one.name, one.number, one.key) for one in events] == [
            ("filled", number, key(n)) for number, n in enumerate(keys, 1)
        ]


def test_lease_expires_after_its_duration(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    assert a.request_lease(30, lease=50) == "granted"
    if b.request_lease(30) == "pending":
        assert b.next("filled", "given_up").name == "given_up"
        assert b.request_lease(30) == "granted"


def test_rejected_entry_ends_its_lease(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    before = owner.generation
    later = owner.begin_purge(everything=True)
    for session in (a, b):
        event = session.next("purge")
        session.send(applied(event.number, event.generation))
    assert later.wait().status == 200
    for n, fields in ((40, {"generation": before}), (41, {"body": b"x" * (65 << 20)})):
        assert a.request_lease(n) == "granted"
        assert b.request_lease(n) == "pending"
        a.store(n, **{"generation": before + 1} | fields)
        event = b.next("filled", "given_up")
        assert (event.name, event.key) == ("given_up", key(n))
        assert a.request_lease(n, lease=None) == "none"


def test_lookups_of_one_frame_are_answered(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    b.store(50, b"fifty")
    assert b.lookup(50).body == b"fifty"
    a.send(*(lookup(n, n) for n in range(50, 150)), release(50), *(release(n) for n in range(51, 150)))
    assert a.reply(50).body == b"fifty"
    for n in range(51, 150):
        assert a.reply(n).lease == 1
    assert b.request_lease(149) == "granted"
    b.send(release(149))


def test_batch_lookup_finds_the_present_entries(owner, join):
    a = join(owner, "a")
    for n in range(200, 210):
        a.store(n, b"%d" % n)
    a.store(210, b"x" * 700_000)
    found, end = a.lookup_batch(range(195, 220))
    assert found == {key(n): b"%d" % n for n in range(200, 210)} | {key(210): b"x" * 700_000}
    assert end.generation == owner.generation
    assert a.lookup_batch([1_000_001])[0] == {}
    # no lease was requested
    assert a.request_lease(211) == "granted"
    a.send(release(211))


def test_shareable_lookups_are_answered_by_an_owner_without_a_fleet(owner, join):
    a = join(owner, "a")
    a.store(220, b"stored")
    assert a.lookup(220, fleet_wait=60_000).body == b"stored"
    assert a.lookup(221, lease=None, fleet_wait=60_000).name == "missing"
    found, _ = a.lookup_batch([220, 221, 222], fleet_wait=60_000, shareable=2, call_kind=7, lease_wait=60_000)
    assert found == {key(220): b"stored"}


def test_long_entries_are_sent_in_parts(owner, join):
    a = join(owner, "a")
    for n, length in ((300, 256 << 10), (301, (256 << 10) + 1), (302, 1_000_000), (303, 4 << 20)):
        body = os.urandom(length)
        a.store(n, body)
        assert a.lookup(n).body == body
        assert owner.get(n).body == body
    # a short reply does not wait for the parts of a long one
    a.store(304, b"short")
    a.send(lookup(1_001, 303), lookup(1_002, 304))
    names = []
    while "chunk" not in names:
        frame_ = a.receive_frame()
        a.received += frame_
        names += [(one.name if one.id != 1_002 else "short") for one in frame_]
    assert "short" in names[: names.index("chunk")]
    assert a.reply(1_001).body == body
    # nor does a lookup that is sent while the parts of two long ones are
    a.send(lookup(1_003, 303), lookup(1_004, 303))
    first = a.next("found", id=1_003)
    a.send(lookup(1_005, 304))
    a.next("found", id=1_005)
    chunks = [one.id for one in a.received if one.name == "chunk"]
    assert chunks.count(1_004) < 12
    a.received.append(first)
    assert a.reply(1_003).body == a.reply(1_004).body == body
    # parts of two entries may alternate
    first, second = (store(n, bytes([n % 256]) * 600_000, owner.generation, n) for n in (305, 306))
    a.send(first[0], second[0], second[1], first[1], first[2], second[2])
    for n in (305, 306):
        assert a.lookup(n).body == bytes([n % 256]) * 600_000


def test_entry_that_memory_has_no_room_for_is_stored_on_the_disk(start_daemon, join):
    owner = start_daemon(memory="1m", max_size="1g")
    a, b = join(owner, "a"), join(owner, "b")
    body = os.urandom(3 << 20)
    assert a.request_lease(1) == "granted"
    assert b.request_lease(1) == "pending"
    a.store(1, body)
    assert b.next("filled", "given_up").name == "filled"
    assert b.lookup(1).body == body
    found, _ = b.lookup_batch([1, 2])
    assert found == {key(1): body}
    assert owner.status()["lookups"]["store"] == 2


def test_incomplete_entry_is_not_stored_and_its_lease_ends(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    assert a.request_lease(310) == "granted"
    assert b.request_lease(310) == "pending"
    a.send(store(310, b"x" * 600_000, owner.generation, 1)[0])
    # four more bodies: the first is dropped
    for n in range(311, 315):
        a.send(store(n, b"x" * 600_000, owner.generation, n)[0])
    event = b.next("filled", "given_up")
    assert (event.name, event.key) == ("given_up", key(310))
    # the chunks of the dropped one have no effect
    a.send(*store(310, b"x" * 600_000, owner.generation, 1)[1:])
    assert b.request_lease(310) == "granted"


def test_purge_waits_for_acknowledgements(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    a.store(400, method="eth_call")
    assert a.lookup(400).name == "found"
    later = owner.begin_purge(method="eth_call")
    events = [session.next("purge") for session in (a, b)]
    generation = owner.generation
    for event in events:
        assert (event.number, event.generation, event.scope) == (1, generation, ("method or blocks", ""))
    for session in (a, b):
        session.send(applied(1, generation))
    assert later.wait().json()["generation"] == generation
    assert owner.get(400).status == 404
    assert a.lookup(400).generation == generation
    # send leases after the event name it
    leases = [session.next("send_lease") for session in (a, b)]
    while any(lease.generation != generation for lease in leases):
        leases = [session.next("send_lease") for session in (a, b)]
    assert all(lease.after == 1 for lease in leases)


def test_acknowledgement_of_the_last_of_several_purges_covers_all(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    known = owner.generation
    purges = [owner.begin_purge(key=key(430)) for _ in range(5)]
    for session in (a, b):
        while not any(one.name == "purge" and one.number == 5 for one in session.received):
            session.received += session.receive_frame()
        events = {one.number: one.generation for one in session.received if one.name == "purge"}
        assert events == {number: known + number for number in range(1, 6)}
        # a send lease names the last event before it, and no purge that is later
        for lease in [one for one in session.received if one.name == "send_lease"]:
            assert lease.generation == known + lease.after
    a.send(applied(5, known + 5))
    b.send(applied(0, known + 5))
    assert sorted(later.wait().json()["generation"] for later in purges)[-1] == known + 5


def test_process_that_does_not_acknowledge_delays_a_purge_until_its_send_lease_has_ended(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    later = owner.begin_purge(key=key(410))
    event = a.next("purge")
    assert event.scope == ("key", key(410))
    a.send(applied(event.number, event.generation))
    # the leases of b that were granted before the purge name no event
    b.next("purge")
    before = [one for one in b.received if one.name == "send_lease" and one.after == 0]
    until = max([b.lease.until, *(one.until for one in before)])
    assert later.wait().status == 200
    assert later.at > until
    # the process is still connected, and the next purge waits again
    later = owner.begin_purge(key=key(410))
    until = b.next("purge") and max(one.until for one in b.received if one.name == "send_lease" and one.after == 1)
    assert later.wait().status == 200
    assert later.at > until
    assert "b" in owner.status()["processes"]


def test_purge_waits_for_the_send_lease_of_a_process_that_has_gone(owner, join):
    a = join(owner, "a")
    a.close()
    wait_for_processes(owner, lambda names: "a" not in names)
    later = owner.begin_purge(everything=True)
    assert later.wait().status == 200
    assert later.at > a.lease.until


def test_purge_by_frames_is_acknowledged_by_its_own_process(owner, join):
    a = join(owner, "a")
    a.store(420, namespace=OTHER)
    assert a.lookup(420).name == "found"
    a.send(purge(7, json.dumps({"namespace": OTHER}).encode()))
    event = a.next("purge")
    a.send(applied(event.number, event.generation))
    reply = a.reply(7)
    assert reply.status == 200
    assert json.loads(reply.body) == {"generation": event.generation, "entries": 1}
    for scope, expected in ((b"{}", 400), (b"", 400), (b" " * 100_000, 413)):
        a.send(purge(8, scope))
        reply = a.reply(8)
        assert reply.status == expected and json.loads(reply.body)["status"] == expected


def test_status_by_frames_is_the_status_by_http(owner, join):
    a = join(owner, "a")
    a.send(status(9))
    reply = a.reply(9)
    assert reply.status == 200
    received = json.loads(reply.body)
    assert received.keys() == owner.status().keys() and received["processes"] == ["a"]


def test_goodbye_ends_the_session_and_its_leases(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    assert a.request_lease(500) == "granted"
    assert b.request_lease(500) == "pending"
    a.send(goodbye())
    assert a.ended()
    assert b.next("filled", "given_up").name == "given_up"
    assert owner.status()["processes"] == ["b"]


def test_closed_connection_ends_the_session_and_its_leases(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    for n in range(510, 520):
        assert a.request_lease(n) == "granted"
        assert b.request_lease(n) == "pending"
    # a grant that a has not read is released, too
    a.send(lookup(1, 520))
    owner.wait_for(lambda: owner.status()["leases"] >= 11, "the lease to be granted")
    a.close()
    assert {b.next("given_up").key for _ in range(10)} == {key(n) for n in range(510, 520)}
    assert b.request_lease(520) == "granted"


def test_newer_session_replaces_the_present_one_and_ends_its_leases(owner, join):
    a, b = join(owner, "a"), join(owner, "b")
    assert a.request_lease(530) == "granted"
    assert b.request_lease(530) == "pending"
    newer = join(owner, "a")
    assert a.ended()
    assert newer.welcome.session > a.welcome.session
    assert b.next("filled", "given_up").name == "given_up"
    assert newer.request_lease(530) == "granted"
    # a request that was delayed
    late = Connection(owner, PREFACE + frame(hello("a", 1)))
    assert REASONS[late.next("refused").reason] == "unknown session"
    assert late.ended()
    assert newer.request_lease(530) == "granted"


def test_process_with_another_clock_is_refused(owner):
    late = Connection(owner, PREFACE + frame(hello("another-clock", clock=monotonic() + 3_600_000)))
    assert REASONS[late.next("refused").reason] == "clock differs"
    assert late.ended()


def test_page_of_the_protocol_names_this_version():
    page = pathlib.Path(__file__).parents[2].joinpath("docs/owner-protocol.md").read_text()
    for text in (f"`{PREFACE.hex(' ')}`", f"version {VERSION} of the protocol", f"`POST {PATH}`"):
        assert text in page


def test_connection_of_another_version_is_answered_with_the_preface(owner):
    for first in (OLDER, NEWER + frame(hello("a"))):
        other = Connection(owner, first)
        assert other.read(4) == PREFACE
        assert other.ended()


def test_preface_is_answered_at_once(owner):
    slow = Connection(owner, PREFACE[:1])
    slow.socket.sendall(PREFACE[1:])
    assert slow.read(4) == PREFACE
    slow.preface = PREFACE
    slow.send(hello("slow"))
    assert slow.next("welcome", "refused")
    slow.close()


# frames that a connection sends instead of a session request
NO_SESSION = {
    "no session": frame(lookup(1, 1)),
    "no messages": frame(),
    "too many messages": frame(*[goodbye()] * 513),
    "flags": frame(hello("x"), flags=1),
    "too long": (400 << 10).to_bytes(4, "little") + b"x" * 1_000,
    "longest": b"\xff" * 8,
    "garbage": os.urandom(7) + b"\xff" + b"garbage" * 100,
    "frame that continues": frame(hello("x") + b"x"),
    "process without a name": frame(hello("")),
}

# messages that a session sends
INVALID = {
    "second hello": [hello("x", 2**31)],
    "unknown kind": [message(0x20)],
    "head with bytes left": [message(0x0B, b"\0")],
    "short head": [message(0x02, b"\0" * 16, 1)],
    "long head": [message(0x02, b"\0" * 5_000, 1)],
    "long body": [message(0x08, b"", 1, b"x" * ((256 << 10) + 1))],
    "unknown event": [applied(100, 0)],
    "unknown purge": [applied(0, 2**60)],
    "longer than declared": [store(1, b"x" * 300_000, 0, 1)[0], message(0x0A, b"", 1, b"x" * 40_000)],
    "lookup of version 2": [message(0x02, bytes(33), 1)],
    "no keys": [message(0x03, b"\0\0\0", 1)],
    "too many keys": [message(0x03, b"\0\0\0", 1, bytes(32 * 1_001))],
    "part of a key": [message(0x03, b"\0\0\0", 1, bytes(33))],
    "more shareable keys than keys": [message(0x03, b"\1\2\0", 1, bytes(40))],
}


@pytest.mark.parametrize("bytes_", NO_SESSION.values(), ids=NO_SESSION.keys())
def test_connection_that_begins_with_invalid_frames_is_closed(owner, bytes_):
    invalid = Connection(owner, PREFACE + bytes_)
    assert invalid.ended()
    assert not [one for one in invalid.received if one.name == "welcome"]


@pytest.mark.parametrize("messages", INVALID.values(), ids=INVALID.keys())
def test_invalid_messages_end_the_session_and_affect_no_other(owner, join, messages):
    a, b = join(owner, "a"), join(owner, "b")
    assert b.request_lease(600) == "granted"
    assert a.request_lease(600) == "pending"
    b.socket.sendall(frame(*messages))
    assert b.ended()
    assert a.next("filled", "given_up").name == "given_up"
    assert a.request_lease(600) == "granted"
    a.send(release(600))


def test_unknown_optional_kind_is_skipped(owner, join):
    a = join(owner, "a")
    a.send(message(0x80, b"anything", 5, b"and more"), lookup(1, 610, None))
    assert a.reply(1).name == "missing"


def test_messages_before_an_invalid_one_take_effect(owner, join):
    a = join(owner, "a")
    a.send(*store(620, b"valid", owner.generation), message(0x20))
    assert a.ended()
    assert owner.get(620).body == b"valid"


def test_incomplete_frames_and_clients_that_do_not_read_end_after_the_idle_timeout(start_daemon, join):
    owner = start_daemon(idle_timeout="300ms")
    whole = PREFACE + frame(hello("half"))
    for half in (b"SZ", PREFACE, whole[:-1]):
        connection = Connection(owner, half)
        assert connection.ended()
    half = join(owner, "half")
    half.socket.sendall(frame(lookup(1, 1))[:-1])
    assert half.ended()
    # a client that does not read its replies
    deaf = join(owner, "deaf")
    deaf.store(1, os.urandom(1 << 20))
    deaf.socket.sendall(frame(lookup(1, 1)) * 100)
    # a complete session stays, however long it sends nothing
    silent = join(owner, "silent")
    wait_for_processes(owner, lambda names: names == ["silent"])
    for _ in range(3):
        silent.next("send_lease")
    assert silent.request_lease(2) == "granted"


def test_client_that_does_not_read_does_not_delay_others(start_daemon, join):
    owner = start_daemon(memory="64m")
    a = join(owner, "a")
    a.store(9, os.urandom(1 << 20))
    assert a.lookup(9).name == "found"
    deaf = [join(owner, f"deaf{n}") for n in range(20)]
    for session in deaf:
        session.send(lookup(1, 100 + deaf.index(session)))
        assert session.reply(1).lease == 1
        session.socket.sendall(frame(lookup(1, 9)) * 100)
    for _ in range(20):
        assert len(a.lookup(9).body) == 1 << 20
    # few of the replies are buffered
    memory = int(owner_memory(owner))
    assert memory < 500 << 20, memory


def owner_memory(owner):
    """Resident bytes of the owner."""
    with open(f"/proc/{owner.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_300_sessions_are_served(owner, join):
    sessions = [join(owner, f"s{n}") for n in range(300)]
    assert sessions[0].request_lease(700) == "granted"
    for session in sessions[1:]:
        assert session.request_lease(700) == "pending"
    later = owner.begin_purge(key=key(701))
    for session in sessions:
        event = session.next("purge")
        session.send(applied(event.number, event.generation))
    assert later.wait().status == 200
    sessions[0].store(700, b"for all", generation=owner.generation)
    for session in sessions[1:]:
        assert session.next("filled").key == key(700)
        assert session.lookup(700).body == b"for all"


def test_stop_ends_sessions_and_the_next_owner_accepts_new_ones(start_daemon, join):
    owner = start_daemon()
    a = join(owner, "a")
    a.store(1, b"kept")
    assert a.lookup(1).body == b"kept"
    purged = owner.begin_purge(key=key(2))
    event = a.next("purge")
    a.send(applied(event.number, event.generation))
    assert purged.wait().status == 200
    owner.stop()
    assert a.ended()
    owner.start()
    again = join(owner, "a")
    assert again.welcome.session != a.welcome.session
    assert again.welcome.generation == event.generation
    assert again.lookup(1).body == b"kept"


def test_namespace_of_an_entry_is_purged(owner, join):
    a = join(owner, "a")
    for n, namespace in ((800, NAMESPACE), (801, OTHER)):
        a.store(n, generation=owner.generation, namespace=namespace)
    later = owner.begin_purge(namespace=OTHER)
    event = a.next("purge")
    a.send(applied(event.number, event.generation))
    assert later.wait().status == 200
    assert (a.lookup(800).name, a.lookup(801).name) == ("found", "missing")
    a.send(release(801))

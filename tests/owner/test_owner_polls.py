"""Sessions of processes that poll: their frames are bodies of callouts."""

import json
import os
import socket

import pytest

from daemon import NAMESPACE, Later, key, monotonic
from frames import (
    OLDER,
    PATH,
    PREFACE,
    REASONS,
    VERSION,
    PolledSession,
    Session,
    applied,
    batch_lookup,
    envelope,
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

SETTINGS = {"memory": "64m"}


def names(messages):
    return [one.name for one in messages]


def is_refused(messages, reason="unknown session"):
    return names(messages) == ["refused"] and REASONS[messages[0].reason] == reason


def poll_later(owner, session, **fields):
    """Starts a poll, and waits until the owner has it."""
    before = owner.status()["waits"]
    later = Later(lambda: session.poll(**fields))
    owner.wait_for(lambda: owner.status()["waits"] > before, "the poll")
    return later


def test_first_answer_has_a_send_lease_before_the_replies(owner):
    assert owner.put(1, b"one").status == 201
    a = PolledSession(owner, "a", lookup(1, 1), lookup(2, 2))
    assert names(a.first) == ["welcome", "send_lease", "found", "missing"]
    welcome, lease, found, missing = a.first
    assert welcome.generation == lease.generation == owner.generation
    assert lease.after == 0 and lease.until <= monotonic() + 1_000
    assert (found.body, missing.lease) == (b"one", 1)
    assert "a" in owner.status()["processes"]


def test_stored_entries_are_found(owner):
    a = PolledSession(owner, "a")
    answer = a.data(*store(10, b"ten", a.generation))
    assert names(answer) == ["send_lease"]
    answer = a.data(lookup(1, 10), batch_lookup(2, [10, 11]), lookup(3, 11))
    assert names(answer) == ["send_lease", "found", "batch_found", "batch_end", "missing"]
    assert answer[1].body == answer[2].body == b"ten"
    # long ones are complete in one answer, and may be stored in parts
    body = os.urandom(3 << 20)
    for part in store(12, body, a.generation, 1):
        assert names(a.data(part)) == ["send_lease"]
    answer = a.data(lookup(1, 12))
    assert names(answer) == ["send_lease", "found"] + ["chunk"] * 11
    assert b"".join(one.body for one in answer) == body
    assert names(a.data(release(11))) == ["send_lease"]


def test_events_are_repeated_until_they_are_acknowledged(owner):
    a, b = PolledSession(owner, "a"), Session(owner, "b")
    for n in (20, 21):
        assert b.request_lease(n) == "granted"
    answer = a.data(lookup(1, 20), lookup(2, 21))
    assert [one.lease for one in answer[1:]] == [2, 2]
    poll = poll_later(owner, a)
    b.store(20, b"twenty", generation=owner.generation)
    lease, event = poll.wait()
    assert (lease.name, event.name, event.number, event.key) == ("send_lease", "filled", 1, key(20))
    # the answer is lost
    _, again = a.poll()
    assert (again.name, again.number) == ("filled", 1)
    b.send(release(21))
    b.request_lease(22)
    _, *events = a.poll()
    assert [(one.name, one.number) for one in events] == [("filled", 1), ("given_up", 2)]
    # a data callout acknowledges, too, and names the last event in its send lease
    assert a.data(lookup(3, 23), applied=1)[0].after == 2
    _, event = a.poll(applied=1)
    assert event.number == 2
    # a poll that was delayed acknowledges less
    _, event = a.poll(applied=0)
    assert event.number == 2
    assert names(a.poll(applied=2, wait=1)) == ["send_lease"]
    b.close()


def test_poll_ends_after_its_time_or_when_another_comes(owner):
    a = PolledSession(owner, "a")
    assert names(a.poll(wait=0)) == ["send_lease"]
    assert names(a.poll(wait=50)) == ["send_lease"]
    first = poll_later(owner, a)
    second = Later(a.poll)
    assert names(first.wait()) == ["send_lease"]
    later = owner.begin_purge(key=key(30))
    _, event = second.wait()
    assert event.name == "purge"
    a.poll(applied=event.number, wait=0)
    assert later.wait().status == 200


def test_poll_whose_client_disconnects_keeps_no_session(owner):
    a, b = PolledSession(owner, "a", lookup(1, 35)), Session(owner, "b")
    assert b.request_lease(35) == "pending"
    body = PREFACE + envelope(1, "a", a.session, wait=60_000)
    before = owner.status()["waits"]
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(owner.socket))
    client.sendall(b"POST %b HTTP/1.1\r\nhost: o\r\ncontent-length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body)
    owner.wait_for(lambda: owner.status()["waits"] > before, "the poll")
    client.close()
    owner.wait_for(lambda: owner.status()["waits"] == before, "the end of the poll")
    assert b.next("given_up").key == key(35)
    assert is_refused(a.poll())
    b.close()


def test_polls_acknowledge_purges(owner):
    a, b = PolledSession(owner, "a"), PolledSession(owner, "b")
    for _ in range(3):
        later = owner.begin_purge(key=key(40))
        for session in (a, b):
            lease, event = session.poll()
            while event.generation != lease.generation:
                lease, event = session.poll()
            assert (event.name, event.scope) == ("purge", ("key", key(40)))
            session.applied = event.number
            # by a poll or by a data callout
            if session is a:
                session.poll(wait=0)
            else:
                session.data(lookup(1, 41, None))
        assert later.wait().json()["generation"] == event.generation


def test_purge_and_status_are_answered_by_a_poll(owner):
    a = PolledSession(owner, "a")
    assert names(a.data(status(1), message(0x07, b"\0\0"), lookup(2, 50, None))) == ["send_lease", "missing"]
    _, late, reply = a.poll()
    assert (late.name, late.number, late.messages) == ("late_reply", 1, 1)
    assert (reply.name, reply.id, reply.status) == ("admin_reply", 1, 200)
    assert "a" in json.loads(reply.body)["processes"]
    # the answer is lost
    _, late, again = a.poll()
    assert (late.number, again.body) == (1, reply.body)
    a.applied = 1
    a.data(purge(3, json.dumps({"key": key(51)}).encode()))
    _, event = a.poll()
    assert (event.name, event.number) == ("purge", 2)
    a.applied = 2
    _, late, reply = a.poll()
    assert (late.number, reply.id, reply.status) == (3, 3, 200)
    assert names(a.poll(applied=3, wait=0)) == ["send_lease"]


def test_data_callout_that_was_overtaken_has_no_effect(owner):
    a, b = PolledSession(owner, "a"), Session(owner, "b")
    assert names(a.data(lookup(1, 60), number=10)) == ["send_lease", "missing"]
    # the callout before it, and the same one again
    for number in (9, 10):
        assert a.data(lookup(2, 61), number=number) is None
    assert b.request_lease(61) == "granted"
    assert b.request_lease(60) == "pending"
    # the process releases what it may have been granted by a lost answer
    a.data(release(60), number=12)
    assert b.next("given_up").key == key(60)
    b.close()


def test_session_without_callouts_ends_after_the_time_of_a_send_lease(owner):
    a, b = PolledSession(owner, "a", lookup(1, 70)), Session(owner, "b")
    until = a.first[1].until
    assert b.request_lease(70) == "pending"
    # a poll that waits keeps it
    assert names(a.poll(wait=1_500)) == ["send_lease"]
    assert b.request_lease(70) == "pending"
    assert b.next("given_up").key == key(70)
    assert monotonic() > until
    assert is_refused(a.data(lookup(2, 71)))
    assert is_refused(a.poll())
    b.close()


def test_unknown_sessions_are_refused(owner, start_daemon):
    a = PolledSession(owner, "a")
    other = PolledSession(owner, "b")
    other.session = a.session
    assert is_refused(other.data(lookup(1, 80)))
    a.session += 1_000
    assert is_refused(a.poll())
    assert is_refused(a.data(*store(80, b"x", a.generation)))
    # a session of an earlier owner
    stopped = start_daemon()
    a = PolledSession(stopped, "a")
    stopped.stop()
    stopped.start()
    assert is_refused(a.poll())


def test_newer_session_replaces_the_present_one(owner):
    a, b = PolledSession(owner, "a", lookup(1, 90)), Session(owner, "b")
    assert b.request_lease(90) == "pending"
    poll = poll_later(owner, a)
    newer = PolledSession(owner, "a")
    assert is_refused(poll.wait())
    assert b.next("given_up").key == key(90)
    assert is_refused(a.data(lookup(2, 91)))
    assert names(newer.data(lookup(1, 92))) == ["send_lease", "missing"]
    # a request for a session that was delayed
    newer.session = 0
    assert is_refused(newer.data(hello("a", 1, polls=True)))
    b.close()


def test_goodbye_ends_the_session(owner):
    a, b = PolledSession(owner, "a", lookup(1, 100)), Session(owner, "b")
    assert b.request_lease(100) == "pending"
    assert a.data(goodbye()) is None
    assert b.next("given_up").key == key(100)
    assert is_refused(a.poll())
    b.close()


def test_stop_answers_polls(start_daemon):
    owner = start_daemon()
    a = PolledSession(owner, "a")
    poll = poll_later(owner, a)
    owner.stop()
    assert is_refused(poll.wait(), "stopping")


@pytest.mark.parametrize(
    "messages",
    [[hello("a", 2**31)], [message(0x20)], [applied(9, 0)], [message(0x02, b"", 1)]],
    ids=["second hello", "unknown kind", "unknown event", "short head"],
)
def test_invalid_messages_end_the_session(owner, messages):
    a, b = PolledSession(owner, "a", lookup(1, 110)), Session(owner, "b")
    assert b.request_lease(110) == "pending"
    assert is_refused(a.data(*messages))
    assert b.next("given_up").key == key(110)
    b.close()


def test_acknowledgement_of_an_unknown_event_ends_the_session(owner):
    for call in (lambda a: a.poll(applied=1), lambda a: a.data(lookup(1, 120, None), applied=1)):
        a = PolledSession(owner, "a")
        assert is_refused(call(a))
        assert is_refused(a.poll())


def test_invalid_callouts_are_rejected(owner):
    whole = frame(hello("x", polls=True))
    for body, expected in [
        (b"", 400),
        (PREFACE, 400),
        (OLDER + envelope(0, "x", number=1) + whole, 404),
        (b"HTTP" + envelope(0, "x", number=1) + whole, 400),
        (PREFACE + envelope(2, "x") + whole, 400),
        (PREFACE + envelope(0, "x", number=1, wait=1) + whole, 400),
        (PREFACE + envelope(1, "x", session=1) + whole, 400),
        (PREFACE + envelope(0, "", number=1) + whole, 400),
        (PREFACE + envelope(0, "y", number=1) + whole, 400),
        (PREFACE + envelope(0, "x", number=1) + whole[:-1], 400),
        (PREFACE + envelope(0, "x", number=1) + whole + whole, 400),
        (PREFACE + envelope(0, "x", number=1), 400),
        (PREFACE + envelope(0, "x", number=1) + frame(lookup(1, 1)), 400),
    ]:
        answer = owner.request("POST", PATH, body)
        assert answer.status == expected, body
        assert answer.fields["content-type"] == "application/problem+json"
    assert owner.request("GET", PATH).status == 404
    # the path of the version before, which its processes use
    assert owner.request("POST", f"/v{VERSION - 1}/frames", OLDER + envelope(0, "x", number=1) + whole).status == 404
    assert owner.request("POST", f"{PATH}?x=1", PREFACE).status == 400
    assert "x" not in owner.status()["processes"]


def test_namespace_of_stored_entries_is_purged(owner):
    a = PolledSession(owner, "a")
    a.data(*store(130, b"x", owner.generation))
    later = owner.begin_purge(namespace=NAMESPACE)
    _, event = a.poll()
    assert names(a.data(lookup(1, 130, None), applied=event.number)) == ["send_lease", "missing"]
    assert later.wait().status == 200

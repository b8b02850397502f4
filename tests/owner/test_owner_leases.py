"""Leases: one process fetches, the others are notified."""

from daemon import key


def test_first_process_that_misses_leads_and_the_others_are_notified(owner, listen):
    a, b, c = listen(owner, "a"), listen(owner, "b"), listen(owner, "c")
    assert owner.lease(1, "a") == "granted"
    assert owner.lease(1, "b") == "pending"
    assert owner.lease(1, "b") == "pending"
    assert owner.lease(1, "a") == "granted"
    assert owner.get(1).fields.get("sszip-lease") is None
    assert owner.put(1, process="a").status == 201
    assert b.next("filled", "given-up") == ("filled", key(1))
    assert owner.get(1, "?lease=b").status == 200
    # c did not request it, a put it, b is notified once
    assert owner.lease(2, "c") == "granted"
    for waiter in ("a", "b"):
        assert owner.lease(2, waiter) == "pending"
    assert owner.put(2, process="c").status == 201
    assert a.next("filled", "given-up") == ("filled", key(2))
    assert b.next("filled", "given-up") == ("filled", key(2))
    assert owner.lease(3, "a") == "granted"
    assert owner.lease(3, "c") == "pending"
    assert owner.put(3, process="a").status == 201
    assert c.next("filled", "given-up") == ("filled", key(3))


def test_released_lease_is_granted_to_the_next_process(owner, listen):
    listen(owner, "a")
    b = listen(owner, "b")
    assert owner.lease(10, "a") == "granted"
    assert owner.lease(10, "b") == "pending"
    assert owner.release(10, "b").status == 204
    assert owner.lease(10, "b") == "pending"
    assert owner.release(10, "a").status == 204
    assert b.next("filled", "given-up") == ("given-up", key(10))
    assert owner.lease(10, "b") == "granted"
    assert owner.lease(10, "a") == "pending"
    assert owner.release(10, "a").status == 204
    assert owner.release(11, "a").status == 204


def test_lease_expires_after_its_duration(owner, listen):
    listen(owner, "a")
    b = listen(owner, "b")
    assert owner.lease(20, "a", "&for=50") == "granted"
    answer = owner.lease(20, "b")
    if answer == "pending":
        assert b.next("filled", "given-up") == ("given-up", key(20))
        assert owner.lease(20, "b") == "granted"
    else:
        assert answer == "granted"


def test_lease_ends_with_the_event_stream_of_its_holder(owner, listen):
    a, b = listen(owner, "a"), listen(owner, "b")
    assert owner.lease(30, "a", "&for=60000") == "granted"
    assert owner.lease(30, "b") == "pending"
    a.close()
    assert b.next("filled", "given-up") == ("given-up", key(30))
    assert owner.lease(30, "b") == "granted"


def test_new_stream_of_the_holder_ends_its_lease(owner, listen):
    a, b = listen(owner, "a"), listen(owner, "b")
    assert owner.lease(40, "a", "&for=60000") == "granted"
    assert owner.lease(40, "b") == "pending"
    listen(owner, "a")
    assert a.ended()
    assert b.next("filled", "given-up") == ("given-up", key(40))


def test_rejected_put_ends_the_lease(owner, listen):
    listen(owner, "a")
    b = listen(owner, "b")
    before = owner.generation
    purge = owner.begin_purge(everything=True)
    b.next("purge")
    for n, fields in ((50, {"generation": before}), (51, {"body": b"x" * (65 << 20)})):
        assert owner.lease(n, "a", "&for=60000") == "granted"
        assert owner.lease(n, "b") == "pending"
        assert owner.put(n, process="a", **fields).status in (409, 413)
        assert b.next("filled", "given-up") == ("given-up", key(n))
    assert purge.wait().status == 200


def test_put_of_another_process_notifies_the_waiters(owner, listen):
    listen(owner, "a")
    b = listen(owner, "b")
    assert owner.lease(60, "a", "&for=60000") == "granted"
    assert owner.lease(60, "b") == "pending"
    assert owner.put(60).status == 201
    assert b.next("filled", "given-up") == ("filled", key(60))


def test_waiters_are_notified_of_each_filled_key(owner, listen):
    listen(owner, "leader")
    waiters = [listen(owner, f"w{n}") for n in range(20)]
    keys = range(100, 120)
    for n in keys:
        assert owner.lease(n, "leader") == "granted"
        for waiter in waiters:
            assert owner.lease(n, waiter.process) == "pending"
    for n in keys:
        assert owner.put(n, process="leader").status == 201
    for waiter in waiters:
        assert [waiter.next("filled", "given-up") for _ in keys] == [("filled", key(n)) for n in keys]

"""Processes without an event stream: their lookups wait for a response, which reports what
event streams would."""

import json
import socket
import subprocess
import time

import pytest

from daemon import NAMESPACE, Later, key
from harness.guards import GUARD_SECONDS

WAIT = "&for=60000&wait=20000"


def begin(owner, n, process, query=WAIT):
    """Starts a lookup that waits."""
    before = owner.status()["waits"]
    later = Later(lambda: owner.get(n, f"?lease={process}{query}"))
    wait_for_waits(owner, lambda waits: waits > before)
    return later


def wait_for_waits(owner, condition):
    owner.wait_for(lambda: condition(owner.status()["waits"]), "lookups to wait")


def send_lookup(owner, n, process, query=WAIT):
    """Sends a lookup whose response is not read yet."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(GUARD_SECONDS)
    client.connect(str(owner.socket))
    client.sendall(f"GET /v1/entries/{key(n)}?lease={process}{query} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    return client


def test_waiting_lookups_receive_the_entry_when_it_is_put(owner):
    assert owner.lease(1, "a") == "granted"
    waiting = [begin(owner, 1, process) for process in "bcd"]
    assert owner.put(1, b"one", process="a").status == 201
    for later in waiting:
        answer = later.wait()
        assert (answer.status, answer.body) == (200, b"one")
        assert answer.fields["sszip-generation"] == str(owner.generation)
    assert owner.status()["waits"] == 0


def test_released_lease_is_granted_to_one_waiter_and_the_others_return(owner):
    assert owner.lease(2, "a") == "granted"
    waiting = [begin(owner, 2, process) for process in "bcd"]
    assert owner.release(2, "a").status == 204
    received = sorted(later.wait().fields["sszip-lease"] for later in waiting)
    assert received == ["granted", "pending", "pending"]


def test_lease_of_a_process_without_a_stream_expires(owner):
    assert owner.lease(3, "a", "&for=100") == "granted"
    assert owner.lease(3, "b", WAIT) == "granted"


def test_wait_ends_after_its_duration_with_pending(owner):
    assert owner.lease(4, "a", "&for=60000") == "granted"
    since = time.monotonic()
    assert owner.lease(4, "b", "&wait=150") == "pending"
    assert time.monotonic() - since >= 0.15
    assert owner.lease(4, "b", "&wait=0") == "pending"
    # the holder of a lease need not wait for it
    assert owner.lease(4, "a", WAIT) == "granted"


def test_event_stream_and_wait_are_notified_of_the_same_fill(owner, listen):
    stream = listen(owner, "s")
    assert owner.lease(5, "a") == "granted"
    assert owner.lease(5, "s") == "pending"
    later = begin(owner, 5, "b")
    assert owner.put(5, process="a").status == 201
    assert stream.next("filled", "given-up") == ("filled", key(5))
    assert later.wait().status == 200


def test_wait_ends_when_its_client_disconnects(owner):
    assert owner.lease(6, "a") == "granted"
    client = send_lookup(owner, 6, "b")
    wait_for_waits(owner, lambda waits: waits == 1)
    client.close()
    wait_for_waits(owner, lambda waits: waits == 0)
    # and its process is granted nothing
    assert owner.release(6, "a").status == 204
    assert owner.lease(6, "c") == "granted"


def test_lease_ends_when_its_holder_disconnects_without_reading_it(owner):
    for n in range(60, 70):
        leases = owner.status()["leases"]
        client = send_lookup(owner, n, "a", "&for=60000")
        owner.wait_for(lambda leases=leases: owner.status()["leases"] > leases, "the lease to be granted")
        client.close()
        assert owner.lease(n, "b", WAIT) == "granted"
    # a lease whose grant was read is kept
    client = send_lookup(owner, 70, "a", "&for=60000")
    assert b"granted" in client.recv(10_000)
    client.close()
    assert owner.lease(70, "b", "&wait=100") == "pending"


def test_waits_end_when_the_owner_stops(start_daemon):
    owner = start_daemon()
    assert owner.lease(1, "a", "&for=60000") == "granted"
    later = begin(owner, 1, "b", "&wait=60000")
    owner.stop()
    assert later.wait().fields["sszip-lease"] == "pending"


def test_invalid_wait_parameters_and_chain_headers_are_rejected(owner):
    for query, status in [
        ("?wait=100", 400),
        ("?lease=a&wait=-1", 400),
        ("?lease=a&wait=", 400),
        ("?lease=a&wait=1&wait=2", 400),
    ]:
        answer = owner.get(7, query)
        assert (answer.status, answer.fields.get("sszip-generation")) == (status, None), query
    # a longer wait than allowed is shortened
    assert owner.lease(7, "a", "&wait=99999999") == "granted"
    path = f"/v1/entries/{key(7)}"
    for fields in [
        {"sszip-chain-known": "5"},
        {"sszip-namespace": "5a"},
        {"sszip-namespace": NAMESPACE.upper()},
        {"sszip-namespace": NAMESPACE, "sszip-chain-known": "all"},
    ]:
        assert owner.request("GET", path, fields=fields).status == 400, fields


def test_responses_report_the_newest_purge_that_the_owner_knows(owner):
    path = f"/v1/entries/{key(8)}"
    for method, target, body, status in [
        ("GET", path, None, 404),
        ("POST", "/v1/lookups", f"{key(8)}\n", 200),
        ("POST", "/v1/lookups", "nonsense", 400),
        ("DELETE", f"/v1/leases/{key(8)}?process=a", None, 204),
        ("GET", "/v1/status", None, 200),
    ]:
        answer = owner.request(method, target, body)
        assert (answer.status, answer.fields["sszip-generation"]) == (status, str(owner.generation))
    assert owner.put(8).fields["sszip-generation"] == str(owner.generation)
    assert owner.put(8, generation=owner.generation + 1).fields["sszip-generation"] == str(owner.generation)
    before = owner.generation
    purge = owner.purge(namespace=NAMESPACE)
    assert int(purge.fields["sszip-generation"]) == purge.json()["generation"] > before
    # requests outside the known versions are not answered as by an owner
    for method, target in [("GET", "/v2/status"), ("GET", "/v1/nothing"), ("PATCH", path), ("GET", path + "?x=1")]:
        answer = owner.request(method, target)
        assert answer.status in (400, 404, 405) and "sszip-generation" not in answer.fields


def test_chain_that_is_not_followed_is_reported_as_none(owner):
    fields = {"sszip-namespace": NAMESPACE}
    answer = owner.request("GET", f"/v1/entries/{key(9)}", fields=fields)
    assert answer.fields["sszip-chain"] == "none" and "sszip-chain-state" not in answer.fields
    assert "sszip-chain" not in owner.get(9).fields
    assert owner.put(9).fields["sszip-chain"] == "none"


@pytest.mark.parametrize("wait", ["", "&wait=100"])
def test_wait_works_with_curl(owner, wait):
    n = 10 + len(wait)
    assert owner.lease(n, "a", "&for=60000") == "granted"
    url = f"http://owner/v1/entries/{key(n)}?lease=curl{wait}"
    command = ["curl", "-s", "-i", "--unix-socket", str(owner.socket), "-H", f"sszip-namespace: {NAMESPACE}", url]
    received = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GUARD_SECONDS).stdout
    head, _, body = received.partition("\n\n")
    assert "404" in head and "sszip-lease: pending" in head and "sszip-chain: none" in head
    assert json.loads(body)["status"] == 404

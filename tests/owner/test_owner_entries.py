"""Entries: lookups, puts and rejected requests."""

import json
import subprocess

import pytest

from daemon import NAMESPACE, Client, Answer, key

SETTINGS = {"max_entry": "1m"}


def test_entry_is_found_while_it_is_fresh(owner):
    assert owner.get(1).status == 404
    body = bytes(range(256)) * 100
    assert owner.put(1, body, fresh=60_000, **{"class": "unfinalized"}).status == 201
    answer = owner.get(1)
    assert answer.status == 200
    assert answer.body == body
    assert answer.fields["content-type"] == "application/vnd.sszip.entry"
    assert answer.fields["content-length"] == str(len(body))
    assert answer.fields["sszip-class"] == "unfinalized"
    assert 0 < int(answer.fields["sszip-fresh"]) <= 60_000
    assert int(answer.fields["age"]) >= 0
    assert owner.put(1, b"", fresh=0).status == 201
    assert owner.get(1).status == 404
    assert owner.put(1, b"", fresh=60_000).status == 201
    assert owner.get(1).body == b""


def test_headers_describe_the_entry_and_where_it_is(owner):
    def described(number):
        fields = owner.get(number).fields
        return [fields.get(f"sszip-{name}") for name in ("namespace", "method", "block", "tier")]

    assert owner.put(9, b"x", method="eth_getBlockReceipts", **{"class": "immutable"}).status == 201
    # the second request of an entry, its first lookup, writes it to the store
    assert described(9) == [NAMESPACE, "eth_getBlockReceipts", None, "disk"]
    assert owner.put(10, b"x", **{"class": "tip"}).status == 201
    for _ in range(3):
        # entries that depend on the head are in memory only
        assert described(10) == [NAMESPACE, None, None, "memory"]


def test_newer_entry_replaces_the_older_one(owner):
    for body in (b"one", b"two", b"three"):
        assert owner.put(2, body).status == 201
        assert owner.get(2).body == body
        assert owner.get(2).body == body


def test_response_to_an_earlier_request_does_not_replace_the_present_entry(owner):
    """Two requests were in flight, and their responses arrive in the other order."""
    assert owner.put(22, b"later", age=1_000).status == 201
    assert owner.put(22, b"earlier", age=60_000).status == 201
    assert owner.get(22).body == b"later"
    assert int(owner.get(22).fields["age"]) >= 1
    assert owner.put(22, b"latest", age=0).status == 201
    assert owner.get(22).body == b"latest"


def test_entries_of_every_size_are_returned_unchanged(owner):
    for size in (0, 1, 8191, 8192, 65_536, 500_000, 1 << 20):
        body = size.to_bytes(4, "big") * (size // 4 + 1)
        assert owner.put(3, body[:size]).status == 201, size
        assert owner.get(3).body == body[:size], size


def test_chunked_entry_is_accepted(owner):
    client = Client(owner.socket)
    fields = {
        "sszip-generation": str(owner.generation),
        "sszip-fresh": "60000",
        "sszip-class": "tip",
        "sszip-namespace": NAMESPACE,
    }
    client.request("PUT", f"/v1/entries/{key(4)}", iter([b"one", b"two" * 1000, b"3"]), fields, encode_chunked=True)
    assert Answer(client.getresponse()).status == 201
    assert owner.get(4).body == b"one" + b"two" * 1000 + b"3"
    client.close()


def test_connection_serves_several_requests(owner):
    client = Client(owner.socket)
    owner.put(5, b"five")
    for n in (5, 999, 5, 999):
        client.request("GET", f"/v1/entries/{key(n)}")
        answer = Answer(client.getresponse())
        assert answer.status == (200 if n == 5 else 404)
    assert client.sock is not None
    client.close()


def test_pipelined_requests_are_answered_in_order(owner):
    for n in range(10, 20):
        owner.put(n, f"body {n}".encode())
    client = Client(owner.socket)
    client.connect()
    client.sock.sendall(b"".join(f"GET /v1/entries/{key(n)} HTTP/1.1\r\nhost: o\r\n\r\n".encode() for n in range(10, 20)))
    got = b""
    while got.count(b"body ") < 10:
        more = client.sock.recv(65_536)
        assert more
        got += more
    assert [got.index(f"body {n}".encode()) for n in range(10, 20)] == sorted(
        got.index(f"body {n}".encode()) for n in range(10, 20)
    )
    client.close()


def is_problem(answer, status):
    assert answer.status == status, answer.body
    assert answer.fields["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return True


@pytest.mark.parametrize(
    "fields",
    [
        {"generation": None},
        {"generation": ""},
        {"generation": "-1"},
        {"generation": "+1"},
        {"generation": "99999999999999999999"},
        {"fresh": None},
        {"fresh": "1.5"},
        {"class": None},
        {"class": "eternal"},
        {"class": "Immutable"},
        {"namespace": None},
        {"namespace": "5a"},
        {"namespace": "5A" * 16},
        {"method": ""},
        {"method": "x" * 256},
    ],
    ids=str,
)
def test_put_with_missing_or_invalid_headers_is_rejected(owner, fields):
    assert is_problem(owner.put(40, **fields), 400)
    assert owner.get(40).status == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v2/status", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/status/", 404),
        ("POST", "/v1/status", 405),
        ("GET", "/v1/purges", 405),
        ("POST", f"/v1/entries/{key(1)}", 405),
        ("HEAD", "/v1/status", 405),
        ("OPTIONS", "/v1/status", 405),
        ("GET", "/v1/fleet", 404),
        ("GET", "/v1/fleet/ping", 405),
        ("POST", "/v1/fleet/ping", 400),
        ("POST", "/v1/fleet/ping?x=1", 400),
        ("GET", "/v1/status?x=1", 400),
        ("GET", "/v1/entries/", 400),
        ("GET", "/v1/entries/abc", 400),
        ("GET", f"/v1/entries/{key(1)}/", 400),
        ("GET", f"/v1/entries/{'AB' * 32}", 400),
        ("GET", f"/v1/entries/{'%61' + 'a' * 61}", 400),
        ("GET", f"/v1/entries/{key(1)}?x=1", 400),
        ("POST", "/v1/purges?x=1", 400),
        ("GET", "/v1/status?format=xml", 400),
        ("POST", "/v1/frames", 404),
        # of earlier releases
        ("GET", f"/v1/entries/{key(1)}?lease=a", 400),
        ("DELETE", f"/v1/leases/{key(1)}?process=a", 404),
        ("GET", "/v1/events?process=a", 404),
        ("POST", "/v1/acknowledgements?process=a", 404),
        ("POST", "/v1/lookups", 404),
        ("POST", f"/v1/heads?namespace={NAMESPACE}&height=1&shown=block", 404),
    ],
)
def test_requests_outside_the_protocol_are_rejected(owner, method, path, status):
    answer = owner.request(method, path)
    assert answer.status == status
    if method != "HEAD":
        assert is_problem(answer, status)
    if status == 405:
        assert answer.fields["allow"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"bytes":1}', 404),
        (b'{"bytes":-1}', 400),
        (b'{"bytes":4294967296}', 400),
        (b'{"bytes":1,"rounds":2}', 400),
        (b"{" + b" " * 1024, 413),
    ],
)
def test_measurement_of_a_fleet_is_rejected_when_no_fleet_is_configured(owner, body, status):
    assert is_problem(owner.request("POST", "/v1/fleet/ping", body), status)


def test_too_long_entry_is_rejected(owner):
    assert is_problem(owner.put(50, b"x" * ((1 << 20) + 1)), 413)
    client = Client(owner.socket)
    fields = {
        "sszip-generation": str(owner.generation),
        "sszip-fresh": "60000",
        "sszip-class": "tip",
        "sszip-namespace": NAMESPACE,
    }
    # without a length the excess shows only while the body is read
    try:
        client.request("PUT", f"/v1/entries/{key(50)}", iter([b"x" * 65_536] * 17), fields, encode_chunked=True)
        assert is_problem(Answer(client.getresponse()), 413)
    except BrokenPipeError:
        pass
    client.close()
    assert owner.get(50).status == 404


def test_put_of_a_future_generation_is_rejected(owner):
    assert is_problem(owner.put(51, generation=owner.generation + 1), 409)


def test_status_counts_fills_and_lookups(owner):
    before = owner.status()
    owner.put(60, b"x")
    owner.get(60)
    owner.get(61)
    after = owner.status()
    assert after["version"] == 1
    assert after["pid"] == owner.process.pid
    assert after["fills"]["kept"] == before["fills"]["kept"] + 1
    assert after["lookups"]["memory"] == before["lookups"]["memory"] + 1
    assert after["lookups"]["missed"] == before["lookups"]["missed"] + 1
    assert after["memory"]["entries"] > 0
    assert 0 < after["memory"]["bytes"] <= after["memory"]["capacity"] == 8 << 20
    assert after["store"]["off"] is None


def test_protocol_works_with_curl(owner):
    def curl(path, *arguments):
        command = ["curl", "-sS", "--max-time", "30", "-w", "\n%{http_code}", "--unix-socket", owner.socket]
        ran = subprocess.run([*command, *arguments, f"http://owner{path}"], capture_output=True, check=True, timeout=60)
        body, _, status = ran.stdout.rpartition(b"\n")
        return int(status), body

    path = f"/v1/entries/{key(70)}"
    status, body = curl("/v1/status")
    generation = json.loads(body)["generation"]
    assert (status, curl(path)[0]) == (200, 404)
    fields = [f"sszip-generation: {generation}", "sszip-fresh: 60000", "sszip-class: resource"]
    fields = [f"-H{field}" for field in (*fields, f"sszip-namespace: {NAMESPACE}")]
    assert curl(path, "-T", owner.config, *fields) == (201, b"")
    assert curl(path) == (200, owner.config.read_bytes())
    assert curl(path, "-XPUT", "--data-binary", "by curl", *fields) == (201, b"")
    assert curl(path) == (200, b"by curl")
    status, body = curl("/v1/purges", "-d", json.dumps({"key": key(70)}))
    assert (status, json.loads(body)) == (200, {"generation": generation + 1, "entries": 1})
    assert curl(path)[0] == 404


def test_responses_report_the_newest_purge_that_the_owner_knows(owner):
    path = f"/v1/entries/{key(8)}"
    for method, target, body, status in [
        ("GET", path, None, 404),
        ("POST", "/v1/purges", "nonsense", 400),
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

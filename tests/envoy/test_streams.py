"""Bodies that arrive over time, that are long, or that are truncated."""

import threading
import time
import zlib

import pytest

from harness.client import Connection, Truncated, gunzip, request_bytes
from harness.envoy import cluster, route
from harness.guards import GUARD_SECONDS
from harness.origin import WaitFor, answer, chunked, head
from harness.replay import ReplayNode
from harness.rpc import call
from tiers import by_tier, times

HOSTS = ("native", "wasm")

FIRST, SECOND = b'{"first":"' + b"a" * 3000 + b'",', b'"second":"' + b"b" * 3000 + b'"}'
WITNESS = call("debug_executionWitness", '["latest"]')
MEGABYTES = times(20, 100)
# longer than a witness as SSZ, shorter than its JSON
LIMIT = MEGABYTES * 640_000
LIMITS = {"native": {}, "wasm": {"per_connection": LIMIT, "settings": {"buffer_limit": LIMIT}}}


@pytest.fixture(scope="module")
def node():
    node = ReplayNode("--witness", f"{MEGABYTES * 1_000_000}")
    yield node
    node.stop()


@pytest.fixture(scope="module")
def envoy(host, start_envoy, node):
    routes = [
        route("/at-once", {"hold": "0"}),
        route("/held", {"hold": "1m 60s"}),
        route(
            "/witness",
            {"ssz": True, "ssz_max_size": "2g", "memory": "4g"},
            cluster="replay",
            prefix_rewrite="/",
        ),
        route("/"),
    ]
    where = {"socket_address": {"address": "127.0.0.1", "port_value": node.port}}
    return start_envoy(routes, workers=5, clusters=[cluster("replay", where)], **LIMITS[host])


@pytest.mark.parametrize("path", ["/at-once", "/"])
def test_received_bytes_are_sent_while_the_node_pauses(envoy, origin, path):
    go_on = threading.Event()
    origin.answers([head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
                    *chunked([FIRST], last=False), WaitFor(go_on), *chunked([SECOND])])  # fmt: skip
    with envoy.connect() as connection:
        connection.send(request_bytes(path, headers=[("Accept-Encoding", "gzip")]))
        received_head = connection.read_head()
        assert received_head.header("Content-Encoding") == "gzip"
        decoder, plain = zlib.decompressobj(31), b""
        while plain != FIRST:
            plain += decoder.decompress(connection.take(int(connection._line(), 16)))
            connection.take(2)
        go_on.set()
        rest = connection._chunks()
        assert plain + decoder.decompress(rest) == FIRST + SECOND
        assert decoder.eof and not decoder.unused_data


def test_events_arrive_before_the_next_one_is_sent(envoy, origin):
    events = [b"data: %d %s\n\n" % (number, b"x" * 200) for number in range(5)]
    steps = [threading.Event() for _ in events]
    script = [head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])]
    for event, step in zip(events, steps, strict=True):
        script += [*chunked([event], last=False), WaitFor(step)]
    origin.answers([*script, b"0\r\n\r\n"])
    with envoy.connect() as connection:
        connection.send(request_bytes("/"))
        connection.read_head()
        for event, step in zip(events, steps, strict=True):
            assert connection.take(int(connection._line(), 16)) == event
            connection.take(2)
            step.set()
        assert connection._chunks() == b""


@pytest.mark.parametrize(
    ("framing", "coding"),
    by_tier(
        [("length", None), ("chunked", "gzip")],
        [("length", None), ("length", "gzip"), ("chunked", None), ("chunked", "gzip")],
    ),
)
def test_long_witness_is_sent_within_the_limits(envoy, node, framing, coding):
    """The witness is sent as SSZ, and as the node's JSON."""
    headers = [("Content-Type", "application/json"), ("X-Replay", f"framing={framing}")]
    if coding:
        headers.append(("Accept-Encoding", coding))
    for accept in ("application/octet-stream", "application/json"):
        with envoy.connect(timeout=120) as connection:
            response = connection.exchange(
                "/witness", method="POST", headers=[*headers, ("Accept", accept)], body=WITNESS
            )
        assert response.status == 200, response.body[:200]
        if accept == "application/octet-stream":
            assert response.header("Sszip-Type") == "ExecutionWitness;v=1"
            assert response.framing == "length"
        assert response.coding == coding
        plain = gunzip(response.body) if coding else response.body
        assert len(plain) > MEGABYTES * 1_000_000 // 3
        assert accept != "application/json" or plain[-1:] == b"}" and plain[:1] == b"{"


def test_witness_is_whole_after_other_clients_aborted(envoy, node):
    """Clients abort during transcoding, during compression, and while they receive."""
    for wait, take in [(0, 0), (0.05, 0), (0.2, 0), (0, 1000), (0, MEGABYTES * 50_000)] * times(1, 2):
        connection = envoy.connect(receive_buffer=4096)
        headers = [("Content-Type", "application/json"), ("Accept", "application/octet-stream"),
                   ("Accept-Encoding", "gzip")]  # fmt: skip
        connection.send(request_bytes("/witness", method="POST", headers=headers, body=WITNESS))
        time.sleep(wait)
        if take:
            connection.take(take)
        connection.reset()
    envoy.wait_for(lambda: node.stats()["in_flight"] == 0, "the node to be left")
    test_long_witness_is_sent_within_the_limits(envoy, node, "length", None)


def test_truncated_response_is_a_502_or_visible(envoy, origin):
    whole = FIRST + SECOND
    for framing in ("length", "chunked"):
        origin.answers(answer(whole, framing=framing, cut_at=4000))
        response = envoy.get("/held")
        assert (response.status, response.mode) == (502, "cut")
        with pytest.raises(Truncated):
            envoy.get("/at-once") if framing == "chunked" else envoy.get("/", accept=None)


def test_buffered_body_is_complete_when_trailers_follow(envoy, origin):
    for path in ("/held", "/at-once"):
        origin.answers([head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
                        *chunked([FIRST, SECOND], last=False), b"0\r\nX-Checksum: 1\r\n\r\n"])  # fmt: skip
        response = envoy.get(path)
        assert gunzip(response.body) == FIRST + SECOND


# no time limit ends a wait
CACHED = {"cache": True, "cache_namespace": "all", "cache_lock_timeout": "10m"}


def start_patient_envoy(start_envoy, workers):
    return start_envoy([route("/herd", CACHED), route("/")], workers=workers)


def test_coalesced_requests_reach_the_node_once(start_envoy, origin):
    """One request reaches the node, of any worker; the others wait for its response."""
    send_coalesced_requests(start_patient_envoy(start_envoy, 5), origin, 20)


def test_hundreds_of_followers_in_one_worker_are_woken(start_envoy, origin):
    """A sandbox that resumed all of them in one call exhausted its stack, and failed."""
    send_coalesced_requests(start_patient_envoy(start_envoy, 1), origin, 600)


def block_by_hash(number):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]')


def wait_for_hits(envoy, origin, count):
    """Waits for hits one after the other: until then sandboxes may not have reached the owner."""
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'))

    def are_hits():
        responses = [envoy.post("/herd", block_by_hash(1)) for _ in range(count)]
        return all((response.header("Cache-Status") or "").startswith("sszip; hit") for response in responses)

    envoy.wait_for(are_hits, "hits of all workers")
    origin.forget()


def send_coalesced_requests(envoy, origin, clients):
    # the kernel assigns connections to workers
    wait_for_hits(envoy, origin, 10 * envoy.concurrency)
    go_on = threading.Event()
    body = b'{"jsonrpc":"2.0","id":1,"result":"' + b"0" * 5000 + b'"}'
    origin.answers([head(200, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]),
                    WaitFor(go_on), body])  # fmt: skip
    request_body = block_by_hash(clients)
    got = []

    def send():
        headers = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
        with Connection(envoy.port) as connection:
            response = connection.exchange("/herd", method="POST", headers=headers, body=request_body)
        got.append((response.status, response.decoded))

    threads = [threading.Thread(target=send) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        envoy.wait_for(lambda: origin.received(), "the node to receive a request")
        waiting = "sszip.cache.waiting"
        envoy.wait_for(lambda: sum(envoy.stats(f"{waiting}$").values()) == clients - 1, "all to wait")
    finally:
        go_on.set()
        for thread in threads:
            thread.join(GUARD_SECONDS)
    assert got == [(200, body)] * clients
    assert len(origin.received()) == 1

"""HTTP/3. A hop is the client: it translates HTTP/1.1 to HTTP/3; another one is the node, which
gets HTTP/2."""

import json
import threading

import pytest

from harness.client import Truncated, gunzip, request_bytes
from harness.envoy import route
from harness.origin import CLOSE, WaitFor, answer, chunked, head
from harness.rpc import Node, call
from tiers import by_tier

HOSTS = ("native", "wasm")

BODY = b'{"result":"' + b"a" * 30000 + b'"}'
LONG = b'{"hash":"0x%064x","x":"' % 7 + bytes(range(97, 117)) * 15000 + b'"}'
GZIP = ("Accept-Encoding", "gzip")
OCTETS = "application/octet-stream"
DEPOSITS = "/ssz/eth/v1/beacon/states/%d/pending_deposits"
REGISTRATIONS = "/ssz/eth/v1/validator/register_validator"
# 20 MB of SSZ, and 5 MB; a sandbox converts in the thread that serves
MANY_DEPOSITS = {"native": 20_000_000 // 192, "wasm": 2_000_000 // 192}
MANY_REGISTRATIONS = {"native": 5_000_000 // 180, "wasm": 1_000_000 // 180}


@pytest.fixture(scope="module")
def envoy(start_envoy):
    large = {
        "ssz": True,
        "ssz_preset": "mainnet",
        "ssz_max_size": "128m",
        "ssz_request": "always",
        "memory": "1g",
        "cache": True,
        "cache_memory": "128m",
        "cache_max_entry": "64m",
        "max_oneshot": "64m",
    }
    routes = [
        route("/cache", {"cache": True}),
        route("/held", {"hold": "1m 60s"}),
        route("/held-cache", {"cache": True, "hold": "1m 60s"}),
        route("/at-once", {"hold": "0"}),
        route("/ssz/", large, prefix_rewrite="/"),
        route("/"),
    ]
    return start_envoy(routes, hops="http3", workers=2)


def test_resource_is_compressed_over_http3(envoy, origin):
    origin.answers(answer(BODY))
    response = envoy.get("/")
    assert (response.status, response.coding, response.framing) == (200, "gzip", "length")
    assert gunzip(response.body) == BODY


def is_hit(response):
    return "; hit" in (response.header("Cache-Status") or "")


@pytest.mark.parametrize("length", [100, 5000, 300_000])
def test_concurrent_hits_have_the_ids_of_their_calls_over_http3(host, envoy, origin, length):
    """Concurrent clients each receive the id of their call."""
    result = LONG[:length] + b'"}'
    node = Node({"eth_getBlockByHash": result})
    origin.answers(node)
    block = '["0x%064x",true]' % length
    first = envoy.fetch("/cache", call("eth_getBlockByHash", block))
    assert "fwd=miss" in first.header("Cache-Status")
    envoy.wait_for(lambda: is_hit(envoy.fetch("/cache", call("eth_getBlockByHash", block))), "a hit")
    before = node.count()
    faults, misses = [], []

    def send_requests(accept, first):
        for number in range(first, first + 15):
            body = call("eth_getBlockByHash", block, str(number))
            response = envoy.fetch("/cache", body, accept)
            reply = json.loads(response.decoded)
            if not is_hit(response):
                misses.append(response)
            if reply["id"] != number or reply["result"] != json.loads(result):
                faults.append(response)
            if response.coding != accept and length > 1000:
                faults.append(response)

    threads = [
        threading.Thread(target=send_requests, args=("gzip" if n % 2 else None, n * 1000)) for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    assert not misses
    assert node.count() <= before + len(misses)


def deposits(count):
    """Pending deposits as JSON, and as SSZ."""
    one = {
        "pubkey": "0x" + "11" * 48,
        "withdrawal_credentials": "0x" + "22" * 32,
        "amount": "32000000000",
        "signature": "0x" + "33" * 96,
        "slot": "7",
    }
    one_ssz = b"\x11" * 48 + b"\x22" * 32 + (32_000_000_000).to_bytes(8, "little")
    one_ssz += b"\x33" * 96 + (7).to_bytes(8, "little")
    about = '{"version":"electra","execution_optimistic":false,"finalized":true,"data":['
    text = about + ",".join([json.dumps(one)] * count) + "]}"
    return text.encode(), one_ssz * count


@pytest.mark.parametrize("framing", by_tier(["chunked"], ["length", "chunked"]))
def test_ssz_of_20_mb_is_sent_and_cached_over_http3(host, envoy, origin, framing):
    text, ssz = deposits(MANY_DEPOSITS[host])
    origin.answers(answer(text, headers=[("Eth-Consensus-Version", "electra")], framing=framing))
    path = DEPOSITS % len(framing)

    def is_right_and_a_hit(coding):
        headers = [("Accept", OCTETS)] + ([GZIP] if coding else [])
        with envoy.connect(timeout=120) as connection:
            response = connection.exchange(path, headers=headers)
        assert response.status == 200, response.body[:300]
        assert response.header("Content-Type") == OCTETS
        assert response.coding in (None, coding)
        assert (gunzip(response.body) if response.coding else response.body) == ssz
        return is_hit(response)

    for coding in (None, "gzip"):
        is_right_and_a_hit(coding)
    for coding in (None, "gzip"):
        envoy.wait_for(lambda coding=coding: is_right_and_a_hit(coding), "a hit")


@pytest.mark.parametrize("framing", by_tier(["length"], ["length", "chunked"]))
def test_submission_of_5_mb_is_transcoded_over_http3(host, envoy, origin, framing):
    origin.answers(answer(b"", type=None))
    message = b"\x11" * 20 + (30_000_000).to_bytes(8, "little") + (7).to_bytes(8, "little")
    body = (message + b"\x22" * 48 + b"\x33" * 96) * MANY_REGISTRATIONS[host]
    fields = [("Content-Type", OCTETS)]
    if framing == "chunked":
        fields.append(("Transfer-Encoding", "chunked"))
    with envoy.connect(timeout=120) as connection:
        sent = b"".join(chunked([body])) if framing == "chunked" else body
        response = connection.exchange(REGISTRATIONS, method="POST", headers=fields, body=sent)
    assert response.status == 200, response.body[:300]
    (submission,) = origin.received("/eth/v1/validator/register_validator")
    assert submission.header("Content-Type") == "application/json"
    registrations = json.loads(submission.body)
    assert len(registrations) == MANY_REGISTRATIONS[host]
    assert registrations[-1]["message"]["gas_limit"] == "30000000"


class TestResets:
    def test_other_responses_are_complete_when_some_clients_reset(self, envoy, origin):
        """Some of the streams in flight are reset; the others are not affected."""
        go_on = threading.Event()
        origin.answers([head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
                        *chunked([BODY[:20000]], last=False), WaitFor(go_on), *chunked([BODY[20000:]])])  # fmt: skip
        connections = [envoy.connect() for _ in range(20)]
        for connection in connections:
            connection.send(request_bytes("/at-once", headers=[GZIP]))
        for connection in connections[::2]:
            connection.read_head()
            connection.reset()
        envoy.wait_for(lambda: len(origin.received()) == 20, "all requests at the node")
        go_on.set()
        for connection in connections[1::2]:
            with connection:
                assert connection.read().decoded == BODY
        envoy.wait_for(lambda: envoy.active() == 0, "all streams to be gone")

    def test_incomplete_submission_does_not_reach_the_node(self, envoy, origin):
        """The node never receives half of a body."""
        origin.answers(answer(b"", type=None))
        for length in (1000, 200_000, 3_000_000):
            connection = envoy.connect()
            submission = request_bytes(REGISTRATIONS, method="POST", body=bytes(180 * 30_000),
                                       headers=[("Content-Type", OCTETS)])  # fmt: skip
            connection.send(submission[:length])
            connection.reset()
        envoy.wait_for(lambda: envoy.active() == 0, "all streams to be gone")
        assert origin.received() == []

    def test_long_hit_is_right_after_clients_reset(self, host, envoy, origin):
        """The response is longer than all windows."""
        text, ssz = deposits(MANY_DEPOSITS[host] // 4)
        origin.answers(answer(text, headers=[("Eth-Consensus-Version", "electra")]))
        path = DEPOSITS % 99
        for _ in range(6):
            connection = envoy.connect(receive_buffer=4096)
            connection.send(request_bytes(path, headers=[("Accept", OCTETS)]))
            assert connection.read_head().status == 200
            connection.take(100_000)
            connection.reset()

        def is_right_and_a_hit():
            with envoy.connect(timeout=120) as connection:
                response = connection.exchange(path, headers=[("Accept", OCTETS)])
            assert response.body == ssz
            return is_hit(response)

        envoy.wait_for(is_right_and_a_hit, "a hit")
        envoy.wait_for(lambda: envoy.active() == 0, "all streams to be gone")

    def test_reset_of_the_node_is_an_error_or_visible(self, envoy, origin):
        """It is no end while a head is buffered, nor in a stream."""
        script = [head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
                  *chunked([BODY[:20000]], last=False), CLOSE]  # fmt: skip
        origin.answers(script)
        for path in ("/held", "/held-cache"):
            assert envoy.get(path).status in (502, 503)
        for accept in ("gzip", None):
            with pytest.raises(Truncated):
                envoy.get("/at-once", accept)
        text, _ = deposits(1000)
        origin.answers(answer(text, headers=[("Eth-Consensus-Version", "electra")], cut_at=200_000))
        assert envoy.get(DEPOSITS % 98, headers=[("Accept", OCTETS)]).status in (502, 503)
        envoy.wait_for(lambda: envoy.active() == 0, "all streams to be gone")

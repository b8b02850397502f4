"""Failed allocations of the module, each large one in turn: clients receive a right response or
an error, and Envoy continues. Failed allocations of Envoy itself end it."""

import itertools
import json

import pytest

from harness import bodies
from harness.client import Malformed, Truncated
from harness.envoy import route
from harness.origin import answer, scattered
from harness.preload import LIBRARIES
from harness.rpc import Node, call
from tiers import by_tier

# shorter allocations could be Envoy's own at the same time
LONG = (65 << 10, 1 << 40)
LENGTH = 1_500_000
CONSOLIDATIONS = "/eth/v1/beacon/states/9/pending_consolidations"
OCTETS = "application/octet-stream"
SETTINGS = {
    "cache": True,
    "cache_namespace": "all",
    "cache_memory": "256m",
    "cache_valid": ["tip 1h", "unfinalized 1h"],
    "cache_max_request": "4m",
}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def envoy(start_envoy, preload):
    stale = {"cache_valid": "tip 1ms", "cache_use_stale": "updating error", "cache_background_update": True}
    routes = [
        route("/stream", {"hold": "1k 1ms"}),
        route("/stale", stale),
        route("/eth", {"ssz": True, "ssz_preset": "mainnet", "ssz_request": "always"}),
        route("/"),
    ]
    return start_envoy(routes, settings=SETTINGS, environment=preload.environment)


def block(number, id, pad=0):
    params = '["0x%064x",true]' % number
    return call("eth_getBlockByHash", params, str(id)) + b" " * pad


def result(params):
    return b'"%b%b"' % (params[0].encode(), bodies.json(LENGTH // 2).hex().encode())


def node(**options):
    return Node({"eth_getBlockByHash": result}, newline=b"", **options)


class Calls:
    """A request of new and of stored blocks; a call returns its outcome."""

    def __init__(self, envoy, path="/", new=1, known=0, accept="gzip", pad=0):
        self.envoy, self.path, self.new, self.accept, self.pad = envoy, path, new, accept, pad
        self.known = [next(_numbers) for _ in range(known)]
        for number in self.known:
            envoy.wait_for(lambda: self._hit(number), "an answer to be stored")  # noqa: B023

    def _hit(self, number):
        cache_status = self.envoy.fetch(self.path, block(number, 1)).header("Cache-Status")
        return cache_status.startswith("sszip; hit")

    def __call__(self):
        numbers = [*self.known, *(next(_numbers) for _ in range(self.new))]
        body = b"[" + b",".join(block(number, number) for number in numbers) + b"]"
        if len(numbers) == 1:
            body = block(numbers[0], numbers[0])
        try:
            response = self.envoy.fetch(self.path, body + b" " * self.pad, self.accept)
        except (Truncated, Malformed, ConnectionError):
            return "cut"
        if response.status != 200:
            return response.status
        answers = json.loads(response.decoded)
        answers = answers if isinstance(answers, list) else [answers]
        assert sorted(one["id"] for one in answers) == sorted(numbers)
        for one in answers:
            value = json.dumps(one["result"]).encode()
            assert value == result([f"0x{one['id']:064x}"])
        return "whole"


def each_in_turn(envoy, preload, send):
    """The outcomes with each allocation failing in turn, until none fails."""
    outcomes = []
    for skip in range(60):
        with preload.refusing(envoy.process.pid, LONG, LIBRARIES, skip=skip):
            outcomes.append(send())
        assert envoy.process.poll() is None, envoy.error_log()[-3000:]
        if not preload["refused"]:
            break
        # nothing is stuck
        assert send() == "whole"
    else:
        raise AssertionError("there are always more")
    assert outcomes[-1] == "whole"
    assert skip > 0, "none was seen"
    return outcomes


@pytest.mark.parametrize(
    "accept, framing",
    by_tier(
        [("gzip", "length"), (None, "chunked")],
        [("gzip", "length"), ("gzip", "chunked"), (None, "length"), (None, "chunked")],
    ),
)
@pytest.mark.parametrize(
    "kind",
    [
        dict(new=1),
        dict(new=1, path="/stream"),
        dict(new=0, known=3),
        dict(new=1, known=2),
        dict(new=1, pad=700_000),
    ],
    ids=["miss", "stream", "hits", "mixed", "long-request"],
)
def test_response_is_whole_or_an_error_when_any_large_allocation_fails(envoy, origin, preload, kind, accept, framing):
    origin.answers(node(framing=framing))
    send = Calls(envoy, accept=accept, **kind)
    outcomes = each_in_turn(envoy, preload, send)
    # the node's response unchanged, if nothing was sent; a stream is truncated
    is_streamed = framing == "chunked" or "path" in kind
    allowed = {"whole"} | ({"cut"} if is_streamed else set()) | ({502} if "known" in kind else set())
    assert set(outcomes) <= allowed


def test_long_request_is_forwarded_unchanged_when_its_allocation_fails(envoy, origin, preload):
    origin.answers(node())
    body = block(next(_numbers), 1, pad=700_000)
    for skip in range(10):
        with preload.refusing(envoy.process.pid, (700_000, 800_000), LIBRARIES, skip=skip):
            response = envoy.fetch("/", body)
        if "detail=memory" in response.header("Cache-Status"):
            break
    assert response.status == 200
    assert origin.last().body == body


def entries(number):
    return [{"source_index": str(at), "target_index": "1"} for at in range(number)]


def ssz_of(number):
    return b"".join(at.to_bytes(8, "little") + (1).to_bytes(8, "little") for at in range(number))


@pytest.mark.parametrize(
    "to, framing, accept",
    by_tier(
        [("ssz", "length", "gzip"), ("ssz", "chunked", None), ("json", "length", None), ("json", "chunked", "gzip")],
        list(itertools.product(("ssz", "json"), ("length", "chunked"), ("gzip", None))),
    ),
)
def test_transcoded_response_is_whole_or_an_error_when_any_large_allocation_fails(envoy, origin, preload, framing, accept, to):
    number = 100_000
    text = json.dumps({"version": "electra", "data": entries(number)}, separators=(",", ":")).encode()
    made = (text, "application/json") if to == "ssz" else (ssz_of(number), OCTETS)
    fields = [("Eth-Consensus-Version", "electra")]
    origin.answers(answer(made[0], type=made[1], headers=fields, framing=framing), CONSOLIDATIONS)
    wanted = OCTETS if to == "ssz" else "application/json"

    def send():
        target = f"{CONSOLIDATIONS}?n={next(_numbers)}"
        try:
            response = envoy.fetch(target, None, accept, headers=[("Accept", wanted)])
        except (Truncated, Malformed, ConnectionError):
            return "cut"
        if response.status != 200:
            return response.status
        assert response.header("Content-Type") == wanted
        if to == "ssz":
            assert response.decoded == ssz_of(number)
        else:
            assert json.loads(response.decoded)["data"] == entries(number)
        return "whole"

    outcomes = each_in_turn(envoy, preload, send)
    # a response in another format than requested is not forwarded
    assert set(outcomes) <= {"whole", "cut", 502, 503}


def test_client_gets_its_response_when_an_allocation_of_the_update_fails(envoy, origin, preload):
    """The update is dropped, and the client receives its response."""
    origin.answers(Node({"eth_blockNumber": b'"0x1"'}, newline=b"", split=scattered("x")))
    path = f"/stale/{next(_numbers)}"
    body = call("eth_blockNumber") + b" " * 700_000

    def send():
        response = envoy.fetch(path, body)
        assert response.status == 200 and json.loads(response.decoded)["result"] == "0x1"
        return "whole"

    assert send() == send() == "whole"
    each_in_turn(envoy, preload, send)


NOT_CACHED = b'{"status":504,"detail":"not cached: only-if-cached"}'


# numbers of stored and of new calls, bytes of spaces, and the status of the response
@pytest.mark.parametrize(
    "known, new, pad, expected",
    [(1, 0, 0, 200), (3, 0, 0, 200), (0, 1, 0, 504), (2, 1, 0, 504), (1, 0, 700_000, 200), (2, 0, 700_000, 200), (0, 1, 700_000, 504)],
    ids=["hit", "hits", "miss", "mixed", "long-hit", "long-hits", "long-miss"],
)
@pytest.mark.parametrize("accept", ["gzip", None])
def test_only_if_cached_reaches_no_node_when_any_large_allocation_fails(envoy, origin, preload, accept, known, new, pad, expected):
    origin.answers(node())
    calls = Calls(envoy, new=0, known=known)
    numbers = [*calls.known, *(next(_numbers) for _ in range(new))]
    bodies = [block(number, number) for number in numbers]
    body = (bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]") + b" " * pad
    origin.requests.clear()

    def send():
        try:
            response = envoy.fetch("/", body, accept, headers=[("Cache-Control", "only-if-cached")])
        except (Truncated, Malformed, ConnectionError):
            return "cut"
        if response.status == 200:
            answers = json.loads(response.decoded)
            answers = answers if isinstance(answers, list) else [answers]
            assert [one["id"] for one in answers] == numbers
        elif response.status == 504:
            assert response.decoded == NOT_CACHED
        return response.status

    outcomes = []
    for skip in range(60):
        with preload.refusing(envoy.process.pid, LONG, LIBRARIES, skip=skip):
            outcomes.append(send())
        assert envoy.process.poll() is None, envoy.error_log()[-3000:]
        if not preload["refused"]:
            break
        # nothing is stuck
        assert send() == expected
    assert outcomes[-1] == expected
    assert set(outcomes) <= {expected, 504, 502, "cut"}
    assert origin.received() == []

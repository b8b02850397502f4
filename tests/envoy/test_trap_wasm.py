"""A sandbox with little memory. It continues without an allocation that fails where it can;
where it can't, as with the headers of a request, the sandbox fails, and the next request is
answered by a new one."""

import itertools
import pathlib
import threading
import time

import pytest

from harness import client, sandbox
from harness.envoy import route
from harness.origin import answer, chunked
from harness.rpc import Node
from harness.sandbox import WasmEnvoy
from harness.wasm import with_memory
from tiers import times
from test_store_life import by_hash

MEMORY = 6 << 20
# longer than the memory, in one piece
TOO_LONG = "x" * (7 << 20)
RESULT = b'"0x' + b"00112233" * 600 + b'"'
METHOD = "eth_getBlockByHash"
SETTINGS = {
    "cache": True,
    "cache_namespace": "main",
    "cache_valid": ["immutable 1h"],
    "cache_max_request": "16m",
    "memory": "512m",
}
# statuses of Envoy for requests without a sandbox, and for those that wait in a failed one
ENDED = [503, 408, 504]
JSON = [("Content-Type", "application/json")]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The filter as it is shipped, with less memory."""
    path = tmp_path_factory.mktemp("wasm") / "small.wasm"
    path.write_bytes(with_memory(pathlib.Path(sandbox.WASM).read_bytes(), MEMORY))
    return path


@pytest.fixture(scope="module")
def start(session_origin, daemon, small):
    """Starts Envoys with the small sandbox, which run until the file's tests end."""
    started = []

    def start(workers=1, **http):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sandbox, "WASM", str(small))
            envoy = WasmEnvoy(
                [route("/")],
                origin=session_origin,
                owner=daemon,
                workers=workers,
                settings=SETTINGS,
                http={"max_request_headers_kb": 8192, **http},
            )
        envoy.expect("Uncaught RuntimeError: unreachable")
        started.append(envoy)
        return envoy.start()

    yield start
    for envoy in started:
        envoy.stop()


@pytest.fixture(scope="module")
def lasting(start):
    """An Envoy whose sandbox never fails."""
    envoy = start()
    yield envoy
    assert "unreachable" not in envoy.error_log()


@pytest.fixture(scope="module")
def failing(start):
    """An Envoy whose sandbox fails in each test; requests in a failed one end with the timeout."""
    return start(stream_idle_timeout="5s")


@pytest.fixture(scope="module")
def four(start):
    """An Envoy with four workers, whose sandboxes fail; their requests end with the timeout."""
    return start(workers=4, stream_idle_timeout="5s")


@pytest.fixture
def node(origin):
    node = Node({METHOD: RESULT})
    origin.answers(node)
    yield node
    for gate in node.gates.values():
        gate.set()


def send(envoy, number):
    """The status, and whether it is a hit; a response must be right."""
    response = envoy.post("/", by_hash(number, id=str(number)))
    if response.status == 200:
        assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (number, RESULT)
    return response.status, "; hit" in (response.header("Cache-Status") or "")


def is_hit(envoy, number):
    return send(envoy, number) == (200, True)


def wait_for_sandbox_age():
    """Waits: Envoy replaces a sandbox at once, unless it is younger than the pause, which
    Envoy extends by up to a half."""
    time.sleep(0.3)


def wait_for_sandbox(envoy):
    """Waits until Envoy has replaced a sandbox that failed in another test."""
    number = next(_numbers)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    wait_for_sandbox_age()


def fail(envoy):
    """Makes a sandbox fail, and its request with it."""
    before = envoy.error_log().count("unreachable")
    response = client.fetch(envoy.port, "/", headers=[("X-Long", TOO_LONG)])
    assert response.status == 503
    envoy.wait_for(lambda: envoy.error_log().count("unreachable") > before, "its failure")


def sandbox_reloads(envoy):
    return sum(envoy.stats(r"^wasm\..*vm_reload_success$").values())


class Later(threading.Thread):
    """A request whose response takes time."""

    def __init__(self, envoy, number):
        super().__init__(daemon=True)
        self.envoy, self.number = envoy, number
        self.result = None
        self.start()

    def run(self):
        self.result = send(self.envoy, self.number)

    def status(self):
        self.join(40)
        assert self.result, "it was never answered"
        return self.result[0]


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_request_that_exceeds_the_memory_of_the_sandbox_is_forwarded(lasting, node, framing):
    envoy = lasting
    number = next(_numbers)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    body = by_hash(number, id=f'1,"x":"{TOO_LONG}"')
    headers = JSON
    if framing == "chunked":
        headers = [*JSON, ("Transfer-Encoding", "chunked")]
        body = b"".join(chunked([body]))
    for _ in range(3):
        before = node.count()
        response = client.fetch(envoy.port, "/", method="POST", headers=headers, body=body)
        assert response.status == 200 and RESULT in response.decoded
        assert node.count() == before + 1
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    assert "unreachable" not in envoy.error_log()


def test_response_that_exceeds_the_memory_of_the_sandbox_is_sent_or_truncated(lasting, node, origin):
    """The client never receives another response."""
    envoy = lasting
    long = b'{"jsonrpc":"2.0","id":1,"result":"0x' + b"0123456789abcdef" * (1 << 20) + b'"}'
    origin.answers(answer(long))
    call_body = by_hash(next(_numbers))
    for _ in range(3):
        try:
            response = client.fetch(envoy.port, "/", method="POST", headers=JSON, body=call_body)
        except client.Truncated:
            continue
        assert response.status in (200, 503)
        assert response.status == 503 or response.decoded == long
    origin.answers(node)
    number = next(_numbers)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    assert "unreachable" not in envoy.error_log()


def test_next_request_is_answered_after_a_sandbox_failed(failing, node):
    envoy = failing
    wait_for_sandbox(envoy)
    reloads = sandbox_reloads(envoy)
    number = next(_numbers)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    fail(envoy)
    assert send(envoy, number)[0] == 200
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    for _ in range(2):
        fail(envoy)
        envoy.wait_for(lambda: send(envoy, number)[0] == 200, "an answer")
        new = next(_numbers)
        envoy.wait_for(lambda new=new: is_hit(envoy, new), "a hit")
    assert sandbox_reloads(envoy) == reloads + 3


def test_other_workers_continue_when_a_sandbox_fails(four, node):
    """Each worker has a sandbox of its own, and no connection waits for another worker's."""
    envoy = four
    number = next(_numbers)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    connections = [client.Connection(envoy.port) for _ in range(16)]

    def send_on_each():
        for one in connections:
            answer = one.exchange("/", method="POST", headers=JSON, body=by_hash(number))
            assert answer.status == 200 and RESULT in answer.decoded

    send_on_each()
    for _ in range(times(2, 3)):
        wait_for_sandbox_age()
        fail(envoy)
        send_on_each()
    for one in connections:
        one.close()


def test_failed_sandboxes_lose_few_requests_under_load(four, node):
    """A failure loses the requests of its worker, and no more; no response is wrong."""
    envoy = four
    number = next(_numbers)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")
    ends, statuses = threading.Event(), []

    def load():
        while not ends.is_set():
            statuses.append(send(envoy, number)[0])

    threads = [threading.Thread(target=load) for _ in range(8)]
    for one in threads:
        one.start()
    failures = times(3, 5)
    for _ in range(failures):
        wait_for_sandbox_age()
        fail(envoy)
        more = statuses.count(200) + 10
        envoy.wait_for(lambda more=more: statuses.count(200) > more, "answers of the others")
    ends.set()
    for one in threads:
        one.join()
    lost = [status for status in statuses if status != 200]
    assert set(lost) <= set(ENDED) and len(lost) <= failures * len(threads) < statuses.count(200)
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")


def test_lease_of_a_failed_sandbox_passes_to_a_follower(failing, lasting, node):
    """Its leases end by their time."""
    other = lasting
    wait_for_sandbox(failing)
    number, before = next(_numbers), node.count()
    gate = node.gates[METHOD] = threading.Event()
    leader = Later(failing, number)
    failing.wait_for(lambda: node.count() > before, "the leader")
    follower = Later(other, number)
    fail(failing)
    gate.set()
    # its response arrived after its sandbox had failed
    assert leader.status() == 503
    assert follower.status() == 200
    other.wait_for(lambda: is_hit(other, number), "a hit")


def test_followers_in_a_failed_sandbox_end_with_the_idle_timeout(failing, node):
    """The failed sandbox is not called any more: Envoy's own deadline ends its requests."""
    envoy = failing
    wait_for_sandbox(envoy)
    number, before = next(_numbers), node.count()
    gate = node.gates[METHOD] = threading.Event()
    leader = Later(envoy, number)
    envoy.wait_for(lambda: node.count() > before, "the leader")
    follower = Later(envoy, number)
    active = "http.test.downstream_rq_active"
    envoy.wait_for(lambda: envoy.stats(f"^{active}$")[active] == 2, "both")
    fail(envoy)
    assert follower.status() in ENDED
    gate.set()
    leader.status()
    envoy.wait_for(lambda: is_hit(envoy, number), "a hit")

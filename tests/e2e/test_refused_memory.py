"""Failed allocations of nginx itself, each in turn, wherever a request needs memory: the
client receives a right response or an error. The node's part of a split batch is never the
whole response."""

import itertools
import json
import threading

import pytest

from harness import bodies
from harness.client import Truncated, request_bytes
from harness.origin import WaitFor, answer
from harness.preload import LIBRARIES, MAIN_THREAD, OTHER_THREADS
from harness.rpc import Node, call
from harness.nginx_state import wait_until_stable
from tiers import alternate, by_tier, pairwise

# a pool of 112 bytes has room for next to nothing, so that each thing that nginx
# wants of it is an allocation of its own
CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
sszip_cache_valid tip 1h;
sszip_cache_valid unfinalized 1h;
proxy_http_version 1.1;
proxy_buffer_size 32k;
proxy_buffers 16 64k;
proxy_busy_buffers_size 128k;
client_body_buffer_size 64k;
log_format reason '$request_id $status $sszip_mode $sszip_cache_status';
server {
    listen 127.0.0.1:@port@;
    location / { error_page 502 =502 /page; proxy_pass http://@origin@; }
    location = /page { sszip off; return 502 "the page"; }
    location /eth/ { sszip_ssz on; sszip_ssz_preset mainnet; sszip_cache off; error_page 502 =502 /page; proxy_pass http://@origin@; }
    location /status { sszip off; stub_status; }
}
server {
    listen 127.0.0.1:@port_small@;
    request_pool_size 112;
    location / { proxy_pass http://@origin@; }
    location /stale {
        sszip_cache_valid immutable 1ms;
        sszip_cache_use_stale http_503;
        proxy_pass http://@origin@;
    }
}
"""
# the size of the pool decides which requests fit into its rest, and which are allocations
# of their own
POOLS = (112, 128, 144, 176)
CONFIG += "".join(
    f"""
server {{
    listen 127.0.0.1:@port_{hold}_{pool}@;
    request_pool_size {pool};
    sszip_hold {hold} {patience};
    location / {{ proxy_pass http://@origin@; }}
}}
"""
    for pool in POOLS
    for hold, patience in (("1k", "60s"), ("64k", "5ms"))
)

JSON = ("Content-Type", "application/json")
LENGTHS = {"short": 300, "middle": 40_000, "long": 600_000}
_numbers = itertools.count(1)


def block(number, id):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', str(id))


def result(length, params):
    return b'"%b%b"' % (params[0].encode(), bodies.json(length // 2).hex().encode())


def node(length, **options):
    return Node(
        {"eth_getBlockByHash": lambda params: result(length, params)}, newline=b"", **options
    )


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    nginx = start_nginx(CONFIG, environment=preload.environment)
    # nginx logs each of its own failures
    nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")
    return nginx


@pytest.fixture(autouse=True)
def worker_survives(nginx):
    (worker,) = nginx.workers()
    yield
    assert nginx.workers() == [worker]
    wait_until_stable(nginx)


def batch(numbers):
    return b"[" + b",".join(block(number, number) for number in numbers) + b"]"


def wait_until_stored(nginx, number):
    """Waits until the entry is stored and read, as it is by its first hit."""
    nginx.wait_for(
        lambda: nginx.post("/", block(number, 1)).header("Cache-Status").startswith("sszip; hit"),
        "an answer to be stored",
    )


class BlockRequest:
    """A request, with the calls of it that are in the cache."""

    def __init__(self, nginx, length, kind, accept, port="port"):
        self.nginx, self.length, self.kind, self.accept, self.port = (
            nginx,
            length,
            kind,
            accept,
            port,
        )
        self.stored = [next(_numbers) for _ in range(2)] if kind != "miss" else []
        for number in self.stored:
            wait_until_stored(nginx, number)

    def prepare(self):
        """The numbers of the next request."""
        if self.kind == "hits":
            return self.stored
        return (
            [self.stored[0], next(_numbers), *self.stored[1:]] if self.stored else [next(_numbers)]
        )

    def __call__(self, numbers):
        """The outcome of a request: `"whole"`, a status, `"cut"`, or `"errors"` in place of
        the node's part of a batch that could not be decoded."""
        body = block(numbers[0], numbers[0]) if len(numbers) == 1 else batch(numbers)
        headers = [JSON, ("Connection", "close")]
        if self.accept:
            headers.append(("Accept-Encoding", self.accept))
        try:
            with self.nginx.connect(self.port) as connection:
                connection.send(request_bytes("/", method="POST", headers=headers, body=body))
                response = connection.read()
        except (Truncated, ConnectionError):
            return "cut"
        if response.status != 200:
            assert response.status in (400, 500, 502), response
            return response.status
        answers = json.loads(response.decoded)
        answers = answers if isinstance(answers, list) else [answers]
        assert sorted(one["id"] for one in answers) == sorted(numbers)
        refused = [one for one in answers if one.get("error", {}).get("code") == -32603]
        if refused:
            # the calls that were not stored, and no others
            assert [one["id"] for one in refused] == numbers[1:2] and len(numbers) > 1
        for one in answers:
            if one in refused:
                continue
            assert json.dumps(one["result"]).encode() == result(
                self.length, [f"0x{one['id']:064x}"]
            )
        return "errors" if refused else "whole"


@pytest.mark.parametrize(
    "kind, size, accept, framing",
    pairwise(["mixed", "hits", "miss"], list(LENGTHS), ["gzip", None], ["length", "chunked"]),
)
def test_response_is_right_or_an_error_when_any_allocation_fails(nginx, origin, preload, kind, size, accept, framing):
    # more than one header that is passed on: their list does not fit into a pool
    fields = [("X-Node", "1"), ("X-Block", "2")]
    origin.answers(node(LENGTHS[size], framing=framing, headers=fields))
    request = BlockRequest(nginx, LENGTHS[size], kind, accept, "port_small")
    (worker,) = nginx.workers()
    outcomes = []
    for skip in itertools.count():
        numbers = request.prepare()
        with preload.refusing(worker, skip=skip):
            outcomes.append(request(numbers))
        assert nginx.workers() == [worker], nginx.error_log()[-2000:]
        if not preload["refused"]:
            break
        # nothing is stuck: neither the flight nor the memory
        assert request(numbers) == "whole"
    assert len(outcomes) > 20
    assert outcomes[-1] == "whole"


def pausing(node):
    """The node pauses within a body, for longer than the buffering window."""

    def script(request):
        first, *rest = node(request)
        return [first, rest[0], WaitFor(threading.Event(), 0.03), *rest[1:]]

    return script


def at_once(node):
    """The node sends the whole response at once."""

    def script(request):
        steps = node(request)
        pieces = [step for step in steps if isinstance(step, bytes)]
        return [b"".join(pieces), *(step for step in steps if not isinstance(step, bytes))]

    return script


@pytest.mark.parametrize(
    "sends, framing, accept, pool",
    pairwise([pausing, at_once], ["length", "chunked"], ["gzip", None], by_tier(POOLS[:2], POOLS)),
)
def test_response_is_right_or_an_error_when_an_allocation_fails_after_buffering(
    nginx, origin, preload, sends, framing, accept, pool
):
    """The sender of the rest of the body, or of its end, is not notified that the head has
    failed."""

    def halves(body):
        return [body[: len(body) // 2], body[len(body) // 2 :]]

    length = 10_000
    origin.answers(sends(node(length, framing=framing, split=halves)))
    # within the window until the node has paused for too long, or beyond it
    port = f"port_{'64k' if sends is pausing else '1k'}_{pool}"
    request = BlockRequest(nginx, length, "miss", accept, port)
    (worker,) = nginx.workers()
    for skip in itertools.count():
        numbers = request.prepare()
        with preload.refusing(worker, skip=skip):
            outcome = request(numbers)
        assert nginx.workers() == [worker], nginx.error_log()[-2000:]
        if not preload["refused"]:
            break
    assert skip > 20 and outcome == "whole"


MANY = [(f"X-{n}", "1") for n in range(300)]


@pytest.mark.parametrize("size, accept, framing", pairwise(list(LENGTHS), ["gzip", None], ["length", "chunked"]))
def test_response_is_right_or_a_502_when_its_header_list_cannot_be_allocated(nginx, origin, preload, size, accept, framing):
    """The headers are numerous enough to make their list an allocation of its own, once for
    the node's response and once for the client's."""
    length = LENGTHS[size]
    good, many = node(length, framing=framing), node(length, framing=framing, headers=MANY)
    origin.answers(good)
    request = BlockRequest(nginx, length, "mixed", accept)
    origin.answers(many)
    (worker,) = nginx.workers()
    outcomes = []
    for skip in range(2):
        numbers = request.prepare()
        before = len(origin.received())
        with preload.refusing(worker, sizes=(300 * 32, 320 * 32), skip=skip):
            outcomes.append(request(numbers))
        assert preload["refused"] == 1
        assert len(origin.received()) == before + 1
        assert request(numbers) == "whole"
    assert outcomes == ["whole", 502]
    assert "not enough memory to buffer the response" in nginx.error_log()


CONSOLIDATIONS = "/eth/v1/beacon/states/9/pending_consolidations"
VALUE = b'{"version":"electra","data":[{"source_index":"1","target_index":"515"}]}'
VALUE_SSZ = (1).to_bytes(8, "little") + (515).to_bytes(8, "little")


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_client_of_ssz_only_gets_a_502_when_a_head_cannot_be_evaluated(nginx, origin, preload, framing):
    """The node was sent Accept for JSON too: an unread response may be JSON."""
    fields = [("Eth-Consensus-Version", "electra"), *MANY]
    origin.answers(answer(VALUE, headers=fields, framing=framing), CONSOLIDATIONS)
    octets = [("Accept", "application/octet-stream")]
    (worker,) = nginx.workers()
    before = nginx.error_log().count("the response was not evaluated")
    # the list is an allocation of its own
    with preload.refusing(worker, sizes=(300 * 32, 320 * 32)):
        response = nginx.get(CONSOLIDATIONS, None, headers=octets)
    assert preload["refused"] == 1
    assert (response.status, response.body) == (502, b"the page")
    assert nginx.error_log().count("the response was not evaluated") == before + 1
    with preload.refusing(worker, sizes=(300 * 32, 320 * 32)):
        response = nginx.get(CONSOLIDATIONS, None, headers=[("Accept", "application/json")])
    assert preload["refused"] == 1
    assert (response.status, response.body, response.mode) == (200, VALUE, "memory")
    response = nginx.get(CONSOLIDATIONS, None, headers=octets)
    assert (response.status, response.body, response.mode) == (200, VALUE_SSZ, "ssz")


# sizeof(ngx_buf_t)
BUFFER = (80, 80)


@pytest.mark.parametrize("size, accept", alternate(list(LENGTHS), ["gzip", None]))
def test_batch_is_a_502_when_its_buffers_cannot_be_allocated(nginx, origin, preload, size, accept):
    """The head is buffered, the batch is complete, and can't be sent."""
    length = LENGTHS[size]
    origin.answers(node(length))
    request = BlockRequest(nginx, length, "mixed", accept, "port_small")
    (worker,) = nginx.workers()
    before = nginx.error_log().count("not enough memory for the response")
    outcomes = []

    def logged():
        return nginx.error_log().count("not enough memory for the response") - before

    # the network decides how many buffers precede the response's: a turn may skip them
    for _ in range(10):
        for skip in itertools.count():
            numbers = request.prepare()
            with preload.refusing(worker, BUFFER, skip=skip):
                outcomes.append(request(numbers))
            if not preload["refused"]:
                break
            assert request(numbers) == "whole"
        if logged():
            break
    assert 0 < logged() <= outcomes.count(502)


# lengths of bodies: shorter allocations come from the core's reserve
LONG = (65 << 10, 1 << 40)


@pytest.mark.parametrize("accept, framing", alternate(["gzip", None], ["length", "chunked"]))
def test_merge_on_a_thread_is_a_502_when_an_allocation_fails(nginx, origin, preload, accept, framing):
    origin.answers(
        node(
            LENGTHS["long"], framing=framing, **({"coding": "gzip"} if framing == "chunked" else {})
        )
    )
    request = BlockRequest(nginx, LENGTHS["long"], "mixed", accept)
    (worker,) = nginx.workers()
    before = nginx.error_log().count("not enough memory to buffer the response")
    outcomes = []
    for skip in itertools.count():
        numbers = request.prepare()
        with preload.refusing(worker, LONG, LIBRARIES, OTHER_THREADS, skip=skip):
            outcomes.append(request(numbers))
        if not preload["refused"]:
            break
        assert request(numbers) == "whole"
    assert outcomes[-1] == "whole"
    assert set(outcomes[:-1]) <= {"whole", "errors", 502} and 502 in outcomes
    assert nginx.error_log().count("not enough memory to buffer the response") - before == outcomes.count(502)


@pytest.mark.parametrize(
    "size, accept, framing, most",
    pairwise(["middle", "long"], ["gzip", None], ["length", "chunked"], [1, 100]),
)
def test_batch_is_whole_or_a_502_when_the_event_loop_has_no_memory(nginx, origin, preload, size, accept, framing, most):
    """The node's part is buffered; it may be sent after the stored responses, which takes
    memory, too."""
    origin.answers(node(LENGTHS[size], framing=framing))
    request = BlockRequest(nginx, LENGTHS[size], "mixed", accept)
    (worker,) = nginx.workers()
    outcomes = []
    for skip in itertools.count():
        numbers = request.prepare()
        with preload.refusing(worker, LONG, LIBRARIES, MAIN_THREAD, skip=skip, most=most):
            outcomes.append(request(numbers))
        if not preload["refused"]:
            break
        assert request(numbers) == "whole"
    assert outcomes[-1] == "whole"
    assert set(outcomes) <= {"whole", 502}


@pytest.mark.parametrize("kind", ["hit", "hits"])
def test_call_is_forwarded_when_its_entry_cannot_be_decoded(nginx, origin, preload, kind):
    """The call is sent to the node, and the entry stays."""
    length = LENGTHS["long"]
    nodes = node(length)
    origin.answers(nodes)
    (worker,) = nginx.workers()
    numbers = [next(_numbers) for _ in range(3 if kind == "hits" else 1)]
    body = block(numbers[0], numbers[0]) if kind == "hit" else batch(numbers)

    def is_hit(accept):
        response = nginx.post("/", body, accept)
        assert response.status == 200
        assert response.coding == accept
        assert response.header("Vary") == "Accept-Encoding"
        answers = json.loads(response.decoded)
        for one in answers if kind == "hits" else [answers]:
            assert json.dumps(one["result"]).encode() == result(length, [f"0x{one['id']:064x}"])
        return response.header("Cache-Status").startswith("sszip; hit")

    for number in numbers:
        wait_until_stored(nginx, number)
    assert is_hit("gzip")
    nodes.received_calls.clear()
    for skip in itertools.count():
        with preload.refusing(worker, LONG, LIBRARIES, OTHER_THREADS, skip=skip):
            found = is_hit(None)
        if not preload["refused"]:
            break
        assert found == (nodes.count() == 0)
        nodes.received_calls.clear()
        assert is_hit("gzip")
        assert nodes.count() == 0
    assert skip > 0
    assert found


@pytest.mark.parametrize("size, accept", alternate(list(LENGTHS), ["gzip", None]))
def test_stale_response_is_whole_or_an_error_when_any_allocation_fails(nginx, origin, preload, size, accept):
    """The client receives the stale response, whole, or the node's: never the body of one
    with the status of the other."""
    length = LENGTHS[size]
    good, fails = node(length), {"now": False}
    fields = [("X-Node", "1"), ("X-Block", "2"), ("Retry-After", "9")]
    sorry = b'{"sorry":"%b"}' % (b"x" * 3000)
    origin.answers(
        lambda request: answer(sorry, status=503, headers=fields) if fails["now"] else good(request)
    )
    (worker,) = nginx.workers()
    number = next(_numbers)
    expected = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (
        number,
        result(length, [f"0x{number:064x}"]),
    )
    headers = [JSON, ("Connection", "close"), *([("Accept-Encoding", accept)] if accept else [])]

    def send():
        try:
            with nginx.connect("port_small") as connection:
                connection.send(
                    request_bytes(
                        "/stale", method="POST", headers=headers, body=block(number, number)
                    )
                )
                response = connection.read()
        except (Truncated, ConnectionError):
            return "cut"
        if response.status == 200:
            assert response.decoded == expected
        elif response.status == 503:
            assert response.decoded == sorry
        return response.status

    assert send() == 200
    # all work on the response is done
    wait_until_stable(nginx)
    fails["now"] = True
    nginx.wait_for(lambda: send() == 200, "it to stand in")
    outcomes = []
    for skip in itertools.count():
        with preload.refusing(worker, skip=skip):
            outcomes.append(send())
        assert nginx.workers() == [worker]
        if not preload["refused"]:
            break
        assert send() == 200
    assert set(outcomes) <= {200, 400, 500, 502, 503, "cut"}
    assert outcomes[-1] == 200

"""Aborts by the client or the node at any moment: the worker stays healthy, keeps
no connection and no memory, and does not spin."""

import random
import threading
import time

import pytest

from harness import bodies
from harness.client import Malformed, Truncated, request_bytes
from harness.guards import GUARD_SECONDS
from harness.recorded_nodes import BODY, geth, plain
from harness.origin import CLOSE, RESET, CloseWithoutResponse, WaitFor, answer, scattered
from harness.nginx_state import SLACK, memory_growth, wait_until_stable, wait_until_idle

pytestmark = pytest.mark.bare

GZIP = [("Accept-Encoding", "gzip")]
LARGE = bodies.json(900000)

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    sszip_hold 64k 60s;
    location / { proxy_pass http://@origin@; }
    location /unix { proxy_pass http://@origin_unix@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin@; }
    location /zipped { proxy_set_header Accept-Encoding gzip; proxy_pass http://@origin@; }
    location /impatient { proxy_read_timeout 1s; proxy_pass http://@origin@; }
    location /status { sszip off; stub_status; }
}
"""


@pytest.fixture(autouse=True)
def healthy_after(nginx, origin):
    yield
    wait_until_stable(nginx)
    wait_until_idle(nginx)
    origin.forget()
    origin.answers(geth())
    response = nginx.get("/")
    assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)
    assert len(nginx.all_workers()) == 1


@pytest.mark.parametrize("path", ["/", "/unbuffered", "/zipped"])
@pytest.mark.parametrize("body", [BODY, LARGE], ids=len)
def test_worker_stays_healthy_when_clients_abort_at_random_moments(nginx, origin, path, body):
    """Clients abort before, in and after the request, while the head is buffered, while
    the body is compressed, and in the middle of the response."""
    chance = random.Random(f"{path}{len(body)}")
    coding = "gzip" if path == "/zipped" else None
    origin.answers(lambda request: answer(body, coding=coding, split=scattered(chance.random(), 6)))
    accept = [] if coding else GZIP
    request = request_bytes(path, headers=accept)
    for _ in range(60):
        connection = nginx.connect()
        connection.send(request[: chance.choice([len(request), len(request), chance.randrange(len(request))])])
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.004)
        else:
            connection.socket.settimeout(0.01)
            try:
                connection.take(chance.randrange(1, 20000))
            except (OSError, Truncated):
                pass
        chance.choice([connection.close, connection.reset])()


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
@pytest.mark.parametrize("path", ["/", "/unix", "/unbuffered", "/zipped"])
def test_response_is_502_visibly_truncated_or_complete_when_node_aborts(nginx, origin, path, end, framing):
    """The client receives a 502, a visibly truncated response or a complete one.

    Truncation is invisible only for a body that is delimited by the connection."""
    chance = random.Random(f"{path}{framing}")
    coding = "gzip" if path == "/zipped" else None
    for number in range(25):
        body = LARGE if number % 5 == 0 else BODY
        script = answer(body, coding=coding, framing=framing, split=scattered(number, 6))
        sent = b"".join(step for step in script if isinstance(step, bytes))
        cut = chance.randrange(len(sent) + 1)
        origin.answers([*scattered(number, 4)(sent[:cut]), end])
        accept = None if coding or number % 3 == 0 else "gzip"
        try:
            response = nginx.get(path, accept)
        except (Truncated, ConnectionResetError):
            # A reset may overtake bytes that were sent before it.
            assert cut < len(sent) or end is RESET
            continue
        except Malformed:
            # HTTP/0.9 from a node that sent no whole status line
            assert cut < 20
            continue
        if response.status == 502:
            assert cut < len(sent) or end is RESET
        elif framing == "close":
            assert response.length is None
        else:
            assert (cut, response.decoded) == (len(sent), body)


@pytest.mark.parametrize("leave", ["close", "reset"])
@pytest.mark.parametrize("received", [0, 1, 15000, 29999])
def test_upstream_connection_is_closed_when_client_aborts_while_head_is_buffered(nginx, origin, leave, received):
    arrived, hangup = threading.Event(), CloseWithoutResponse()

    def respond(_request):
        yield answer(BODY)[0]
        yield BODY[:received]
        arrived.set()
        yield hangup

    origin.answers(respond)
    connection = nginx.connect()
    # over a Unix socket the node's bytes are sent when nginx has read them
    connection.send(request_bytes("/unix", headers=GZIP))
    assert arrived.wait(GUARD_SECONDS)
    getattr(connection, leave)()
    # nginx closes the connection to the node, too
    assert hangup.seen.wait(GUARD_SECONDS)


def test_buffered_body_ends_in_an_error_status_when_node_stalls(nginx, origin):
    """proxy_read_timeout ends the wait, and the client receives an error status."""
    hangup = CloseWithoutResponse()
    origin.answers([*answer(BODY)[:1], BODY[:1000], hangup])
    response = nginx.get("/impatient")
    assert response.status in (502, 504)
    assert response.coding is None
    assert hangup.seen.wait(GUARD_SECONDS)


def test_streamed_body_is_truncated_when_node_stalls(nginx, origin):
    origin.answers([*answer(BODY)[:1], BODY[:1000], CloseWithoutResponse()])

    def is_truncated():
        try:
            response = nginx.get("/impatient", accept=None)
        except Truncated:
            return True
        # the node of a busy machine has sent nothing in time
        assert response.status == 504
        return False

    nginx.wait_for(is_truncated, "a response whose head came in time")


def test_worker_stays_healthy_when_client_and_node_abort_together(nginx, origin):
    for number in range(50):
        go = threading.Event()
        origin.answers([*answer(BODY)[:1], BODY[: number * 500], WaitFor(go), RESET if number % 2 else CLOSE])
        connection = nginx.connect()
        connection.send(request_bytes("/", headers=GZIP))
        nginx.wait_for(lambda: origin.requests, "the node's request")
        origin.requests.clear()
        go.set()
        connection.reset()


def test_worker_is_idle_while_head_is_buffered(nginx, origin):
    """Buffering a head costs no processor time (ngx_brotli #80: 100 %)."""
    go = threading.Event()
    origin.answers([*answer(BODY)[:1], BODY[:20000], WaitFor(go), BODY[20000:]])
    with nginx.connect() as connection:
        connection.send(request_bytes("/", headers=GZIP))
        nginx.wait_for(lambda: origin.requests, "the node's request")
        wait_until_idle(nginx)
        go.set()
        assert connection.read().decoded == BODY


def test_worker_is_idle_while_client_does_not_read(nginx, origin):
    origin.answers(plain(bodies.random(300000) + bodies.json(900000)))
    with nginx.connect(receive_buffer=4096) as connection:
        connection.send(request_bytes("/", headers=GZIP))
        connection.read_head()
        wait_until_idle(nginx)


def test_aborted_requests_leak_no_memory(nginx, origin):
    origin.answers(lambda request: [*answer(LARGE)[:1], LARGE[:700000]] + ([CLOSE] if len(origin.requests) % 2 else [CloseWithoutResponse()]))

    def work():
        for number in range(20):
            connection = nginx.connect()
            connection.send(request_bytes("/", headers=GZIP))
            if number % 2:
                connection.socket.settimeout(0.01)
                try:
                    connection.read_head()
                except (OSError, Truncated):
                    pass
            connection.reset()
        wait_until_stable(nginx)

    assert memory_growth(nginx, work, rounds=10) < 4096 * SLACK

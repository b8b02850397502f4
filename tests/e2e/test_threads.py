"""Large bodies are compressed in nginx's thread pools, off the event loop."""

import concurrent.futures
import random
import threading
import time

import pytest

from harness import bodies, nginx as server
from harness.client import request_bytes
from harness.guards import GUARD_SECONDS
from harness.http2 import Http2Client
from harness.recorded_nodes import plain
from harness.origin import answer
from tiers import alternate, times

pytestmark = pytest.mark.bare

SMALL = bodies.json(20000)
LARGE = bodies.json(2000000)
GZIP = [("Accept-Encoding", "gzip")]

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    proxy_buffers 16 64k;
    proxy_busy_buffers_size 256k;
    client_max_body_size 0;
    sszip on;
    location / { proxy_pass http://@origin@; }
    location /named { sszip_thread_pool coders; proxy_pass http://@origin@; }
    location /short { sszip_thread_pool short; proxy_pass http://@origin@; }
    location /full { sszip_thread_pool full; proxy_pass http://@origin@; }
    location /off { sszip_thread_pool off; proxy_pass http://@origin@; }
    location /hard { sszip_comp_level 12; proxy_pass http://@origin@; }
    location /hard/off { sszip_comp_level 12; sszip_thread_pool off; proxy_pass http://@origin@; }
    location /hard/impatient {
        sszip_comp_level 12;
        send_timeout 2s;
        proxy_send_timeout 2s;
        proxy_read_timeout 2s;
        client_body_timeout 2s;
        proxy_pass http://@origin@;
    }
    location /ssi { ssi on; ssi_types application/json; proxy_pass http://@origin@; }
    location /gzip { gzip on; gzip_types application/json; proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_h2@ http2;
    sszip on;
    proxy_buffers 16 64k;
    proxy_busy_buffers_size 256k;
    location / { proxy_pass http://@origin@; }
    location /hard/impatient {
        sszip_comp_level 12;
        send_timeout 2s;
        proxy_send_timeout 2s;
        proxy_read_timeout 2s;
        client_body_timeout 2s;
        proxy_pass http://@origin@;
    }
}
"""
# Seconds for which threads work, more than the timeouts of /hard/impatient.
WORK = 3
OPTIONS = {"main": "thread_pool coders threads=2;\nthread_pool short threads=1 max_queue=1;\nthread_pool full threads=1 max_queue=0;"}


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    return start_nginx(CONFIG, environment=preload.environment, **OPTIONS)


def by_path(request):
    """The response of a path, which ends in the size of its body."""
    tail = request.path.rpartition("/")[2]
    return plain(bodies.json(int(tail)) if tail.isdigit() else LARGE)


def loop_ticks(nginx):
    """Processor time of the worker's event loop, and of its threads."""
    (worker,) = nginx.workers()
    loop = server.cpu_ticks(worker, worker)
    return loop, server.cpu_ticks(worker) - loop


@pytest.mark.parametrize(
    "path, size",
    alternate(
        ["/", "/named/", "/short/", "/full/", "/off/", "/ssi/", "/gzip/"],
        [262143, 262144, 262145, 262146, 500000, 2000000, 5000000],
    ),
)
def test_bodies_around_the_threshold_are_compressed(nginx, origin, path, size):
    origin.answers(by_path)
    with nginx.connect() as connection:
        for _ in range(2):
            response = connection.exchange(f"{path}{size}", headers=GZIP)
            # SSI removes the length: such a response is a stream
            assert (response.coding, response.framing) == ("gzip", "chunked" if path == "/ssi/" else "length")
            assert response.decoded == bodies.json(size)


def test_event_loop_does_not_compress_large_bodies(nginx, origin):
    """At level 12 the encoder takes nearly all the time: a thread must spend it."""
    origin.answers(by_path)
    loop, pool = loop_ticks(nginx)
    for _ in range(3):
        assert nginx.get("/hard/400000").mode == "oneshot"
    loop_after, pool_after = loop_ticks(nginx)
    assert pool_after - pool > 5 * (loop_after - loop)
    assert pool_after - pool > 10


def test_event_loop_compresses_when_the_thread_pool_is_off(nginx, origin):
    origin.answers(by_path)
    loop, pool = loop_ticks(nginx)
    for _ in range(3):
        assert nginx.get("/hard/off/400000").mode == "oneshot"
    loop_after, pool_after = loop_ticks(nginx)
    assert pool_after - pool <= 2
    assert loop_after - loop > 10


def test_small_responses_are_sent_before_large_ones(nginx, origin, preload):
    """The event loop compresses small responses while a thread works on a large one."""
    origin.answers(by_path)
    (worker,) = nginx.workers()
    with nginx.connect() as slow:
        with preload.holding(worker):
            slow.send(request_bytes("/hard/300000", headers=GZIP))
            nginx.wait_for(lambda: preload["seen"], "a thread to compress the large response")
            slow.socket.setblocking(False)
            for _ in range(20):
                assert nginx.get("/20000").decoded == SMALL
            with pytest.raises(BlockingIOError):
                slow.socket.recv(1)
        slow.socket.settimeout(GUARD_SECONDS)
        assert slow.read().decoded == bodies.json(300000)


@pytest.mark.parametrize("path", ["/", "/named/", "/short/"])
def test_responses_are_right_when_there_are_more_than_threads(nginx, origin, path):
    """The number of requests exceeds the number of threads."""
    origin.answers(by_path)
    bodies.json(600000)

    def client(number):
        with nginx.connect() as connection:
            for size in (300000, 600000, 20000, 600000):
                response = connection.exchange(f"{path}{size}", headers=GZIP)
                if response.coding != "gzip" or response.decoded != bodies.json(size):
                    return (number, size)
        return None

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert [wrong for wrong in pool.map(client, range(24)) if wrong] == []


def test_event_loop_compresses_when_the_pool_is_full(nginx, origin):
    """A response is compressed in the event loop when no thread is free."""
    origin.answers(by_path)
    with nginx.connect() as connection:
        connection.send(b"".join(request_bytes("/full/600000", headers=GZIP) for _ in range(5)))
        for _ in range(5):
            response = connection.read()
            assert (response.coding, response.decoded) == ("gzip", bodies.json(600000))


@pytest.mark.parametrize("port", ["port", "port_h2"])
def test_timeouts_do_not_run_during_compression(nginx, origin, preload, port):
    """The threads take longer than any timeout: timeouts limit the silence of peers, not the work of
    sszip."""
    # a thread compresses it, and each peer takes it in one piece
    body = bodies.json(40000)
    origin.answers(by_path)
    (worker,) = nginx.workers()
    path = "/hard/impatient/40000"

    def work():
        """Lets the threads work for longer than the timeouts."""
        nginx.wait_for(lambda: len(origin.received(path)) == 3 and preload["seen"], "the threads to compress")
        time.sleep(WORK)

    if port == "port_h2":
        with Http2Client(nginx.ports[port]) as client:
            with preload.holding(worker):
                streams = [client.fetch(path) for _ in range(3)]
                work()
            client.finish(*streams)
            for stream in streams:
                client.check_response(stream, body)
        return
    connections = [nginx.connect() for _ in range(3)]
    with preload.holding(worker):
        for connection in connections:
            connection.send(request_bytes(path, headers=GZIP))
        work()
    for connection in connections:
        response = connection.read()
        assert (response.status, response.coding, response.decoded) == (200, "gzip", body)
        connection.close()


def test_http2_streams_share_the_threads(nginx, origin):
    origin.answers(by_path)
    with Http2Client(nginx.ports["port_h2"]) as client:
        sizes = [300000 + 50000 * number for number in range(12)]
        streams = {client.fetch(f"/{size}"): size for size in sizes}
        cancelled = {stream for stream in list(streams)[::3]}
        for stream in cancelled:
            client.reset(stream)
        whole = set(streams) - cancelled
        client.finish(*whole)
        for stream in whole:
            client.check_response(stream, bodies.json(streams[stream]))


def test_worker_survives_clients_that_abort_during_compression(nginx, origin):
    """A task continues in its thread when its connection is closed."""
    origin.answers(by_path)
    chance = random.Random(5)
    for number in range(times(20, 40)):
        connection = nginx.connect()
        connection.send(request_bytes("/hard/150000" if number % 2 else "/2000000", headers=GZIP))
        time.sleep(chance.random() * 0.03)
        if number % 3:
            connection.reset()
        else:
            connection.close()
    assert nginx.get("/2000000").decoded == LARGE


def test_pipelined_responses_are_in_order(nginx, origin):
    origin.answers(by_path)
    sizes = [300000, 20000, 600000, 20000]
    with nginx.connect() as connection:
        connection.send(b"".join(request_bytes(f"/{size}", headers=GZIP) for size in sizes))
        for size in sizes:
            assert connection.read().decoded == bodies.json(size)


def test_slow_client_gets_the_whole_response(nginx, origin):
    body = bodies.random(300000) + LARGE
    origin.answers(answer(body))
    with nginx.connect(receive_buffer=4096) as connection:
        response = connection.exchange("/", headers=GZIP)
    assert response.decoded == body


@pytest.mark.parametrize("path", ["/hard/500000", "/5000000"])
def test_responses_are_complete_when_nginx_reloads_during_compression(nginx, origin, path):
    """The old worker completes its tasks before it exits."""
    origin.answers(by_path)
    size = int(path.rpartition("/")[2])
    done = []

    def client():
        with nginx.connect() as connection:
            done.append(connection.exchange(path, headers=GZIP).decoded == bodies.json(size))

    clients = [threading.Thread(target=client) for _ in range(6)]
    for thread in clients:
        thread.start()
    nginx.wait_for(lambda: len(origin.received(path)) == 6, "six requests")
    nginx.reload()
    for thread in clients:
        thread.join(GUARD_SECONDS)
    assert done == [True] * 6
    assert nginx.get("/20000").decoded == SMALL
    nginx.wait_for(lambda: len(nginx.all_workers()) == 1, "the old worker to go")

"""Reload and binary upgrade under load, and in the middle of streams: no request is lost, and every
response is right."""

import contextlib
import os
import signal
import socket
import threading

import pytest

from harness import bodies
from harness.guards import GUARD_SECONDS
from harness.load import Load
from harness.nginx import Nginx, resident
from harness.processes import runs
from harness.origin import WaitFor, answer, chunked, scattered
from harness.nginx_state import SLACK
from harness.response_stream import open_stream

pytestmark = pytest.mark.bare

SIZES = [100, 30000, 400000]
GZIP = [("Accept-Encoding", "gzip")]
BROWSER = [("Accept-Encoding", "gzip, deflate, br, zstd")]
# without it nginx buffers bytes that do not fill one of its buffers
UNBUFFERED = [("X-Accel-Buffering", "no")]

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    sszip_zstd on;
    sszip_comp_level @level@;
    location /stream { sszip_hold 0; proxy_pass http://@origin@; }
    location / { proxy_pass http://@origin@; }
    location /zipped { proxy_set_header Accept-Encoding gzip; proxy_pass http://@origin@; }
}
"""
REQUESTS = [
    ((f"{path}/{size}", headers), bodies.json(size))
    for path in ("", "/zipped")
    for size in SIZES
    for headers in (GZIP, BROWSER, [])
]


def node(request):
    body = bodies.json(int(request.path.rpartition("/")[2]))
    if request.header("Accept-Encoding") == "gzip":
        return answer(body, coding="gzip")
    return answer(body, split=scattered(len(body), most=4))


@pytest.fixture
def upgraded(start_nginx, origin):
    origin.answers(node)
    return start_nginx(CONFIG.replace("@level@", "1"), workers=2, daemon=True)


def await_more(load, nginx, count):
    target = load.answered + count
    nginx.wait_for(lambda: load.answered >= target or load.faults, f"{count} more answers", seconds=60)


def test_responses_are_right_when_nginx_reloads_under_load(upgraded):
    nginx = upgraded
    with Load(nginx.port, REQUESTS) as load:
        for level in ("6", "1", "2", "12", "1", "3"):
            await_more(load, nginx, 30)
            nginx.write(CONFIG.replace("@level@", level))
            nginx.reload()
        await_more(load, nginx, 60)
    assert load.faults == []
    nginx.wait_for(lambda: len(nginx.all_workers()) == 2, "the old workers to go")


def test_reload_applies_new_values(upgraded, origin):
    nginx = upgraded
    assert nginx.get("/30000").mode == "oneshot"
    nginx.write(CONFIG.replace("sszip on", "sszip off").replace("@level@", "1"))
    nginx.reload()
    assert nginx.get("/30000").mode == "off"
    nginx.write(CONFIG.replace("@level@", "1"))
    nginx.reload()
    assert nginx.get("/30000").mode == "oneshot"


def test_reload_of_an_invalid_configuration_changes_nothing(upgraded):
    nginx = upgraded
    nginx.expect(r"\[emerg\].*sszip_comp_level")
    workers = nginx.workers()
    nginx.write(CONFIG.replace("@level@", "99"))
    os.kill(nginx.master, signal.SIGHUP)
    nginx.wait_for(lambda: "sszip_comp_level" in nginx.error_log(), "the complaint")
    assert nginx.get("/30000").mode == "oneshot"
    assert sorted(nginx.workers()) == sorted(workers)
    nginx.write(CONFIG.replace("@level@", "1"))
    nginx.reload()


def shut_down_workers(nginx):
    """Shuts all workers down gracefully; the master replaces each one that has ended."""
    workers = set(nginx.workers())
    for worker in workers:
        os.kill(worker, signal.SIGQUIT)
    nginx.wait_for(lambda: not workers & set(nginx.workers()), "the workers to shut down")


@pytest.mark.parametrize("end_workers", [Nginx.reload, shut_down_workers])
def test_streams_are_complete_when_their_worker_shuts_down(upgraded, origin, end_workers):
    nginx = upgraded
    body = bodies.json(200000)
    sent = 70000
    go_on = threading.Event()
    script = answer(framing="chunked", headers=UNBUFFERED)[:1]
    origin.answers([*script, *chunked([body[:sent]], last=False), WaitFor(go_on), *chunked([body[sent:]])], "/stream")
    with contextlib.ExitStack() as stack:
        streams = []
        for coding in ("zstd", "gzip"):
            streams.append(open_stream(stack.enter_context(nginx.connect()), "/stream", coding))
            assert (streams[-1].head.coding, streams[-1].chunked) == (coding, True)
            assert streams[-1].until(sent) == body[:sent]
        end_workers(nginx)
        go_on.set()
        for stream in streams:
            assert stream.finish() == body
            stream.connection.ended()
    nginx.wait_for(lambda: len(nginx.workers()) == len(nginx.all_workers()) == 2, "the new workers")
    response = nginx.get("/30000", "zstd")
    assert (response.coding, response.decoded) == ("zstd", bodies.json(30000))


def test_memory_of_the_master_is_constant_over_reloads(upgraded):
    """Memory of earlier configurations is freed."""
    nginx = upgraded
    for _ in range(5):
        nginx.reload()
    before = resident(nginx.master)
    for _ in range(20):
        nginx.reload()
    assert resident(nginx.master) - before < 2048 * SLACK


def test_responses_are_right_when_nginx_is_upgraded_under_load(upgraded):
    """USR2 starts the new master in addition to the old one, QUIT ends the old."""
    nginx = upgraded
    old = nginx.master
    with Load(nginx.port, REQUESTS) as load:
        await_more(load, nginx, 30)
        os.kill(old, signal.SIGUSR2)
        nginx.wait_for(lambda: nginx.master_or_none() not in (None, old), "the new master")
        nginx.wait_for(nginx.workers, "the new workers")
        await_more(load, nginx, 30)
        os.kill(old, signal.SIGQUIT)
        nginx.wait_for(lambda: not runs(old), "the old master to go", seconds=60)
        await_more(load, nginx, 60)
    assert load.faults == []
    assert nginx.master != old


def test_load_reports_wrong_and_truncated_responses():
    """The load detects a wrong byte and a truncated response (a test of the test)."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for reply in (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"):
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(reply)
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    load = Load(listener.getsockname()[1], [(("/", []), b"y")], clients=1)
    with load:
        thread.join(GUARD_SECONDS)
        listener.close()
    assert any("200, 1 bytes" in fault for fault in load.faults)
    assert any("Truncated" in fault for fault in load.faults)

"""The module in nginx's processes: the names that it exports, the start of its threads, and
other ways to run nginx."""

import os
import signal
import subprocess

import pytest

from harness import bodies
from harness.nginx import MODULE, Nginx, threads
from harness.recorded_nodes import BODY, geth, plain

pytestmark = pytest.mark.bare

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    location / { proxy_pass http://@origin@; }
}
"""
LARGE = bodies.json(900000)


class TestLibrary:
    def test_module_exports_names_of_nginx_only(self):
        """nginx opens modules with RTLD_GLOBAL: any other name would be visible to all
        libraries."""
        done = subprocess.run(
            ["nm", "-D", "--defined-only", MODULE], capture_output=True, text=True, check=True
        )
        names = [line.split()[-1] for line in done.stdout.splitlines()]
        assert "ngx_modules" in names
        ours = [name.removeprefix("__odr_asan.") for name in names]
        assert [name for name in ours if not name.startswith("ngx_")] == []

    def test_module_is_not_unloaded_by_a_reload(self):
        """nginx closes modules on reload; data of threads must outlive that."""
        done = subprocess.run(["readelf", "-d", MODULE], capture_output=True, text=True, check=True)
        assert "NODELETE" in done.stdout


class TestThreads:
    def test_master_has_no_additional_threads(self, nginx, origin):
        assert len(threads(nginx.master)) == 1
        nginx.reload()
        assert len(threads(nginx.master)) == 1

    def test_worker_has_no_threads_when_the_thread_pool_is_off(self, start_nginx, origin):
        nginx = start_nginx(CONFIG.replace("sszip on;", "sszip on; sszip_thread_pool off;"))
        origin.answers(plain(LARGE))
        assert nginx.get("/").decoded == LARGE
        (worker,) = nginx.workers()
        assert len(threads(worker)) == 1

    def test_worker_has_no_threads_when_sszip_is_off(self, start_nginx, origin):
        nginx = start_nginx(CONFIG.replace("sszip on;", ""))
        (worker,) = nginx.workers()
        assert len(threads(worker)) == 1


def test_responses_are_compressed_in_a_single_process(start_nginx, origin):
    """`master_process off` is used in a debugger or a small container."""
    nginx = start_nginx(CONFIG, main="master_process off;", single=True)
    for body in (BODY, LARGE):
        origin.answers(geth(body))
        for _ in range(5):
            response = nginx.get("/")
            assert (response.coding, response.framing, response.decoded) == ("gzip", "length", body)
            assert nginx.get("/", accept=None).body == body


def test_responses_are_right_with_several_workers(start_nginx, origin):
    nginx = start_nginx(CONFIG, workers=4)
    origin.answers(geth())
    assert all(nginx.get("/").decoded == BODY for _ in range(100))


def test_debug_log_is_written_for_every_kind_of_response(start_nginx, origin):
    """The responses cover every line that the module can log."""
    nginx = start_nginx(CONFIG, main="error_log @prefix@/debug.log debug;")
    for script in (
        plain(),
        plain(LARGE),
        plain(bodies.random(5000)),
        plain(framing="chunked"),
        plain(coding="gzip"),
        plain(cut_at=100),
        plain(b""),
    ):
        origin.answers(script)
        for accept in ("gzip", None):
            try:
                nginx.get("/", accept)
            except AssertionError:
                pass  # truncated, where the head was not buffered
    log = (nginx.prefix / "debug.log").read_text(errors="replace")
    assert "http sszip" in log


def test_killed_worker_is_replaced(start_nginx, origin):
    nginx = start_nginx(CONFIG)
    nginx.expect("exited on signal 9")
    origin.answers(geth())
    (worker,) = nginx.workers()
    os.kill(worker, signal.SIGKILL)
    nginx.wait_for(lambda: nginx.workers() and nginx.workers() != [worker], "a new worker")
    assert nginx.get("/").decoded == BODY


def test_loaded_module_changes_nothing_without_its_directive(start_nginx, origin):
    """The configuration has load_module only."""
    nginx = start_nginx(CONFIG.replace("sszip on;", ""))
    origin.answers(geth())
    response = nginx.get("/")
    assert (response.framing, response.decoded, response.header("Vary")) == ("chunked", BODY, None)
    assert origin.last().header("Accept-Encoding") == "gzip"
    assert response.mode == "off"


@pytest.mark.parametrize("line", ["sszip on;", "sszip off;", "sszip_comp_level 3;"])
def test_valid_configuration_has_no_warnings(line):
    nginx = Nginx(f"{line} server {{ listen 127.0.0.1:@port@; }}")
    try:
        status, output = nginx.test()
    finally:
        nginx.stop()
    assert status == 0
    assert len(output.splitlines()) == 2, output

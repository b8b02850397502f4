"""GET through the cache as http-cache-tests (RFC 9111 and related rules) sees it: sszip_cache
passes every test that stock nginx's proxy_cache passes."""

import concurrent.futures
import functools
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from harness.guards import GUARD_SECONDS
from harness.nginx import free_port

pytestmark = [
    pytest.mark.once("what is stored, and for how long, is the core's decision; the suite waits for minutes"),
    pytest.mark.thorough("rows of the parity table and tests of freshness state the same rules"),
]

RUNNER = Path(__file__).parent / "harness" / "http-cache-tests.mjs"

CONFIG = """
proxy_cache_path @prefix@/stock keys_zone=stock:8m;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://127.0.0.1:@cases@; proxy_cache stock; proxy_cache_revalidate on; }
}
server {
    listen 127.0.0.1:@port_sszip@;
    sszip on;
    sszip_cache on;
    # caches are compared, not coders: they would add to Vary
    sszip_types application/x-nothing;
    # as proxy_cache does
    sszip_cache_credentials ignore;
    location / { proxy_pass http://127.0.0.1:@cases@; }
}
"""


# Tests that proxy_cache passes by breaking a rule that sszip keeps.
RULES = {
    "ccreq-max-stale-age": "proxy_cache takes no notice of Age, so that a stale answer is fresh to it",
    "freshness-expires-invalid-aest": "RFC 9111, 5.3: what is no HTTP-date is in the past; proxy_cache reads AEST as GMT",
    "freshness-max-age-two-stale-fresh-sepline": "RFC 9111, 4.2.1: the first of two max-age counts; it takes the last",
    "headers-store-Transfer-Encoding": "an answer that ends with its connection may have been cut: it is not stored",
}


@pytest.fixture(scope="module")
def suite(cache_directory):
    """The folder in which set-up has installed the package."""
    path = cache_directory / "http-cache-tests" / "node_modules" / "http-cache-tests"
    assert path.is_dir(), f"scripts/setup test installs {path}"
    return path


@pytest.fixture(scope="module")
def cases(suite, tmp_path_factory):
    """The port of the suite's origin."""
    port = free_port()
    directory = tmp_path_factory.mktemp("http-cache-tests")
    environment = {
        **os.environ,
        "npm_config_protocol": "http",
        "npm_config_port": str(port),
        "npm_config_pidfile": str(directory / "pid"),
    }
    server = subprocess.Popen(
        ["node", "server/server.mjs"], cwd=suite, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + GUARD_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, "the suite's origin does not listen"
            time.sleep(0.05)
    yield port
    server.send_signal(signal.SIGTERM)
    server.wait(GUARD_SECONDS)


def run(suite, port, only=()):
    command = ["node", "--no-warnings", str(RUNNER), f"http://127.0.0.1:{port}", *only]
    ran = subprocess.run(command, cwd=suite, capture_output=True, timeout=300, check=True)
    output = ran.stdout.decode()
    return json.loads(output[output.index("{") :])


def run_all(suite, *ports, only=()):
    """Runs the suites concurrently: most of the time they wait."""
    with concurrent.futures.ThreadPoolExecutor(len(ports)) as pool:
        return list(pool.map(functools.partial(run, suite, only=only), ports))


def failures_after_retry(suite, port, names):
    """The tests that fail, with results, after one repetition: some have two seconds for a
    step, which a busy machine may miss."""
    results = run(suite, port, names) if names else {}
    return {name: results.get(name) for name in names if results.get(name) is not True}


def passed(results):
    return {name for name, result in results.items() if result is True}


def test_http_cache_tests_that_proxy_cache_passes_are_passed(start_nginx, suite, cases):
    # one worker: the second request must find the first one's entry
    nginx = start_nginx(CONFIG.replace("@cases@", str(cases)), workers=1)
    stock, ours = run_all(suite, nginx.ports["port"], nginx.ports["port_sszip"])
    assert len(stock) > 300 and len(passed(stock)) > 180
    missed = failures_after_retry(suite, nginx.ports["port_sszip"], sorted(passed(stock) - passed(ours) - set(RULES)))
    assert not missed, json.dumps(missed, indent=1)
    assert len(passed(ours)) >= len(passed(stock))

"""Failed allocations of nginx itself, each in turn, while it creates the request to the node: the node
receives the whole body, however the location sets its length, or no request. Without sszip, nginx omits
a Content-Length whose value cannot be allocated, and sends the body nevertheless. A configuration that
only purges reserves no memory for lengths."""

import itertools
import os
import signal

import pytest

from harness.client import Truncated, request_bytes
from harness.nginx_state import wait_until_stable
from harness.origin import answer, chunked
from harness.rpc import call

SET_BODY = b'{"jsonrpc":"2.0","id":7,"method":"eth_syncing"}'
# a pool has room for next to nothing: its size decides which allocations fit into its rest, and
# which are their own
POOLS = range(112, 320, 16)
SERVER = """
server {
    listen 127.0.0.1:@port_%(pool)d@;
    request_pool_size %(pool)d;
    location /cached { sszip_cache on; proxy_pass http://@origin@; }
    location /passed { proxy_pass http://@origin@; }
    location /length { proxy_set_header Content-Length $content_length; proxy_pass http://@origin@; }
    location /body { proxy_set_body '%(body)s'; proxy_pass http://@origin@; }
}
"""
CONFIG = """
sszip on;
sszip_cache_namespace main;
proxy_http_version 1.1;
server { listen 127.0.0.1:@port@; location /status { sszip off; stub_status; } }
"""
CONFIG += "".join(SERVER % {"pool": pool, "body": SET_BODY.decode()} for pool in POOLS)
RESPONSE = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
# each call has another block: no response is a stored one
BLOCKS = itertools.count()

# numbers of headers before $content_length that allocate as many bytes each: after one of them
# $content_length needs another block of the pool
FILLERS = range(24, 32)
PURGE = """
    location = /purge%d {
        sszip_cache_purge on;
        %s
        add_header X-Length $content_length always;
    }
"""
PURGES_ONLY = """
sszip_cache_owner unix:@prefix@/nobody;
server {
    listen 127.0.0.1:@port@;
    request_pool_size 112;
    location /status { stub_status; }
"""
for count in FILLERS:
    PURGES_ONLY += PURGE % (count, "add_header X-Filler $request_length always; " * count)
PURGES_ONLY += "}"


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    nginx = start_nginx(CONFIG, environment=preload.environment)
    expect_refusals(nginx)
    return nginx


def expect_refusals(nginx):
    """Accepts the log lines of nginx's own failures."""
    nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")


def post_chunks(nginx, port, path, body):
    """The response to a request in chunks; None if it is cut."""
    headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"), ("Connection", "close")]
    chunks = b"".join(chunked([body[:20], body[20:]]))
    try:
        with nginx.connect(port) as connection:
            connection.send(request_bytes(path, method="POST", headers=headers, body=chunks))
            return connection.read("POST")
    except (Truncated, ConnectionError):
        return None


def post(nginx, pool, path, body):
    """The outcome of a request in chunks: `"whole"`, a status, or `"cut"`."""
    response = post_chunks(nginx, f"port_{pool}", path, body)
    if response is None:
        return "cut"
    if response.status == 200:
        assert response.decoded == RESPONSE
        return "whole"
    assert response.status in (400, 500, 502), response
    return response.status


def post_with_refusals(nginx, preload, path, pools):
    """Sends requests while each allocation fails in turn. Returns their outcomes, and their bodies."""
    (worker,) = nginx.workers()
    outcomes, sent = [], set()
    for pool in pools:
        for skip in itertools.count():
            sent.add(body := call("eth_getBlockByHash", f'["0x{next(BLOCKS):064x}",false]'))
            with preload.refusing(worker, skip=skip):
                outcomes.append(post(nginx, pool, path, body))
            if not preload["refused"]:
                break
        assert outcomes[-1] == "whole"
    assert nginx.workers() == [worker]
    wait_until_stable(nginx)
    return outcomes, sent


@pytest.mark.parametrize("path", ["/cached", "/passed", "/length", "/body"])
def test_node_receives_the_whole_body_or_no_request_when_an_allocation_fails(nginx, origin, preload, path):
    origin.answers(lambda request: answer(RESPONSE))
    outcomes, sent = post_with_refusals(nginx, preload, path, POOLS)
    assert 500 in outcomes
    received = {request.body for request in origin.received()}
    assert received == {SET_BODY} if path == "/body" else received < sent


def test_node_receives_the_whole_body_after_reloads_of_which_one_was_rejected(start_nginx, origin, preload):
    """The handlers of the length variables belong to the configuration that is in use."""
    nginx = start_nginx(CONFIG, environment=preload.environment)
    expect_refusals(nginx)
    nginx.expect(r"\[emerg\].*/missing/access.log")
    origin.answers(lambda request: answer(RESPONSE))
    # the file is opened after the module has replaced the handlers
    nginx.write(CONFIG + "access_log @prefix@/missing/access.log;")
    os.kill(nginx.master, signal.SIGHUP)
    nginx.wait_for(lambda: "/missing/access.log" in nginx.error_log(), "the configuration to be rejected")
    sent = set()
    for reloads in (False, True):
        if reloads:
            nginx.write(CONFIG)
            nginx.reload()
        for path in ("/cached", "/length"):
            sent |= post_with_refusals(nginx, preload, path, POOLS[::4])[1]
    assert {request.body for request in origin.received()} < sent


def test_length_that_cannot_be_allocated_is_absent_when_the_configuration_only_purges(start_nginx, preload):
    nginx = start_nginx(PURGES_ONLY, environment=preload.environment)
    expect_refusals(nginx)
    (worker,) = nginx.workers()
    lengths = set()
    for count in FILLERS:
        for skip in itertools.count():
            with preload.refusing(worker, skip=skip):
                response = post_chunks(nginx, "port", f"/purge{count}?everything", b"{}" * 20)
            if response is not None:
                assert response.status in (400, 500, 503), response
            if response is not None and response.status == 503:
                lengths.add(response.header("X-Length"))
            if not preload["refused"]:
                break
        # nothing of the body is left
        assert response.header("X-Length") == "0"
    assert lengths == {"0", None}
    assert nginx.workers() == [worker]
    wait_until_stable(nginx)

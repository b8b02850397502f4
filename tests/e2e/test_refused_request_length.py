"""Failed allocations of nginx itself, each in turn, while it creates the request to the node: the node
receives the whole body, however the location sets its length, or no request. Without sszip, nginx omits
a Content-Length whose value cannot be allocated, and sends the body nevertheless."""

import itertools

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


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    nginx = start_nginx(CONFIG, environment=preload.environment)
    # nginx logs each of its own failures
    nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")
    return nginx


def post(nginx, pool, path, body):
    """The outcome of a request in chunks: `"whole"`, a status, or `"cut"`."""
    headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"), ("Connection", "close")]
    chunks = b"".join(chunked([body[:20], body[20:]]))
    try:
        with nginx.connect(f"port_{pool}") as connection:
            connection.send(request_bytes(path, method="POST", headers=headers, body=chunks))
            response = connection.read("POST")
    except (Truncated, ConnectionError):
        return "cut"
    if response.status == 200:
        assert response.decoded == RESPONSE
        return "whole"
    assert response.status in (400, 500, 502), response
    return response.status


@pytest.mark.parametrize("path", ["/cached", "/passed", "/length", "/body"])
def test_node_receives_the_whole_body_or_no_request_when_an_allocation_fails(nginx, origin, preload, path):
    origin.answers(lambda request: answer(RESPONSE))
    (worker,) = nginx.workers()
    outcomes, sent = [], set()
    for pool in POOLS:
        for skip in itertools.count():
            # no other call has this block: no response is a stored one
            sent.add(body := call("eth_getBlockByHash", f'["0x{len(sent):064x}",false]'))
            with preload.refusing(worker, skip=skip):
                outcomes.append(post(nginx, pool, path, body))
            if not preload["refused"]:
                break
        assert outcomes[-1] == "whole"
    assert nginx.workers() == [worker]
    wait_until_stable(nginx)
    assert 500 in outcomes
    received = {request.body for request in origin.received()}
    assert received == {SET_BODY} if path == "/body" else received < sent

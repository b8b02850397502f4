"""Shapes of configurations and responses in nginx's own tests: redirects after the head of
a response was evaluated, truncated responses, slices, a length that was evaluated early,
clients that abort."""

import json
import threading
import time

import pytest

from harness.client import fetch, gunzip, request_bytes
from harness.guards import GUARD_SECONDS
from harness.nginx_state import wait_for_earlier_events
from harness.origin import CLOSE, WaitFor, answer, chunked, head
from harness.rpc import Node, call

JSON = ("Content-Type", "application/json")
GZIP = ("Accept-Encoding", "gzip")
LARGE = b'"0x' + b"ab" * 20000 + b'"'
HASH = '["0x' + "ab" * 32 + '",true]'

CONFIG = """
sszip on;
sszip_min_length 1;
proxy_http_version 1.1;
log_format last '$sszip_rpc_method|$sszip_cache_status|$content_length';
server {
    listen 127.0.0.1:@port@;
    root @prefix@/files;
    location /ranged { error_page 416 /other.json; types { application/json json; } }
    location /other.json { types { application/json json; } }
    location /named { access_log @prefix@/last.log last; sszip_cache on; proxy_set_header X-Method $sszip_rpc_method;
        proxy_intercept_errors on; error_page 502 503 /static; proxy_pass http://@origin@; }
    location /static { access_log @prefix@/last.log last; }
    location /after { add_after_body /part; addition_types *; proxy_pass http://@origin@; }
    location /part { sszip off; proxy_pass http://@origin@; }
    location /slices { slice 1000; proxy_set_header Range $slice_range; proxy_pass http://@origin@; }
    location /early {
        sszip_cache on;
        if ($content_length = 1) { return 400; }
        proxy_set_header Content-Length $content_length;
        access_log @prefix@/last.log last;
        proxy_pass http://@origin@;
    }
    location /copied {
        sszip_cache on;
        set $length $content_length;
        proxy_set_header Content-Length $length;
        proxy_pass http://@origin@;
    }
    location /left { sszip_cache on; proxy_pass http://@origin_unix@; }
    location = /worker { sszip off; return 200 $pid; }
    location /posted { sszip_cache on; sszip_cache_max_entry 64m; post_action /part; proxy_pass http://@origin@; }
}
"""
OPTIONS = {"files": {"files/ranged.json": b'{"a":1}' * 500, "files/other.json": b'{"b":2}' * 500, "files/static": b"static" * 500}}


def post(nginx, path, body, *headers):
    return fetch(nginx.port, path, method="POST", body=body, headers=[JSON, *headers])


def test_unsatisfiable_range_gets_the_error_page(nginx):
    for _ in range(50):
        headers = [("Range", "bytes=999999-")]
        response = fetch(nginx.port, "/ranged.json", headers=headers)
        assert (response.status, response.body) == (416, b'{"b":2}' * 500)
        assert response.all("Vary") == ["Accept-Encoding"]


def test_method_variable_is_right_after_a_redirect(nginx, origin):
    origin.answers(answer(b"x" * 2000, status=503, type="text/plain"))
    methods = [f"eth_{letter * 200}" for letter in "abc"]
    for method in methods:
        assert post(nginx, "/named", call(method)).status == 503
        assert origin.last("/named").header("X-Method") == method


def test_truncated_response_is_a_502_without_add_after_body(nginx, origin):
    origin.answers(answer(b"<after>", type="text/plain"), "/part")
    origin.answers([head(200, [JSON, ("Content-Length", "100")]), b"12345", CLOSE], "/after")
    nginx.expect("prematurely closed|ended before its length")
    with nginx.connect() as connection:
        for _ in range(3):
            response = connection.exchange("/after", headers=[GZIP])
            assert response.status == 502 and b"<after>" not in response.body


def test_slices_with_a_range_are_sent_as_without_sszip(nginx, origin):
    body = bytes(range(97, 122)) * 200

    def sliced(request):
        first, last = request.header("Range").removeprefix("bytes=").split("-")
        part = body[int(first) : int(last) + 1]
        fields = [("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"), ("ETag", '"1"')]
        return answer(part, status=206, headers=fields, type="application/json")

    origin.answers(sliced, "/slices")
    for accept in ([GZIP], []):
        response = fetch(nginx.port, "/slices", headers=[("Range", "bytes=1500-2600"), *accept])
        assert (response.status, response.body) == (206, body[1500:2601])
        response = fetch(nginx.port, "/slices", headers=accept)
        assert response.status == 200
        assert (gunzip(response.body) if response.header("Content-Encoding") else response.body) == body


@pytest.mark.parametrize("path", ["/early", "/copied"])
def test_content_length_is_right_when_it_was_evaluated_before_the_lookup(nginx, origin, path):
    node = Node({"eth_getBlockByHash": LARGE, "eth_chainId": b'"0x1"', "eth_syncing": b"false"})
    origin.answers(node, path)
    post(nginx, path, call("eth_chainId"))
    calls = [call("eth_chainId", id="1"), call("eth_syncing", id="2"), call("net_version", id="3")]
    body = b"[" + b",".join(calls) + b"]"
    for _ in range(3):
        response = post(nginx, path, body)
        assert [one["id"] for one in json.loads(response.body)] == [1, 2, 3]
        received = origin.last(path)
        assert int(received.header("Content-Length")) == len(received.body)
        json.loads(received.body)
    if path == "/early":
        line = (nginx.prefix / "last.log").read_text().splitlines()[-1]
        assert line.endswith(f"|{len(body)}"), line


@pytest.mark.parametrize("accept", [[], [GZIP]], ids=["identity", "gzip"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_response_is_stored_when_its_client_aborts(nginx, origin, accept, framing):
    body = b'{"jsonrpc":"2.0","id":1,"result":' + LARGE + b"}"
    arrived, gate = threading.Event(), threading.Event()
    half = len(body) // 2
    if framing == "chunked":
        script = [head(200, [JSON, ("Transfer-Encoding", "chunked")]), *chunked([body[:half], body[half:]], last=False)]
        last = b"0\r\n\r\n"
    else:
        script = [head(200, [JSON, ("Content-Length", str(len(body)))]), body[:half]]
        last = body[half:]

    def respond(_request):
        yield from script
        arrived.set()
        yield WaitFor(gate)
        yield last

    origin.answers(respond, "/left")
    number = {"length": 0x10, "chunked": 0x20}[framing] + len(accept)
    request = call("eth_getBlockByHash", f'["0x{number:064x}",true]')
    with nginx.connect() as client:
        client.send(request_bytes("/left", method="POST", headers=[JSON, *accept], body=request))
        assert arrived.wait(GUARD_SECONDS)
        wait_for_earlier_events(nginx)
        client.reset()
    wait_for_earlier_events(nginx)
    gate.set()
    nginx.wait_for(
        lambda: (post(nginx, "/left", request).header("Cache-Status") or "").startswith("sszip; hit"), "a hit"
    )
    assert len(origin.received("/left")) == 1
    assert post(nginx, "/left", request).body == body


def test_worker_survives_clients_that_abort_during_compression(nginx, origin):
    body = b'{"jsonrpc":"2.0","id":1,"result":"0x' + bytes(b"0123456789abcdef"[(i * i) % 16] for i in range(4096)) * 3000 + b'"}'
    origin.answers(answer(body), "/posted")
    origin.answers(answer(b"x", type="text/plain"), "/part")
    for n in range(12):
        request = call("eth_getBlockByHash", f'["0x{n:064x}",true]')
        with nginx.connect() as client:
            client.send(request_bytes("/posted", method="POST", headers=[JSON, GZIP], body=request))
            nginx.wait_for(lambda n=n: len(origin.received("/posted")) > n, "the node to receive a request")
            # before, during and after compression
            time.sleep(0.01 * n)
            client.reset()
    nginx.wait_for(lambda: len(origin.received("/part")) >= 1, "a post action")
    assert fetch(nginx.port, "/static").body == b"static" * 500



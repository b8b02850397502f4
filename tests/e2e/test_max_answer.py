"""Response limits in configurations of operators: a longer response is an error for its
client, and no byte of it is sent. tests/cases/policy.toml has the rules of all hosts."""

import json
import pathlib
import select
import threading

import pytest

from harness.client import Connection, Truncated, fetch, request_bytes
from harness.http2 import Http2Client
from harness.nginx import MODULE, resident
from harness.origin import RESET, WaitFor, answer, chunked, head
from harness.rpc import call
from test_third_party_modules import FOLDER, decoded, modules

CONFIG = """
upstream nodes { server @origin@; server 127.0.0.1:1 backup; keepalive 8; }
proxy_cache_path @prefix@/proxied keys_zone=proxied:1m;
proxy_http_version 1.1;
sszip on;
sszip_max_answer eth_getLogs 100k;
sszip_max_answer debug_* 1m;
log_format said '$sszip_mode|$sszip_cache_reason|$sszip_denied|$body_bytes_sent';
access_log @prefix@/said.log said;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://nodes; }
    location /cached { sszip_cache on; proxy_pass http://nodes; }
    location /unbuffered { proxy_buffering off; proxy_pass http://nodes; }
    location /streamed { sszip_hold 0; proxy_pass http://nodes; }
    location /no-gzip { sszip_types text/none; proxy_pass http://nodes; }
    location /small { sszip_max_oneshot 1k; sszip_memory 2m; proxy_pass http://nodes; }
    location /ssz { sszip_ssz on; proxy_pass http://nodes; }
    location /cors { add_header Access-Control-Allow-Origin $http_origin always; proxy_pass http://nodes; }
    location /if { if ($request_method = POST) { set $x 1; } proxy_pass http://nodes; }
    location /changed { sub_filter_once off; sub_filter_types *; sub_filter zzzz yyyy; proxy_pass http://nodes; }
    location /proxied { proxy_cache proxied; proxy_cache_methods POST; proxy_cache_key $request_uri$request_body; proxy_cache_valid 1m; proxy_pass http://nodes; }
    location /gunzipped { gunzip on; sszip_upstream_encoding pass; proxy_pass http://nodes; }
    location /open { sszip_max_answer eth_call 1g; proxy_pass http://nodes; }
}
server {
    listen 127.0.0.1:@port_http2@ http2;
    location / { proxy_pass http://nodes; }
}
"""
PLACES = ["/", "/cached", "/unbuffered", "/streamed", "/no-gzip", "/small", "/ssz", "/cors", "/if", "/changed", "/proxied", "/gunzipped"]
JSON = ("Content-Type", "application/json")
GZIP = ("Accept-Encoding", "gzip")
LOGS = call("eth_getLogs", '[{"fromBlock":"0x0"}]', "7")
ERROR = {"code": -32005, "message": "the response is longer than the limit of its method"}
TOO_LONG = {"jsonrpc": "2.0", "id": 7, "error": ERROR}
TYPE = ("Content-Type", "application/json")


def sized_response(length, id=7):
    frame = b'{"jsonrpc":"2.0","id":%d,"result":"%b"}'
    return frame % (id, b"ab" * ((length - len(frame % (id, b""))) // 2))


LONG, SHORT = sized_response(120_000), sized_response(90_000)


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG, workers=5)


def send(nginx, path, body=LOGS, headers=(JSON, GZIP)):
    return fetch(nginx.port, path, method="POST", body=body, headers=list(headers))


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("path", PLACES)
def test_long_response_is_an_error_in_every_location(nginx, origin, path, framing):
    for headers in ((JSON, GZIP), (JSON,)):
        for body, expected in ((LONG, TOO_LONG), (SHORT, json.loads(SHORT))):
            origin.answers(answer(body, framing=framing))
            # each request has a key of its own
            request = LOGS.replace(b"0x0", b"0x%d" % (len(body) + len(headers)))
            got = send(nginx, f"{path}?{framing}{len(body)}{len(headers)}", request, headers)
            assert (got.status, json.loads(got.decoded)) == (200, expected)
            assert got.header("Content-Type").startswith("application/json")


def test_response_of_an_unlimited_method_is_sent_whole(nginx, origin):
    long = sized_response(5_000_000)
    origin.answers(answer(long))
    assert send(nginx, "/", call("eth_call", id="7")).decoded == long
    # a block with limits of its own inherits none
    assert send(nginx, "/open").decoded == long


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_rejected_response_takes_little_memory(nginx, origin, framing):
    long = sized_response(60_000_000)
    before = max(map(resident, nginx.workers()))
    for path in ("/", "/streamed", "/no-gzip"):
        origin.answers(answer(long, framing=framing))
        assert json.loads(send(nginx, path, LOGS.replace(b"eth_getLogs", b"debug_x")).decoded) == TOO_LONG
    # KiB
    assert max(map(resident, nginx.workers())) < before + 20_000


def test_long_elements_of_a_batch_are_replaced_by_errors(nginx, origin):
    batch = b"[%b,%b,%b]" % (LOGS, call("eth_call", id="8"), call("eth_getLogs", id="9"))
    answers = b"[%b,%b,%b]" % (sized_response(200_000, 8), sized_response(200_000, 9), sized_response(90_000, 7))
    expected = [json.loads(sized_response(90_000, 7)), json.loads(sized_response(200_000, 8)), {**TOO_LONG, "id": 9}]
    for path in ("/", "/cached", "/unbuffered", "/no-gzip", "/cors"):
        for framing in ("length", "chunked"):
            for headers in ((JSON, GZIP), (JSON,)):
                origin.answers(answer(answers, framing=framing))
                got = send(nginx, path, batch, headers)
                assert json.loads(got.decoded) == expected
    # a batch that can't be buffered can't be evaluated
    answers = b"[%b,%b,%b]" % (sized_response(3_000_000, 8), sized_response(200_000, 9), sized_response(90_000, 7))
    origin.answers(answer(answers))
    got = json.loads(send(nginx, "/small", batch).decoded)
    assert [one["id"] for one in got] == [7, 8, 9]
    assert [one["error"]["code"] for one in got] == [-32005, -32603, -32005]


def test_long_response_is_an_error_over_http2(nginx, origin):
    with Http2Client(nginx.ports["port_http2"]) as client:
        for framing in ("length", "chunked"):
            origin.answers(answer(LONG, framing=framing))
            stream = client.fetch("/", body=LOGS, method="POST")
            client.finish(stream)
            assert json.loads(client.bodies[stream]) == TOO_LONG


def test_response_is_not_sent_before_its_length_is_known(nginx, origin):
    go_on = threading.Event()
    first, rest = SHORT[:50_000], SHORT[50_000:]
    fields = [TYPE, ("Transfer-Encoding", "chunked")]
    origin.answers([head(200, fields), *chunked([first], last=False), WaitFor(go_on), *chunked([rest])])
    with Connection(nginx.port) as connection:
        connection.send(request_bytes("/unbuffered", method="POST", headers=[JSON], body=LOGS))
        assert select.select([connection.socket], [], [], 0.3)[0] == []
        go_on.set()
        assert connection.read("POST").decoded == SHORT


@pytest.mark.parametrize("length", [60_000, 150_000])
def test_truncated_response_is_an_error(nginx, origin, length):
    """The node aborts before the limit is reached, and after."""
    for framing in ("length", "chunked"):
        origin.answers(answer(sized_response(200_000), framing=framing, cut_at=length))
        try:
            got = send(nginx, "/")
        except Truncated:
            pytest.fail("a part was sent")
        assert got.status == 502 or json.loads(got.decoded) == TOO_LONG
        fields = [TYPE, ("Transfer-Encoding", "chunked")]
        origin.answers([head(200, fields), *chunked([LONG[:length]], last=False), RESET])
        got = send(nginx, "/")
        assert got.status == 502 or json.loads(got.decoded) == TOO_LONG


def test_response_limit_is_enforced_after_clients_abort(nginx, origin):
    for framing in ("length", "chunked"):
        origin.answers(answer(LONG, framing=framing))
        for _ in range(40):
            with Connection(nginx.port) as connection:
                connection.send(request_bytes("/", method="POST", headers=[JSON, GZIP], body=LOGS))
        assert json.loads(send(nginx, "/").decoded) == TOO_LONG


def test_rejected_response_is_logged(nginx, origin):
    origin.answers(answer(LONG))
    length = len(send(nginx, "/", headers=(JSON,)).body)
    line = f"denied|-|1|{length}"
    log = nginx.prefix / "said.log"
    nginx.wait_for(lambda: line in log.read_text().splitlines() or f"denied|denied|1|{length}" in log.read_text(), "the log")


@pytest.mark.once("Debian's modules are for Debian's nginx")
@pytest.mark.parametrize("order", ["before", "after"])
def test_response_limit_is_enforced_with_brotli(start_nginx, origin, order):
    name = "ngx_http_brotli_filter_module"
    config = CONFIG.replace("sszip on;", "sszip on; brotli on; brotli_types *; brotli_min_length 1;", 1)
    if order == "before":
        nginx = start_nginx(config, main=modules(name), workers=5)
    else:
        ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
        nginx = start_nginx(config, main=ours, module=FOLDER / f"{name}.so", workers=5)
    for accept in ("br", "gzip, br", "identity"):
        for framing in ("length", "chunked"):
            for body, expected in ((LONG, TOO_LONG), (SHORT, json.loads(SHORT))):
                origin.answers(answer(body, framing=framing))
                got = send(nginx, "/", headers=(JSON, ("Accept-Encoding", accept)))
                assert json.loads(decoded(got)) == expected

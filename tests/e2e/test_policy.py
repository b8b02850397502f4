"""The policy in configurations of nginx: a denied call never reaches the node, however it is
sent. tests/hosts/test_rules.py and tests/cases/policy.toml have the rules of all hosts."""

import gzip
import json
import re
import subprocess

import pytest

from harness.client import Connection, fetch, request_bytes
from harness.http2 import Http2Client
from harness.json_readers import received_methods
from harness.nginx import Nginx
from harness.origin import CloseWithoutResponse, answer
from harness.rpc import Node, call

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_method deny debug_* eth_sign;
client_max_body_size 64m;
log_format policy '$sszip_mode|$sszip_cache_reason|$sszip_denied|$sszip_batch_size|$sszip_rpc_method';
access_log @prefix@/policy.log policy;
map $sszip_rpc_method $kind { default full; "~^trace_[^,*]*$" archive; }
proxy_cache_path @prefix@/proxied keys_zone=proxied:1m;
server {
    listen 127.0.0.1:@port@;
    error_page 418 = @named;
    location / { proxy_pass http://@origin@; }
    location /cached { sszip_cache on; proxy_pass http://@origin@; }
    location /bypass { sszip_cache on; sszip_cache_bypass 1; proxy_pass http://@origin@; }
    location /file { client_body_in_file_only clean; proxy_pass http://@origin@; }
    location /cached-file { sszip_cache on; client_body_in_file_only clean; proxy_pass http://@origin@; }
    location /small { sszip_cache on; client_body_buffer_size 128; proxy_pass http://@origin@; }
    location /unbuffered { proxy_request_buffering off; proxy_pass http://@origin@; }
    location /ssz { sszip_ssz on; proxy_pass http://@origin@; }
    location /decoded { sszip_request_decoding always; proxy_pass http://@origin@; }
    location /undecoded { sszip_request_decoding off; proxy_pass http://@origin@; }
    location /no-gzip { sszip_types text/none; proxy_pass http://@origin@; }
    location /own-body { proxy_set_body $request_body; proxy_pass http://@origin@; }
    location /own-length { proxy_set_header Content-Length $my_length; proxy_pass http://@origin@; }
    set $my_length $content_length;
    location /changed { sub_filter_once off; sub_filter_types *; sub_filter zzzz yyyy; proxy_pass http://@origin@; }
    location /open { sszip_method allow *; proxy_pass http://@origin@; }
    location /off { sszip off; proxy_pass http://@origin@; }
    location /some { sszip_method allow eth_*; sszip_method deny eth_sign*; proxy_pass http://@origin@; }
    location /batches { sszip_method allow *; sszip_batch_max 2 deny; proxy_pass http://@origin@; }
    location /mirrored { mirror /copy; proxy_pass http://@origin@; }
    location /copy { internal; proxy_pass http://@origin@/copy; }
    location /redirected { return 418; }
    location @named { proxy_pass http://@origin@; }
    location /rewritten { rewrite ^ /cached last; }
    location /authorized { auth_request /auth; proxy_pass http://@origin@; }
    location /auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_pass http://@origin@/auth; }
    location /proxied {
        proxy_cache proxied; proxy_cache_methods POST; proxy_cache_key $request_uri;
        proxy_cache_use_stale updating; proxy_cache_background_update on;
        proxy_pass http://@origin@;
    }
    location /mapped { add_header Kind $kind; proxy_pass http://@origin@; }
    location /allowed { sszip_upgrade websocket; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_pass http://@origin@; }
    location /h2c { proxy_set_header Upgrade h2c; proxy_set_header Connection upgrade; proxy_pass http://@origin@; }
    location /socket { proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_http2@ http2;
    location / { proxy_pass http://@origin@; }
    location /cached { sszip_cache on; proxy_pass http://@origin@; }
}
"""

JSON = ("Content-Type", "application/json")
PLACES = """ cached bypass file cached-file small unbuffered ssz decoded no-gzip own-body changed
    redirected rewritten authorized mapped""".split(" ")
PLACES = [place.strip() for place in PLACES]
BAD = call("debug_traceTransaction", '["0xab"]', "7")
GOOD = call("eth_chainId", id="8")
BATCH = b"[" + BAD + b"," + GOOD + b"]"
NOT_FOUND = {"code": -32601, "message": "the method does not exist/is not available"}
DENIED = {"jsonrpc": "2.0", "id": 7, "error": NOT_FOUND}
CHAIN = {"jsonrpc": "2.0", "id": 8, "result": "0x1"}
PADDED = BATCH[:-1] + b" " * 5000 + b"]"


@pytest.fixture
def node(origin):
    node = Node({"eth_chainId": b'"0x1"', "trace_block": b"[]", "eth_x": b"7"})
    origin.answers(lambda request: answer(b"ok") if request.path == "/auth" else node(request))
    return node


def send(nginx, path, body, headers=(JSON,), **request):
    return fetch(nginx.port, path, method=request.pop("method", "POST"), body=body, headers=list(headers), **request)


@pytest.mark.parametrize("place", PLACES)
class TestPlaces:
    def test_denied_call_does_not_reach_the_node(self, nginx, origin, node, place):
        response = send(nginx, f"/{place}", BAD)
        assert (response.status, json.loads(response.body)) == (200, DENIED)
        assert not received_methods(origin)

    @pytest.mark.parametrize("batch", [BATCH, PADDED], ids=["short", "long"])
    def test_denied_call_of_a_batch_does_not_reach_the_node(self, nginx, origin, node, place, batch):
        response = send(nginx, f"/{place}", batch, [JSON, ("Accept-Encoding", "gzip")])
        assert (response.status, json.loads(response.decoded)) == (200, [DENIED, CHAIN])
        assert set(received_methods(origin)) <= {"eth_chainId"}

    def test_denied_call_in_chunks_does_not_reach_the_node(self, nginx, origin, node, place):
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BATCH) + b"0\r\n\r\n"
        headers = [JSON, ("Transfer-Encoding", "chunked")]
        response = send(nginx, f"/{place}", chunks, headers)
        assert json.loads(response.body) == [DENIED, CHAIN]
        assert set(received_methods(origin)) <= {"eth_chainId"}

    def test_denied_call_with_credentials_does_not_reach_the_node(self, nginx, origin, node, place):
        for field in (("Authorization", "Bearer x"), ("Cookie", "a=b")):
            assert json.loads(send(nginx, f"/{place}", BAD, [JSON, field]).body) == DENIED
        assert not received_methods(origin)

    @pytest.mark.parametrize("kind", [None, "text/plain", "application/octet-stream"])
    def test_denied_call_of_another_type_does_not_reach_the_node(self, nginx, origin, node, place, kind):
        headers = [("Content-Type", kind)] if kind else []
        assert json.loads(send(nginx, f"/{place}", BAD, headers).body) == DENIED
        assert json.loads(send(nginx, f"/{place}", BATCH, headers).body) == [DENIED, CHAIN]
        assert set(received_methods(origin)) <= {"eth_chainId"}

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
    def test_request_other_than_post_with_a_body_is_rejected(self, nginx, origin, node, place, method):
        assert send(nginx, f"/{place}", BAD, method=method).status == 405
        assert not received_methods(origin)

    def test_denied_call_in_gzip_does_not_reach_the_node(self, nginx, origin, node, place):
        headers = [JSON, ("Content-Encoding", "gzip")]
        assert json.loads(send(nginx, f"/{place}", gzip.compress(BAD), headers).body) == DENIED
        response = send(nginx, f"/{place}", gzip.compress(BATCH), headers)
        assert json.loads(response.body) == [DENIED, CHAIN]
        assert set(received_methods(origin)) <= {"eth_chainId"}


# bodies that contain another call for another reader
HIDDEN = [
    rb'{"jsonrpc":"2.0","id":1,"method":"debug\u005ftraceCall"}',
    rb'{"jsonrpc":"2.0","id":1,"m\u0065thod":"debug_x"}',
    b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","method":"debug_x"}',
    b'{"jsonrpc":"2.0","id":1,"method":"debug_x","method":"eth_chainId"}',
    b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","METHOD":"debug_x"}',
    b'{"id":1,"method":"debug_x"}',
    b'{"jsonrpc":"1.0","id":1,"method":"debug_x"}',
    b'{"jsonrpc":"2.0","id":{},"method":"debug_x"}',
    b'{"jsonrpc":"2.0","id":1,"method":"debug_x","params":7}',
    b"[" + BATCH + b"]",
    BATCH + BATCH,
    GOOD + b"\n" + BAD,
    b"\xef\xbb\xbf" + BAD,
    BAD.decode().encode("utf-16"),
    BAD.decode().encode("utf-32"),
    BAD + b"\0",
    b"//\n" + BAD,
    BAD[:-1] + b",}",
    BAD[:-1],
    BAD.replace(b"0xab", b"\xff"),
    BAD.replace(b"0xab", b"\t"),
    BAD.replace(b"0xab", rb"\ud800"),
    BAD.replace(b'["0xab"]', b"[" * 20000 + b"]" * 20000),
    b'{"jsonrpc":"2.0","id":"%s","method":"debug_x"}' % (b"a" * 300),
]


@pytest.mark.parametrize("path", ["/", "/cached", "/file"])
@pytest.mark.parametrize("body", HIDDEN, ids=range(len(HIDDEN)))
def test_ambiguous_call_is_rejected(nginx, origin, node, path, body):
    for sent in (body, b"[" + body + b"," + GOOD + b"]"):
        response = send(nginx, path, sent)
        assert response.status == 200
        reply = json.loads(response.body)
        assert reply["id"] is None and reply["error"]["code"] in (-32600, -32700)
    assert not origin.received()


def test_denied_call_over_http2_does_not_reach_the_node(nginx, origin, node):
    for path in ("/", "/cached"):
        with Http2Client(nginx.ports["port_http2"]) as client:
            stream, batch = client.fetch(path, body=BAD, method="POST"), client.fetch(path, body=BATCH, method="POST")
            client.finish(stream, batch)
            assert json.loads(client.bodies[stream]) == DENIED
            assert json.loads(client.bodies[batch]) == [DENIED, CHAIN]
    assert set(received_methods(origin)) <= {"eth_chainId"}


def test_denied_call_over_http2_without_a_length_does_not_reach_the_node(nginx, origin, node):
    """curl sends no length for a body that it reads from a pipe."""
    port = nginx.ports["port_http2"]
    command = ["curl", "-sS", "--http2-prior-knowledge", "-T", "-", "-X", "POST", "-H", "Content-Type: application/json"]
    done = subprocess.run([*command, f"http://127.0.0.1:{port}/"], input=BATCH, capture_output=True)
    assert json.loads(done.stdout) == [DENIED, CHAIN], done.stderr
    assert set(received_methods(origin)) <= {"eth_chainId"}


def test_request_with_an_unsupported_coding_is_rejected(nginx, origin, node):
    coded = gzip.compress(BAD)
    for coding in ("br", "deflate", "gzip, gzip", "identity", "gzip;q=1"):
        assert send(nginx, "/", coded, [JSON, ("Content-Encoding", coding)]).status == 415
    assert send(nginx, "/undecoded", coded, [JSON, ("Content-Encoding", "gzip")]).status == 415
    assert send(nginx, "/", coded, [("Content-Type", "text/plain"), ("Content-Encoding", "gzip")]).status == 415
    assert json.loads(send(nginx, "/", coded).body)["error"]["code"] == -32700
    assert not origin.received()


def test_upgrade_to_a_websocket_is_rejected(nginx, origin, node):
    headers = [("Upgrade", "websocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Version", "13")]
    response = send(nginx, "/socket", None, headers, method="GET")
    assert response.status == 403
    assert not origin.received()


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.0", "websocket, h2c", "x", ""])
@pytest.mark.parametrize("path", ["/socket", "/allowed", "/"])
def test_upgrade_to_another_protocol_is_rejected(nginx, origin, node, path, protocol):
    headers = [("Upgrade", protocol), ("Connection", "upgrade")]
    assert send(nginx, path, None, headers, method="GET").status == 403
    assert send(nginx, path, GOOD, [JSON, *headers]).status == 403
    assert not origin.received()


@pytest.mark.parametrize("path", ["/", "/cached"])
@pytest.mark.parametrize(
    "method, more, status",
    [
        ("PUT", [], 405),
        ("POST", [("Content-Encoding", "br")], 415),
        ("POST", [("Upgrade", "x"), ("Connection", "upgrade")], 403),
    ],
)
def test_body_of_a_rejected_request_is_not_read_as_a_request(nginx, origin, node, path, method, more, status):
    hidden = request_bytes("/off", method="POST", headers=[JSON], body=BAD)
    with Connection(nginx.port) as connection:
        connection.send(request_bytes(path, method=method, headers=[JSON, *more], body=hidden))
        connection.send(request_bytes("/", method="POST", headers=[JSON, ("Connection", "close")], body=GOOD))
        assert connection.read(method).status == status
        assert json.loads(connection.read("POST").body) == CHAIN
        connection.ended()
    assert received_methods(origin) == ["eth_chainId"]


def switched(protocol):
    head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %s\r\n\r\n"
    return [(head % protocol).encode(), CloseWithoutResponse()]


@pytest.mark.parametrize("path, requested, protocol", [("/h2c", None, "h2c"), ("/allowed", "websocket", "h2c")])
def test_switch_of_protocols_is_a_bad_gateway(nginx, origin, path, requested, protocol):
    origin.answers(switched(protocol))
    headers = [("Upgrade", requested), ("Connection", "upgrade")] if requested else []
    assert send(nginx, path, None, headers, method="GET").status == 502


def test_allowed_websocket_is_forwarded(nginx, origin):
    origin.answers(switched("websocket"))
    headers = [("Upgrade", "websocket"), ("Connection", "upgrade")]
    with Connection(nginx.port) as connection:
        connection.send(request_bytes("/allowed", headers=headers))
        assert connection.read_head().status == 101
    assert origin.received()[0].header("Upgrade") == "websocket"


def test_location_with_rules_inherits_no_rules(nginx, origin, node):
    for path, body, is_allowed in [
        ("/open", BAD, True),
        ("/off", BAD, True),
        ("/some", GOOD, True),
        ("/some", call("eth_signTransaction"), False),
        ("/some", call("net_version"), False),
        ("/", call("net_version"), True),
    ]:
        origin.requests.clear()
        send(nginx, path, body)
        assert bool(origin.received()) == is_allowed, path


def test_batch_above_the_limit_is_rejected(nginx, origin, node):
    assert len(json.loads(send(nginx, "/batches", b"[%b,%b]" % (GOOD, GOOD)).body)) == 2
    origin.requests.clear()
    reply = json.loads(send(nginx, "/batches", b"[%b,%b,%b]" % (GOOD, GOOD, GOOD)).body)
    assert reply["error"] == {"code": -32600, "message": "the batch has more than 2 calls"}
    assert not origin.received()
    assert len(json.loads(send(nginx, "/cached", b"[" + b",".join([GOOD] * 300) + b"]").body)) == 300


def test_split_batch_is_a_500_when_the_operator_sets_its_content_length(nginx, origin, node):
    assert json.loads(send(nginx, "/own-length", BAD).body) == DENIED
    assert send(nginx, "/own-length", BATCH).status == 500
    assert not origin.received()
    nginx.expect("cannot forward a part of a batch")


def test_mirrored_copy_of_a_denied_batch_is_rejected(nginx, origin, node):
    assert json.loads(send(nginx, "/mirrored", BATCH).body) == [DENIED, CHAIN]
    nginx.wait_for(lambda: "its calls were not evaluated" in nginx.error_log(), "the copy")
    assert set(received_methods(origin)) == {"eth_chainId"}
    assert not origin.received("/copy")
    nginx.expect("its calls were not evaluated")


def test_background_update_of_proxy_cache_sends_no_denied_call(nginx, origin, node):
    node.options["headers"] = [("Cache-Control", "max-age=0, stale-while-revalidate=100")]
    for _ in range(3):
        assert send(nginx, "/proxied", BATCH).status == 200
    assert set(received_methods(origin)) == {"eth_chainId"}
    nginx.expect("its calls were not evaluated")


def test_request_without_a_body_is_forwarded(nginx, origin):
    origin.answers(answer(b"up"))
    assert send(nginx, "/health?a=b", None, [], method="GET").body == b"up"
    assert send(nginx, "/", b"").body == b"up"
    assert send(nginx, "/", b"0\r\n\r\n", [("Transfer-Encoding", "chunked")]).body == b"up"


def test_methods_and_denials_are_available_to_logs_and_maps(nginx, origin, node):
    log = nginx.prefix / "policy.log"
    before = len(log.read_text().splitlines())
    trace = call("trace_block")
    assert send(nginx, "/mapped", trace).header("Kind") == "archive"
    assert send(nginx, "/mapped", b"[" + trace + b"," + trace + b"]").header("Kind") == "archive"
    assert send(nginx, "/mapped", b"[" + trace + b"," + GOOD + b"]").header("Kind") == "full"
    send(nginx, "/", BAD)
    send(nginx, "/", BATCH)
    send(nginx, "/", b"[")

    def lines():
        new = log.read_text().splitlines()[before:]
        return new if len(new) == 6 else None

    logged = nginx.wait_for(lines, "the log")
    assert logged[1].endswith("|-|2|trace_block")
    assert logged[2].endswith("|-|2|trace_block,eth_chainId")
    assert logged[3] == "denied|denied|1|-|debug_traceTransaction"
    assert logged[4] == "merged|-|1|2|debug_traceTransaction,eth_chainId"
    assert logged[5] == "denied|denied|-|-|-"

SERVER = "server { listen 127.0.0.1:@port@; location / { %s proxy_pass http://@origin@; } }"


def configuration_test(origin, line):
    nginx = Nginx(SERVER % line, origin=origin)
    try:
        return nginx.test()
    finally:
        nginx.stop()


@pytest.mark.parametrize(
    "line, message",
    [
        ("sszip_method forbid a_b;", 'has an invalid value "forbid": it must be "allow", "deny" or "limit=NUMBER"'),
        ("sszip_method limit a_b;", 'has an invalid value "limit": it must be "allow", "deny" or "limit=NUMBER"'),
        ("sszip_method limit=0 a_b;", 'has an invalid value "limit=0": it must be a number from 1 to 1048576'),
        ("sszip_method deny a*b;", 'has an invalid value "a*b": it must be a method name'),
        ('sszip_method deny "";', 'has an invalid value "": it must be a method name'),
        ('sszip_method deny "a b";', 'has an invalid value "a b": it must be a method name'),
        ("sszip_method deny a_b; sszip_method allow A_B;", 'has an invalid value "A_B": it must be a method or prefix that this block does not configure yet'),
        ("sszip_method deny;", "invalid number of arguments"),
        ("sszip_max_answer eth_getLogs;", "invalid number of arguments"),
        ("sszip_max_answer eth_getLogs 1;", 'has an invalid value "1": it must be a size from 1k to 1g'),
        ("sszip_max_answer a*b 1m;", 'has an invalid value "a*b": it must be a method name'),
        ("sszip_max_answer a_b 1m; sszip_max_answer A_B 2m;", 'has an invalid value "A_B": it must be a method or prefix that this block does not configure yet'),
        ("sszip_batch_max 5 refuse;", 'has an invalid value "refuse": it must be "deny"'),
        ("sszip_batch_max 10001 deny;", "from 0 to 10000"),
        ("sszip_batch_max 5 deny deny;", "invalid number of arguments"),
        ("sszip_logs_max_range 0;", 'has an invalid value "0": it must be a number from 1 to 1000000000 or "off"'),
        ("sszip_logs_max_range 5 6;", "invalid number of arguments"),
        ("sszip_logs_split 0;", 'has an invalid value "0": it must be a number from 1 to 1000000 or "off"'),
        ("sszip_logs_split 1k;", 'has an invalid value "1k": it must be a number from 1 to 1000000 or "off"'),
        ("sszip_logs_split 16 concurrent=33;", 'has an invalid value "concurrent=33": it must be omitted, or "concurrent=K" with a number from 1 to 32'),
        ("sszip_logs_split 16 4;", 'has an invalid value "4": it must be omitted, or "concurrent=K" with a number from 1 to 32'),
        ("sszip_logs_split off concurrent=4;", 'has an invalid value "off": it must be a number from 1 to 1000000'),
        ("sszip_logs_split;", "invalid number of arguments"),
        ("sszip_logs_split 16 concurrent=2 concurrent=2;", "invalid number of arguments"),
        ("sszip_logs_from_receipts yes;", 'has an invalid value "yes": it must be "on" or "off"'),
        ("sszip_logs_from_receipts;", "invalid number of arguments"),
    ],
)
def test_invalid_rule_is_rejected(session_origin, line, message):
    status, text = configuration_test(session_origin, line)
    assert status != 0
    assert message in text and re.search(r"nginx\.conf:\d+", text), text


def test_rules_without_sszip_on_are_warned_of(session_origin):
    status, text = configuration_test(session_origin, "sszip_method deny debug_*;")
    assert status == 0
    assert '"sszip_method" and the other settings of the policy have no effect in location "/": "sszip on" is missing' in text

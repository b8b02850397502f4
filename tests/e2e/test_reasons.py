"""Every response of a location with a cache reports its cache status and a reason: in
Cache-Status, in variables, and at the start."""

import pytest

from harness.client import fetch
from harness.nginx import Nginx
from harness.origin import answer
from harness.rpc import Node, call

JSON = ("Content-Type", "application/json")
CHAIN = call("eth_chainId")

CONFIG = """
sszip on;
sszip_cache on;
sszip_batch_max 3;
proxy_http_version 1.1;
log_format reasons '$sszip_cache_status|$sszip_cache_reason|$sszip_batch_size|$sszip_batch_hits|$sszip_ratio|$sszip_coding';
access_log @prefix@/reasons.log reasons;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location /tiny { client_body_buffer_size 16; proxy_pass http://@origin@; }
    location /bypass { sszip_cache_bypass 1; proxy_pass http://@origin@; }
    location /no-cache { sszip_no_cache 1; proxy_pass http://@origin@; }
    location /local { return 200 "here"; }
    location /off { sszip_cache off; proxy_pass http://@origin@; }
}
"""


def logged(nginx, count):
    def lines():
        text = (nginx.prefix / "reasons.log").read_text().splitlines()
        return text if len(text) >= count else None

    return nginx.wait_for(lines, "the log")


def send(nginx, path="/", body=CHAIN, headers=(JSON,), method="POST"):
    response = fetch(nginx.port, path, method=method, body=body, headers=list(headers))
    return response.header("Cache-Status")


def result(text):
    return answer(b'{"jsonrpc":"2.0","id":1,"result":%b}' % text)


CASES = [
    ("credentials", {"headers": [JSON, ("Authorization", "Bearer x")]}),
    ("credentials", {"headers": [JSON, ("Cookie", "a=b")]}),
    ("method", {"method": "OPTIONS", "body": None, "headers": []}),
    ("content-type", {"headers": [("Content-Type", "application/x-www-form-urlencoded")]}),
    ("content-type", {"headers": []}),
    ("content-encoding", {"headers": [JSON, ("Content-Encoding", "gzip")]}),
    ("request-length", {"body": CHAIN[:-1] + b" " * 70000 + b"}"}),
    ("body-on-disk", {"path": "/tiny", "body": CHAIN[:-1] + b" " * 20000 + b"}"}),
    ("malformed", {"body": b'{"jsonrpc":"1.0","method":"eth_chainId","id":1}'}),
    ("batch-length", {"body": b"[" + b",".join([CHAIN] * 4) + b"]"}),
    ("rpc-method", {"body": call("eth_sendRawTransaction", '["0x"]')}),
    ("notification", {"body": b'{"jsonrpc":"2.0","method":"eth_chainId"}'}),
    ("local", {"path": "/local", "method": "GET", "body": None, "headers": []}),
    ("condition", {"method": "GET", "body": None, "headers": [("If-Match", '"a"')]}),
]


@pytest.mark.parametrize(("reason", "request_"), CASES, ids=[f"{n}-{reason}" for n, (reason, _) in enumerate(CASES)])
def test_bypassed_request_has_a_reason(nginx, origin, reason, request_):
    origin.answers(result(b'"0x1"'))
    assert send(nginx, **request_) == f"sszip; fwd=bypass; detail={reason}"


def test_predicates_are_reported_as_reasons(nginx, origin):
    origin.answers(result(b'"0x1"'))
    assert send(nginx, "/bypass") == "sszip; fwd=bypass; detail=bypass"
    assert send(nginx, "/no-cache") == "sszip; fwd=miss; detail=no-cache"
    assert send(nginx, "/off") is None


@pytest.mark.parametrize(
    ("reason", "script"),
    [
        ("set-cookie", answer(b"{}", headers=[("Set-Cookie", "a=b")])),
        ("cache-control", answer(b"{}", headers=[("Cache-Control", "no-store")])),
        ("no-transform", answer(b"{}", headers=[("Cache-Control", "no-transform")])),
        ("vary", answer(b"{}", headers=[("Vary", "*")])),
        ("status", answer(b"{}", status=500)),
        ("type", answer(b"{}", type="text/html")),
    ],
)
def test_response_that_is_not_stored_has_a_reason(nginx, origin, reason, script):
    origin.answers(script)
    body = call("eth_getBalance", f'["{reason}","0x1"]')
    assert send(nginx, body=body) == f"sszip; fwd=miss; detail={reason}"


def test_reason_in_the_body_is_logged(start_nginx, origin):
    nginx = start_nginx(CONFIG)
    transaction = '["0x' + "ab" * 32 + '"]'
    scripts = [
        ("result", result(b"null"), call("eth_getTransactionByHash", transaction)),
        ("error", answer(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}'), call("eth_getBalance", '["0x1","0x1"]')),
        ("-", result(b'"0x1"'), CHAIN),
    ]
    for reason, script, body in scripts:
        origin.answers(script)
        send(nginx, body=body)
        assert logged(nginx, 1)[-1].split("|")[:2] == ["MISS", reason]
        (nginx.prefix / "reasons.log").write_text("")


def test_batch_hits_and_the_ratio_of_hits_are_logged(start_nginx, origin):
    node = Node({"eth_chainId": b'"0x1"', "net_version": b'"1"', "eth_getBlockByHash": b'"0x' + b"ab" * 20000 + b'"'})
    origin.answers(node)
    nginx = start_nginx(CONFIG)
    block = call("eth_getBlockByHash", '["0x' + "ab" * 32 + '",true]')
    gzip = [JSON, ("Accept-Encoding", "gzip")]
    for body in (CHAIN, block, block, b"[" + call("eth_chainId", id="1") + b"," + call("net_version", id="2") + b"]"):
        send(nginx, body=body, headers=gzip)
    send(nginx, body=b"[" + call("eth_chainId", id="1") + b"," + call("net_version", id="2") + b"]", headers=gzip)
    lines = [line.split("|") for line in logged(nginx, 5)]
    assert [line[2:4] for line in lines] == [["-", "-"], ["-", "-"], ["-", "-"], ["2", "1"], ["2", "2"]]
    assert lines[2][0] == "HIT" and abs(float(lines[2][4]) - float(lines[1][4])) < 0.3 * float(lines[1][4])


def test_coding_of_misses_and_hits_is_logged(start_nginx, origin):
    origin.answers(Node({"eth_getBlockByHash": b'"0x' + b"ab" * 20000 + b'"'}))
    nginx = start_nginx(CONFIG.replace("sszip on;", "sszip on; sszip_zstd on;", 1))
    cases = [("gzip, zstd", "zstd"), ("gzip", "gzip"), ("zstd;q=0.5, gzip", "gzip"), ("*", "gzip"), ("identity", "-")]
    for number, (accept, _) in enumerate(cases):
        block = call("eth_getBlockByHash", f'["0x{number:064x}",true]')
        for _ in range(2):
            send(nginx, body=block, headers=[JSON, ("Accept-Encoding", accept)])
    lines = [line.split("|") for line in logged(nginx, 2 * len(cases))]
    assert [(line[0], line[5]) for line in lines] == [
        (status, coding) for _, coding in cases for status in ("MISS", "HIT")
    ]


def test_cache_without_sszip_on_is_warned_of(session_origin):
    nginx = Nginx("server { listen 127.0.0.1:@port@; location /x { sszip_cache on; proxy_pass http://@origin@; } }", origin=session_origin)
    status, output = nginx.test()
    assert status == 0
    assert '"sszip_cache on" has no effect in location "/x": "sszip on" is missing' in output
    nginx.stop()



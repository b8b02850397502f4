"""The response of the node is stored: changes by other filters of nginx, to head or
body, are applied once to each response, hit or miss, and do not decide what is stored;
the node's headers always do, hidden or not."""

from email.utils import parsedate_to_datetime

import pytest

from harness.client import fetch, gunzip
from harness.nginx_state import wait_until_expired
from harness.origin import answer
from harness.rpc import Node, call
from tiers import alternate

LARGE = b'"0x' + b"ab" * 20000 + b'"'
BLOCK = call("eth_getBlockByHash", '["0x' + "ab" * 32 + '",true]')
CACHEABLE = [("Cache-Control", "max-age=60"), ("X-Node", "1")]

CONFIG = """
sszip on;
sszip_cache on;
proxy_http_version 1.1;
map $http_origin $allowed { default ""; "~^https://" $http_origin; }
server {
    listen 127.0.0.1:@port@;
    location /plain { proxy_pass http://@origin@; }
    location /star { add_header Access-Control-Allow-Origin *; proxy_pass http://@origin@; }
    location /reflected {
        add_header Access-Control-Allow-Origin $allowed always;
        add_header Access-Control-Allow-Credentials true;
        add_header Vary Origin;
        proxy_pass http://@origin@;
    }
    location /client { add_header X-Client $http_x_client; add_header X-Request-ID $request_id; proxy_pass http://@origin@; }
    location /cookie { add_header Set-Cookie "seen=1"; proxy_pass http://@origin@; }
    location /no-store { add_header Cache-Control no-store; proxy_pass http://@origin@; }
    location /expires { expires 1h; proxy_pass http://@origin@; }
    location /expired { expires -1; proxy_pass http://@origin@; }
    location /charset { charset utf-8; charset_types *; proxy_pass http://@origin@; }
    location /recoded { charset koi8-r; source_charset utf-8; override_charset on; charset_types *; proxy_pass http://@origin@; }
    location /sub { sub_filter_once off; sub_filter_types *; sub_filter 0x 0X; proxy_pass http://@origin@; }
    location /before { add_before_body /part; addition_types *; proxy_pass http://@origin@; }
    location /after { add_after_body /part; addition_types *; proxy_pass http://@origin@; }
    location /ssi { ssi on; ssi_types *; proxy_pass http://@origin@; }
    location /hidden {
        proxy_hide_header Set-Cookie;
        proxy_hide_header Cache-Control;
        proxy_hide_header X-Accel-Expires;
        proxy_hide_header Vary;
        proxy_hide_header X-Node;
        proxy_pass http://@origin@;
    }
    location = /part { sszip off; sszip_cache off; proxy_pass http://@origin@; }
}
charset_map koi8-r utf-8 { C0 D18E; }
"""

# Headers of a hit that differ from a miss: the cache's own and the ones about the body's encoding;
# responses to calls keep the headers that browsers and clients of the Beacon API need.
OWN = {"cache-status", "age", "date", "etag", "connection", "content-length", "transfer-encoding", "content-encoding"}
OF_RESOURCES = {"x-node"}


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": LARGE, "eth_chainId": b'"0x1"'})
    origin.answers(answer(b"<part>", type="text/plain"), "/part")
    origin.answers(node)
    return node


def is_hit(response):
    return (response.header("Cache-Status") or "").startswith("sszip; hit")


def decoded(response):
    return gunzip(response.body) if response.header("Content-Encoding") == "gzip" else response.body


def added(response):
    """All other headers, with their number. The client's identity is its own, and
    expiry is counted from the Date header, in minutes."""
    sent = parsedate_to_datetime(response.header("Date"))
    lines = sorted((name.lower(), value) for name, value in response.headers)
    own = {
        "x-request-id": lambda _: "",
        "expires": lambda value: round((parsedate_to_datetime(value) - sent).total_seconds() / 60),
    }
    return [
        (name, own.get(name, str)(value))
        for name, value in lines
        if name not in OWN | OF_RESOURCES and (name, value) != ("cache-control", "max-age=60")
    ]


def post(nginx, path, accept="gzip", headers=()):
    headers = [("Content-Type", "application/json"), *headers]
    if accept:
        headers.append(("Accept-Encoding", accept))
    return fetch(nginx.port, path, method="POST", body=BLOCK, headers=headers)


def get(nginx, path, accept="gzip", headers=()):
    return fetch(nginx.port, path, headers=[("Accept-Encoding", accept), *headers] if accept else headers)


PLACES = [
    "/plain", "/star", "/reflected", "/client", "/cookie", "/no-store", "/expires", "/expired", "/charset",
    "/recoded", "/sub", "/before", "/after", "/ssi", "/hidden",
]  # fmt: skip
CHANGED = {"/recoded", "/sub", "/before", "/after", "/ssi"}


def expected(path, body):
    if path == "/sub":
        return body.replace(b"0x", b"0X")
    return {"/before": b"<part>" + body, "/after": body + b"<part>"}.get(path, body)


@pytest.mark.parametrize("path, framing, kind", alternate(PLACES, ["length", "chunked"], ["post", "get"]))
def test_hit_equals_miss_when_other_filters_change_the_response(start_nginx, node, origin, path, framing, kind):
    body = b'{"jsonrpc":"2.0","id":1,"result":' + LARGE + b"}"
    origin.answers(answer(body, headers=CACHEABLE, framing=framing))
    origin.answers(answer(b"<part>", type="text/plain"), "/part")
    nginx = start_nginx(CONFIG)
    send = post if kind == "post" else get
    seen = {}
    # two different clients, each three times, with and without gzip
    for turn in range(3):
        for client in ("a", "b"):
            for accept in ("gzip", None):
                headers = [("Origin", f"https://{client}.test"), ("X-Client", client)]
                response = send(nginx, path, accept, headers)
                assert response.status == 200
                assert decoded(response) == expected(path, body), (turn, client, accept)
                if turn or client == "b" or accept is None:
                    if turn or path not in ("/before", "/after") or framing == "length":
                        assert is_hit(response), (turn, client, accept, response.headers)
                assert added(response) == seen.setdefault((client, accept), added(response))
    # a filter that adds to a body of unknown length is detected by its effect only
    known = framing == "length" or path not in ("/before", "/after")
    assert len(origin.received(path)) == (1 if known else 2)


@pytest.mark.parametrize(
    "header",
    [
        ("Set-Cookie", "a=b"),
        ("Cache-Control", "no-store"),
        ("Cache-Control", "private"),
        ("Vary", "*"),
    ],
)
@pytest.mark.parametrize("path", ["/plain", "/hidden"])
def test_response_is_not_stored_when_its_header_forbids_it_even_if_hidden(start_nginx, origin, header, path):
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}', headers=[header]))
    nginx = start_nginx(CONFIG)
    for _ in range(3):
        response = post(nginx, path)
        assert not is_hit(response)
        assert (response.header(header[0]) or "").startswith(header[1]) == (path == "/plain")
    assert len(origin.received(path)) == 3


def test_variants_are_kept_apart_when_vary_is_hidden(start_nginx, origin):
    origin.answers(
        lambda request: answer(
            b'"%b"' % (request.header("X-Tenant") or "").encode(),
            headers=[("Cache-Control", "max-age=60"), ("Vary", "X-Tenant")],
        )
    )
    nginx = start_nginx(CONFIG)
    for is_second in (False, True):
        for tenant in ("a", "b"):
            response = get(nginx, "/hidden", headers=[("X-Tenant", tenant)])
            assert response.body == b'"%b"' % tenant.encode()
            assert is_hit(response) == is_second
            assert "X-Tenant" not in (response.header("Vary") or "")


def test_filter_detection_is_logged_once_for_a_location(start_nginx, node, origin):
    nginx = start_nginx(CONFIG)
    for _ in range(4):
        post(nginx, "/sub")
    assert nginx.error_log().count("another module changes bodies") == 1
    assert "location \"/sub\"" in nginx.error_log()


def test_stale_response_gets_the_headers_that_nginx_adds_to_a_200(start_nginx, origin):
    nginx = start_nginx(
        "sszip on; sszip_cache on; sszip_cache_use_stale http_500; sszip_cache_valid tip 1ms; proxy_http_version 1.1;"
        "server { listen 127.0.0.1:@port@; location / { add_header X-State $sszip_cache_status;"
        " proxy_pass http://@origin@; } }"
    )
    block = call("eth_blockNumber")
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'))
    headers = [("Content-Type", "application/json")]
    first = fetch(nginx.port, "/", method="POST", body=block, headers=headers)
    assert first.header("X-State") == "MISS"
    origin.answers(answer(b"broken", status=500, type="text/plain"))
    wait_until_expired()
    second = fetch(nginx.port, "/", method="POST", body=block, headers=headers)
    assert (second.status, second.body) == (200, first.body)
    # headers that are added to a 200 are added to it
    assert second.header("X-State") == "STALE"

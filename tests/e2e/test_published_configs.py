"""Configurations of the kinds that are published for Ethereum nodes behind nginx, without
sszip and with its three lines, and with `sszip_zstd on`: the responses are the same except for
their coding. All of them are servers of one nginx with five workers and a store, together with
brotli, headers-more and Lua, in either load order."""

import base64
import collections
import os
import pathlib

import pytest

from harness.client import connected
from harness.nginx import MODULE
from harness.origin import answer
from harness.owner import owner_of
from harness.rpc import Node, call
from test_third_party_modules import FOLDER, decoded, modules
from tiers import alternate

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx")

SSZIP = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
"""

# Each kind is a server of its own.
HTTP = """
@sszip@
map $http_upgrade $connection_upgrade { default upgrade; '' close; }
map $http_origin $allowed_origin { default ""; ~^https://[a-z]+[.]dapp[.]test$ $http_origin; }
map $http_x_api_key $known_key { default ""; let-me-in 1; me-too 2; }
limit_req_zone $known_key zone=keys:1m rate=10000r/s;
limit_req_zone $http_x_user zone=users:1m rate=1r/m;
limit_conn_zone $binary_remote_addr zone=clients:1m;
split_clients $http_x_user $half { 50% left; * right; }
proxy_cache_path @prefix@/proxied keys_zone=proxied:1m;

upstream node { server @origin@; keepalive 16; }
upstream left { server @origin@; }
upstream right { server @origin_unix@; }
upstream mainnet_nodes { server @origin@; }
upstream gnosis_nodes { server @origin_unix@; }
upstream pool {
    least_conn;
    server 127.0.0.1:@port_nobody@ max_fails=0;
    server @origin@;
}

# CORS of nginx's own in place of the node's, preflight answered here
server {
    listen 127.0.0.1:@port_cors@;
    location / {
        if ($request_method = OPTIONS) {
            add_header Access-Control-Allow-Origin $allowed_origin always;
            add_header Access-Control-Allow-Methods "GET, POST, OPTIONS" always;
            add_header Access-Control-Max-Age 1728000;
            return 204;
        }
        proxy_hide_header Access-Control-Allow-Origin;
        proxy_hide_header Vary;
        add_header Access-Control-Allow-Origin $allowed_origin always;
        add_header Vary Origin always;
        add_header X-Request-User $http_x_user always;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://node;
    }
}

# the node's own CORS
server {
    listen 127.0.0.1:@port_plain@;
    location / {
        proxy_pass http://node;
        proxy_set_header Host $host;
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto $scheme;
    }
}

# a password
server {
    listen 127.0.0.1:@port_basic@;
    auth_basic "node";
    auth_basic_user_file @prefix@/passwords;
    location / { proxy_http_version 1.1; proxy_set_header Authorization ""; proxy_pass http://node; }
    location = /health { auth_basic off; default_type text/plain; return 200 "well\\n"; }
}

# keys in the path, judged by a subrequest; and a limit for each
server {
    listen 127.0.0.1:@port_keys@;
    location ~ ^/v3/(?<key>[a-z]+)$ {
        auth_request /judge;
        auth_request_set $plan $upstream_http_x_plan;
        add_header X-Plan $plan;
        limit_req zone=keys burst=1000 nodelay;
        limit_conn clients 100;
        limit_conn_status 429;
        rewrite ^ / break;
        proxy_http_version 1.1;
        proxy_pass http://node;
    }
    location = /judge {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://@origin@/judge$request_uri;
    }
    location /limited { limit_req zone=users; limit_req_status 429; proxy_pass http://node/; }
    error_page 403 = @no;
    location @no { default_type application/json; return 403 '{"error":"key"}'; }
}

# several nodes of which one is down
server {
    listen 127.0.0.1:@port_pool@;
    location / {
        proxy_http_version 1.1;
        proxy_next_upstream error timeout http_502 http_503 non_idempotent;
        proxy_next_upstream_tries 3;
        proxy_intercept_errors on;
        error_page 500 502 503 504 = @sorry;
        proxy_pass http://pool;
    }
    location @sorry { default_type application/json; return 503 '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"away"}}'; }
}

# calls and a page in one location
server {
    listen 127.0.0.1:@port_if@;
    root @prefix@/www;
    location / {
        if ($request_method = POST) { proxy_pass http://node; }
        if ($http_upgrade = websocket) { proxy_pass http://node; }
        index index.html;
    }
}

# methods that a script lets through
server {
    listen 127.0.0.1:@port_lua@;
    client_body_buffer_size 64k;
    location / {
        access_by_lua_block {
            ngx.req.read_body()
            local body = ngx.req.get_body_data() or ''
            if string.find(body, 'debug_', 1, true) then
                ngx.status = 403
                ngx.header.content_type = 'application/json'
                ngx.say('{"error":"forbidden"}')
                return ngx.exit(403)
            end
        }
        header_filter_by_lua_block { ngx.header['X-Checked'] = 'yes' }
        more_set_headers 'X-Served-By: rpc';
        more_clear_headers 'Access-Control-*';
        proxy_http_version 1.1;
        proxy_pass http://node;
    }
}

# all coders
server {
    listen 127.0.0.1:@port_coders@;
    gzip on;
    gzip_vary on;
    gzip_proxied any;
    gzip_types application/json text/plain application/octet-stream;
    gzip_min_length 256;
    brotli on;
    brotli_types application/json text/plain;
    location / { proxy_http_version 1.1; proxy_pass http://node; }
}

# halves of the users
server {
    listen 127.0.0.1:@port_split@;
    location / { proxy_http_version 1.1; add_header X-Half $half; proxy_pass http://$half; }
}

# chains by path
server {
    listen 127.0.0.1:@port_chains@;
    location ~ ^/(?<chain>mainnet|gnosis)/rpc$ { proxy_http_version 1.1; proxy_pass http://${chain}_nodes/$chain; }
    location / { return 404; }
}

# calls and WebSocket in one location, the way most have it
server {
    listen 127.0.0.1:@port_ws@;
    location / {
        proxy_http_version 1.1;
        proxy_set_header Host $host;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection_upgrade;
        proxy_read_timeout 3600s;
        proxy_buffering off;
        proxy_pass http://node;
    }
}

# nginx's own cache of calls
server {
    listen 127.0.0.1:@port_proxied@;
    location / {
        proxy_cache proxied;
        proxy_cache_methods GET POST;
        proxy_cache_key "$request_method|$request_uri|$request_body";
        proxy_cache_valid 200 1h;
        proxy_http_version 1.1;
        proxy_pass http://node;
    }
}

# traffic that is copied to a second node
server {
    listen 127.0.0.1:@port_mirror@;
    location / { mirror /copy; proxy_http_version 1.1; proxy_pass http://node; }
    location = /copy { internal; proxy_pass http://@origin@/copy; }
}
"""

SERVERS = "cors plain basic keys pool if lua coders split chains ws proxied mirror".split()

BLOCK = b'{"number":"0x10","hash":"0x%b","transactions":[%b]}' % (b"ab" * 32, b",".join([b'"0x%064x"' % n for n in range(700)]))
PAGE = b'{"version":"deneb","execution_optimistic":false,"finalized":true,"data":{"message":{"slot":"1","body":"0x%b"}}}' % (b"cd" * 9000)
SSZ = bytes(range(256)) * 40
JSON = ("Content-Type", "application/json")

BLOCK_CALL = call("eth_getBlockByHash", '["0x' + "ab" * 32 + '",false]', id='"one"')
BATCH = b"[" + b",".join([call("eth_chainId", id="1"), BLOCK_CALL, call("eth_nothing", id="3"), call("eth_chainId", id="null")]) + b"]"

# Requests of clients: method, target, headers, body.
CALLS = {
    "chain": ("POST", None, [JSON], call("eth_chainId", id="7")),
    "block": ("POST", None, [JSON], BLOCK_CALL),
    "batch": ("POST", None, [JSON], BATCH),
    "error": ("POST", None, [JSON], call("eth_nothing")),
    "send": ("POST", None, [JSON], call("eth_sendRawTransaction", '["0x00"]')),
    "forbidden": ("POST", None, [JSON], call("debug_traceBlock")),
    "malformed": ("POST", None, [JSON], b'{"jsonrpc":"2.0","id":1,"method"'),
    "form": ("POST", None, [("Content-Type", "application/x-www-form-urlencoded")], call("eth_chainId")),
    "get": ("GET", None, [], None),
    "options": ("OPTIONS", None, [("Access-Control-Request-Method", "POST")], None),
    "page": ("GET", "/eth/v2/beacon/blocks/0x" + "ef" * 32, [("Accept", "application/json")], None),
    "octets": ("GET", "/eth/v2/beacon/blocks/0x" + "ef" * 32, [("Accept", "application/octet-stream;q=1,application/json;q=0.9")], None),
    "health": ("GET", "/health", [], None),
    "head": ("HEAD", "/eth/v2/beacon/blocks/0x" + "ef" * 32, [], None),
}
TARGETS = {"keys": ["/v3/good", "/v3/other", "/v3/bad"], "chains": ["/mainnet/rpc", "/gnosis/rpc", "/elsewhere"]}
PASSWORD = ("Authorization", "Basic " + base64.b64encode(b"me:secret").decode())
CLIENTS = {
    "identity": [],
    "gzip": [("Accept-Encoding", "gzip, deflate"), ("Origin", "https://a.dapp.test"), ("X-User", "a")],
    "br": [("Accept-Encoding", "gzip, deflate, br, zstd"), ("Origin", "https://b.dapp.test"), ("X-User", "b")],
    "foreign": [("Accept-Encoding", "br"), ("Origin", "https://elsewhere.test"), ("X-User", "c")],
    "password": [("Accept-Encoding", "zstd, gzip"), PASSWORD],
}

# Headers that describe the transfer of a response, and not its content.
CARRIED = {"date", "content-length", "transfer-encoding", "content-encoding", "connection", "cache-status", "age", "etag", "vary", "accept-ranges"}


def node_of(requests=None):
    """A node with CORS as in geth, with another chain on each path."""
    results = {"eth_getBlockByHash": BLOCK, "eth_sendRawTransaction": b'"0x00"', "debug_traceBlock": b'"traced"'}
    nodes = {path: Node({"eth_chainId": number, **results}, newline=b"") for path, number in {"/": b'"0x1"', "/mainnet": b'"0x1"', "/gnosis": b'"0x64"'}.items()}

    def script(request):
        # the copies of a mirror arrive at any time
        if requests is not None and not request.path.startswith("/copy"):
            requests.append(request)
        if request.path.startswith("/judge"):
            status = 403 if request.path.endswith("bad") else 204
            return answer(b"", status=status, headers=[("X-Plan", "free")])
        origin = request.header("Origin")
        cors = [("Vary", "Origin")] + ([("Access-Control-Allow-Origin", origin)] if origin else [])
        if request.method in ("GET", "HEAD"):
            if not request.path.startswith("/eth"):
                return answer(b"", type="text/plain", headers=cors, method=request.method)
            octets = (request.header("Accept") or "").startswith("application/octet-stream")
            fields = [*cors, ("Eth-Consensus-Version", "deneb")]
            body, type = (SSZ, "application/octet-stream") if octets else (PAGE, "application/json")
            return answer(body, type=type, headers=fields, method=request.method)
        if request.method != "POST" or not (request.header("Content-Type") or "").startswith("application/json"):
            return answer(b"no call\n", status=415, type="text/plain", headers=cors)
        try:
            made = nodes.get(request.path, nodes["/"])
            made.options = {"headers": cors}
            return made(request)
        except ValueError:
            return answer(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}', status=400, headers=cors)

    return script


ORDERS = ["before", "after"]
ZSTD = ["off", "on"]
NAMES = ["ndk_http_module", "ngx_http_lua_module", "ngx_http_headers_more_filter_module", "ngx_http_brotli_filter_module"]


@pytest.fixture(scope="module")
def proxies(start_nginx):
    """nginx without sszip, and with sszip loaded before the other modules and after them, each with
    `sszip_zstd` off and on."""

    def start(order, zstd="off"):
        http = HTTP.replace("@sszip@", "" if order is None else f"{SSZIP}sszip_zstd {zstd};")
        files = {"passwords": b"me:{PLAIN}secret\n", "www/index.html": b"<html>a page</html>" * 100}
        if order == "before":
            ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
            started = start_nginx(http, main=modules(*NAMES[1:]) + ours, module=FOLDER / f"{NAMES[0]}.so", workers=5, files=files)
        else:
            started = start_nginx(http, main=modules(*NAMES), workers=5, files=files)
        os.utime(started.prefix / "www/index.html", (1, 1))  # its Last-Modified
        if order is not None:
            owner = owner_of(started)
            started.wait_for(lambda: {str(pid) for pid in started.workers()} <= owner.pids(), "workers at the store")
        return started

    own = {(order, zstd): start(order, zstd) for order in ORDERS for zstd in ZSTD}
    return {None: start(None), **own}


def response_parts(response):
    fields = sorted((name.lower(), value) for name, value in response.headers if name.lower() not in CARRIED)
    varies = {word.strip().lower() for word in (response.header("Vary") or "").split(",") if word.strip()}
    return (response.status, fields, response.body and decoded(response)), varies


def exchange_with(nginx, server, client, name, target):
    method, own, headers, body = CALLS[name]
    headers = [*headers, *CLIENTS[client]]
    if name == "block" and client == "br":  # another id for the same call
        body = body.replace(b'"one"', b"2")
    with connected(nginx.ports[f"port_{server}"]) as connection:
        return connection.exchange(own or target, method=method, headers=headers, body=body)


@pytest.mark.parametrize("server, order, zstd", alternate(SERVERS, ORDERS, ZSTD))
def test_responses_equal_those_without_sszip(proxies, origin, server, order, zstd):
    origin.answers(node_of())
    for nginx in proxies.values():
        nginx.expect("Connection refused")
    hits = 0
    codings = collections.Counter()
    for target in TARGETS.get(server, ["/"]):
        for name in CALLS:
            for client in CLIENTS:
                one = (server, client, name, target)
                expected, varied = response_parts(exchange_with(proxies[None], *one))
                for turn in range(3):
                    response = exchange_with(proxies[order, zstd], *one)
                    got, varies = response_parts(response)
                    assert got == expected, (one, turn, response.headers)
                    assert varied <= varies <= varied | {"accept-encoding"}, (one, turn, response.headers)
                    accepted = dict(CLIENTS[client]).get("Accept-Encoding", "").split(", ")
                    assert response.coding is None or response.coding in accepted, (one, turn)
                    codings[response.coding] += 1
                    hits += (response.header("Cache-Status") or "").startswith("sszip; hit")
    assert (codings["zstd"] > 0) == (zstd == "on")
    assert hits > 5 or server == "basic"  # a request with a password bypasses the cache


@pytest.mark.parametrize("kind", [None, ("before", "off"), ("after", "on")], ids=str)
def test_transactions_reach_the_node_each_time(proxies, origin, kind):
    requests = []
    origin.answers(node_of(requests))
    for server in ("plain", "lua", "ws", "split"):
        before = len(requests)
        for n in range(1, 6):
            assert exchange_with(proxies[kind], server, "gzip", "send", "/").status == 200
            assert len(requests) == before + n


def test_hits_are_limited_by_limit_req(proxies, origin):
    origin.answers(node_of())
    for nginx in proxies.values():
        nginx.expect("limiting requests")
        statuses = []
        for _ in range(3):
            headers = [JSON, ("X-User", "greedy")]
            with connected(nginx.ports["port_keys"]) as connection:
                statuses.append(connection.exchange("/limited", method="POST", headers=headers, body=call("eth_chainId")).status)
        assert statuses == [200, 429, 429]

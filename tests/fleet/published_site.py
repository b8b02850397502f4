"""Configurations of the kinds that are published for Ethereum nodes behind nginx, on two machines
that share a fleet, and clients of their servers."""

import itertools
import json

from machines import balance

from harness import brotli
from harness.client import connected

# Each kind is a server of its own.
SERVERS = """
map $http_origin $allowed_origin { default ""; ~^https://[a-z]+[.]dapp[.]test$ $http_origin; }
map $http_x_api_key $known_key { default ""; first-key 1; second-key 2; }
map $http_x_chain $chain { default main; other other; }
map $http_x_chain $backend { default node; other other; archive archive; }

upstream node { server @node@; keepalive 16; }
upstream archive { server @node@; }
upstream other { server @node_other@; }
upstream pool {
    least_conn;
    server 127.0.0.1:@port_closed@ max_fails=0;
    server @node@;
}

server {
    listen 127.0.0.1:@port@ reuseport;
    location / { proxy_pass http://node; }
}

# CORS of nginx's own, preflight answered here
server {
    listen 127.0.0.1:@port_cors@ reuseport;
    location / {
        if ($request_method = OPTIONS) {
            add_header Access-Control-Allow-Origin $allowed_origin always;
            add_header Access-Control-Max-Age 1728000;
            return 204;
        }
        proxy_hide_header Access-Control-Allow-Origin;
        proxy_hide_header Vary;
        add_header Access-Control-Allow-Origin $allowed_origin always;
        add_header X-Request-User $http_x_user always;
        proxy_set_header Connection "";
        proxy_pass http://node;
    }
}

# keys that a subrequest checks, and that the node does not see
server {
    listen 127.0.0.1:@port_keys@ reuseport;
    location / {
        auth_request /key;
        proxy_set_header X-Api-Key "";
        proxy_pass http://node;
    }
    location = /key {
        internal;
        if ($known_key = "") { return 403; }
        return 204;
    }
}

# responses that depend on the key
server {
    listen 127.0.0.1:@port_tenants@ reuseport;
    sszip_cache_credentials key X-Api-Key;
    location / { proxy_pass http://node; }
}

# other coders
server {
    listen 127.0.0.1:@port_coders@ reuseport;
    gzip on;
    gzip_vary on;
    gzip_proxied any;
    gzip_types application/json;
    gzip_min_length 256;
    brotli on;
    brotli_types application/json;
    location / { proxy_pass http://node; }
}

# several nodes of which one is down
server {
    listen 127.0.0.1:@port_pool@ reuseport;
    location / {
        proxy_next_upstream error timeout http_502 http_503 non_idempotent;
        proxy_next_upstream_tries 3;
        proxy_pass http://pool;
    }
}

# calls and an image in one location
server {
    listen 127.0.0.1:@port_if@ reuseport;
    location / {
        if ($request_method = POST) { proxy_pass http://node; }
        empty_gif;
    }
}

# nodes and chains by header
server {
    listen 127.0.0.1:@port_gateway@ reuseport;
    sszip_cache_namespace $chain;
    location / { proxy_pass http://$backend; }
}

# TLS and HTTP/2
server {
    listen 127.0.0.1:@port_tls@ ssl http2 reuseport;
    ssl_certificate @certificate@;
    ssl_certificate_key @certificate_key@;
    location / { proxy_pass http://node; }
}
"""
# The node's own CORS, and responses that the node sends to one tenant.
VARYING = """
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { proxy_pass http://@node@; }
}
server {
    listen 127.0.0.1:@port_cors@ reuseport;
    location / {
        proxy_set_header X-Replay "header=Vary:Origin&header=Access-Control-Allow-Origin:$http_origin";
        proxy_pass http://@node@;
    }
}
server {
    listen 127.0.0.1:@port_tenants@ reuseport;
    location / {
        proxy_set_header X-Replay "header=Vary:X-Api-Key&header=Access-Control-Allow-Origin:https://$http_x_api_key.test";
        proxy_pass http://@node@;
    }
}
"""
WORKERS = 5
METHOD = "eth_getBalance"
JSON = ("Content-Type", "application/json")
# request headers on each server, by which another client on another machine gets the same entry
CLIENTS = {
    "port": [[]],
    "port_cors": [[("Origin", f"https://{name}.dapp.test"), ("X-User", name)] for name in "abc"],
    "port_keys": [[("X-Api-Key", key)] for key in ("first-key", "second-key")],
    "port_coders": [[]],
    "port_pool": [[]],
    "port_if": [[]],
    "port_gateway": [[], [("X-Chain", "archive")]],
}
CODINGS = [[], [("Accept-Encoding", "gzip")], [("Accept-Encoding", "gzip, deflate, br, zstd")], [("Accept-Encoding", "br")]]
# a lease in place of a value is shorter
SHORTEST_VALUE = 100


def configured_pair(world, redis, chain, config, **options):
    """Two machines with this configuration, which share a fleet."""
    machines = []
    for _ in range(2):
        settings = world.settings(redis.url)
        machine = world.new_machine(chain, settings, "configured", config=config, workers=WORKERS, **options)
        # the node of the pool that is down
        machine.server.expect("Connection refused")
        machines.append(machine.start().wait_until_used())
    return machines


def new_calls(machine, accounts, count):
    """Calls about final blocks that no test has sent."""
    chosen = list(itertools.islice(accounts, count))
    final = machine.chain.final
    return [balance(final - account % 40, account) for account in chosen]


def exchange(machine, server, body, headers=(), method="POST"):
    """The response of a server, whose status may be any."""
    with connected(machine.server.ports[server]) as connection:
        own = [JSON] if body is not None else []
        return connection.exchange("/", method=method, headers=[*own, *headers], body=body)


def decoded(response):
    assert response.status == 200, (response.status, response.body[:500])
    if response.coding == "br":
        return brotli.decompress(response.body, most=1 << 22)
    return response.decoded


def result(response):
    message = json.loads(decoded(response))
    assert message["jsonrpc"] == "2.0" and message["id"] == 1, message
    return message["result"]


def node_requests(machine):
    """The number of calls that the node has received; no follower sends these methods."""
    return sum(machine.chain.count(method) for method in (METHOD, "eth_getBlockReceipts"))


def value_names(redis):
    return {name for name, value in redis.values().items() if value and len(value) > SHORTEST_VALUE}


def store(machine, redis, server, headers, calls):
    """Sends calls, and waits until the fleet has a value of each."""
    names = value_names(redis)
    expected = machine.chain.honest(*calls)
    assert [result(exchange(machine, server, body, headers)) for body in calls] == expected
    machine.wait_for(lambda: len(value_names(redis) - names) >= len(calls), "values of all calls")
    return expected


def requested(machine, server, body, headers=()):
    """The number of node requests for a call, whose response must be right."""
    (honest,) = machine.chain.honest(body)
    before = machine.chain.count(METHOD)
    assert result(exchange(machine, server, body, headers)) == honest
    return machine.chain.count(METHOD) - before

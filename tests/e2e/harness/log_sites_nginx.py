"""nginx with configurations of the kinds that are published for Ethereum nodes, with the settings about
logs and QUERY."""

import json
import pathlib

from .client import fetch
from .copied_configs import Tls
from .log_ranges import CONCURRENT, JSON, PIECE
from .log_sites import LIMIT, WORKERS, LogSite, new_balance_call
from .nginx import MODULE, Nginx
from .third_party import FOLDER, modules

NAMES = ["ngx_http_headers_more_filter_module", "ngx_http_brotli_filter_module"]
# the body of an error page
UNAVAILABLE = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "unavailable"}}

# Each kind is a server of its own. $pid names the worker that sends the response.
HTTP = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
sszip_cache_memory 16m;
sszip_cache_valid immutable 1h;
sszip_cache_valid unfinalized 1h;
sszip_cache_valid tip 1h;
# longer than the wait of any request of these tests
sszip_cache_lock_timeout 60s;
sszip_cache_namespace main;
sszip_cache_head http://@chain@ api=execution interval=100ms;
sszip_logs_split @split@;
sszip_logs_from_receipts on;
sszip_logs_max_range @limit@;
sszip_query on;

gzip on;
gzip_vary on;
gzip_proxied any;
gzip_types application/json;
brotli on;
brotli_types *;
brotli_min_length 1;
more_set_headers 'X-Served-By: rpc';
proxy_http_version 1.1;
client_body_buffer_size 128k;
add_header X-Worker $pid always;

map $http_origin $allowed_origin { default ""; ~^https://[a-z]+[.]dapp[.]test$ $http_origin; }
map $http_x_chain $chain { default ""; main main; other other; }
map $chain $chain_node { default node; other other_node; }
limit_req_zone $http_x_user zone=users:1m rate=1r/m;
limit_conn_zone $http_x_user zone=clients:1m;
split_clients $http_x_user $half { 50% left; * right; }

upstream node { server @origin@; }
upstream left { server @origin@; }
upstream right { server @origin_unix@; }
upstream other_node { server @origin_unix@; }
upstream pool {
    least_conn;
    server 127.0.0.1:@port_closed@ max_fails=0;
    server @origin@ max_fails=0;
}

# CORS of nginx's own in place of the node's
server {
    listen 127.0.0.1:@port_cors@ reuseport;
    location / {
        if ($request_method = OPTIONS) {
            add_header Access-Control-Allow-Origin $allowed_origin always;
            add_header Access-Control-Allow-Methods "GET, POST, QUERY, OPTIONS" always;
            return 204;
        }
        proxy_hide_header Access-Control-Allow-Origin;
        proxy_hide_header Vary;
        add_header Access-Control-Allow-Origin $allowed_origin always;
        add_header Vary Origin always;
        add_header X-Worker $pid always;
        proxy_pass http://node;
    }
}

# the node's own CORS
server {
    listen 127.0.0.1:@port_plain@ reuseport;
    location / { proxy_pass http://node; }
}

# a password, which the node does not receive
server {
    listen 127.0.0.1:@port_basic@ reuseport;
    auth_basic "node";
    auth_basic_user_file @prefix@/passwords;
    sszip_cache_credentials ignore;
    location / { proxy_set_header Authorization ""; proxy_pass http://node; }
}

# a password that the node checks
server {
    listen 127.0.0.1:@port_forwarded@ reuseport;
    location / { proxy_pass http://node; }
    location /keyed { sszip_cache_credentials key Authorization; proxy_pass http://node; }
}

# keys that an authorization service checks
server {
    listen 127.0.0.1:@port_authorized@ reuseport;
    location / { auth_request /judge; proxy_pass http://node; }
    location = /judge {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://@origin@/judge;
    }
}

# limits for each user
server {
    listen 127.0.0.1:@port_limited@ reuseport;
    location / {
        limit_req zone=users;
        limit_req_status 429;
        limit_conn clients 1;
        limit_conn_status 429;
        proxy_pass http://node;
    }
}

# one of two nodes for each half of the users
server {
    listen 127.0.0.1:@port_halves@ reuseport;
    location / {
        proxy_set_header X-Half $half;
        add_header X-Half $half;
        add_header X-Worker $pid always;
        proxy_pass http://$half;
    }
}

# chains by a header
server {
    listen 127.0.0.1:@port_chains@ reuseport;
    location / {
        if ($chain = "") { return 404; }
        sszip_cache_namespace $chain;
        sszip_cache_head http://@other@ api=execution interval=100ms namespace=other;
        proxy_set_header X-Chain $chain;
        proxy_pass http://$chain_node;
    }
}

# calls and a page in one location
server {
    listen 127.0.0.1:@port_if@ reuseport;
    root @prefix@/www;
    location / {
        if ($request_method = POST) { proxy_pass http://node; }
        index index.html;
    }
}

# two nodes of which one is down, and an error page
server {
    listen 127.0.0.1:@port_pool@ reuseport;
    location / {
        proxy_next_upstream error timeout http_502 http_503 non_idempotent;
        proxy_next_upstream_tries 3;
        proxy_intercept_errors on;
        error_page 500 502 503 504 = @sorry;
        proxy_pass http://pool;
    }
    location @sorry { default_type application/json; return 503 '@unavailable@'; }
}

server {
    listen 127.0.0.1:@port_tls@ ssl http2 reuseport;
    ssl_certificate @prefix@/chain.pem;
    ssl_certificate_key @prefix@/key.pem;
    location / { proxy_pass http://node; }
}
"""


class NginxSite(LogSite):
    """nginx with all servers, which loads sszip before the other modules or after them."""

    def __init__(self, order, origin, files):
        super().__init__()
        values = {
            "@chain@": self.chain.address,
            "@other@": self.other_chain.address,
            "@split@": f"{PIECE} concurrent={CONCURRENT}",
            "@limit@": str(LIMIT),
            "@unavailable@": json.dumps(UNAVAILABLE),
        }
        http = HTTP
        for name, value in values.items():
            http = http.replace(name, value)
        if order == "before":
            loaded = {"main": modules(*NAMES)}
        else:
            ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
            loaded = {"main": modules(*NAMES[1:]) + ours, "module": FOLDER / f"{NAMES[0]}.so"}
        self.server = Nginx(http, origin=origin, workers=WORKERS, files=files, **loaded)

    def post(self, kind, body, *headers, path="/", method="POST"):
        """The response of the server of this kind."""
        port = self.server.ports[f"port_{kind}"]
        request = {"method": method, "headers": [*JSON, *headers], "body": body}
        if kind != "tls":
            return fetch(port, path, **request)
        with Tls(port, "rpc.example.org") as connection:
            return connection.exchange(path, **request)

    def warm_up(self, kind, *headers, path="/"):
        """Sends new calls until each worker has forwarded one: it has detected then that no other
        filter changes bodies, and recorded the headers that responses depend on."""
        workers = set()

        def have_all_responded():
            response = self.post(kind, new_balance_call(), *headers, path=path)
            assert response.status == 200, response.body
            workers.add(int(response.header("X-Worker")))
            return workers == set(self.server.workers())

        self.server.wait_for(have_all_responded, "responses of all workers")
        self.node.bodies.clear()

"""Split batches whose node aborts, in realistic servers: TLS and HTTP/2, CORS by the proxy,
brotli on either side of sszip, several upstreams or retries, reloads."""

import itertools
import pathlib
import threading

import pytest

from harness.truncated_batches import (
    BATCH, CLIENTS, CUTS, ORIGIN, STORED, requested_ids, allowed_losses, abort_clients, curl, truncated_batch, paused_truncation, is_complete, check_response, node, prime,
)  # fmt: skip
from harness.copied_configs import certificate
from harness.envoy import Envoy, filter, route, typed
from harness.lua import FOLDER, modules
from harness.nginx import MODULE, Nginx
from harness.origin import CLOSE, RESET
from harness.owner import wait_until_linked
from harness.fixtures import starting
from harness.sandbox import WasmEnvoy
from tiers import by_tier

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx")

NAME = "ngx_http_brotli_filter_module"
HTTP = """
sszip on;
sszip_cache on;
sszip_cache_namespace broken;
sszip_cache_path @prefix@/cache;
sszip_method deny debug_*;
gzip on;
gzip_types application/json;
brotli on;
brotli_types *;
brotli_min_length 1;
proxy_http_version 1.1;
upstream pool { server @origin@ max_fails=0; server @origin_unix@ max_fails=0; }
map $http_origin $allowed { default ''; https://dapp.example $http_origin; }
server {
    listen 127.0.0.1:@port@ ssl http2;
    ssl_certificate @prefix@/chain.pem;
    ssl_certificate_key @prefix@/key.pem;
    add_header Access-Control-Allow-Origin $allowed always;
    location / {
        proxy_set_header Connection '';
        proxy_next_upstream error timeout http_503 non_idempotent;
        proxy_pass http://pool;
    }
}
"""
SETTINGS = {"cache": True, "cache_namespace": "broken", "method": ["deny debug_*"]}
CORS = "envoy.filters.http.cors"
POLICY = typed("filters.http.cors.v3.CorsPolicy", allow_origin_string_match=[{"exact": ORIGIN}], allow_methods="POST")
RETRIES = {"retry_on": "connect-failure,reset,gateway-error", "num_retries": 1}
BROTLI = filter(
    "compressor",
    "Compressor",
    compressor_library={"name": "brotli", "typed_config": typed("compression.brotli.compressor.v3.Brotli")},
)


def nginx(order, origin, folder):
    """nginx that loads sszip before brotli, or after it."""
    chain, key = certificate(folder)
    ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
    loaded = {"main": modules(NAME)} if order == "before" else {"main": ours, "module": FOLDER / f"{NAME}.so"}
    files = {"chain.pem": chain, "key.pem": key}
    nginx = Nginx(HTTP, origin=origin, files=files, workers=2, **loaded)
    nginx.expect("prematurely closed|reset by peer|upstream|gzip")
    return nginx


def envoy(host, order, origin):
    """Envoy with brotli before sszip, or behind it."""
    found = route("/", SETTINGS, retry_policy=RETRIES)
    found["typed_per_filter_config"][CORS] = POLICY
    filters, last = [filter("cors", "Cors")], []
    (filters if order == "before" else last).append(BROTLI)
    kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
    return kind([found], origin=origin, filters=filters, last=last, tls=True, workers=2)


@pytest.fixture(scope="module", params=["before", "after"])
def server(request, host, session_origin, tmp_path_factory):
    def make():
        if host == "nginx":
            return nginx(request.param, session_origin, tmp_path_factory.mktemp("certificate"))
        return envoy(host, request.param, session_origin)

    for start in starting(make):
        server = start()
        if host == "nginx":
            wait_until_linked(server)
        yield server


@pytest.fixture
def port(server, origin):
    prime(server, server.port, origin)
    return server.port


# each client and each truncation, or all pairs of them
TRUNCATIONS = by_tier(
    [(kind, *client) for kind, client in zip(CUTS, itertools.cycle(CLIENTS), strict=False)],
    [(kind, *client) for kind in CUTS for client in CLIENTS],
)


@pytest.mark.parametrize("kind, coding, version", TRUNCATIONS)
def test_calls_get_complete_responses_or_errors_when_the_node_truncates_a_batch(host, port, origin, kind, coding, version):
    origin.answers(truncated_batch(kind))
    for turn in (1, 2):
        got = curl(port, BATCH, coding=coding, version=version)
        # no part of it is stored
        assert requested_ids(origin)[0] == requested_ids(origin)[-1] == [2, "four"]
        if host == "nginx" or kind == "gzip":
            check_response(got, 200, **allowed_losses(kind), coding=coding)
            # a response that has begun is not fetched again
            assert len(origin.received()) == turn
        else:
            # a local reply of Envoy, which no filter may replace after the node's head
            assert got[0] in (502, 503)
    origin.answers(node)
    assert is_complete(curl(port, BATCH, coding=coding, version=version))
    assert "; hit" in curl(port, STORED)[1]["cache-status"]


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
def test_batch_is_answered_by_a_retry_when_the_node_aborts_before_its_head(host, port, origin, end):
    coding = "br, gzip"
    turns = iter([lambda _: [end], node])
    origin.answers(lambda request: next(turns)(request))
    check_response(curl(port, BATCH, coding=coding), 200, whole=[2, "four"], coding=coding)
    assert requested_ids(origin) == [[2, "four"]] * 2
    # all attempts fail
    origin.answers([end])
    check_response(curl(port, BATCH, coding=coding), 502 if host == "nginx" else 503, coding=coding)


@pytest.mark.parametrize("kind", CUTS)
def test_other_clients_are_not_affected_when_clients_abort(host, server, port, origin, kind):
    script, left = paused_truncation(kind)
    origin.answers(script)
    workers = server.workers()
    abort_clients(server, port, origin)
    left.set()
    if host == "nginx":
        check_response(curl(port, BATCH), 200, **allowed_losses(kind))
    else:
        server.wait_for(lambda: server.active() == 0, "requests to end")
    origin.answers(node)
    assert is_complete(curl(port, BATCH))
    assert server.workers() == workers


@pytest.mark.hosts("nginx")
@pytest.mark.parametrize("kind", ["length", "reset"])
def test_batch_is_answered_by_the_old_workers_when_nginx_reloads(server, port, origin, kind):
    script, reloaded = paused_truncation(kind)
    origin.answers(script)
    got = []
    client = threading.Thread(target=lambda: got.append(curl(port, BATCH)))
    client.start()
    server.wait_for(origin.received, "the node to receive a request")
    server.reload()
    reloaded.set()
    client.join(60)
    check_response(got[0], 200, **allowed_losses(kind))
    wait_until_linked(server)
    origin.answers(node)
    assert is_complete(curl(port, BATCH))

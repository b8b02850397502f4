"""Split batches whose node breaks off, where nginx has TLS and HTTP/2, CORS by add_header, brotli
before sszip or behind it, several upstreams and reloads."""

import pathlib
import threading

import pytest

from harness.broken_batches import (
    BATCH, CLIENTS, CUTS, asked, came, clients_leave, curl, cut, held, is_whole, judge, node, prime,
)  # fmt: skip
from harness.copied import certificate
from harness.lua import FOLDER, modules
from harness.nginx import MODULE
from harness.origin import CLOSE, RESET
from harness.owner import wait_until_linked

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx")

BROTLI = "ngx_http_brotli_filter_module"
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
    listen 127.0.0.1:@port_tls@ ssl http2;
    listen 127.0.0.1:@port@;
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
EXPECTED = "prematurely closed|reset by peer|upstream|no live|gzip"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    chain, key = certificate(tmp_path_factory.mktemp("certificate"))
    return {"chain.pem": chain, "key.pem": key}


@pytest.fixture(scope="module", params=["before", "after"])
def nginx(request, start_nginx, files):
    """sszip is loaded before brotli, or after it."""
    options = {"files": files, "workers": 2}
    if request.param == "before":
        nginx = start_nginx(HTTP, main=modules(BROTLI), **options)
    else:
        ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
        nginx = start_nginx(HTTP, main=ours, module=FOLDER / f"{BROTLI}.so", **options)
    nginx.expect(EXPECTED)
    wait_until_linked(nginx)
    return nginx


@pytest.fixture
def port(nginx, origin):
    port = nginx.ports["port_tls"]
    prime(nginx, port, origin)
    return port


@pytest.mark.parametrize("coding, version", CLIENTS)
@pytest.mark.parametrize("kind", CUTS)
def test_calls_have_the_answers_that_came_whole(port, origin, kind, coding, version):
    origin.answers(cut(kind))
    for turn in (1, 2):
        # a response that has begun is not asked for again, and none of it is stored
        judge(curl(port, BATCH, coding=coding, version=version), 200, **came(kind), coding=coding)
        assert asked(origin) == [[2, "four"]] * turn
    origin.answers(node)
    assert is_whole(curl(port, BATCH, coding=coding, version=version))


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
def test_next_upstream_answers_what_one_broke_off_before_its_head(port, origin, end):
    coding = "br, gzip"
    turns = iter([lambda _: [end], node])
    origin.answers(lambda request: next(turns)(request))
    judge(curl(port, BATCH, coding=coding), 200, whole=[2, "four"], coding=coding)
    assert asked(origin) == [[2, "four"]] * 2
    # none of them answers
    origin.answers([end])
    judge(curl(port, BATCH, coding=coding), 502, coding=coding)


@pytest.mark.parametrize("kind", ["length", "reset"])
def test_batch_is_answered_by_the_workers_that_a_reload_ends(nginx, port, origin, kind):
    script, reloaded = held(kind)
    origin.answers(script)
    got = []
    client = threading.Thread(target=lambda: got.append(curl(port, BATCH)))
    client.start()
    nginx.wait_for(origin.received, "the node to be asked")
    nginx.reload()
    reloaded.set()
    client.join(60)
    judge(got[0], 200, **came(kind))
    wait_until_linked(nginx)
    origin.answers(node)
    assert is_whole(curl(port, BATCH))


@pytest.mark.parametrize("kind", CUTS)
def test_client_that_leaves_costs_nobody_else_anything(nginx, port, origin, kind):
    script, left = held(kind)
    origin.answers(script)
    workers = nginx.workers()
    clients_leave(nginx, port, origin)
    left.set()
    judge(curl(port, BATCH), 200, **came(kind))
    origin.answers(node)
    assert is_whole(curl(port, BATCH))
    assert nginx.workers() == workers

"""Probes in configurations of real operators: behind TLS and HTTP/2, with five workers, with
brotli and Lua, with upstreams that fail, `if`, rewritten and variable paths, error pages,
auth subrequests, mirrors and caches; and with each allocation failing in turn."""

import json
import pathlib
import subprocess

import pytest

from harness.client import Truncated, fetch, request_bytes
from harness.nginx import MODULE, NGINX
from harness.origin import answer
from harness.preload import LIBRARIES, PROGRAM
from harness.nginx_state import wait_until_stable
from test_node_capabilities import BLOCK, OCTETS, SPEC, blocks, chain, data_json, served
from test_third_party_modules import FOLDER, modules
from tiers import times

__all__ = ["blocks", "chain"]

HTTP = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
proxy_cache_path @prefix@/proxied keys_zone=proxied:1m;
upstream node { server @origin@; keepalive 4; }
upstream pool { server 127.0.0.1:@port_nobody@ max_fails=0; server @origin@; }
upstream minimal_nodes { server @origin@; }
server {
    listen 127.0.0.1:@port_tls@ ssl http2;
    ssl_certificate @prefix@/certificate.pem;
    ssl_certificate_key @prefix@/key.pem;
    location / { proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header Connection ""; proxy_pass http://node; }
}
server {
    listen 127.0.0.1:@port_pool@;
    location / { proxy_next_upstream error timeout; proxy_pass http://pool; }
}
server {
    listen 127.0.0.1:@port_if@;
    location / {
        if ($request_method = GET) { proxy_pass http://node; }
        if ($http_upgrade = websocket) { proxy_pass http://node; }
    }
}
server {
    listen 127.0.0.1:@port_else@;
    location / {
        set $backend node;
        if ($http_x_chain) { set $backend minimal_nodes; }
        proxy_pass http://$backend;
    }
}
server {
    listen 127.0.0.1:@port_last@;
    rewrite ^/v1/[a-z]+(/.*)$ /inner$1 last;
    location /inner/ { internal; proxy_pass http://node/; }
}
server {
    listen 127.0.0.1:@port_map@;
    location ~ ^/(?<chain>minimal)(?<rest>/eth/.*)$ { proxy_pass http://${chain}_nodes$rest$is_args$args; }
}
server {
    listen 127.0.0.1:@port_judged@;
    location / { auth_request /judge; mirror /mirror; proxy_pass http://node; }
    location = /judge { internal; sszip off; proxy_pass http://node/judge; }
    location = /mirror { internal; sszip off; proxy_pass http://node/mirror; }
}
server {
    listen 127.0.0.1:@port_proxied@;
    location / {
        proxy_cache proxied;
        proxy_cache_valid 200 10m;
        proxy_cache_lock on;
        proxy_pass http://node;
    }
}
server {
    listen 127.0.0.1:@port_changed@;
    location / { sub_filter_types application/json; sub_filter gnosis GNOSIS; addition_types x/y; proxy_pass http://node; }
}
"""

HTTP += "".join(
    """
server {
    listen 127.0.0.1:@port_%s@;
    location / {
        proxy_intercept_errors on;
        recursive_error_pages on;
        error_page 404 502 503 504 = @sorry;
        proxy_pass http://node;
    }
    location @sorry { return 200 "sorry"; }
}
"""
    % name
    for name in ("pages", "pages_404", "pages_503")
)

OTHERS = """
server {
    listen 127.0.0.1:@port_coders@;
    gzip on;
    gzip_types application/json;
    brotli on;
    brotli_types *;
    brotli_min_length 1;
    location / { proxy_set_header Accept-Encoding "br, gzip"; proxy_pass http://node; }
}
server {
    listen 127.0.0.1:@port_lua@;
    location / {
        rewrite_by_lua_block { ngx.ctx.began = true }
        access_by_lua_block { if ngx.var.http_x_key ~= 'let me' then return ngx.exit(401) end }
        header_filter_by_lua_block { ngx.header['X-Lua'] = (ngx.header['X-Lua'] or '') .. 'once' }
        body_filter_by_lua_block { ngx.ctx.bytes = (ngx.ctx.bytes or 0) + #ngx.arg[1] }
        log_by_lua_block { assert(ngx.ctx.bytes) }
        proxy_pass http://node;
    }
}
"""

# the path of the request at each server, and its headers
PLACES = {
    "pool": (BLOCK, []),
    "if": (BLOCK, []),
    "else": (BLOCK, [("X-Chain", "1")]),
    "last": (f"/v1/key{BLOCK}", []),
    "judged": (BLOCK, []),
    "pages": (BLOCK, []),
    "proxied": (BLOCK, []),
    "changed": (BLOCK, []),
    "coders": (BLOCK, [("Accept-Encoding", "br")]),
    "lua": (BLOCK, [("X-Key", "let me")]),
}
WORKERS = 5
NAMES = ["ngx_http_brotli_filter_module", "ndk_http_module", "ngx_http_lua_module"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-keyout", folder / "key.pem", "-out", folder / "certificate.pem"]
    subprocess.run(command, check=True, capture_output=True)
    return {name: (folder / name).read_bytes() for name in ("key.pem", "certificate.pem")}


DEBIANS = pytest.mark.once("Debian's modules are for Debian's nginx")
OF_OTHERS = ["coders", "lua"]


@pytest.fixture(scope="module", params=["before", pytest.param("after", marks=DEBIANS)])
def nginx(request, start_nginx, certificate):
    """nginx with Debian's modules, loaded before sszip or after it."""
    if NGINX != "/usr/sbin/nginx":
        return start_nginx(HTTP, files=certificate, workers=WORKERS)
    options = {"files": certificate, "workers": WORKERS}
    if request.param == "before":
        return start_nginx(HTTP + OTHERS, main=modules(*NAMES), **options)
    ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
    return start_nginx(HTTP + OTHERS, main=modules(*NAMES[1:]) + ours, module=FOLDER / f"{NAMES[0]}.so", **options)


@pytest.fixture(autouse=True)
def workers_survive(request):
    if "nginx" not in request.fixturenames:
        yield
        return
    nginx = request.getfixturevalue("nginx")
    before = nginx.workers()
    yield
    assert nginx.workers() == before


def minimal(origin, chain, blocks):
    origin.answers(answer(data_json(chain.spec)), SPEC)
    origin.answers(served(blocks["minimal"]), BLOCK)
    origin.answers(answer(b"", type=None), "/judge")
    origin.answers(answer(b"", type=None), "/mirror")
    return bytes.fromhex(blocks["minimal"]["ssz"])


@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=DEBIANS) if place in OF_OTHERS else place for place in PLACES],
)
def test_preset_is_probed_in_every_configuration(nginx, origin, chain, blocks, place):
    nginx.expect("Connection refused")
    ssz = minimal(origin, chain, blocks)
    path, headers = PLACES[place]
    # a request that follows on the same connection, too
    known = 0

    def is_known():
        nonlocal known
        with nginx.connect(f"port_{place}") as connection:
            for _ in range(2):
                response = connection.exchange(path, headers=[OCTETS, *headers])
                assert response.status in (200, 406), response.body[:300]
                if response.status == 200:
                    assert response.body == ssz or response.coding
                    assert response.header("Content-Type") == OCTETS[1]
                    known += 1
                if place == "lua":
                    assert response.all("X-Lua") == ["once"]
        # some workers know the preset, and keep it
        return known >= 12

    nginx.wait_for(is_known, "answers in SSZ")
    probes = origin.received(SPEC)
    assert 1 <= len(probes) <= WORKERS
    for request in probes:
        assert (request.method, request.body) == ("GET", b"")
        assert request.header("Content-Type") is None
    if place == "judged":
        # one per client request, and none per probe; a mirror's may come after the response
        count = len(origin.received(BLOCK))
        nginx.wait_for(lambda: len(origin.received("/mirror")) >= count, "the mirror's requests")
        assert len(origin.received("/judge")) == len(origin.received("/mirror")) == count


def test_preset_is_probed_behind_tls_and_http2(nginx, origin, chain, blocks):
    ssz = minimal(origin, chain, blocks)
    url = f"https://127.0.0.1:{nginx.ports['port_tls']}{BLOCK}"
    for option in ("--http2", "--http1.1"):

        def is_known(option=option):
            # several concurrent requests on one connection
            command = ["curl", "-sSk", option, "--parallel", "-H", f"Accept: {OCTETS[1]}"]
            command += ["-w", "%{http_code} %{http_version}\\n"]
            outputs = [str(nginx.prefix / f"out{n}") for n in range(6)]
            for output in outputs:
                command += [url, "-o", output]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            lines = done.stdout.split("\n")[:-1]
            assert len(lines) == 6
            for line, output in zip(sorted(lines), sorted(outputs), strict=True):
                status, http = line.split()
                assert status in ("200", "406"), output
                assert http == ("2" if option == "--http2" else "1.1")
            bodies = [pathlib.Path(output).read_bytes() for output in outputs]
            assert all(body == ssz or json.loads(body)["code"] == 406 for body in bodies)
            return all(body == ssz for body in bodies)

        nginx.wait_for(is_known, "answers in SSZ")
    assert 1 <= len(origin.received(SPEC)) <= WORKERS
    assert {request.header("X-Forwarded-Proto") for request in origin.received(SPEC)} == {"https"}


def test_node_is_not_probed_when_its_path_is_made_of_variables(nginx, origin, chain, blocks):
    """docs/transcoding.md requires `sszip_ssz_preset` for such a path."""
    minimal(origin, chain, blocks)
    for _ in range(8):
        response = fetch(nginx.ports["port_map"], f"/minimal{BLOCK}", headers=[OCTETS])
        assert (response.status, json.loads(response.body)["code"]) == (406, 406)
    assert {request.path for request in origin.received()} == {BLOCK}


@pytest.mark.parametrize("status", [404, 503])
def test_error_page_is_no_probe_result(nginx, origin, blocks, status):
    """Clients do not receive the error page of a probe."""
    origin.answers(answer(b"no", status=status), SPEC)
    origin.answers(served(blocks["mainnet"]), BLOCK)
    ssz = bytes.fromhex(blocks["mainnet"]["ssz"])
    for _ in range(4):
        with nginx.connect(f"port_pages_{status}") as connection:
            for _ in range(2):
                assert connection.exchange(BLOCK, headers=[OCTETS]).body == ssz


@pytest.fixture(scope="module")
def short(start_nginx, preload):
    """nginx whose request pools of 112 bytes are almost full at once."""
    nginx = start_nginx(
        "proxy_http_version 1.1; sszip on; sszip_ssz on; server { listen 127.0.0.1:@port@;"
        " request_pool_size 112; location / { proxy_pass http://@origin@; }"
        " location /status { sszip off; stub_status; } }",
        environment=preload.environment,
    )
    nginx.expect(r"\[emerg\].*(malloc|calloc|posix_memalign)\(.*(failed|Cannot allocate)")
    return nginx


@pytest.mark.parametrize("caller, sizes", [(PROGRAM, (0, 1 << 40)), (LIBRARIES, (3000, 1 << 40))], ids=["nginx's", "the core's"])
def test_responses_are_right_when_any_allocation_of_a_probe_fails(short, origin, preload, chain, blocks, caller, sizes):
    """The client receives a right response whether the probe succeeds or not, and the next
    one comes soon."""
    ssz = minimal(origin, chain, blocks)
    # of nginx's allocations, which are many, one of four in `make test`
    step = times(4, 1) if caller == PROGRAM else 1
    detected, refused = 0, 0
    for skip in range(0, 200, step):
        # a reload drops what earlier probes have detected
        short.reload()
        (worker,) = short.workers()
        origin.requests.clear()
        with preload.refusing(worker, caller=caller, sizes=sizes, skip=skip):
            try:
                with short.connect() as connection:
                    connection.send(request_bytes(BLOCK, headers=[OCTETS]) * 2)
                    for _ in range(2):
                        response = connection.read()
                        assert response.status in (200, 400, 406, 500, 502, 503), response
                        assert response.status != 200 or response.body == ssz
            except (Truncated, ConnectionError):
                pass
        wait_until_stable(short)
        assert short.workers() == [worker], short.error_log()[-2000:]
        for request in origin.received():
            assert request.path in (SPEC, BLOCK)
            assert (request.method, request.body) == ("GET", b"")
        assert len(origin.received(SPEC)) <= 1
        # without a preset the response is a 406, and no other value
        response = fetch(short.port, BLOCK, headers=[OCTETS])
        assert (response.status, response.body == ssz) in ((200, True), (406, False))
        detected += response.status == 200
        if not preload["refused"]:
            break
        refused += 1
    assert response.status == 200
    assert refused > (20 // step if caller == PROGRAM else 0)
    assert detected > 1

"""sszip for Lua in a realistic server: TLS and HTTP/2, CORS by `if`, brotli and gzip, several
upstreams, five workers, either load order; with curl, and with clients that abort."""

import json
import pathlib
import subprocess
import time

import pytest

from harness.copied_configs import certificate
from harness.lua import FOLDER, NAMES, frame, lua, modules
from harness.nginx import MODULE
from harness.origin import answer
from harness.owner import wait_until_linked
from harness.rpc import Node, call

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx")

BROTLI = "ngx_http_brotli_filter_module"
WORKERS = 5
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)
ORIGIN = "https://dapp.example"
HTTP = """
sszip on;
sszip_cache on;
sszip_cache_namespace beside;
sszip_cache_path @prefix@/cache;
gzip on;
gzip_types application/json;
brotli on;
brotli_types *;
brotli_min_length 1;
proxy_http_version 1.1;
upstream one { server @origin@; keepalive 8; }
upstream other { server @origin@; keepalive 8; }
map $http_origin $allowed { default ''; %s $http_origin; }
server {
    listen 127.0.0.1:@port_tls@ ssl http2;
    listen 127.0.0.1:@port@;
    ssl_certificate @prefix@/chain.pem;
    ssl_certificate_key @prefix@/key.pem;
    add_header Access-Control-Allow-Origin $allowed always;
    if ($request_method = OPTIONS) { return 204; }
    @lua@
    location / {
        set $node one;
        if ($http_x_chain) { set $node other; }
        access_by_lua_block {
            ngx.req.read_body()
            local calls, why = sszip.calls()
            if not calls then
                ngx.header['X-Why'] = why
                return ngx.exit(400)
            end
            for _, one in ipairs(calls) do
                if one.method == 'debug_setHead' then return ngx.exit(403) end
            end
            if ngx.var.http_x_api_key == 'fresh' then sszip.bypass() end
            -- where a worker has no store yet that is an error, which is returned
            if calls.batch then sszip.set('batch', tostring(#calls), 60) end
        }
        header_filter_by_lua_block {
            ngx.header['X-Status'] = sszip.status() or 'none'
        }
        body_filter_by_lua_block { ngx.ctx.bytes = (ngx.ctx.bytes or 0) + #ngx.arg[1] }
        log_by_lua_block { assert(ngx.ctx.bytes) }
        proxy_set_header Connection '';
        proxy_set_header Host $http_host;
        proxy_pass http://$node;
    }
}
""" % ORIGIN


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    chain, key = certificate(tmp_path_factory.mktemp("certificate"))
    return {"chain.pem": chain, "key.pem": key}


@pytest.fixture(scope="module", params=["before", "after"])
def nginx(request, start_nginx, files):
    """nginx that loads sszip first or last."""
    http, options = frame(HTTP), {"files": files, "workers": WORKERS}
    if request.param == "before":
        nginx = start_nginx(http, main=modules(BROTLI, *NAMES), **options)
    else:
        ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
        nginx = start_nginx(http, main=modules(*NAMES) + ours, module=FOLDER / f"{BROTLI}.so", **options)
    # workers that are not linked to the store yet keep no values
    wait_until_linked(nginx)
    return nginx


@pytest.fixture(autouse=True)
def workers_survive(nginx):
    before = nginx.workers()
    yield
    assert nginx.workers() == before


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT, "eth_chainId": b'"0x1"'})
    origin.answers(node)
    return node


_number = iter(range(1, 1 << 30))


def block(id="1"):
    """A call that no test has sent before."""
    return call("eth_getBlockByHash", '["0x%064x",true]' % next(_number), id)


def curl(nginx, body, *options, coding="br, gzip", version="--http2", method="POST"):
    """Status, headers (in lower case), and the body, decoded by curl."""
    command = ["curl", "-sSk", version, "--compressed", "-X", method, "-D", "-", "--max-time", "30"]
    command += ["-H", f"Accept-Encoding: {coding}", "-H", "Content-Type: application/json", "-H", f"Origin: {ORIGIN}"]
    command += ["--data-binary", "@-"] if body is not None else []
    done = subprocess.run(
        [*command, *options, f"https://127.0.0.1:{nginx.ports['port_tls']}/"], input=body, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return int(lines[0].split()[1]), fields, content


@pytest.mark.parametrize("version", ["--http2", "--http1.1"])
@pytest.mark.parametrize("coding", ["br, gzip", "gzip", "br", "identity"])
def test_responses_are_right_and_become_hits_in_every_coding(nginx, node, coding, version):
    body = block("7")
    seen = set()

    def is_hit():
        status, fields, content = curl(nginx, body, coding=coding, version=version)
        assert status == 200 and json.loads(content) == {"jsonrpc": "2.0", "id": 7, "result": json.loads(RESULT)}
        assert fields["access-control-allow-origin"] == ORIGIN
        seen.add((fields["x-status"], fields.get("content-encoding", "identity")))
        return fields["x-status"] == "HIT"

    nginx.wait_for(is_hit, "a hit")
    assert {status for status, _ in seen} <= {"MISS", "HIT"}
    assert {coded for _, coded in seen} <= {one.strip() for one in coding.split(",")}
    assert node.count() <= WORKERS


def test_policy_is_enforced_over_http2(nginx, node):
    status, fields, _ = curl(nginx, call("debug_setHead", '["0x1"]'))
    assert (status, fields["access-control-allow-origin"]) == (403, ORIGIN)
    status, fields, _ = curl(nginx, b"[1]")
    assert (status, fields["x-why"]) == (400, "not-object")
    status, fields, content = curl(nginx, None, method="OPTIONS")
    assert (status, fields["access-control-allow-origin"], content) == (204, ORIGIN, b"")
    assert node.count() == 0


def test_client_with_bypass_gets_fresh_responses(nginx, node):
    body = block()
    nginx.wait_for(lambda: curl(nginx, body)[1]["x-status"] == "HIT", "a hit")
    before = node.count()
    for number in range(3):
        status, fields, content = curl(nginx, body, "-H", "X-Api-Key: fresh", "-H", f"X-Chain: {number}")
        assert status == 200 and fields["x-status"] != "HIT"
        assert json.loads(content)["result"] == json.loads(RESULT)
    assert node.count() == before + 3


def test_batches_are_right_with_either_upstream(nginx, node):
    batch = b"[" + block("1") + b"," + call("eth_chainId", id="2") + b"]"
    for chain in ("", "1") * 3:
        options = ["-H", f"X-Chain: {chain}"] if chain else []
        status, _, content = curl(nginx, batch, *options)
        results = {one["id"]: one["result"] for one in json.loads(content)}
        assert status == 200 and results == {1: json.loads(RESULT), 2: "0x1"}
    # all workers share stored values
    nginx.wait_for(lambda: curl(nginx, batch)[0] == 200 and lua(nginx, "return sszip.get('batch')") == b"2", "a value")


def test_workers_survive_clients_that_abort(nginx, node, origin):
    """Clients abort while Lua waits for the owner, during the fetch, and while they receive."""
    for wait in (0, 0.001, 0.005, 0.02) * 5:
        connection = nginx.connect()
        body = block()
        head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept-Encoding: br, gzip\r\n"
        connection.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(wait)
        connection.reset()
    status, _, content = curl(nginx, block("9"))
    assert status == 200 and json.loads(content)["id"] == 9
    # a request that the node fails, too
    origin.answers(answer(b"no", status=503))
    assert curl(nginx, block())[0] == 503

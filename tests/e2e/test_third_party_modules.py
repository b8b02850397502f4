"""Third-party modules in either load order: brotli, headers-more and Lua, as packaged by
Debian."""

import itertools
import json
import pathlib

import pytest

from harness import zstd
from harness.client import fetch
from harness.nginx import MODULE
from harness.origin import answer
from harness.rpc import Node, call
from harness.third_party import FOLDER, decoded, modules

BODY = b'{"jsonrpc":"2.0","id":1,"result":"0x' + b"ab" * 20000 + b'"}'
BLOCK = call("eth_getBlockByHash", '["0x' + "ab" * 32 + '",true]')
JSON = ("Content-Type", "application/json")

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx")

CONFIG = """
sszip on;
sszip_cache on;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { @inside@ proxy_pass http://@origin@; }
    @locations@
}
"""


SVG = "location /svg { brotli on; brotli_types *; proxy_pass http://@origin@; }"


def start(start_nginx, order, names, inside, locations=""):
    """Starts nginx with sszip loaded first or, in the other order, last."""
    http = CONFIG.replace("@inside@", inside).replace("@locations@", locations)
    if order == "before":
        return start_nginx(http, main=modules(*names))
    ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
    return start_nginx(http, main=modules(*names[1:]) + ours, module=FOLDER / f"{names[0]}.so")


def post(nginx, accept, path="/", body=BLOCK):
    headers = [JSON, ("Accept-Encoding", accept)] if accept else [JSON]
    return fetch(nginx.port, path, method="POST", body=body, headers=headers)


@pytest.fixture(params=["before", "after"])
def order(request):
    """Whether sszip is loaded before the other module or after it."""
    return request.param


def test_brotli_compresses_responses_that_sszip_does_not(start_nginx, origin, order):
    origin.answers(answer(BODY))
    origin.answers(answer(b"<svg/>" * 2000, type="image/svg+xml"), "/svg")
    names = ["ngx_http_brotli_filter_module"]
    nginx = start(start_nginx, order, names, "brotli on; brotli_types *;", SVG)
    # clients that accept both get the stored bytes, compressed once, in any order
    first = post(nginx, "gzip, deflate, br, zstd")
    second = post(nginx, "gzip, deflate, br, zstd")
    assert [one.header("Content-Encoding") for one in (first, second)] == ["gzip", "gzip"]
    assert decoded(first) == decoded(second) == BODY
    assert second.header("Cache-Status").startswith("sszip; hit")
    # clients without gzip get brotli, also for a hit
    third = post(nginx, "br")
    assert third.header("Content-Encoding") == "br" and decoded(third) == BODY
    assert third.header("Cache-Status").startswith("sszip; hit")
    assert decoded(post(nginx, None)) == BODY
    assert len(origin.received("/")) == 1
    svg = fetch(nginx.port, "/svg", headers=[("Accept-Encoding", "gzip, br")])
    assert svg.header("Content-Encoding") == "br" and decoded(svg) == b"<svg/>" * 2000


# `Accept-Encoding`, and the coding of the response where sszip_zstd is on
CODINGS_WITH_ZSTD = {
    "gzip, deflate, br, zstd": "zstd",
    "br, zstd, gzip": "zstd",
    "zstd, gzip": "zstd",
    "zstd": "zstd",
    "zstd;q=0, gzip, br": "gzip",
    "gzip": "gzip",
    "*": "gzip",
    "br": "br",
    "zstd;q=0, br": "br",
    "identity": None,
    None: None,
}


def test_clients_receive_one_coding_when_brotli_and_zstd_are_on(start_nginx, origin, order):
    origin.answers(answer(BODY))
    settings = "sszip_zstd on; brotli on; brotli_types *;"
    vary = f"location /vary {{ {settings} gzip_vary on; proxy_pass http://@origin@; }}"
    nginx = start(start_nginx, order, ["ngx_http_brotli_filter_module"], settings, vary)
    clients = itertools.product(["/", "/vary"], CODINGS_WITH_ZSTD.items())
    for number, (path, (accept, coding)) in enumerate(clients):
        body = call("eth_getBlockByHash", f'["0x{number:064x}",true]')
        # a miss, the first hit and another one
        for turn in range(3):
            response = post(nginx, accept, path, body)
            assert response.all("Content-Encoding") == ([coding] if coding else []), (path, accept, turn)
            assert decoded(response) == BODY
            assert (response.header("Cache-Status") or "").startswith("sszip; hit") == (turn > 0), (path, accept)
            # brotli leaves Vary to gzip_vary
            if coding != "br" or path == "/vary":
                assert response.all("Vary") == ["Accept-Encoding"], (path, accept, turn)
            if coding != "br":
                assert response.framing == "length", (path, accept, turn)
            if coding == "zstd":
                assert zstd.content_size(response.body) == len(BODY)
    assert len(origin.received()) == 2 * len(CODINGS_WITH_ZSTD)


def test_response_is_stored_when_brotli_compresses_it(start_nginx, origin, order):
    origin.answers(answer(BODY))
    nginx = start(start_nginx, order, ["ngx_http_brotli_filter_module"], "brotli on; brotli_types *;")
    for n, accept in enumerate(["br", "br", "gzip", None, "br"]):
        response = post(nginx, accept)
        assert decoded(response) == BODY
        assert (response.header("Cache-Status") or "").startswith("sszip; hit") == (n > 0), (n, accept)


def test_split_batch_is_merged_when_brotli_is_on(start_nginx, origin, order):
    """The node's part of a batch is read and merged with stored responses; brotli, when it
    ran first, compressed that part, and the client got no response."""
    node = Node({"eth_getBlockByHash": b'"0x' + b"ab" * 20000 + b'"', "eth_syncing": b"false"}, newline=b"")
    origin.answers(node)
    nginx = start(start_nginx, order, ["ngx_http_brotli_filter_module"], "brotli on; brotli_types *; brotli_min_length 1;")
    batch = b"[" + BLOCK + b"," + call("eth_syncing", id="2") + b"]"
    for turn in range(4):
        for accept in ("gzip, deflate, br", "br", "gzip", None):
            headers = [JSON, ("Accept-Encoding", accept)] if accept else [JSON]
            response = fetch(nginx.port, "/", method="POST", body=batch, headers=headers)
            assert response.status == 200, (turn, accept)
            first, second = json.loads(decoded(response))
            assert (first["id"], len(first["result"]), second) == (1, 40002, {"jsonrpc": "2.0", "id": 2, "result": False})
    # the first batch of a location is forwarded whole
    assert node.count("eth_getBlockByHash") <= 2 and node.count("eth_syncing") == 16


def test_headers_more_applies_once_to_each_response(start_nginx, origin, order):
    origin.answers(answer(BODY, headers=[("X-Node", "1"), ("Access-Control-Allow-Origin", "https://node.test")]))
    inside = "more_set_headers 'Access-Control-Allow-Origin: *' 'X-Client: $http_x_client'; more_clear_headers X-Node;"
    nginx = start(start_nginx, order, ["ngx_http_headers_more_filter_module"], inside)
    for n in range(4):
        client = f"c{n}"
        headers = [JSON, ("X-Client", client), ("Accept-Encoding", "gzip"), ("Origin", "https://a.test")]
        response = fetch(nginx.port, "/", method="POST", body=BLOCK, headers=headers)
        assert response.all("Access-Control-Allow-Origin") == ["*"]
        assert response.all("X-Client") == [client] and response.all("X-Node") == []
        assert (response.header("Cache-Status") or "").startswith("sszip; hit") == (n > 0)


def test_lua_checks_access_and_changes_the_head_of_each_response(start_nginx, origin, order):
    origin.answers(answer(BODY))
    inside = """
        access_by_lua_block { if ngx.var.http_x_key ~= 'let me' then return ngx.exit(401) end }
        header_filter_by_lua_block { ngx.header['X-Lua'] = (ngx.header['X-Lua'] or '') .. 'once' }
    """
    nginx = start(start_nginx, order, ["ndk_http_module", "ngx_http_lua_module"], inside)
    for n in range(3):
        headers = [JSON, ("X-Key", "let me"), ("Accept-Encoding", "gzip")]
        response = fetch(nginx.port, "/", method="POST", body=BLOCK, headers=headers)
        assert response.all("X-Lua") == ["once"] and decoded(response) == BODY
        assert (response.header("Cache-Status") or "").startswith("sszip; hit") == (n > 0)
        assert post(nginx, "gzip").status == 401


def test_body_that_lua_changes_is_right_and_cached(start_nginx, origin, order):
    origin.answers(answer(BODY))
    inside = """
        header_filter_by_lua_block { ngx.header.content_length = nil }
        body_filter_by_lua_block { ngx.arg[1] = string.gsub(ngx.arg[1], 'abab', 'ABAB') }
    """
    nginx = start(start_nginx, order, ["ndk_http_module", "ngx_http_lua_module"], inside)
    expected = BODY.replace(b"abab", b"ABAB")
    for accept in ("gzip", "gzip", None, "gzip"):
        response = post(nginx, accept)
        assert decoded(response).lower() == expected.lower() and b"ABAB" in decoded(response)
    assert len(origin.received("/")) == 1


CONSOLIDATIONS = "/eth/v1/beacon/states/7/pending_consolidations"
ELECTRA = ("Eth-Consensus-Version", "electra")
OCTETS = "application/octet-stream"
VALUE = {"version": "electra", "execution_optimistic": False, "finalized": True}
VALUE = json.dumps({**VALUE, "data": [{"source_index": "1", "target_index": "515"}] * 300}).encode()
VALUE_SSZ = ((1).to_bytes(8, "little") + (515).to_bytes(8, "little")) * 300
# The script checks a key and the request, and sets a header.
CHECKED = """
    sszip_ssz on;
    sszip_ssz_request always;
    sszip_min_length 1k;
    access_by_lua_block {
        if ngx.var.http_x_key ~= 'let me' then return ngx.exit(401) end
        ngx.req.read_body()
        local body = ngx.req.get_body_data() or ''
        if string.find(body, 'debug_', 1, true) then return ngx.exit(403) end
    }
    header_filter_by_lua_block { ngx.header['X-Lua'] = (ngx.header['X-Lua'] or '') .. 'once' }
"""
COUNTED = "body_filter_by_lua_block { ngx.ctx.bytes = (ngx.ctx.bytes or 0) + #ngx.arg[1] }"


@pytest.mark.parametrize("counts", [False, True], ids=["head", "head and body"])
def test_lua_filters_run_once_for_transcoded_responses(start_nginx, origin, order, counts):
    """A body filter might change bodies: a response that one has read is not stored as SSZ."""
    origin.answers(answer(VALUE, headers=[ELECTRA]))
    inside = CHECKED + (COUNTED if counts else "")
    nginx = start(start_nginx, order, ["ndk_http_module", "ngx_http_lua_module"], inside)
    for turn, coding in enumerate([None, "gzip"] * 3):
        for accept, expected in ((OCTETS, VALUE_SSZ), ("application/json", VALUE)):
            headers = [("Accept", accept), ("X-Key", "let me"), ("Accept-Encoding", coding or "identity")]
            response = fetch(nginx.port, CONSOLIDATIONS, headers=headers)
            assert (response.status, decoded(response)) == (200, expected)
            assert response.header("Content-Type") == accept
            assert response.coding in ((None, coding) if counts else (coding,))
            assert response.all("X-Lua") == ["once"]
            is_hit = (response.header("Cache-Status") or "").startswith("sszip; hit")
            assert is_hit == (turn > 0 and (accept != OCTETS or not counts))
        assert fetch(nginx.port, CONSOLIDATIONS, headers=[("Accept", OCTETS)]).status == 401
    assert len(origin.received(CONSOLIDATIONS)) == (7 if counts else 2)
    # a value that is not available as SSZ, and a request that the script rejects
    origin.answers(answer(b'{"data":[]}'))
    response = fetch(nginx.port, CONSOLIDATIONS + "?x", headers=[("Accept", OCTETS), ("X-Key", "let me")])
    assert response.status == 406 and json.loads(response.body)["code"] == 406
    witness = call("debug_executionWitness", '["latest"]')
    headers = [("Accept", OCTETS), ("X-Key", "let me"), JSON]
    assert fetch(nginx.port, "/", method="POST", body=witness, headers=headers).status == 403


def test_submission_is_transcoded_after_lua_read_its_body(start_nginx, origin, order):
    """The script reads the body before it is converted to JSON."""
    path = "/eth/v1/validator/register_validator"
    origin.answers(answer(b"", type=None))
    nginx = start(start_nginx, order, ["ndk_http_module", "ngx_http_lua_module"], CHECKED)
    message = b"\x11" * 20 + (30_000_000).to_bytes(8, "little") + (7).to_bytes(8, "little") + b"\x22" * 48
    headers = [("Content-Type", OCTETS), ("X-Key", "let me")]
    for count in (1, 200):
        origin.requests.clear()
        body = (message + b"\x33" * 96) * count
        assert fetch(nginx.port, path, method="POST", body=body, headers=headers).status == 200
        (request,) = origin.received(path)
        assert request.header("Content-Type") == "application/json"
        registrations = json.loads(request.body)
        assert len(registrations) == count
        assert registrations[-1]["message"]["gas_limit"] == "30000000"
    assert fetch(nginx.port, path, method="POST", body=body[:-1], headers=headers).status == 400
    assert fetch(nginx.port, path, method="POST", body=body, headers=headers[:1]).status == 401


def test_value_that_lua_changes_is_transcoded_consistently(start_nginx, origin, order):
    """The change is applied before the conversion or after it, depending on the load order:
    the result is the same each time, and never JSON."""
    origin.answers(answer(VALUE, headers=[ELECTRA]))
    inside = """
        sszip_ssz on;
        header_filter_by_lua_block { ngx.header.content_length = nil }
        body_filter_by_lua_block { ngx.arg[1] = string.gsub(ngx.arg[1], '"515"', '"516"') }
    """
    nginx = start(start_nginx, order, ["ndk_http_module", "ngx_http_lua_module"], inside)
    got = set()
    for coding in ("gzip", "identity", "gzip", "identity"):
        response = fetch(nginx.port, CONSOLIDATIONS, headers=[("Accept", OCTETS), ("Accept-Encoding", coding)])
        assert (response.status, response.header("Content-Type")) == (200, OCTETS)
        got.add(decoded(response))
    changed = VALUE_SSZ.replace((515).to_bytes(2, "little"), (516).to_bytes(2, "little"))
    assert len(got) == 1 and got < {VALUE_SSZ, changed}


SCRIPT = """
sszip on;
sszip_cache on;
server {
    listen 127.0.0.1:@port@;
    location /accept { content_by_lua_block { ngx.say(ngx.req.get_headers()['accept-encoding'] or 'none') } }
    location /short {
        sszip_min_length 1;
        content_by_lua_block {
            ngx.header.content_type = 'application/json'
            ngx.header.content_length = 5000
            ngx.print('{"short":true}')
        }
    }
    location /next { return 200 "next"; }
}
"""


def test_lua_content_sees_the_accept_encoding_of_the_client(start_nginx):
    nginx = start_nginx(SCRIPT, main=modules("ndk_http_module", "ngx_http_lua_module"))
    assert fetch(nginx.port, "/accept").body.strip() == b"none"
    assert fetch(nginx.port, "/accept", headers=[("Accept-Encoding", "br")]).body.strip() == b"br"


def test_lua_content_shorter_than_its_length_is_a_502(start_nginx):
    nginx = start_nginx(SCRIPT, main=modules("ndk_http_module", "ngx_http_lua_module"))
    nginx.expect("ended before its length")
    response = fetch(nginx.port, "/short", headers=[("Accept-Encoding", "gzip")])
    assert response.status == 502

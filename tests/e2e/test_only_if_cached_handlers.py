"""Cache-Control: only-if-cached in locations whose content handler is no upstream: where such a location
has no cache, the directive has no effect; a namespace gives it one."""

import pytest

from harness.client import fetch
from harness.rpc import call
from harness.third_party import modules

ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")
JSON = ("Content-Type", "application/json")
TEXT = ("Content-Type", "text/plain")
BODY = call("eth_chainId")

LIMITS = "sszip_method deny admin_*;"
STORE = "sszip_cache_path @prefix@/cache max_size=64m memory=32m;"
HTTP = """
sszip on;
sszip_cache on;
@store@
server {
    listen 127.0.0.1:@port@;
    @locations@
}
"""
HANDLERS = {
    "gif": "empty_gif;",
    "stub_status": "stub_status;",
    "return": "return 200 text;",
    "file": "alias @prefix@/www/a.json;",
    "listing": "alias @prefix@/www/; autoindex on;",
}
# without a content handler nginx has no response to look up
STATIC = ("return", "file", "listing")
LUA = """content_by_lua_block {
    ngx.header['Cache-Control'] = 'max-age=60'
    ngx.req.read_body()
    ngx.print('from the script: ', ngx.req.get_body_data() or '')
}"""


def target(prefix, name):
    return f"/{prefix}/{name}" + ("/" if name == "listing" else "")


def start(start_nginx, handlers, store, **options):
    locations = "".join(
        f"location {target(prefix, name)} {{ {directives.replace('@name@', name)} {handler} }}\n"
        for name, handler in handlers.items()
        for prefix, directives in (
            ("plain", ""),
            ("limited", LIMITS),
            ("named", "sszip_cache_namespace @name@;"),
            ("both", f"{LIMITS} sszip_cache_namespace @name@;"),
        )
    )
    return start_nginx(HTTP.replace("@store@", store).replace("@locations@", locations), **options)


@pytest.fixture(scope="module", params=[STORE, ""], ids=["store", "no-store"])
def nginx(request, start_nginx):
    nginx = start(start_nginx, HANDLERS, request.param, files={"www/a.json": b"{}"})
    nginx.has_store = bool(request.param)
    return nginx


def is_not_cached(response, reason="miss"):
    return response.status == 504 and response.header("Cache-Status").startswith(f"sszip; detail={reason}")


def summary(response):
    """What a client receives, except for a counter's values."""
    return response.status, response.header("Content-Type"), response.header("Cache-Status")


@pytest.mark.parametrize("prefix", ["plain", "limited"])
@pytest.mark.parametrize("name", HANDLERS)
def test_directive_has_no_effect_without_a_namespace(nginx, name, prefix):
    path = target(prefix, name)
    if not nginx.has_store and name not in STATIC:
        # the location's name is its namespace
        assert is_not_cached(fetch(nginx.port, path, headers=[ONLY_IF_CACHED]))
        return
    expected = summary(fetch(nginx.port, path))
    assert expected[0] == 200 and "fwd=bypass" in expected[2]
    assert summary(fetch(nginx.port, path, headers=[ONLY_IF_CACHED])) == expected
    for type in (JSON, TEXT):
        expected = summary(fetch(nginx.port, path, method="POST", body=BODY, headers=[type]))
        response = fetch(nginx.port, path, method="POST", body=BODY, headers=[type, ONLY_IF_CACHED])
        assert summary(response) == expected and response.status in (200, 403, 405)


@pytest.mark.parametrize("prefix", ["named", "both"])
@pytest.mark.parametrize("name", HANDLERS)
def test_handler_with_a_namespace_is_looked_up(nginx, name, prefix):
    response = fetch(nginx.port, target(prefix, name), headers=[ONLY_IF_CACHED])
    if name in STATIC:
        assert response.status == 200
    else:
        assert is_not_cached(response)
        assert fetch(nginx.port, target(prefix, name)).status == 200


@pytest.fixture(scope="module", params=[STORE, ""], ids=["store", "no-store"])
def lua(request, start_nginx):
    names = ("ndk_http_module", "ngx_http_lua_module")
    nginx = start(start_nginx, {"lua": LUA}, request.param, main=modules(*names))
    nginx.has_store = bool(request.param)
    return nginx


@pytest.mark.once("Debian's Lua module is for Debian's nginx")
class TestLua:
    @pytest.mark.parametrize("prefix", ["plain", "limited"])
    def test_script_without_a_namespace_runs(self, lua, prefix):
        path = target(prefix, "lua")
        if not lua.has_store:
            assert is_not_cached(fetch(lua.port, path, headers=[ONLY_IF_CACHED]))
            return
        assert fetch(lua.port, path, headers=[ONLY_IF_CACHED]).body == b"from the script: "
        for type in (JSON, TEXT):
            response = fetch(lua.port, path, method="POST", body=BODY, headers=[type, ONLY_IF_CACHED])
            assert (response.status, response.body) == (200, b"from the script: " + BODY)

    def test_denied_call_stays_denied_without_a_namespace(self, lua):
        body = call("admin_peers")
        denied = fetch(lua.port, "/limited/lua", method="POST", body=body, headers=[JSON])
        response = fetch(lua.port, "/limited/lua", method="POST", body=body, headers=[JSON, ONLY_IF_CACHED])
        assert b"-32601" in denied.body and response.body == denied.body

    @pytest.mark.parametrize("prefix", ["named", "both"])
    def test_response_of_a_script_with_a_namespace_is_a_hit(self, lua, prefix):
        path = target(prefix, "lua") + f"?{prefix}"
        assert is_not_cached(fetch(lua.port, path, headers=[ONLY_IF_CACHED]))
        assert fetch(lua.port, path).body == b"from the script: "
        hit = fetch(lua.port, path, headers=[ONLY_IF_CACHED])
        assert hit.header("Cache-Status").startswith("sszip; hit") and hit.body == b"from the script: "

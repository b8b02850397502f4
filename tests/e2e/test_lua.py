"""sszip for Lua (docs/lua.md): properties of a request, and its control."""

import gzip
import json
import pathlib
import re
import urllib.parse

import pytest

from harness.client import fetch
from harness.http2 import Http2Client
from harness.lua import FOLDER, LIBRARY, LuaError, frame, phase_result, lua, lua_nginx, modules, outcome
from harness.nginx import Nginx
from harness.origin import answer
from harness.rpc import Node, call
from harness.zstd import compress

pytestmark = pytest.mark.once("Debian's Lua module is for Debian's nginx")

JSON = ("Content-Type", "application/json")
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)

CONFIG = """
sszip on;
sszip_cache on;
proxy_http_version 1.1;
sszip_cache_namespace lua;
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_h2@ http2;
    @lua@
    location / {
        client_body_buffer_size 1k;
        rewrite_by_lua_block { run 'rewrite' }
        access_by_lua_block { run 'access' }
        header_filter_by_lua_block { run 'header' }
        body_filter_by_lua_block { run 'filter' }
        log_by_lua_block { run 'log' }
        proxy_pass http://@origin@;
    }
    location /over {
        access_by_lua_block {
            ngx.req.read_body()
            local calls = assert(sszip.calls())
            ngx.shared.heard:set('over', #calls .. ' ' .. tostring(sszip.bypass()))
        }
        proxy_pass http://@origin@;
    }
    location /redirected { access_by_lua_block { sszip.bypass() ngx.exec('/again') } }
    location /capture {
        content_by_lua_block {
            local inner = ngx.location.capture('/inner')
            ngx.print(inner.body, '\\n', show(sszip.status()))
        }
    }
    location /inner { content_by_lua_block { ngx.print(show(sszip.bypass())) } }
}
"""


@pytest.fixture(scope="module", params=["before", "after"])
def nginx(request, start_nginx):
    """nginx that loads sszip before the Lua module or after it."""
    return lua_nginx(start_nginx, CONFIG, request.param)


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT, "eth_chainId": b'"0x1"', "eth_syncing": b"false"})
    origin.answers(node)
    return node


_number = iter(range(1, 1 << 30))


def block():
    """A call that no test has sent before."""
    return call("eth_getBlockByHash", '["0x%064x",true]' % next(_number))


def post(nginx, body, headers=(), path="/", **phases):
    """`access="return ..."` is run in that phase."""
    for phase in phases:
        lua(nginx, f"ngx.shared.heard:delete('{phase}')")
    fields = [(f"X-{phase}", urllib.parse.quote(code)) for phase, code in phases.items()]
    return fetch(nginx.port, path, method="POST", body=body, headers=[JSON, *fields, *headers])


def run_in_phase(nginx, phase, code, body=None, **request):
    """The results of a chunk that runs in a phase of a request to the node."""
    post(nginx, body or block(), **{phase: code}, **request)
    return phase_result(nginx, phase)


def test_cache_status_and_key_are_known_after_the_lookup(nginx, node):
    body, code = block(), "return sszip.status(), sszip.reason(), sszip.key()"
    for phase, statuses in (("header", ["MISS", "HIT"]), ("filter", ["HIT"]), ("log", ["HIT"])):
        for status in statuses:
            found, _, key = run_in_phase(nginx, phase, code, body)
            assert found == status.encode() and len(key) == 64, phase
    variables = run_in_phase(nginx, "log", "return ngx.var.sszip_cache_status, ngx.var.sszip_cache_key", body)
    assert variables == [b"HIT", key]
    # before the lookup
    for phase in ("rewrite", "access"):
        assert run_in_phase(nginx, phase, code, body) == [None, None, None]
    # a batch has more than one key
    batch = b"[" + body + b"," + call("eth_chainId", id="2") + b"]"
    assert run_in_phase(nginx, "log", code, batch)[2] is None


def test_reason_of_a_bypass_is_returned(nginx, node):
    field = [("Authorization", "Bearer x")]
    assert run_in_phase(nginx, "log", "return sszip.reason()", headers=field) == b"credentials"


def test_functions_report_an_error_without_a_request(start_nginx, nginx):
    code = """
        local said
        ngx.timer.at(0, function() said = show(sszip.status(), sszip.calls()) end)
        while not said do ngx.sleep(0.01) end
        return said
    """
    status, nothing, why = outcome(b"boolean 4 true" + lua(nginx, code))
    assert status is None and nothing is None and b"was not read" in why
    functions = ("status()", "bypass()", "get('a')", "set('a', 'b', 1)", "delete('a')", f"answer('{'0' * 64}')", "purge{ all = true }")
    init = "sszip = require 'resty.sszip' in_init = {} "
    init += " ".join(f"table.insert(in_init, show(sszip.{function}))" for function in functions)
    http = "sszip_cache_path @prefix@/store; server { listen 127.0.0.1:@port@; sszip on; sszip_cache on; @lua@ }"
    other = lua_nginx(start_nginx, http, init=init)
    disabled = b"API disabled in the context of init_by_lua*"
    for number, why in enumerate([b"no request found"] * 2 + [disabled] * 5, 1):
        assert outcome(b"boolean 4 true" + lua(other, f"return in_init[{number}]")) == [None, why], functions[number - 1]
    # results of the init phase are not reused
    other.wait_for(lambda: lua(other, "return sszip.set('a', 'b', 60)") is True, "the store")
    assert isinstance(lua(other, "return sszip.purge{ all = true }"), int)


@pytest.mark.parametrize("phase", ["rewrite", "access"])
def test_bypass_prevents_lookup_storage_or_both(nginx, node, phase):
    body = block()

    def count(code):
        before = node.count()
        assert run_in_phase(nginx, phase, code, body) is True
        return node.count() - before

    # neither: it stays unknown
    assert [count("return sszip.bypass()") for _ in range(2)] == [1, 1]
    # not stored
    assert [count("return sszip.bypass('store')") for _ in range(2)] == [1, 1]
    # not looked up, but stored
    assert count("return sszip.bypass('look_up')") == 1
    assert [count("return true"), count("return sszip.bypass('store')")] == [0, 0]
    assert count("return sszip.bypass('look_up')") == 1
    assert run_in_phase(nginx, "log", "return sszip.reason()", body) != b"bypass"
    post(nginx, body, **{phase: "return sszip.bypass('look_up')", "log": "return sszip.reason()"})
    assert phase_result(nginx, "log") == b"bypass"
    # the last call of bypass counts
    assert count("sszip.bypass() return sszip.bypass('store')") == 0


def test_bypass_survives_an_internal_redirect(nginx, node):
    body, before = block(), node.count()
    for _ in range(2):
        assert post(nginx, body, path="/redirected").status == 200
    assert node.count() - before == 2


def test_bypass_is_rejected_after_the_lookup(nginx, node):
    for phase, name in (("header", b"header_filter"), ("filter", b"body_filter"), ("log", b"log")):
        result = run_in_phase(nginx, phase, "return sszip.bypass()")
        assert result == [None, b"API disabled in the context of " + name + b"_by_lua*"]
    assert lua(nginx, "return sszip.bypass()")[1] == b"API disabled in the context of content_by_lua*"
    code = "local said ngx.timer.at(0, function() said = show(sszip.bypass()) end) while not said do ngx.sleep(0.01) end return said"
    assert outcome(b"boolean 4 true" + lua(nginx, code)) == [None, b"API disabled in the context of ngx.timer"]
    assert run_in_phase(nginx, "access", "return sszip.bypass('all')")[1].startswith(b'there are "look_up"')


def test_subrequest_has_no_cache_status(nginx):
    inner, outer = fetch(nginx.port, "/capture").body.split(b"\n")
    assert outcome(b"boolean 4 true" + inner)[0] is None
    assert outcome(b"boolean 4 true" + outer) == [b"MISS"]
    code = "local res = ngx.location.capture('/lua', { method = ngx.HTTP_POST, body = 'return sszip.gzip(\\'x\\')' }) return res.status"
    assert lua(nginx, code) == 200


CALLS = """
    ngx.req.read_body()
    local calls, err = sszip.calls(%s)
    if not calls then return nil, err end
    local all = { tostring(calls.batch) }
    for i, call in ipairs(calls) do
        all[i + 1] = call.method .. ' ' .. tostring(call.id) .. ' ' .. tostring(call.params)
    end
    return table.concat(all, '\\n')
"""


def read(nginx, body, opts="", headers=()):
    return run_in_phase(nginx, "access", CALLS % opts, body, headers=headers)


def test_calls_are_returned_with_method_id_and_params(nginx, node):
    one = b'{"jsonrpc":"2.0", "params" : [ {"a":"]"} , 1 ], "method":"eth_call","id": "x\\u0041\\"" }'
    assert read(nginx, one) == b'false\neth_call "x\\u0041\\"" [ {"a":"]"} , 1 ]'
    notification = b'{"jsonrpc":"2.0","method":"eth_chainId"}'
    assert read(nginx, b"[" + one + b"," + notification + b"]").split(b"\n")[::2] == [b"true", b"eth_chainId nil nil"]
    null = b'[{"jsonrpc":"2.0","id":null,"method":"a","params":null}]'
    assert read(nginx, null) == b"true\na null null"


def test_calls_are_read_from_a_body_in_a_file_within_limits(nginx, node):
    batch = b"[" + b",".join(call("eth_chainId", id=str(n)) for n in range(900)) + b"]"
    lines = read(nginx, batch).split(b"\n")
    assert len(lines) == 901 and lines[900] == b"eth_chainId 899 []"
    assert read(nginx, batch, "{ max_calls = 899 }") == [None, b"long-batch"]
    assert read(nginx, batch, "{ max_body = %d }" % (len(batch) - 1)) == [None, b"length"]
    assert len(read(nginx, batch, "{ max_body = %d, max_calls = 900 }" % len(batch))) > 900


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_calls_are_read_from_a_compressed_body(nginx, origin, coding):
    origin.answers(answer(b"{}"))
    batch = b"[" + b",".join(call("eth_chainId", id=str(n)) for n in range(50)) + b"]"
    coded = gzip.compress(batch) if coding == "gzip" else compress(batch)
    field = [("Content-Encoding", coding)]
    assert len(read(nginx, coded, headers=field).split(b"\n")) == 51
    assert read(nginx, coded, "{ max_body = 100 }", headers=field) == [None, b"length"]
    assert read(nginx, coded[:-9], headers=field) == [None, b"coding"]
    assert read(nginx, batch, headers=[("Content-Encoding", "br")]) == [None, b"coding"]


@pytest.mark.parametrize(
    "body, why",
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', b"duplicate"),
        (b'{"jsonrpc":"2.0","id":1,"Method":"a"}', b"unknown-member"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\u0061"}', b"escaped-method"),
        (b'{"id":1,"method":"a"}', b"version"),
        (b"[]", b"empty-batch"),
        (b"[1]", b"not-object"),
        (b'{"jsonrpc":"2.0","id":1', b"syntax"),
        (b"\xff", b"syntax"),
        (b"  ", b"no-body"),
    ],
)
def test_invalid_request_is_reported_by_a_reason(nginx, node, origin, body, why):
    origin.answers(answer(b"{}"))
    assert read(nginx, body) == [None, why]


def test_request_without_a_body_is_reported(nginx, origin):
    origin.answers(answer(b"{}"))
    lua(nginx, "ngx.shared.heard:delete('access')")
    fetch(nginx.port, "/get", headers=[("X-Access", urllib.parse.quote(CALLS % ""))])
    assert phase_result(nginx, "access") == [None, b"no-body"]
    unread = run_in_phase(nginx, "access", "return sszip.calls()")
    assert unread == [None, b"the request's body was not read; call ngx.req.read_body()"]


def test_calls_are_read_over_http2(nginx, origin):
    origin.answers(answer(b"{}"))
    body = b"[" + block() + b"," + call("eth_chainId", id="2") + b"]"
    with Http2Client(nginx.ports["port_h2"]) as client:
        stream = client.fetch("/over", method="POST", body=body)
        client.finish(stream)
    assert lua(nginx, "return ngx.shared.heard:get('over')") == b"2 true"


@pytest.mark.parametrize(
    "expression, name",
    [
        ("sszip.bypass(1)", "which"),
        ("sszip.calls(1)", "opts"),
        ("sszip.calls{ max_calls = '1' }", "opts.max_calls"),
        ("sszip.calls{ max = 1 }", "opts"),
        ("sszip.get()", "key"),
        ("sszip.get(1)", "key"),
        ("sszip.set(nil, 'a', 1)", "key"),
        ("sszip.set('a', {}, 1)", "value"),
        ("sszip.set('a', 'b')", "ttl"),
        ("sszip.delete({})", "key"),
        ("sszip.answer()", "key"),
        ("sszip.answer('a', 1)", "id"),
        ("sszip.purge()", "scope"),
        ("sszip.purge('all')", "scope"),
        ("sszip.purge{ all = 1 }", "scope.all"),
        ("sszip.purge{ everything = true }", "scope"),
        ("sszip.gzip()", "data"),
        ("sszip.gzip('a', '1')", "level"),
        ("sszip.gunzip(1)", "data"),
        ("sszip.gunzip('a', '1')", "max"),
        ("sszip.zstd()", "data"),
        ("sszip.zstd('a', '1')", "level"),
        ("sszip.unzstd(1)", "data"),
        ("sszip.unzstd('a', '1')", "max"),
        ("sszip.json_to_ssz(1, '{}')", "type"),
        ("sszip.json_to_ssz('a', nil)", "json"),
        ("sszip.json_to_ssz('a', '{}', 'deneb')", "opts"),
        ("sszip.json_to_ssz('a', '{}', { fork = 1 })", "opts.fork"),
        ("sszip.json_to_ssz('a', '{}', { path = 'a' })", "opts"),
        ("sszip.ssz_to_json(1, '')", "type"),
        ("sszip.ssz_to_json('a', 1)", "ssz"),
        ("sszip.ssz_to_json('a', '', { form = 'value' })", "opts"),
        ("sszip.check(nil, '')", "type"),
        ("sszip.check('a')", "ssz"),
        ("sszip.root(nil, '')", "type"),
        ("sszip.root('a')", "ssz"),
    ],
)
def test_argument_of_a_wrong_type_raises_an_error(nginx, expression, name):
    with pytest.raises(LuaError, match=f'bad "{name}" argument: '):
        lua(nginx, f"return {expression}")


def test_every_function_with_arguments_has_a_row_about_wrong_types(nginx):
    names = lua(nginx, "local all = {} for name, it in pairs(sszip) do if type(it) == 'function' then all[#all + 1] = name end end return table.concat(all, ' ')")
    text = pathlib.Path(__file__).read_text()
    tried = {name for name in names.decode().split() if f'("sszip.{name}(' in text or f'("sszip.{name}{{' in text}
    assert set(names.decode().split()) - tried == {"status", "reason", "key", "stats"}


def start_error(nginx):
    """The error with which nginx does not start."""
    nginx.expect("resty.sszip")
    with pytest.raises(AssertionError, match="nginx did not start") as failed:
        nginx.start()
    nginx.stop()
    return str(failed.value)


def test_library_is_rejected_without_the_module():
    nginx = Nginx(frame("server { listen 127.0.0.1:@port@; }"), main=modules("ngx_http_lua_module"), module=f"{FOLDER}/ndk_http_module.so")
    conf = nginx.prefix / "nginx.conf"
    # the log's variables are defined by sszip
    conf.write_text(re.sub(r"log_format story [^;]*;|access_log .*", "", conf.read_text()))
    assert "ngx_http_sszip_module is not loaded" in start_error(nginx)


def test_library_of_another_version_is_rejected(start_nginx, tmp_path):
    (tmp_path / "resty/sszip").mkdir(parents=True)
    for name in ("sszip.lua", "sszip/owner.lua"):
        text = re.sub(r"\blocal ABI = [0-9]+", "local ABI = 0", (LIBRARY / "resty" / name).read_text())
        (tmp_path / "resty" / name).write_text(text)
    nginx = Nginx(frame("server { listen 127.0.0.1:@port@; }", library=tmp_path), main=modules("ndk_http_module", "ngx_http_lua_module"))
    assert "different versions" in start_error(nginx)


def test_stats_return_the_counters_of_all_workers(start_nginx, nginx, node):
    assert lua(nginx, "return sszip.stats()")[1] == b'no metrics: no location has "sszip_status on"'
    http = """
        sszip on; sszip_cache on; sszip_cache_namespace lua;
        server {
            listen 127.0.0.1:@port@;
            @lua@
            location = /status { sszip_status on; }
            location / { proxy_http_version 1.1; proxy_pass http://@origin@; }
        }
    """
    other = lua_nginx(start_nginx, http, workers=2)
    body = block()
    for _ in range(5):
        fetch(other.port, "/", method="POST", body=body, headers=[JSON])

    def figures():
        code = "local all = {} for name, n in pairs(assert(sszip.stats())) do all[#all + 1] = name .. ' ' .. n end return table.concat(all, '\\n')"
        lines = lua(other, code).decode().splitlines()
        return {name: int(number) for name, number in (line.split(" ") for line in lines)}

    found = figures()
    page = json.loads(fetch(other.port, "/status?format=json").body)
    assert found["rpc.eth_getBlockByHash"] == 5 and found["requests"] >= 5
    assert found["cache.hit"] + found["cache.miss"] == 5
    assert found["since"] == page["since"]
    assert found["cache_memory.entries"] >= 1 and found["hit.number"] == found["cache.hit"]
    assert "rpc.eth_call" not in found

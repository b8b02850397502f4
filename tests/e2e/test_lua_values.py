"""sszip for Lua (docs/lua.md): values of scripts, in a worker's memory and in a store;
stored responses, and purges."""

import contextlib
import os
import signal
import socket
import ssl
from urllib.parse import quote

import pytest

from harness.client import fetch
from harness.copied_configs import certificate
from harness.lua import phase_result, lua, lua_nginx, quoted
from harness.owner import Client, Owner, wait_until_linked
from harness.rpc import Node, call

pytestmark = pytest.mark.once("Debian's Lua module is for Debian's nginx")

JSON = ("Content-Type", "application/json")
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)

SERVERS = """
sszip on;
sszip_cache on;
sszip_cache_max_entry 32m;
sszip_cache_memory 250m;
sszip_cache_namespace lua;
proxy_http_version 1.1;
@store@
server {
    listen 127.0.0.1:@port@ reuseport;
    @lua@
    location = /phases {
        set_by_lua_block $set { run 'set' }
        rewrite_by_lua_block { run 'rewrite' }
        access_by_lua_block { run 'access' }
        header_filter_by_lua_block { run 'header' }
        body_filter_by_lua_block { run 'filter' }
        log_by_lua_block { run 'log' }
        content_by_lua_block { ngx.say('content') }
    }
    location / { log_by_lua_block { ngx.shared.heard:set('key', sszip.key()) } proxy_pass http://@origin@; }
}
"""
STORE = "sszip_cache_path @prefix@/store max_size=500m;"


@pytest.fixture(scope="module")
def alone(start_nginx):
    """One worker, without a store."""
    return lua_nginx(start_nginx, SERVERS.replace("@store@", ""))


@pytest.fixture(scope="module")
def stored(start_nginx):
    """Five workers with one store."""
    nginx = lua_nginx(start_nginx, SERVERS.replace("@store@", STORE), workers=5)
    ready(nginx)
    return nginx


@pytest.fixture(params=["alone", "stored"])
def nginx(request):
    return request.getfixturevalue(request.param)


def ready(nginx):
    """Waits until the owner has started and all workers are linked to it."""
    set_by = set()

    def one_more():
        worker, *result = lua(nginx, "return ngx.worker.id(), sszip.set('ready', 'yes', 60)")
        if result == [True]:
            set_by.add(worker)
        return len(set_by) == int(nginx.values["workers"])

    nginx.wait_for(one_more, "the store")


def each_worker(nginx, code):
    """The results of a chunk in each worker."""
    results = {}

    def one_more():
        worker, *found = lua(nginx, f"return ngx.worker.id(), {code}")
        results[worker] = found
        return len(results) == int(nginx.values["workers"])

    nginx.wait_for(one_more, "a request at each worker")
    return results


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    return node


@pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 3, b"\0" * 70000], ids=["empty", "one", "binary", "long"])
def test_value_is_returned_unchanged(nginx, value):
    for key in (b"a", b"", b"\0\xff", b"k" * 1000):
        code = b"return sszip.set(%b, string.rep('', 0) .. %b, 60)"
        literal = quoted(value) if len(value) < 1000 else f"string.rep('\\0', {len(value)})"
        assert lua(nginx, code % (quoted(key).encode(), literal.encode())) is True
        assert lua(nginx, b"return sszip.get(%b)" % quoted(key).encode()) == value
        assert lua(nginx, b"return sszip.delete(%b)" % quoted(key).encode()) is True
        assert lua(nginx, b"return sszip.get(%b)" % quoted(key).encode()) is None


def test_value_of_20_mb_is_returned_by_every_worker(nginx):
    code = "local long = string.rep('0123456789', 2000000) local ok, err = sszip.set('long', long, 60) return ok, err, sszip.get('long') == long"
    assert lua(nginx, code) == [True, None, True]
    for found in each_worker(nginx, "#(sszip.get('long') or '')").values():
        assert found == [20_000_000]
    assert lua(nginx, "return sszip.delete('long')") is True


def test_value_above_the_share_of_the_worker_is_rejected(stored):
    """The limit is the worker's share, a fifth of the memory."""
    code = "sszip.set('long', 'old', 60) return sszip.set('long', string.rep('x', 60 * 1024 * 1024), 60)"
    assert lua(stored, code) == [None, b"the value is too long for this worker's share of sszip_cache_memory"]


def test_value_expires_after_its_ttl(nginx):
    assert lua(nginx, "sszip.set('short', 'x', 0.2) return sszip.get('short')") in (b"x", None)
    nginx.wait_for(lambda: lua(nginx, "return sszip.get('short')") is None, "the end of a value")
    assert lua(nginx, "return sszip.set('a', 'b', 0)") == [None, b"the ttl must be a millisecond at least"]
    assert lua(nginx, "return sszip.set('a', 'b', 0/0)") == [None, b"the ttl must be a millisecond at least"]
    assert lua(nginx, "return sszip.set('a', 'b', -1)") == [None, b"the ttl must be a millisecond at least"]
    assert lua(nginx, "return sszip.set('a', 'b', math.huge)") is True
    assert lua(nginx, "sszip.set('a', 'c', 60) return sszip.get('a')") == b"c"


def test_values_are_shared_between_workers_and_reloads_with_a_store(stored):
    assert lua(stored, "return sszip.set('shared', 'value', 600)") is True
    assert all(found == [b"value"] for found in each_worker(stored, "sszip.get('shared')").values())
    stored.reload()
    wait_until_linked(stored, Client(stored.prefix / "store/owner.sock"))
    ready(stored)
    assert all(found == [b"value"] for found in each_worker(stored, "sszip.get('shared')").values())
    assert lua(stored, "return sszip.delete('shared')") is True
    # a deleted value is gone in each worker
    assert all(found == [None] for found in each_worker(stored, "sszip.get('shared')").values())


def test_value_belongs_to_its_worker_without_a_store(start_nginx):
    nginx = lua_nginx(start_nginx, SERVERS.replace("@store@", ""), workers=3)
    setter = lua(nginx, "sszip.set('own', 'value', 600) return ngx.worker.id()")
    for worker, found in each_worker(nginx, "sszip.get('own')").items():
        assert found == [b"value" if worker == setter else None]
    nginx.reload()
    assert all(found == [None] for found in each_worker(nginx, "sszip.get('own')").values())


def test_value_functions_report_an_error_without_a_cache(start_nginx):
    nginx = lua_nginx(start_nginx, "server { listen 127.0.0.1:@port@; sszip on; @lua@ }")
    why = b'the cache is off: no location has "sszip_cache on"'
    for code in ("sszip.set('a', 'b', 1)", "sszip.get('a')", "sszip.delete('a')", f"sszip.answer('{'0' * 64}')"):
        assert lua(nginx, f"return {code}") == [None, why], code


@pytest.mark.parametrize("phase", ["set", "header", "filter", "log"])
def test_memory_is_used_in_phases_that_cannot_yield(nginx, phase):
    name = {"header": b"header_filter", "filter": b"body_filter"}.get(phase, phase.encode())
    disabled = b"API disabled in the context of " + name + b"_by_lua*"
    code = "local set = sszip.set('there', 'value', 60) return set, sszip.get('there'), sszip.get('nowhere')"
    lua(nginx, f"ngx.shared.heard:delete('{phase}')")
    fetch(nginx.port, "/phases", headers=[(f"X-{phase}", quote(code))])
    assert phase_result(nginx, phase) == [True, b"value", None]
    lua(nginx, f"ngx.shared.heard:delete('{phase}')")
    fetch(nginx.port, "/phases", headers=[(f"X-{phase}", quote("return sszip.purge{ all = true }"))])
    assert phase_result(nginx, phase) == [None, disabled]
    lua(nginx, f"ngx.shared.heard:delete('{phase}')")
    fetch(nginx.port, "/phases", headers=[(f"X-{phase}", quote("return sszip.delete('there')"))])
    has_store = "sszip_cache_path" in (nginx.prefix / "nginx.conf").read_text()
    assert phase_result(nginx, phase) == ([None, disabled] if has_store else True)


@pytest.mark.parametrize("phase", ["rewrite", "access"])
def test_values_are_set_and_deleted_in_phases_that_yield(nginx, phase):
    code = "assert(sszip.set('p', 'value', 60)) local value = sszip.get('p') assert(sszip.delete('p')) return value, sszip.get('p')"
    lua(nginx, f"ngx.shared.heard:delete('{phase}')")
    fetch(nginx.port, "/phases", headers=[(f"X-{phase}", quote(code))])
    assert phase_result(nginx, phase) == [b"value", None]


def test_memory_is_used_during_the_tls_handshake(start_nginx, tmp_path):
    """Stock nginx can't yield there: only values in memory are returned."""
    chain, key = certificate(tmp_path)
    http = SERVERS.replace("@store@", STORE).replace("@lua@", """
        @lua@
        listen 127.0.0.1:@port_tls@ ssl;
        ssl_certificate @prefix@/chain.pem;
        ssl_certificate_key @prefix@/key.pem;
        ssl_client_hello_by_lua_block { begins 'hello' }
        ssl_certificate_by_lua_block { begins 'certificate' }
    """)
    init = """
        function begins(name)
            local set = sszip.set(name, 'value', 60)
            local value = sszip.get(name)
            ngx.shared.heard:set(name, show(true, set, value, sszip.get('nowhere'), sszip.delete(name)))
        end
    """
    nginx = lua_nginx(start_nginx, http, init=init, files={"chain.pem": chain, "key.pem": key})
    ready(nginx)
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", nginx.ports["port_tls"])) as plain:
        client.wrap_socket(plain, server_hostname="example.org").close()
    for name, phase in (("hello", b"ssl_client_hello"), ("certificate", b"ssl_certificate")):
        disabled = b"API disabled in the context of " + phase + b"_by_lua*"
        assert phase_result(nginx, name) == [True, b"value", None, None, disabled]


def test_values_are_set_and_deleted_in_a_timer(nginx):
    code = """
        local said
        ngx.timer.at(0, function()
            said = show(sszip.set('t', 'value', 60), sszip.get('t'), sszip.delete('t'), sszip.get('t'))
        end)
        while not said do ngx.sleep(0.01) end
        return said
    """
    assert lua(nginx, code) == b"boolean 4 true" + b"string 5 value" + b"boolean 4 true" + b"nil 3 nil"


def stored_block(nginx, number):
    """A stored response of the node, and its key."""
    body = call("eth_getBlockByHash", '["0x%064x",true]' % number)
    for _ in range(3):
        answered = fetch(nginx.port, "/", method="POST", body=body, headers=[JSON])
    key = nginx.wait_for(lambda: lua(nginx, "return ngx.shared.heard:get('key')"), "a key").decode()
    return body, answered, key


def test_stored_response_is_returned_by_its_key(alone, node):
    _, answered, key = stored_block(alone, 1)
    assert lua(alone, f"return sszip.answer('{key}', '1')") == answered.decoded
    assert lua(alone, f"return sszip.answer('{key}')") == answered.decoded.replace(b'"id":1', b'"id":null')
    assert lua(alone, f"return sszip.answer('{'0' * 64}')") is None
    assert lua(alone, "return sszip.answer('12')") == [None, b"the key must be 64 hexadecimal digits"]
    assert lua(alone, f"return sszip.answer('{key}', '{{}}')")[1].startswith(b"the id must be")
    # values and responses have separate keys
    assert lua(alone, f"return sszip.get('{key}')") is None
    assert lua(alone, f"sszip.set('{key}', 'mine', 60) return sszip.answer('{key}', '1')") == answered.decoded


def test_purge_removes_the_entries_of_its_scope(stored, node):
    def hits(body):
        before = node.count()
        assert fetch(stored.port, "/", method="POST", body=body, headers=[JSON]).status == 200
        return node.count() == before

    body, _, key = stored_block(stored, 2)
    for number, scope in enumerate(("{ namespace = 'lua' }", f"{{ key = '{key}' }}", "{ method = 'eth_getBlockByHash' }", "{ namespace = 'lua', method = 'eth_getBlockByHash' }", "{ all = true }")):
        assert hits(body), scope
        purged = lua(stored, f"return sszip.purge{scope}")
        assert isinstance(purged, int), (number, scope, purged)
        assert not hits(body), scope
    # values are in a namespace of their own
    assert lua(stored, "return sszip.set('v', 'value', 60)") is True
    assert isinstance(lua(stored, "return sszip.purge{ namespace = 'lua', blocks = '1-2' }"), int)
    assert all(found == [b"value"] for found in each_worker(stored, "sszip.get('v')").values())
    assert isinstance(lua(stored, "return sszip.purge{ namespace = 'sszip.lua' }"), int)
    assert all(found == [None] for found in each_worker(stored, "sszip.get('v')").values())


@pytest.mark.parametrize(
    "scope, why",
    [
        ("{}", b"must select entries"),
        ("{ all = true, key = 'ab' }", b"64 hexadecimal"),
        ("{ all = true, method = 'a' }", b"combined with other parameters"),
        ("{ method = 'a b&everything' }", b"method must be"),
        ("{ blocks = '1-2' }", b"needs namespace="),
    ],
)
def test_purge_with_an_unclear_scope_is_rejected(stored, scope, why):
    value, message = lua(stored, f"return sszip.purge{scope}")
    assert value is None and why in message


def test_purge_reports_an_error_without_a_store(alone):
    assert lua(alone, "return sszip.purge{ all = true }")[1].startswith(b"nothing was purged: there is no store")


def test_values_are_shared_by_two_nginx_over_a_daemon(start_nginx):
    with contextlib.closing(Owner(max_size="64m", memory="32m")) as owner:
        owner.start()
        store = SERVERS.replace("@store@", f"sszip_cache_owner unix:{owner.socket};")
        one, other = (lua_nginx(start_nginx, store) for _ in range(2))
        ready(one)
        ready(other)
        assert lua(one, "return sszip.set('far', 'value', 600)") is True
        assert lua(other, "return sszip.get('far')") == b"value"
        assert lua(other, "return sszip.delete('far')") is True
        assert lua(one, "return sszip.get('far')") is None


def test_values_stay_in_memory_when_the_owner_is_unreachable(start_nginx):
    nginx = lua_nginx(start_nginx, SERVERS.replace("@store@", "sszip_cache_owner unix:@prefix@/nobody.sock;"))
    for code in ("sszip.set('a', 'b', 60)", "sszip.get('nowhere')", "sszip.delete('a')", "sszip.purge{ all = true }"):
        assert lua(nginx, f"return {code}") == [None, b"the cache's owner can't be queried now"], code
    # no purge can have happened
    assert lua(nginx, "sszip.set('a', 'b', 60) return sszip.get('a')") == b"b"


def test_values_are_current_or_absent_after_the_owner_restarts(start_nginx):
    nginx = lua_nginx(start_nginx, SERVERS.replace("@store@", STORE))
    nginx.expect(r"exited on signal|connect\(\) to unix:.*/owner.sock failed")
    ready(nginx)
    assert lua(nginx, "return sszip.set('lasting', 'value', 600)") is True
    manager = nginx.wait_for(nginx.manager, "the cache manager")
    os.kill(manager, signal.SIGKILL)
    nginx.wait_for(lambda: nginx.manager() not in (None, manager), "another one")
    # the value may be lost with the owner, but no older value is returned
    nginx.wait_for(lambda: lua(nginx, "return sszip.set('after', 'it', 600)") is True, "its socket")
    assert lua(nginx, "return sszip.get('after')") == b"it"
    assert lua(nginx, "return sszip.get('lasting')") in (b"value", None)

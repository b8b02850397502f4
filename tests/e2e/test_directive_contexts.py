"""The key of entries without a namespace: the node that made a response, the host, the port
and the target as nginx itself reads them. Neither a reload nor an additional server in
front changes it."""

import json

import pytest

from harness.client import fetch
from harness.origin import answer
from harness.owner import owner_of, wait_until_linked
from harness.rpc import call

CHAIN = call("eth_chainId")

HEAD = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
add_header X-Key $sszip_cache_key;
proxy_http_version 1.1;
"""


def server(port, inner):
    return f"server {{ listen 127.0.0.1:@port_{port}@; {inner} }}\n"


def passes(path):
    return f"location / {{ proxy_pass http://@origin@{path}; }}"


@pytest.fixture
def chains(origin):
    """A node with another chain on each of its paths."""

    def chain(request):
        name = request.path.strip("/").split("/")[0]
        return answer(b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % name.encode())

    origin.answers(chain)
    return origin


@pytest.fixture
def start(start_nginx):
    def start(http, **options):
        nginx = start_nginx(HEAD + http, **options)
        nginx.owner = owner_of(nginx)
        wait_until_linked(nginx)
        return nginx

    return start


def reload(nginx, http):
    nginx.write(HEAD + http)
    nginx.reload()
    wait_until_linked(nginx)


def result(nginx, port, path="/", headers=()):
    """The result of one call to a target, and whether it is a hit."""
    headers = [("Content-Type", "application/json"), *headers]
    response = fetch(nginx.ports[f"port_{port}"], path, method="POST", body=CHAIN, headers=headers)
    return json.loads(response.body)["result"], (response.header("Cache-Status") or "").startswith("sszip; hit")


def test_entries_stay_with_their_server_when_another_one_is_added(start, chains):
    nginx = start(server("a", passes("/mainnet")))
    assert result(nginx, "a") == ("mainnet", False)
    assert result(nginx, "a") == ("mainnet", True)
    before = key(nginx, "a")
    reload(nginx, server("b", passes("/gnosis")) + server("a", passes("/mainnet")))
    assert result(nginx, "b") == ("gnosis", False)
    assert result(nginx, "a")[0] == "mainnet"
    # the stored entry is still found
    assert key(nginx, "a") == before


def key(nginx, port):
    headers = [("Content-Type", "application/json")]
    return fetch(nginx.ports[f"port_{port}"], "/", method="POST", body=CHAIN, headers=headers).header("X-Key")


@pytest.mark.parametrize("change", ["the path", "the servers of a block"])
def test_entries_are_not_reused_when_the_upstream_changes(start, chains, change):
    def config(chain):
        if change == "the path":
            return server("a", passes(f"/{chain}"))
        node = "@origin@" if chain == "mainnet" else "@origin_unix@"
        return f"upstream node {{ server {node}; }}\n" + server("a", "location / { proxy_pass http://node/x; }")

    nginx = start(config("mainnet"))
    first, _ = result(nginx, "a")
    assert result(nginx, "a") == (first, True)
    reload(nginx, config("gnosis"))
    assert result(nginx, "a")[1] is False


def test_key_includes_the_value_of_a_variable_in_proxy_pass(start, chains):
    nginx = start(
        "map $http_x_chain $path { default mainnet; gnosis gnosis; }\n"
        + server("a", "location / { proxy_pass http://@origin@/$path; }")
    )
    for is_hit in (False, True):
        assert result(nginx, "a") == ("mainnet", is_hit)
        assert result(nginx, "a", headers=[("X-Chain", "gnosis")]) == ("gnosis", is_hit)


def test_key_includes_the_servers_of_an_upstream_that_a_variable_names(start, chains):
    def config(server_of_node):
        return (
            f"upstream node {{ server {server_of_node}; }}\n"
            "map $host $node { default node; }\n" + server("a", "location / { proxy_pass http://$node/x; }")
        )

    nginx = start(config("@origin@"))
    result(nginx, "a")
    assert result(nginx, "a") == ("x", True)
    reload(nginx, config("@origin_unix@"))
    assert result(nginx, "a") == ("x", False)


def test_key_includes_the_host_of_a_target_in_absolute_form(start, origin):
    origin.answers(lambda request: answer(f'"{request.header("Host")}"'.encode(), headers=[("Cache-Control", "max-age=60")]))
    nginx = start(server("a", "server_name a.test b.test; location / { proxy_set_header Host $host; proxy_pass http://@origin@; }"))

    def host(target, header):
        with nginx.connect("port_a") as connection:
            return connection.exchange(target, host=header).body

    assert host("http://b.test/x", "a.test") == b'"b.test"'
    assert host("/x", "a.test") == b'"a.test"'
    assert host("/x", "b.test") == b'"b.test"'


@pytest.mark.parametrize("namespace", ["", "sszip_cache_namespace files;"])
def test_key_includes_the_target_of_x_accel_redirect(start, origin, namespace):
    def redirect(request):
        if request.path == "/dl":
            return answer(b"", headers=[("X-Accel-Redirect", f"/internal/{request.header('X-Api-Key')}")])
        return answer(b'"%b"' % request.path.encode(), headers=[("Cache-Control", "max-age=60")])

    origin.answers(redirect)
    nginx = start(
        server(
            "a",
            "location / { proxy_pass http://@origin@; }"
            f"location /internal/ {{ internal; {namespace} proxy_pass http://@origin@; }}",
        )
    )
    for turn in range(2):
        for name in ("alice", "bobby"):
            response = fetch(nginx.ports["port_a"], "/dl", headers=[("X-Api-Key", name)])
            assert response.body == b'"/internal/%b"' % name.encode()
            assert ("hit" in response.header("Cache-Status")) == bool(turn)
    assert len(origin.received("/internal/alice")) == 1


def test_key_includes_the_rewritten_target(start, origin):
    origin.answers(lambda request: answer(b'"%b"' % request.target.encode(), headers=[("Cache-Control", "max-age=60")]))
    nginx = start(server("a", "location / { rewrite ^/of/(.*)$ /x?$http_x_user break; proxy_pass http://@origin@; }"))
    for _ in range(2):
        for user in ("a", "b"):
            response = fetch(nginx.ports["port_a"], "/of/me", headers=[("X-User", user)])
            assert f"/x?{user}" in response.body.decode()


def test_location_without_upstream_or_namespace_is_not_cached(start, origin):
    """`sszip_cache on` in `http` also applies to locations of other modules, which most
    configurations contain."""
    inner = "location / {{ proxy_pass http://@origin@; }} location /files {{ {0} empty_gif; }}"
    origin.answers(answer(b'"x"', headers=[("Cache-Control", "max-age=60")]))
    nginx = start(server("a", inner.format("")))
    warning = 'has no effect in location "/files": its upstream is unknown; set "sszip_cache_namespace"'
    status, output = nginx.test()
    assert status == 0 and output.count("has no effect") == 1 and warning in output
    for n in range(3):
        assert fetch(nginx.ports["port_a"], "/files").header("Cache-Status") == "sszip; fwd=bypass; detail=local"
        hit = fetch(nginx.ports["port_a"], "/page").header("Cache-Status").startswith("sszip; hit")
        assert hit == (n > 0)
    for more in ("sszip_cache_namespace files;", "sszip_cache off;"):
        nginx.write(HEAD + server("a", inner.format(more)))
        status, output = nginx.test()
        assert status == 0 and "has no effect" not in output


TWO_IFS = """
sszip_min_length 1;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / {
        if ($request_method) { proxy_pass http://@origin@; }
        if ($request_method) { }
    }
    location /on {
        sszip on;
        if ($request_method) { proxy_pass http://@origin@; }
        if ($request_method) { set $x 1; }
    }
    location /one {
        sszip on;
        if ($request_method) { proxy_pass http://@origin@; }
    }
}
"""


def test_request_is_answered_when_two_if_blocks_match(start_nginx, origin):
    origin.answers(answer(b"1" * 5000))
    nginx = start_nginx(TWO_IFS)
    # in stock nginx, a block without an upstream of its own has none
    nginx.expect("no upstream configuration")
    assert nginx.get("/one").status == 200
    for path in ("/", "/on"):
        assert nginx.get(path).status in (200, 500)


def test_reload_may_remove_and_add_the_module(start_nginx, origin):
    """The handlers of nginx's own modules that were wrapped stay wrapped, without effect."""
    origin.answers(answer(b'"x"', headers=[("Cache-Control", "max-age=60")]))
    own = "sszip on; sszip_cache on; sszip_cache_get all; sszip_cache_lock_timeout 60s;"
    inner = f"{own} location / {{ proxy_set_header X-A 1; proxy_pass http://@origin@; }}"
    nginx = start_nginx(f"server {{ listen 127.0.0.1:@port@; {inner} }}")
    path = nginx.prefix / "nginx.conf"
    with_module = path.read_text()
    lines = with_module.replace(own, "").splitlines()
    without = "\n".join(line for line in lines if "load_module" not in line)
    without = without.replace("$sszip_mode", "-").replace("$sszip_ratio", "-")
    for text, status in ((without, None), (with_module, "sszip; fwd=miss"), (without, None), (with_module, "sszip; fwd=miss")):
        path.write_text(text)
        nginx.reload()
        response = fetch(nginx.port, "/")
        assert (response.status, response.body, response.header("Cache-Status")) == (200, b'"x"', status)

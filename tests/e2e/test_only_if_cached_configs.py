"""Cache-Control: only-if-cached in configurations of the kinds that operators use: access control comes
first, and no error page, fallback, other upstream or copy of the request reaches a node in place of the
504."""

import base64
import json

import pytest

from harness.client import fetch
from harness.origin import answer
from harness.rpc import Node, call

CONFIG = """
sszip on;
sszip_cache on;
proxy_http_version 1.1;
limit_req_zone $http_x_user zone=users:1m rate=1r/m;
proxy_cache_path @prefix@/proxied keys_zone=proxied:1m;
upstream node { server @origin@; }
upstream pool { server @origin@; server @origin_unix@; }
upstream spare { server @origin@; server @origin_unix@ backup; }
server {
    listen 127.0.0.1:@port@;
    root @prefix@/www;
    location /plain { proxy_pass http://node; }
    location /pool { proxy_next_upstream error timeout http_504 non_idempotent; proxy_pass http://pool; }
    location /spare { proxy_next_upstream error timeout http_504 non_idempotent; proxy_pass http://spare; }
    location /variable { set $to pool; proxy_pass http://$to; }
    location /if { if ($request_method = POST) { proxy_pass http://node; } }
    location /rewrite { rewrite ^ /plain/rewritten last; }
    location /try { try_files $uri @node; }
    location /not-allowed { error_page 405 = @node; return 405; }
    location /socket { error_page 418 = @node; if ($http_upgrade = "") { return 418; } proxy_pass http://pool; }
    location /page { error_page 500 502 503 504 /50x.html; proxy_pass http://node; }
    location /intercepted { proxy_intercept_errors on; error_page 500 502 503 504 /50x.html; proxy_pass http://node; }
    location /fallback { proxy_intercept_errors on; error_page 502 503 504 = @fallback; proxy_pass http://node; }
    location /other-status { proxy_intercept_errors on; error_page 504 =200 @fallback; proxy_pass http://node; }
    location /recursive {
        proxy_intercept_errors on;
        recursive_error_pages on;
        error_page 504 = @again;
        proxy_pass http://node;
    }
    location /mirror { mirror /copy; proxy_pass http://node; }
    location /proxied {
        proxy_cache proxied;
        proxy_cache_methods GET POST;
        proxy_cache_key "$request_uri|$request_body";
        proxy_cache_valid 200 1h;
        sszip_cache_valid immutable 1ms;
        proxy_pass http://node;
    }
    location @node { proxy_pass http://node; }
    location @again { error_page 504 = @fallback; proxy_pass http://node; }
    location @fallback { proxy_pass http://pool; }
    location = /copy { internal; proxy_pass http://@origin@; }

    location /cors {
        add_header Access-Control-Allow-Origin $http_origin always;
        add_header Access-Control-Allow-Credentials true;
        add_header Vary Origin always;
        proxy_pass http://node;
    }
    location /basic {
        auth_basic "node";
        auth_basic_user_file @prefix@/passwords;
        proxy_set_header Authorization "";
        proxy_pass http://node;
    }
    location /judged { auth_request /auth; error_page 401 = @login; proxy_pass http://node; }
    location = /auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_pass http://@origin@; }
    location @login { return 302 /login; }
    location /limited { limit_req zone=users; limit_req_status 429; proxy_pass http://node; }
    location /denied { deny all; proxy_pass http://node; }
}
"""
OPTIONS = {"files": {"passwords": b"me:{PLAIN}secret\n", "www/50x.html": b"<html>an error page</html>"}}
LOOKED_UP = (
    "plain pool spare variable if rewrite try not-allowed socket page intercepted fallback other-status recursive mirror"
).split()

ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")
JSON = ("Content-Type", "application/json")
TEXT = ("Content-Type", "text/plain")
CALL = call("eth_chainId")
NOT_CACHED = b'{"status":504,"detail":"not cached: only-if-cached"}'


@pytest.fixture(autouse=True)
def node(origin):
    node = Node({"eth_chainId": b'"0x1"'})

    def script(request):
        if request.path.startswith("/auth"):
            return answer(b"", status=204 if request.header("X-Key") == "right" else 401)
        return node(request)

    origin.answers(script)


def post(nginx, path, *headers, body=CALL):
    return fetch(nginx.port, path, method="POST", body=body, headers=[JSON, *headers])


def check_not_cached(response):
    assert (response.status, response.body) == (504, NOT_CACHED), response
    assert response.header("Content-Type") == "application/problem+json"


def check_hit(response):
    assert response.status == 200 and response.header("Cache-Status").startswith("sszip; hit"), response
    assert json.loads(response.decoded)["result"] == "0x1"


@pytest.mark.parametrize("name", LOOKED_UP)
def test_504_is_not_replaced_and_no_node_receives_the_request(nginx, origin, name):
    path = f"/{name}/{name}"
    check_not_cached(post(nginx, path, ONLY_IF_CACHED))
    for headers in ([TEXT], [JSON, ("Authorization", "Bearer a")]):
        check_not_cached(fetch(nginx.port, path, method="POST", body=CALL, headers=[*headers, ONLY_IF_CACHED]))
    if name != "if":
        check_not_cached(fetch(nginx.port, path, headers=[ONLY_IF_CACHED]))
    assert origin.received() == []
    assert post(nginx, path).status == 200
    check_hit(post(nginx, path, ONLY_IF_CACHED))
    # nginx does not wait for the copy: it may come after the response
    copies = 1 if name == "mirror" else 0
    nginx.wait_for(lambda: len(origin.received("/copy")) >= copies, "the copy")
    assert len(origin.received("/copy")) == copies


def test_error_of_the_node_is_replaced_where_the_504_is_not(nginx, origin):
    """The error pages of the configuration are in effect."""
    origin.answers(answer(b"", status=504))
    assert post(nginx, "/intercepted/a").body == b"<html>an error page</html>"
    before = len(origin.received())
    assert post(nginx, "/fallback/a").status == 504
    assert len(origin.received()) == before + 2


def test_proxy_cache_is_not_consulted(nginx, origin):
    """The location's proxy_cache has the response."""
    assert post(nginx, "/proxied").status == 200
    count = len(origin.received())
    nginx.wait_for(lambda: post(nginx, "/proxied", ONLY_IF_CACHED).status == 504, "the entry to expire")
    assert post(nginx, "/proxied").status == 200
    assert len(origin.received()) == count


def test_504_has_the_cors_headers_of_an_error(nginx, origin):
    names = ("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials")
    from_page = ("Origin", "https://a.test")
    origin.answers(answer(b"{}", status=503))
    error = post(nginx, "/cors/error", from_page)
    response = post(nginx, "/cors/miss", from_page, ONLY_IF_CACHED)
    check_not_cached(response)
    assert error.status == 503
    assert [response.all(name) for name in names] == [error.all(name) for name in names] == [["https://a.test"], []]
    assert response.header("Vary") == "Origin"


def test_password_is_checked_first(nginx, origin):
    right, wrong = (("Authorization", "Basic " + base64.b64encode(text).decode()) for text in (b"me:secret", b"me:guess"))
    assert post(nginx, "/basic", ONLY_IF_CACHED).status == 401
    assert post(nginx, "/basic", ONLY_IF_CACHED, wrong).status == 401
    response = post(nginx, "/basic", ONLY_IF_CACHED, right)
    check_not_cached(response)
    assert response.header("Cache-Status") == "sszip; detail=credentials"
    assert origin.received() == []


def test_auth_request_is_sent_first(nginx, origin):
    right = ("X-Key", "right")
    response = post(nginx, "/judged/a", ONLY_IF_CACHED)
    assert (response.status, response.header("Location")[-6:]) == (302, "/login")
    check_not_cached(post(nginx, "/judged/a", ONLY_IF_CACHED, right))
    assert {request.path for request in origin.received()} == {"/auth"}
    assert post(nginx, "/judged/a", right).status == 200
    check_hit(post(nginx, "/judged/a", ONLY_IF_CACHED, right))
    assert post(nginx, "/judged/a", ONLY_IF_CACHED).status == 302


def test_limits_apply_to_504s(nginx, origin):
    user = ("X-User", "a")
    check_not_cached(post(nginx, "/limited", ONLY_IF_CACHED, user))
    assert post(nginx, "/limited", ONLY_IF_CACHED, user).status == 429
    nginx.expect("limiting requests")


def test_denied_client_is_not_answered_from_the_cache(nginx, origin):
    assert post(nginx, "/denied", ONLY_IF_CACHED).status == 403
    nginx.expect("access forbidden by rule")

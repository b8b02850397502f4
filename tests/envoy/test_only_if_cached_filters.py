"""Cache-Control: only-if-cached behind Envoy's own filters, and on routes with retries, hedging and copies:
access control comes first, and no cluster receives the request in place of the 504."""

import json

import pytest

from harness.envoy import cluster, filter, pipe, route, typed
from harness.origin import Origin, answer
from harness.rpc import Node, call
from test_other_filters_envoy import AFTER, CORS, ENABLED, FILTERS

HOSTS = ("native", "wasm")

ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")
CALL = call("eth_chainId")
NOT_CACHED = b'{"status":504,"detail":"not cached: only-if-cached"}'

RETRY = {"retry_on": "5xx,gateway-error,retriable-status-codes", "retriable_status_codes": [504], "num_retries": 3}
MORE = {
    "retry": {"retry_policy": RETRY},
    "hedge": {"retry_policy": RETRY, "hedge_policy": {"hedge_on_per_try_timeout": True}},
    "mirror": {"request_mirror_policies": [{"cluster": "authz"}]},
    "redirect": {"internal_redirect_policy": {"redirect_response_codes": [302]}},
}
# redirects 504s to another route, whose response replaces theirs
REDIRECT = {
    "name": "redirect",
    "typed_config": typed("http.custom_response.redirect_policy.v3.RedirectPolicy", uri="http://localhost/retry/page"),
}
STATUS = {
    "input": {
        "name": "status",
        "typed_config": {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput"},
    },
    "value_match": {"exact": "504"},
}
CUSTOM = filter(
    "custom_response",
    "CustomResponse",
    custom_response_matcher={
        "matcher_list": {"matchers": [{"predicate": {"single_predicate": STATUS}, "on_match": {"action": REDIRECT}}]}
    },
)
NAMES = ("cors", "authz", "rbac", "limited", "fault", "lua", "buffer", "mutates", "compressor", "reads", *AFTER)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Origin(tmp_path_factory.mktemp("authority"))
    yield authority
    authority.close()


@pytest.fixture(scope="module")
def envoy(start_envoy, authority):
    def filtered_route(name):
        found = route(f"/{name}/", {"cache": True})
        found["typed_per_filter_config"][name] = CORS if name == "cors" else ENABLED
        return found

    routes = [filtered_route(name) for name in (*NAMES, "custom")]
    routes += [route(f"/{name}/", {"cache": True}, **more) for name, more in MORE.items()]
    off, after = (
        [{**one, "name": name, "disabled": True} for name, one in filters.items() if name in NAMES]
        for filters in (FILTERS, AFTER)
    )
    off.append({**CUSTOM, "name": "custom", "disabled": True})
    return start_envoy(routes, filters=off, last=after, clusters=[cluster("authz", pipe(authority.path))], workers=2)


@pytest.fixture(autouse=True)
def node(envoy, origin, authority):
    authority.forget()
    authority.answers(lambda request: answer(status=200 if request.header("X-Key") == "right" else 403))
    node = Node({"eth_chainId": b'"0x1"'})
    origin.answers(node)
    return node


def send(envoy, path, *headers):
    return envoy.fetch(path, CALL, headers=list(headers))


def check_not_cached(response):
    assert (response.status, response.decoded) == (504, NOT_CACHED), response
    assert response.header("Cache-Status").startswith("sszip; detail=")


def hit_or_none(response):
    return response if response.header("Cache-Status").startswith("sszip; hit") else None


def check_stored(envoy, path, *headers):
    assert send(envoy, path, *headers).status == 200
    # each worker has a sandbox of its own
    response = envoy.wait_for(lambda: hit_or_none(send(envoy, path, *headers, ONLY_IF_CACHED)), "a hit")
    assert json.loads(response.decoded)["result"] == "0x1"


@pytest.mark.parametrize("name", [*MORE, "buffer", "mutates", "compressor", "reads", "lua"])
def test_504_is_not_retried_and_no_cluster_receives_the_request(envoy, origin, authority, node, name):
    path = f"/{name}/a"
    check_not_cached(send(envoy, path, ONLY_IF_CACHED))
    check_not_cached(send(envoy, path, ONLY_IF_CACHED, ("Authorization", "Bearer a")))
    assert origin.received() == authority.received() == []
    check_stored(envoy, path)
    assert node.count() == 1
    # Envoy does not wait for the copy: it may come after the response
    copies = 1 if name == "mirror" else 0
    envoy.wait_for(lambda: len(authority.received()) >= copies, "the copy")
    assert len(authority.received()) == copies


def test_node_error_is_retried_where_the_504_is_not(envoy, origin):
    origin.answers(answer(b"{}", status=504))
    assert send(envoy, "/retry/error").status == 504
    assert len(origin.received()) == 4


@pytest.mark.parametrize("name, status", [("rbac", 403), ("lua", 403), ("fault", 503)])
def test_denied_request_is_not_looked_up(envoy, origin, name, status):
    response = send(envoy, f"/{name}/denied", ONLY_IF_CACHED, ("X-Deny", "1"))
    assert response.status == status and "sszip" not in (response.header("Cache-Status") or "")
    check_not_cached(send(envoy, f"/{name}/denied", ONLY_IF_CACHED))
    assert origin.received() == []


def test_ext_authz_is_queried_first(envoy, origin, authority):
    right = ("X-Key", "right")
    assert send(envoy, "/authz/a", ONLY_IF_CACHED).status == 403
    check_not_cached(send(envoy, "/authz/a", ONLY_IF_CACHED, right))
    assert len(authority.received()) == 2 and origin.received() == []
    check_stored(envoy, "/authz/a", right)
    assert send(envoy, "/authz/a", ONLY_IF_CACHED).status == 403


def test_504s_are_rate_limited(envoy):
    statuses = [send(envoy, "/limited/a", ONLY_IF_CACHED).status for _ in range(6)]
    assert statuses == [504] * 4 + [429] * 2


def test_504_has_the_cors_headers_of_an_error(envoy, origin):
    from_page = ("Origin", "https://a.test")
    response = send(envoy, "/cors/a", from_page, ONLY_IF_CACHED)
    check_not_cached(response)
    origin.answers(answer(b"{}", status=503))
    error = send(envoy, "/cors/b", from_page)
    assert error.status == 503
    assert response.header("Access-Control-Allow-Origin") == error.header("Access-Control-Allow-Origin") == "https://a.test"


def test_custom_response_of_a_cached_route_is_not_fetched(envoy, origin):
    """Envoy sends the request again, to the route of the redirect."""
    check_not_cached(send(envoy, "/custom/a", ONLY_IF_CACHED))
    assert origin.received() == []
    origin.answers(answer(b"{}", status=504))
    assert send(envoy, "/custom/a").status == 504
    assert [request.path for request in origin.received()][:2] == ["/custom/a", "/retry/page"]

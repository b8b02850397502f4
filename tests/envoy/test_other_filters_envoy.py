"""Envoy's own filters together with sszip: those that deny or limit do so for hits, too;
changes of responses are not stored; filters that read or encode bodies get them whole."""

import base64
import hashlib
import hmac
import json

import pytest

from harness.client import gunzip
from harness.envoy import cluster, filter, pipe, route, typed
from harness.origin import Origin, answer
from harness.rpc import Node, call

HOSTS = ("native", "wasm")

BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
RESULT = b'{"hash":"0x%b","x":"' % (b"ab" * 32) + b"0" * 5000 + b'"}'
LONG = b'{"hash":"0x%b","x":"' % (b"cd" * 32) + bytes(range(97, 117)) * 30000 + b'"}'
SECRET = b"a secret of thirty-two bytes ...."

LUA = """
function envoy_on_request(handle)
  if handle:headers():get("x-deny") then
    handle:respond({[":status"] = "403"}, "denied")
    return
  end
  local body = handle:body()
  handle:headers():replace("x-length", body and body:length() or 0)
end
function envoy_on_response(handle)
  handle:headers():replace("access-control-allow-origin", handle:headers():get("x-served") or "lua")
  handle:headers():replace("x-lua", handle:headers():get("cache-status") or "none")
end
"""
READS = """
function envoy_on_response(handle)
  local body = handle:body()
  handle:headers():replace("x-length", body and body:length() or 0)
end
"""


def coder(name, kind):
    library = {
        "name": "gzip",
        "typed_config": typed(f"compression.gzip.{name}.v3.Gzip"),
    }
    return filter(name, kind, **{f"{name}_library": library})


def mutates(*response, request=()):
    append = lambda key, value: {  # noqa: E731
        "append": {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    }  # fmt: skip
    mutations = {
        "response_mutations": [append(*one) for one in response],
        "request_mutations": [append(*one) for one in request],
    }
    return filter("header_mutation", "HeaderMutation", mutations=mutations)


def encoded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def token(**claims):
    signed = (
        f"{encoded(json.dumps({'alg': 'HS256'}).encode())}.{encoded(json.dumps(claims).encode())}"
    )
    return f"{signed}.{encoded(hmac.digest(SECRET, signed.encode(), hashlib.sha256))}"


def named(name, one):
    return {**one, "name": name}


DENIES = {
    "permissions": [{"header": {"name": "x-deny", "present_match": True}}],
    "principals": [{"any": True}],
}
ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
FILTERS = {
    "cors": filter("cors", "Cors"),
    "jwt": filter(
        "jwt_authn",
        "JwtAuthentication",
        providers={
            "ours": {
                "issuer": "ours",
                "local_jwks": {
                    "inline_string": json.dumps(
                        {"keys": [{"kty": "oct", "alg": "HS256", "k": encoded(SECRET)}]}
                    )
                },
            }
        },
        rules=[{"match": {"prefix": "/"}, "requires": {"provider_name": "ours"}}],
    ),
    "authz": filter(
        "ext_authz",
        "ExtAuthz",
        http_service={
            "server_uri": {"uri": "http://authz", "cluster": "authz", "timeout": "5s"},
            "path_prefix": "/authz",
        },
        allowed_headers={"patterns": [{"exact": "x-key"}]},
    ),
    "rbac": filter("rbac", "RBAC", rules={"action": "DENY", "policies": {"some": DENIES}}),
    "limited": filter(
        "local_ratelimit",
        "LocalRateLimit",
        stat_prefix="limited",
        token_bucket={"max_tokens": 4, "tokens_per_fill": 1, "fill_interval": "3600s"},
        filter_enabled=ALWAYS,
        filter_enforced=ALWAYS,
    ),
    "buffer": filter("buffer", "Buffer", max_request_bytes=100_000),
    "fault": filter(
        "fault",
        "HTTPFault",
        abort={"http_status": 503, "percentage": {"numerator": 100}},
        headers=[{"name": "x-deny", "present_match": True}],
    ),
    "lua": filter("lua", "Lua", default_source_code={"inline_string": LUA}),
    "reads": filter("lua", "Lua", default_source_code={"inline_string": READS}),
    "mutates": mutates(("access-control-allow-origin", "%REQ(x-number)%"), request=[("x-added", "1")]),
    "grpc-web": filter("grpc_web", "GrpcWeb"),
    "grpc-stats": filter("grpc_stats", "FilterConfig", stats_for_all_methods=True),
    "compressor": coder("compressor", "Compressor"),
    "decompressor": coder("decompressor", "Decompressor"),
    "cache": filter(
        "cache",
        "CacheConfig",
        typed_config=typed("http.cache.simple_http_cache.v3.SimpleHttpCacheConfig"),
    ),
}  # fmt: skip
AFTER = {
    "compressor-after": coder("compressor", "Compressor"),
    "decompressor-after": coder("decompressor", "Decompressor"),
    "mutates-after": mutates(("cache-control", "no-store")),
    "lua-after": filter("lua", "Lua", default_source_code={"inline_string": READS}),
}
ENABLED = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}
CORS = typed(
    "filters.http.cors.v3.CorsPolicy",
    allow_origin_string_match=[{"suffix": ".test"}],
    allow_methods="POST",
    allow_headers="content-type",
)


def with_filters(*names, **settings):
    """A route with the filters of these names enabled."""
    found = route("/" + "+".join(names), {"cache": True, **settings})
    found["typed_per_filter_config"].update({name: ENABLED for name in names})
    return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Origin(tmp_path_factory.mktemp("authority"))
    yield authority
    authority.close()


@pytest.fixture(scope="module")
def envoy(start_envoy, authority):
    off = [{**one, "name": name, "disabled": True} for name, one in FILTERS.items()]
    after = [{**one, "name": name, "disabled": True} for name, one in AFTER.items()]
    every = ("cors", "rbac", "buffer", "lua", "mutates", "grpc-web", "grpc-stats")
    routes = [with_filters(*names) for names in (
        every, ("jwt",), ("authz",), ("rbac",), ("limited",), ("buffer",), ("fault",), ("lua",), ("reads",), ("mutates",),
        ("compressor",), ("decompressor",), ("cache",), ("compressor", "decompressor"), *((name,) for name in AFTER),
    )]  # fmt: skip
    cors = with_filters("cors")
    cors["typed_per_filter_config"]["cors"] = CORS
    # the longest first: "/lua" is a prefix of "/lua-after"
    routes = sorted([*routes, cors], key=lambda one: -len(one["match"]["prefix"]))
    return start_envoy(
        routes, filters=off, last=after, clusters=[cluster("authz", pipe(authority.path))], workers=2
    )  # fmt: skip


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    return node


def send(envoy, path, body=BLOCK, **headers):
    headers = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return envoy.fetch(path, body, headers=headers)


def is_hit(response):
    return "sszip; hit" in (response.header("Cache-Status") or "")


def stored(envoy, path, **headers):
    """The first response, and then the stored one."""
    first = send(envoy, path, **headers)
    then = send(envoy, path, **headers)
    assert (first.status, then.status) == (200, 200), (first.body, then.body)
    assert not is_hit(first) and is_hit(then), (first.headers, then.headers)
    assert first.decoded == then.decoded
    return first, then


class TestAccess:
    @pytest.mark.parametrize("path, status", [("/rbac", 403), ("/lua", 403), ("/fault", 503)])
    def test_denied_request_gets_no_hit(self, envoy, node, path, status):
        assert send(envoy, path, X_Deny="1").status == status
        stored(envoy, path)
        denied = send(envoy, path, X_Deny="1")
        assert denied.status == status and RESULT not in denied.decoded
        assert is_hit(send(envoy, path))
        assert node.count() == 1

    def test_ext_authz_is_checked_for_hits(self, envoy, node, authority):
        allowed = lambda request: answer(status=200 if request.header("X-Key") == "right" else 403)  # noqa: E731
        authority.answers(allowed)
        before = len(authority.received())
        stored(envoy, "/authz", X_Key="right")
        assert send(envoy, "/authz", X_Key="wrong").status == 403
        assert send(envoy, "/authz").status == 403
        assert len(authority.received()) >= before + 4

    def test_jwt_is_checked_for_hits(self, envoy, node):
        right = {"Authorization": f"Bearer {token(iss='ours', exp=4_000_000_000)}"}
        stored(envoy, "/jwt", **right)
        assert send(envoy, "/jwt").status == 401
        assert send(envoy, "/jwt", Authorization=f"Bearer {token(iss='theirs')}").status == 401

    def test_hits_are_rate_limited(self, envoy, node):
        statuses = [send(envoy, "/limited").status for _ in range(6)]
        assert statuses == [200] * 4 + [429] * 2
        assert node.count() == 1

    def test_cors_headers_are_set_per_origin_for_hits(self, envoy, node):
        stored(envoy, "/cors", Origin="https://a.test")
        for name in ("https://b.test", "https://elsewhere"):
            response = send(envoy, "/cors", Origin=name)
            assert is_hit(response), (name, response.headers)
            allowed = response.header("Access-Control-Allow-Origin")
            assert allowed == (name if name.endswith(".test") else None)
        fields = [("Origin", "https://c.test"), ("Access-Control-Request-Method", "POST")]
        preflight = envoy.get("/cors", method="OPTIONS", headers=fields)
        assert preflight.header("Access-Control-Allow-Methods") == "POST"
        assert node.count() == 1


class TestChanges:
    def test_header_mutations_apply_to_each_hit_and_are_not_stored(self, envoy, node, origin):
        for path, first, then in [
            (envoy.uri("/mutates"), "1", "2"),
            (envoy.uri("/lua"), "lua", "lua"),
        ]:
            one = send(envoy, path, X_Number="1")
            two = send(envoy, path, X_Number="2")
            assert not is_hit(one) and is_hit(two)
            assert one.all("Access-Control-Allow-Origin") == [first]
            assert two.all("Access-Control-Allow-Origin") == [then]
        # the node receives the changes of the request
        assert origin.received()[0].header("X-Added") == "1"
        assert origin.last().header("X-Length") == str(len(BLOCK))
        assert "sszip; hit" in two.header("X-Lua")

    def test_tracing_headers_are_not_part_of_the_key(self, envoy, node):
        path = envoy.uri("/mutates")
        stored(envoy, path)
        trace = "00-%032x-%016x-01"
        for number in range(3):
            fields = {"Traceparent": trace % (number + 1, 5), "X_Request_Id": f"{number}", "X_B3_Traceid": f"{number:016x}"}
            marked = send(envoy, path, **fields)
            assert is_hit(marked)
        assert node.count() == 1

    def test_hits_are_right_with_many_filters_together(self, envoy, node):
        path = "/cors+rbac+buffer+lua+mutates+grpc-web+grpc-stats"
        stored(envoy, path, Origin="https://a.test")
        assert send(envoy, path, X_Deny="1").status == 403

    def test_mutation_before_the_filter_counts_as_a_header_of_the_node(self, envoy, node):
        """sszip must be the last filter."""
        for _ in range(2):
            assert not is_hit(send(envoy, "/mutates-after"))


class TestBodies:
    @pytest.mark.parametrize("path", ["/reads", "/lua-after", "/buffer"])
    def test_filters_that_read_bodies_get_the_whole_body(self, envoy, node, path):
        first, then = stored(envoy, path)
        assert b'"result":' + RESULT in first.decoded
        if path == "/reads":
            assert [int(one.header("X-Length")) for one in (first, then)] == [
                len(first.body),
                len(then.body),
            ]

    def test_filter_that_buffers_gets_a_long_hit_whole(self, envoy, origin):
        """Pieces of a stored response are joined by a filter that buffers."""
        origin.answers(Node({"eth_getBlockByHash": LONG}))
        long = call("eth_getBlockByHash", '["0x%s",true]' % ("cd" * 32))
        for _ in range(2):
            for accept in ("gzip", None):
                response = envoy.fetch("/reads", long, accept)
                assert LONG in response.decoded
                assert int(response.header("X-Length")) == len(response.body)

    def test_request_above_the_limit_of_the_buffer_filter_is_rejected(self, envoy, node):
        long = BLOCK[:-1] + b" " * 200_000 + b"}"
        path = envoy.uri("/buffer")
        assert send(envoy, path, long).status == 413
        stored(envoy, path)

    @pytest.mark.parametrize(
        "path", ["/compressor", "/decompressor", "/compressor+decompressor", "/compressor-after", "/decompressor-after"]
    )  # fmt: skip
    def test_body_is_compressed_once_with_compressors_of_envoy(self, envoy, node, path):
        """A compressed body is not compressed again, and a decoded one can be stored."""
        first, then = stored(envoy, path)
        assert b'"result":' + RESULT in first.decoded
        for response in (first, then):
            # a decompressor after this filter decodes hits
            if path != "/decompressor-after":
                assert response.coding == (None if path == "/decompressor" else "gzip")
        for accept in ("br", "identity", None):
            plain = envoy.fetch(path, BLOCK, accept)
            assert plain.coding is None and b'"result":' + RESULT in plain.body
        assert node.count() == 1

    def test_responses_are_right_with_the_cache_filter_of_envoy(self, envoy, origin):
        body = b'{"data":"' + b"0" * 5000 + b'"}'
        origin.answers(answer(body, headers=[("Cache-Control", "max-age=60"), ("ETag", '"one"')]))
        path = envoy.uri("/cache/page")
        for accept in ("gzip", "gzip", None, "gzip", None):
            with envoy.connect() as connection:
                fields = [("Accept-Encoding", accept)] if accept else []
                response = connection.exchange(path, headers=fields)
            assert response.status == 200
            plain = gunzip(response.body) if response.coding else response.body
            assert plain == body
            assert response.coding in (None, accept)

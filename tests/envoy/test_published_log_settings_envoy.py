"""logs_split, logs_from_receipts, logs_max_range and query in Envoys as gateways have them: chains by a
header, CORS, an authorization service, rate limits, compressors before sszip and behind it, TLS and
HTTP/2. The responses are the node's own."""

import json
import subprocess
import threading

import pytest

from harness.envoy import Envoy, cluster, pipe, route
from harness.log_ranges import (
    CONCURRENT, PIECE, RelayNode, closed_gate, direct_response, logs, new_filter, pause_for_unexpected_requests,
    permissive_blooms,
)  # fmt: skip
from harness.log_sites import (
    FIRST, LIMIT, PASSWORD, RANGES, TOO_WIDE, UNAUTHORIZED, WORKERS, WRONG_PASSWORD, GuardedNode, LogSite, error_of,
    geth_cors, new_balance_call, too_wide_call, vary_names, wide_call,
)  # fmt: skip
from harness.origin import Origin, answer
from harness.rpc import call
from harness.stands import VALID
from test_other_filters_envoy import AFTER, CORS, ENABLED, FILTERS

# number of requests that the filter "limited" permits
TOKENS = 4
# without the option Envoy rejects a QUERY over HTTP/1
HTTP = {"http_protocol_options": {"accept_http_10": True, "allow_custom_methods": True}}
FILTERS_OF_ROUTES = ["cors", "authz", "limited", "compressor", "decompressor", *AFTER]
CODINGS = ["gzip, deflate, br, zstd", "br", "gzip", "identity"]
DAPP = ("Origin", "https://dapp.test")


def filtered_route(name):
    """A route whose requests pass the filter of this name."""
    found = route(f"/{name}", {})
    found["typed_per_filter_config"][name] = CORS if name == "cors" else ENABLED
    return found


class EnvoySite(LogSite):
    """Envoy with five workers, whose routes enable other filters."""

    def __init__(self, origin, other_origin, authority, **options):
        super().__init__()
        follows = "api=execution interval=100ms"
        settings = {
            "cache": True,
            "cache_path": "@prefix@/cache max_size=64m memory=32m",
            "cache_valid": VALID,
            "cache_lock_timeout": "60s",
            "cache_namespace": "main",
            "cache_head": f"http://{self.chain.address} {follows}",
            "logs_split": f"{PIECE} concurrent={CONCURRENT}",
            "logs_from_receipts": True,
            "logs_max_range": str(LIMIT),
            "query": True,
        }
        other_settings = {"cache_namespace": "other", "cache_head": f"http://{self.other_chain.address} {follows}"}
        by_header = route("/chains", other_settings, "other")
        by_header["match"]["headers"] = [{"name": "x-chain", "string_match": {"exact": "other"}}]
        # the longest prefix first: "/compressor" is one of "/compressor-after"
        names = sorted(FILTERS_OF_ROUTES, key=len, reverse=True)
        routes = [
            *map(filtered_route, names),
            by_header,
            route("/chains"),
            route("/keyed", {"cache_credentials": "key Authorization"}),
            route("/"),
        ]
        self.server = Envoy(
            routes,
            origin=origin,
            settings=settings,
            workers=WORKERS,
            http=HTTP,
            filters=[{**one, "name": name, "disabled": True} for name, one in FILTERS.items()],
            last=[{**one, "name": name, "disabled": True} for name, one in AFTER.items()],
            clusters=[cluster("other", pipe(other_origin.path)), cluster("authz", pipe(authority.path))],
            **options,
        )

    def post(self, path, body, *headers, accept=None, method="POST"):
        return self.server.fetch(path, body, accept, headers=headers, method=method)

    def warm_up(self, path, *headers):
        """Sends a new call: Envoy has recorded its own changes of requests on this route then, and the
        headers that responses depend on."""
        response = self.post(path, new_balance_call(), *headers)
        assert response.status == 200, response.body
        self.node.bodies.clear()


@pytest.fixture(scope="module")
def other_origin(tmp_path_factory):
    other_origin = Origin(tmp_path_factory.mktemp("other"))
    yield other_origin
    other_origin.close()
    assert not other_origin.errors, other_origin.errors


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """The authorization service."""
    authority = Origin(tmp_path_factory.mktemp("authority"))
    authority.answers(lambda request: answer(status=200 if request.header("X-Key") == "right" else 403))
    yield authority
    authority.close()
    assert not authority.errors, authority.errors


@pytest.fixture(scope="module")
def running_site(session_origin, other_origin, authority):
    with EnvoySite(session_origin, other_origin, authority) as site:
        yield site


@pytest.fixture
def site(running_site, origin):
    running_site.node = RelayNode(running_site.chain)
    origin.answers(running_site.node)
    yield running_site
    running_site.server.check()


@pytest.fixture
def members(site):
    """Members of a filter that no other test has."""
    return new_filter(site.chain)


@pytest.mark.parametrize("method", ["POST", "QUERY"])
@pytest.mark.parametrize("name, allowed", [("https://dapp.test", True), ("https://example.com", False)])
def test_assembled_responses_hits_and_errors_have_the_cors_headers_of_the_filter_once(
    site, members, name, allowed, method
):
    expected = [name] if allowed else []
    site.warm_up("/cors", ("Origin", name))
    for turn in range(2):
        response = site.post("/cors", wide_call(members), ("Origin", name), method=method)
        site.assert_right(response, wide_call(members))
        assert response.all("Access-Control-Allow-Origin") == expected, turn
        refused = site.post("/cors", too_wide_call(members), ("Origin", name), method=method)
        assert error_of(refused) == TOO_WIDE
        assert refused.all("Access-Control-Allow-Origin") == expected
    site.assert_fetched_in_pieces()


@pytest.mark.parametrize("path", ["/cors", "/"])
def test_assembled_response_has_the_cors_headers_of_the_node_for_its_own_origin(site, members, path):
    site.node.headers = geth_cors
    for name in ("https://a.test", "https://b.test"):
        site.warm_up(path, ("Origin", name))
        for _ in range(2):
            response = site.post(path, wide_call(members), ("Origin", name))
            site.assert_right(response, wide_call(members))
            # the filter replaces the node's
            assert response.all("Access-Control-Allow-Origin") == [name]
            assert "origin" in vary_names(response)
        # responses that name an origin are stored for it alone
        site.assert_fetched_in_pieces()


def test_query_for_a_wide_range_reaches_the_node_as_posts(site, members, origin):
    site.warm_up("/cors", DAPP)
    origin.requests.clear()
    response = site.post("/cors", wide_call(members), DAPP, method="QUERY")
    site.assert_right(response, wide_call(members))
    assert response.header("Accept-Query") == "application/json"
    site.assert_fetched_in_pieces()
    assert {request.method for request in origin.received()} == {"POST"}
    # the same call as a POST
    site.assert_right(site.post("/cors", wide_call(members), DAPP), wide_call(members))
    refused = site.post("/cors", too_wide_call(members), DAPP, method="QUERY")
    assert error_of(refused) == TOO_WIDE
    assert refused.header("Cache-Control") == "no-cache"
    assert len(site.node.bodies) == len(RANGES)


def test_authorization_service_is_queried_once_for_a_split_call(site, members, authority):
    key = ("X-Key", "right")
    site.warm_up("/authz", key)
    before = len(authority.received())
    for turn in range(2):
        site.assert_right(site.post("/authz", wide_call(members), key), wide_call(members))
        assert len(authority.received()) == before + 1 + 5 * turn
        for headers in ([], [("X-Key", "wrong")]):
            for body in (wide_call(members), too_wide_call(members)):
                rejected = site.post("/authz", body, *headers)
                assert rejected.status == 403 and b"jsonrpc" not in rejected.decoded
    site.assert_fetched_in_pieces()


def test_pieces_have_the_credentials_of_the_client_if_they_are_in_the_key(site, members, origin):
    site.node = GuardedNode(site.chain)
    origin.answers(site.node)
    for path in ("/", "/keyed"):
        site.warm_up(path, PASSWORD)
    # other credentials bypass the cache
    site.assert_right(site.post("/", wide_call(members), PASSWORD), wide_call(members))
    assert site.node.bodies == [wide_call(members)]
    origin.requests.clear()
    site.assert_right(site.post("/keyed", wide_call(members), PASSWORD), wide_call(members))
    site.assert_fetched_in_pieces(since=1)
    assert [request.header("Authorization") for request in origin.received()] == [PASSWORD[1]] * len(RANGES)
    for credentials in ([], [WRONG_PASSWORD]):
        for path in ("/", "/keyed"):
            rejected = site.post(path, wide_call(members), *credentials)
            assert (rejected.status, rejected.decoded) == (401, UNAUTHORIZED)
    before = len(site.node.bodies)
    site.assert_right(site.post("/keyed", wide_call(members), PASSWORD), wide_call(members))
    assert len(site.node.bodies) == before


def test_split_call_counts_once_for_a_rate_limit(site, members):
    site.warm_up("/limited")
    for _ in range(TOKENS - 1):
        site.assert_right(site.post("/limited", wide_call(members)), wide_call(members))
    for body in (wide_call(members), too_wide_call(members)):
        limited = site.post("/limited", body)
        assert limited.status == 429 and b"jsonrpc" not in limited.decoded
    site.assert_fetched_in_pieces()


@pytest.mark.parametrize("path", ["/compressor", "/decompressor", "/compressor-after", "/decompressor-after", "/lua-after"])
def test_clients_receive_the_assembled_logs_with_compressors_before_sszip_and_behind_it(site, path):
    for accept in CODINGS:
        members = new_filter(site.chain)
        site.warm_up(path)
        site.assert_right(site.post(path, wide_call(members), accept=accept), wide_call(members))
        site.assert_fetched_in_pieces()
        for body in (wide_call(members), logs(PIECE * 2, PIECE * 3 - 1, members)):
            for other in ("gzip", "identity"):
                response = site.post(path, body, accept=other)
                site.assert_right(response, body)
                assert response.coding in (None, other)
        assert error_of(site.post(path, too_wide_call(members), accept=accept)) == TOO_WIDE


def test_chains_that_a_header_selects_have_pieces_of_their_own(site, members, other_origin):
    nodes = {"main": site.node, "other": RelayNode(site.other_chain)}
    other_origin.answers(nodes["other"])
    chains = {"main": site.chain, "other": site.other_chain}
    for name in nodes:
        site.warm_up("/chains", ("X-Chain", name))
    nodes["other"].bodies.clear()
    for name in ("main", "other", "main", "other"):
        for body in (wide_call(members), logs(FIRST + 1, '"latest"', members)):
            response = site.post("/chains", body, ("X-Chain", name))
            site.assert_right(response, body, chains[name])
            assert error_of(site.post("/chains", too_wide_call(members), ("X-Chain", name))) == TOO_WIDE
    for node in nodes.values():
        assert node.single_calls() == []
        assert set(RANGES) <= set(node.ranges())


def test_coalesced_clients_of_all_workers_receive_the_response_of_one_split(site, members):
    site.warm_up("/")
    bodies = [wide_call(members).replace(b'"id":1', b'"id":%d' % number) for number in range(1, 4 * WORKERS + 1)]
    responses = {}

    def send(body):
        responses[body] = site.post("/", body)

    with closed_gate(site.node) as gate:
        senders = [threading.Thread(target=send, args=(body,)) for body in bodies]
        for sender in senders:
            sender.start()
        site.server.wait_for(lambda: site.node.in_flight == CONCURRENT, "the first pieces at the node")
        pause_for_unexpected_requests()
        assert len(site.node.bodies) == CONCURRENT
        gate.set()
        for sender in senders:
            sender.join()
    assert len(responses) == len(bodies)
    for body, response in responses.items():
        site.assert_right(response, body)
    site.assert_fetched_in_pieces()


def test_logs_are_derived_from_receipts_with_cors_headers_after_comparisons(site):
    site.node.change = lambda request, body: permissive_blooms(body)
    numbers = range(FIRST, FIRST + 100)
    calls = [call("eth_getBlockByNumber", f'["0x{number:x}",false]') for number in numbers]
    derived = 0
    for block in (block["hash"] for block in site.chain.honest(*calls)):
        assert site.post("/cors", call("eth_getBlockReceipts", f'["{block}"]'), DAPP).status == 200
        before = len(site.node.bodies)
        body = call("eth_getLogs", f'[{{"blockHash":"{block}"}}]')
        response = site.post("/cors", body, DAPP)
        site.assert_right(response, body)
        assert response.all("Access-Control-Allow-Origin") == [DAPP[1]]
        derived += len(site.node.bodies) == before
    assert derived > 30


def curl(envoy, body, *options, count=4):
    """The decoded bodies of concurrent responses over TLS and HTTP/2."""
    url = f"https://localhost:{envoy.port}/cors"
    files = [envoy.prefix / f"out{number}" for number in range(count)]
    command = ["curl", "-sSk", "--fail", "--http2", "--parallel", "--compressed", "-H", "Content-Type: application/json"]
    command += ["-H", f"Origin: {DAPP[1]}", "-w", "%{http_version}\n", *options, "-d", body.decode()]
    for file in files:
        command += [url, "-o", str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2"] * count
    return [file.read_bytes() for file in files]


def test_range_is_assembled_once_for_concurrent_streams_over_tls(origin, other_origin, authority):
    with EnvoySite(origin, other_origin, authority, tls=True) as site:
        site.node = RelayNode(site.chain)
        origin.answers(site.node)
        for options in ((), ("-X", "QUERY")):
            members = new_filter(site.chain)
            curl(site.server, new_balance_call(), count=1)
            site.node.bodies.clear()
            expected = direct_response(site.chain, wide_call(members)).rstrip()
            received = curl(site.server, wide_call(members), *options)
            assert [body.rstrip() for body in received] == [expected] * 4
            site.assert_fetched_in_pieces()
            for body in curl(site.server, too_wide_call(members), *options):
                assert json.loads(body)["error"] == TOO_WIDE

"""sszip_logs_split, sszip_logs_from_receipts, sszip_logs_max_range and sszip_query in configurations
of the kinds that are published for Ethereum nodes behind nginx: CORS, passwords, authorization
services, limits, several nodes, TLS and HTTP/2. All of them are servers of one nginx with five workers,
gzip, brotli and headers-more, in either load order. The responses are the node's own."""

import itertools
import json
import subprocess
import threading

import pytest

from harness.client import fetch
from harness.copied_configs import certificate
from harness.log_ranges import (
    CONCURRENT, FINAL, PIECE, RelayNode, closed_gate, direct_response, logs, new_filter, pause_for_unexpected_requests,
    permissive_blooms,
)  # fmt: skip
from harness.log_sites import (
    FIRST, PASSWORD, RANGES, REST, TOO_WIDE, UNAUTHORIZED, WORKERS, WRONG_PASSWORD, GuardedNode, error_of, geth_cors,
    too_wide_call, vary_names, wide_call,
)  # fmt: skip
from harness.log_sites_nginx import UNAVAILABLE, NginxSite
from harness.origin import answer
from harness.rpc import call
from harness.third_party import decoded

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx; test_log_ranges runs on each")

# ranges of at least two complete pieces of final blocks
FINAL_RANGES = [
    (first, end - 1) for first in range(32, REST, PIECE) for end in range(first + 2 * PIECE, REST + 1, PIECE)
]
DAPP = ("Origin", "https://a.dapp.test")
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["before", "after"])
def running_site(request, session_origin, tmp_path_factory):
    """nginx with sszip loaded before the other modules, or after them."""
    chain, key = certificate(tmp_path_factory.mktemp("certificate"))
    files = {
        "chain.pem": chain,
        "key.pem": key,
        "passwords": b"me:{PLAIN}secret\n",
        "www/index.html": b"<html>a page</html>",
    }
    with NginxSite(request.param, session_origin, files) as site:
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
@pytest.mark.parametrize("name, allowed", [("https://a.dapp.test", True), ("https://example.test", False)])
def test_assembled_responses_hits_and_errors_have_the_cors_headers_of_nginx_once(site, members, name, allowed, method):
    site.node.headers = geth_cors
    client = ("Origin", name)
    expected = [name] if allowed else []
    site.warm_up("cors", client)
    for turn in range(2):
        response = site.post("cors", wide_call(members), client, method=method)
        site.assert_right(response, wide_call(members))
        assert response.all("Access-Control-Allow-Origin") == expected, turn
        assert "origin" in vary_names(response)
        assert response.all("X-Served-By") == ["rpc"]
        refused = site.post("cors", too_wide_call(members), client, method=method)
        assert error_of(refused) == TOO_WIDE
        assert refused.all("Access-Control-Allow-Origin") == expected
        assert "origin" in vary_names(refused)
    site.assert_fetched_in_pieces()


def test_assembled_response_has_the_cors_headers_of_the_node_for_its_own_origin(site, members):
    site.node.headers = geth_cors
    for name in ("https://a.test", "https://b.test"):
        site.warm_up("plain", ("Origin", name))
        for _ in range(2):
            response = site.post("plain", wide_call(members), ("Origin", name))
            site.assert_right(response, wide_call(members))
            assert response.all("Access-Control-Allow-Origin") == [name]
            assert "origin" in vary_names(response)
        # responses that name an origin are stored for it alone
        site.assert_fetched_in_pieces()


def test_query_for_a_wide_range_reaches_the_node_as_posts(site, members, origin):
    site.warm_up("cors", DAPP)
    origin.requests.clear()
    response = site.post("cors", wide_call(members), DAPP, method="QUERY")
    site.assert_right(response, wide_call(members))
    assert response.header("Accept-Query") == "application/json"
    site.assert_fetched_in_pieces()
    assert {request.method for request in origin.received()} == {"POST"}
    # the same call as a POST
    hit = site.post("cors", wide_call(members), DAPP)
    site.assert_right(hit, wide_call(members))
    assert len(site.node.bodies) == len(RANGES)
    refused = site.post("cors", too_wide_call(members), DAPP, method="QUERY")
    assert error_of(refused) == TOO_WIDE
    assert refused.header("Cache-Control") == "no-cache"
    assert len(site.node.bodies) == len(RANGES)


@pytest.mark.parametrize("method", ["POST", "QUERY"])
def test_clients_without_the_password_get_no_logs_and_no_errors_of_the_range(site, members, origin, method):
    site.warm_up("basic", PASSWORD)
    origin.requests.clear()

    def assert_rejected():
        for body in (wide_call(members), too_wide_call(members)):
            for credentials in ([], [WRONG_PASSWORD]):
                rejected = site.post("basic", body, *credentials, method=method)
                assert rejected.status == 401
                assert b"jsonrpc" not in decoded(rejected)

    assert_rejected()
    assert not site.node.bodies
    for _ in range(2):
        site.assert_right(site.post("basic", wide_call(members), PASSWORD, method=method), wide_call(members))
        assert error_of(site.post("basic", too_wide_call(members), PASSWORD, method=method)) == TOO_WIDE
        assert_rejected()
    site.assert_fetched_in_pieces()
    assert [request.header("Authorization") for request in origin.received()] == [None] * len(RANGES)


def test_call_with_credentials_for_the_node_is_not_split_unless_they_are_in_the_key(site, members, origin):
    site.node = GuardedNode(site.chain)
    origin.answers(site.node)
    for path in ("/", "/keyed"):
        site.warm_up("forwarded", PASSWORD, path=path)
    site.assert_right(site.post("forwarded", wide_call(members), PASSWORD), wide_call(members))
    (single,) = site.node.bodies
    assert single == wide_call(members)
    # the pieces have the credentials of the client
    origin.requests.clear()
    site.assert_right(site.post("forwarded", wide_call(members), PASSWORD, path="/keyed"), wide_call(members))
    site.assert_fetched_in_pieces(since=1)
    assert [request.header("Authorization") for request in origin.received()] == [PASSWORD[1]] * len(RANGES)
    for credentials in ([], [WRONG_PASSWORD]):
        for path in ("/", "/keyed"):
            rejected = site.post("forwarded", wide_call(members), *credentials, path=path)
            assert (rejected.status, decoded(rejected)) == (401, UNAUTHORIZED)
    before = len(site.node.bodies)
    site.assert_right(site.post("forwarded", wide_call(members), PASSWORD, path="/keyed"), wide_call(members))
    assert len(site.node.bodies) == before


def test_authorization_service_is_queried_once_for_a_split_call(site, members, origin):
    def judge(request):
        return answer(status=204 if request.header("X-Api-Key") == "right" else 403, type=None)

    origin.answers(judge, "/judge")
    key = ("X-Api-Key", "right")
    site.warm_up("authorized", key)
    before = len(origin.received("/judge"))
    site.assert_right(site.post("authorized", wide_call(members), key), wide_call(members))
    site.assert_fetched_in_pieces()
    assert len(origin.received("/judge")) == before + 1
    for headers in ([], [("X-Api-Key", "wrong")]):
        for body in (wide_call(members), too_wide_call(members)):
            rejected = site.post("authorized", body, *headers)
            assert rejected.status == 403 and b"jsonrpc" not in decoded(rejected)
    site.assert_right(site.post("authorized", wide_call(members), key), wide_call(members))
    assert len(origin.received("/judge")) == before + 6
    assert len(site.node.bodies) == len(RANGES)


def test_split_call_counts_once_for_limits_of_requests_and_connections(site, members):
    users = [("X-User", f"user-{next(_numbers)}") for _ in range(2)]
    # requests without a user are not limited
    site.warm_up("limited")
    site.assert_right(site.post("limited", wide_call(members), users[0]), wide_call(members))
    site.assert_fetched_in_pieces()
    for body in (wide_call(members), too_wide_call(members)):
        limited = site.post("limited", body, users[0])
        assert limited.status == 429 and b"jsonrpc" not in decoded(limited)
    site.assert_right(site.post("limited", wide_call(members), users[1]), wide_call(members))
    assert len(site.node.bodies) == len(RANGES)


CODINGS = ["gzip, deflate, br, zstd", "br", "gzip", "identity"]


@pytest.mark.parametrize("accept", CODINGS)
def test_clients_receive_the_assembled_logs_in_a_coding_that_they_accept(site, members, accept):
    site.warm_up("plain")
    site.assert_right(site.post("plain", wide_call(members), ("Accept-Encoding", accept)), wide_call(members))
    site.assert_fetched_in_pieces()
    # hits of the entry and of a piece
    for other in CODINGS:
        for body in (wide_call(members), logs(PIECE * 2, PIECE * 3 - 1, members)):
            response = site.post("plain", body, ("Accept-Encoding", other))
            site.assert_right(response, body)
            coding = response.header("Content-Encoding")
            assert coding is None or coding in other
        error = site.post("plain", too_wide_call(members), ("Accept-Encoding", other))
        assert error_of(error) == TOO_WIDE


def assembles_without_node(site, server, members, *headers):
    """Sends calls for other ranges of final blocks, and returns whether one response was assembled
    without the node: workers store pieces at the owner in the background."""

    def is_assembled(first, last):
        body = logs(first, last, members)
        before = len(site.node.bodies)
        site.assert_right(site.post(server, body, *headers), body)
        return len(site.node.bodies) == before

    return any(is_assembled(first, last) for first, last in FINAL_RANGES)


def test_pieces_come_from_the_node_of_the_user_and_are_shared_by_both_halves(site, members, origin):
    halves = {}
    site.warm_up("halves")
    for number in range(64):
        user = ("X-User", str(number))
        halves[site.post("halves", call("eth_chainId"), user).header("X-Half")] = user
    assert halves.keys() == {"left", "right"}
    site.node.bodies.clear()
    for half, filter_members in (("left", members), ("right", new_filter(site.chain))):
        origin.requests.clear()
        since = len(site.node.bodies)
        body = wide_call(filter_members)
        site.assert_right(site.post("halves", body, halves[half]), body)
        site.assert_fetched_in_pieces(since=since)
        assert {request.header("X-Half") for request in origin.received()} == {half}
    assert assembles_without_node(site, "halves", members, halves["right"])


def test_chains_that_a_header_selects_have_pieces_of_their_own(site, members, origin):
    nodes = {"main": site.node, "other": RelayNode(site.other_chain)}
    origin.answers(lambda request: nodes[request.header("X-Chain")](request))
    chains = {"main": site.chain, "other": site.other_chain}
    for name in nodes:
        site.warm_up("chains", ("X-Chain", name))
    for node in nodes.values():
        node.bodies.clear()
    for name in ("main", "other", "main", "other"):
        for body in (wide_call(members), logs(FIRST + 1, '"latest"', members)):
            response = site.post("chains", body, ("X-Chain", name))
            site.assert_right(response, body, chains[name])
    for node in nodes.values():
        assert node.single_calls() == []
        assert set(RANGES) <= set(node.ranges())
    assert site.post("chains", wide_call(members)).status == 404
    assert site.post("chains", wide_call(members), ("X-Chain", "unknown")).status == 404


def test_call_is_split_where_a_condition_proxies_it(site, members):
    site.warm_up("if")
    site.assert_right(site.post("if", wide_call(members)), wide_call(members))
    assert error_of(site.post("if", too_wide_call(members))) == TOO_WIDE
    site.assert_fetched_in_pieces()
    page = fetch(site.server.ports["port_if"], "/")
    assert page.status == 200 and decoded(page) == b"<html>a page</html>"


def test_pieces_come_from_the_next_node_when_one_is_down(site, members):
    site.warm_up("pool")
    site.assert_right(site.post("pool", wide_call(members)), wide_call(members))
    site.assert_fetched_in_pieces()


def test_client_receives_the_error_page_when_all_nodes_fail(site, members, origin):
    site.warm_up("pool")
    origin.answers(answer(b"failed", status=503, type="text/plain"))
    failed = site.post("pool", wide_call(members))
    assert (failed.status, json.loads(decoded(failed))) == (503, UNAVAILABLE)
    origin.answers(site.node)
    site.assert_right(site.post("pool", wide_call(members)), wide_call(members))


def curl(site, body, *options, count=4):
    """The decoded bodies of concurrent responses over TLS and HTTP/2."""
    url = f"https://127.0.0.1:{site.server.ports['port_tls']}/"
    files = [site.server.prefix / f"out{number}" for number in range(count)]
    command = ["curl", "-sSk", "--fail", "--http2", "--parallel", "--compressed", "-H", "Content-Type: application/json"]
    command += ["-w", "%{http_version}\n", *options, "-d", body.decode()]
    for file in files:
        command += [url, "-o", str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2"] * count
    return [file.read_bytes() for file in files]


@pytest.mark.parametrize("options", [(), ("-X", "QUERY")], ids=["POST", "QUERY"])
def test_range_is_assembled_once_for_concurrent_streams_over_tls(site, members, options):
    site.warm_up("tls")
    expected = direct_response(site.chain, wide_call(members)).rstrip()
    assert [body.rstrip() for body in curl(site, wide_call(members), *options)] == [expected] * 4
    for body in curl(site, too_wide_call(members), *options):
        assert json.loads(body)["error"] == TOO_WIDE
    site.assert_fetched_in_pieces()


def test_coalesced_clients_of_all_workers_receive_the_response_of_one_split(site, members):
    site.warm_up("plain")
    bodies = [wide_call(members).replace(b'"id":1', b'"id":%d' % number) for number in range(1, 4 * WORKERS + 1)]
    responses = {}

    def send(body):
        responses[body] = site.post("plain", body)

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
    assert len({response.header("X-Worker") for response in responses.values()}) > 1
    site.assert_fetched_in_pieces()


def test_workers_share_the_pieces_of_different_ranges(site, members):
    site.warm_up("plain")
    workers = set()
    for first, last in FINAL_RANGES:
        body = logs(first, last, members)
        response = site.post("plain", body)
        site.assert_right(response, body)
        workers.add(response.header("X-Worker"))
    assert len(workers) > 1 and site.node.single_calls() == []
    # a worker may need a piece that another worker is just storing at the owner
    assert len(site.node.ranges()) < 2 * len(set(site.node.ranges()))


def blocks_with_logs(chain):
    """The hashes of blocks, each with the first topic of one of its logs."""
    numbers = range(FIRST, FINAL)
    calls = [call("eth_getBlockByNumber", f'["0x{number:x}",false]') for number in numbers]
    hashes = [block["hash"] for block in chain.honest(*calls)]
    bodies = [call("eth_getLogs", f'[{{"blockHash":"{block}"}}]') for block in hashes]
    found = zip(hashes, chain.honest(*bodies), strict=True)
    topics = ((block, [log["topics"][0] for log in block_logs if log["topics"]]) for block, block_logs in found)
    return [(block, block_topics[0]) for block, block_topics in topics if block_topics]


def test_workers_derive_logs_from_receipts_after_comparisons_of_their_own(site):
    site.node.change = lambda request, body: permissive_blooms(body)
    site.warm_up("cors", DAPP)
    blocks = blocks_with_logs(site.chain)[:30]
    for block, _ in blocks:
        stored = site.post("cors", call("eth_getBlockReceipts", f'["{block}"]'), DAPP)
        assert stored.status == 200
    calls = itertools.cycle(blocks)
    trusting = set()

    def is_derived(*headers):
        """Whether the response to a new call for logs comes from the receipts."""
        block, topic = next(calls)
        topics = json.dumps([[topic, f"0x{next(_numbers):064x}"]])
        body = call("eth_getLogs", f'[{{"blockHash":"{block}","topics":{topics}}}]')
        before = len(site.node.bodies)
        response = site.post("cors", body, DAPP, *headers)
        site.assert_right(response, body)
        assert response.all("Access-Control-Allow-Origin") == [DAPP[1]]
        if len(site.node.bodies) > before:
            return False
        trusting.add(int(response.header("X-Worker")))
        return True

    site.server.wait_for(lambda: is_derived() and trusting == set(site.server.workers()), "derived logs of all workers")
    for accept in CODINGS:
        # one call of 256 is still compared
        assert any(is_derived(("Accept-Encoding", accept)) for _ in range(4))

"""Configurations of the kinds that are published for Ethereum nodes behind nginx, on two machines
that share a fleet: values of the other machine are served as responses of the own node are."""

import itertools
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from certificates import Certificates
from machines import balance, receipts
from published_site import (
    CLIENTS,
    CODINGS,
    JSON,
    METHOD,
    SERVERS,
    VARYING,
    configured_pair,
    exchange,
    new_calls,
    node_requests,
    requested,
    result,
    store,
    value_names,
)

from harness.client import Connection, request_bytes
from harness.rpc import call
from test_third_party_modules import modules
from tiers import times

CONNECTIONS = 32


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def site(file_world, certificates):
    redis = file_world.redis()
    chain, other = file_world.chain(final_blocks=60), file_world.chain("--seed", "9")
    config = SERVERS.replace("@certificate@", str(certificates.certificate))
    config = config.replace("@certificate_key@", str(certificates.key))
    main = modules("ngx_http_brotli_filter_module")
    a, b = configured_pair(file_world, redis, chain, config, others={"other": other}, main=main)
    return a, b, redis


@pytest.fixture(scope="module")
def accounts():
    """Numbers of accounts, each for one call."""
    return itertools.count(1)


@pytest.mark.parametrize("server", CLIENTS)
def test_fleet_hits_behind_published_configurations_equal_the_responses_of_the_node(site, accounts, server):
    a, b, redis = site
    number = a.chain.final - list(CLIENTS).index(server)
    calls = [receipts(number), *new_calls(a, accounts, 7)]
    expected = store(a, redis, server, CLIENTS[server][0], calls)
    before, hits_before = node_requests(b), b.fleet.hits
    for turn, (body, honest) in enumerate(zip(calls * 2, expected * 2, strict=True)):
        client = CLIENTS[server][turn % len(CLIENTS[server])]
        response = exchange(b, server, body, [*client, *CODINGS[turn % len(CODINGS)]])
        assert result(response) == honest, (body, client)
        headers = dict(client)
        assert response.header("Access-Control-Allow-Origin") == headers.get("Origin")
        assert response.header("X-Request-User") == headers.get("X-User")
    assert node_requests(b) == before
    assert b.fleet.hits == hits_before + len(calls)


def test_brotli_compresses_values_of_the_fleet_for_clients_without_gzip(site, accounts):
    a, b, redis = site
    body = receipts(a.chain.final - 30)
    (honest,) = store(a, redis, "port_coders", [], [body])
    codings = {}
    for accept in ("br", "gzip", "gzip, deflate, br, zstd"):
        response = exchange(b, "port_coders", body, [("Accept-Encoding", accept)])
        assert result(response) == honest
        codings[accept] = response.coding
    assert codings == {"br": "br", "gzip": "gzip", "gzip, deflate, br, zstd": "gzip"}


def test_value_of_the_fleet_is_denied_to_a_caller_whose_key_is_rejected(site, accounts):
    a, b, redis = site
    (body,) = new_calls(a, accounts, 1)
    store(a, redis, "port_keys", [("X-Api-Key", "first-key")], [body])
    for key in ([], [("X-Api-Key", "a-wrong-key")]):
        assert exchange(b, "port_keys", body, key).status == 403
    assert requested(b, "port_keys", body, [("X-Api-Key", "second-key")]) == 0
    assert exchange(b, "port_keys", body).status == 403


def test_origin_that_is_not_allowed_gets_no_permission_for_a_value_of_the_fleet(site, accounts):
    a, b, redis = site
    (body,) = new_calls(a, accounts, 1)
    store(a, redis, "port_cors", CLIENTS["port_cors"][0], [body])
    response = exchange(b, "port_cors", body, [("Origin", "https://other.test")])
    assert result(response) is not None and response.header("Access-Control-Allow-Origin") is None
    preflight = exchange(b, "port_cors", None, CLIENTS["port_cors"][1], method="OPTIONS")
    assert (preflight.status, preflight.header("Access-Control-Allow-Origin")) == (204, "https://b.dapp.test")


def test_image_of_a_location_with_calls_is_not_replaced_by_a_value(site, accounts):
    a, b, redis = site
    (body,) = new_calls(a, accounts, 1)
    store(a, redis, "port_if", [], [body])
    assert requested(b, "port_if", body) == 0
    assert exchange(b, "port_if", None, method="GET").body.startswith(b"GIF8")


def test_chains_of_a_gateway_that_routes_by_header_do_not_share_values(site, accounts):
    a, b, redis = site
    chains = {"main": a.chain, "other": a.others["other"]}
    # both chains have the block as final
    number = min(chain.final for chain in chains.values()) - 5
    body = balance(number, next(accounts))
    results = {}
    for name, chain in chains.items():
        (results[name],) = chain.honest(body)
        names = value_names(redis)
        assert result(exchange(a, "port_gateway", body, [("X-Chain", name)])) == results[name]
        a.wait_for(lambda names=names: value_names(redis) - names, "a value")
    assert results["main"] != results["other"]
    before = {name: chain.count(METHOD) for name, chain in chains.items()}
    for name in ("other", "main", "other"):
        assert result(exchange(b, "port_gateway", body, [("X-Chain", name)])) == results[name]
    assert {name: chain.count(METHOD) for name, chain in chains.items()} == before


def test_entries_of_tenants_are_not_shared_between_machines(site, accounts):
    """The key of such an entry has the caller's header."""
    a, b, redis = site
    (body,) = new_calls(a, accounts, 1)
    names = value_names(redis)
    lookups = a.fleet.lookups(), b.fleet.lookups()
    tenants = [(a, "first-key"), (b, "second-key"), (b, "first-key"), (a, "second-key")]
    for machine, key in tenants:
        assert requested(machine, "port_tenants", body, [("X-Api-Key", key)]) == 1, key
    for machine, key in tenants:
        # a worker sends entries to the owner in the background
        client = [("X-Api-Key", key)]
        machine.wait_for(lambda m=machine, c=client: requested(m, "port_tenants", body, c) == 0, f"a hit of {key}")
    assert (a.fleet.lookups(), b.fleet.lookups()) == lookups
    # the queue of stores has an order: values of the tenants would be stored before
    for machine in (a, b):
        (later,) = new_calls(machine, accounts, 1)
        store(machine, redis, "port", [], [later])
    assert len(value_names(redis) - names) == 2


def test_clients_over_http2_and_tls_get_values_of_the_fleet(site, accounts, certificates, tmp_path):
    a, b, redis = site
    calls = [receipts(a.chain.final - 31), *new_calls(a, accounts, 11)]
    expected = store(a, redis, "port", [], calls)
    before = b.chain.count(METHOD)
    url = f"https://127.0.0.1:{b.server.ports['port_tls']}/"
    command = ["curl", "--parallel"]
    for number, body in enumerate(calls):
        command += ["--next"] if number else []
        command += ["-sS", "--fail", "--http2", "--compressed", "--cacert", certificates.ca, "-H", ": ".join(JSON)]
        command += ["-o", tmp_path / str(number), "-w", "%{http_version} %{response_code}\n"]
        command += ["--data-binary", body.decode(), url]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["2 200"] * len(calls)
    results = [json.loads((tmp_path / str(number)).read_bytes())["result"] for number in range(len(calls))]
    assert results == expected
    assert b.chain.count(METHOD) == before


# load


def send_calls(machine, visits):
    """Sends calls on connections that are kept open; returns the responses that are wrong."""
    connections, wrong = {}, []
    try:
        for server, headers, body, honest in visits:
            if server not in connections:
                connections[server] = Connection(machine.server.ports[server])
            connection = connections[server]
            connection.send(request_bytes("/", method="POST", headers=[JSON, *headers], body=body))
            response = connection.read("POST")
            if result(response) != honest:
                wrong.append((server, headers, body, response.decoded))
            if response.header("Connection") == "close":
                connection.close()
                del connections[server]
    finally:
        for connection in connections.values():
            connection.close()
    return wrong


def visits_of(calls, expected):
    """Each call on a server of its own, by any client of it."""
    servers = list(CLIENTS)
    for number, (body, honest) in enumerate(zip(calls, expected, strict=True)):
        server = servers[number % len(servers)]
        clients = CLIENTS[server]
        yield server, clients[number // len(servers) % len(clients)], body, honest


def send_concurrently(machine, visits):
    """Sends calls on CONNECTIONS connections at a time; all responses must be right."""
    parts = [visits[number::CONNECTIONS] for number in range(CONNECTIONS)]
    with ThreadPoolExecutor(max_workers=CONNECTIONS) as clients:
        wrong = sum(clients.map(lambda part: send_calls(machine, part), parts), [])
    assert wrong == [], (len(wrong), wrong[:3])


def test_responses_under_load_equal_those_of_the_node_when_values_arrive_from_the_fleet(site, accounts):
    a, b, redis = site
    workers = set(b.server.workers())
    for _ in range(times(1, 8)):
        calls = new_calls(a, accounts, 448)
        calls += [call("eth_getBlockTransactionCountByNumber", f'["0x{a.chain.final - n:x}"]') for n in range(32)]
        visits = list(visits_of(calls, a.chain.honest(*calls)))
        names = value_names(redis)
        send_concurrently(a, visits)
        # a busy machine may drop some: the test needs most of them
        a.wait_for(lambda names=names: len(value_names(redis) - names) > 400, "values of the fleet")
        before, hits_before = b.chain.count(METHOD), b.fleet.hits
        # twice: entries of the fleet, and entries that the second machine has received from it
        send_concurrently(b, visits * 2)
        hits = b.fleet.hits - hits_before
        print(f"{hits} of {len(calls)} calls were hits of the fleet")
        assert hits > 300
        assert b.chain.count(METHOD) - before < 100
    assert set(b.server.workers()) == workers


# responses that vary, on machines of their own: the other servers would learn of the headers


@pytest.mark.thorough("two machines of their own")
def test_values_that_vary_by_origin_have_the_header_of_the_same_origin(world):
    redis = world.redis()
    chain = world.chain(final_blocks=60)
    a, b = configured_pair(world, redis, chain, VARYING)
    accounts = itertools.count(1)
    hits_before = b.fleet.hits

    def is_hit():
        """Each worker learns from a response by which header the responses vary."""
        (body,) = new_calls(a, accounts, 1)
        (honest,) = chain.honest(body)
        for machine, name in [(a, "a"), (b, "a"), (b, "b"), (a, "b"), (b, "b")]:
            origin = f"https://{name}.dapp.test"
            response = exchange(machine, "port_cors", body, [("Origin", origin)])
            assert result(response) == honest
            assert response.header("Access-Control-Allow-Origin") == origin
        return b.fleet.hits >= hits_before + 20

    b.wait_for(is_hit, "20 hits of the fleet")


@pytest.mark.thorough("two machines of their own")
def test_values_that_vary_by_a_key_of_the_caller_are_not_shared(world):
    redis = world.redis()
    chain = world.chain(final_blocks=60)
    a, b = configured_pair(world, redis, chain, VARYING)
    accounts = itertools.count(1)
    bodies = new_calls(a, accounts, 60)
    honest = chain.honest(*bodies)
    for body, expected in zip(bodies, honest, strict=True):
        for machine, key in [(a, "first-key"), (b, "second-key"), (b, "first-key"), (a, "second-key")]:
            response = exchange(machine, "port_tenants", body, [("X-Api-Key", key)])
            assert result(response) == expected
            assert response.header("Access-Control-Allow-Origin") == f"https://{key}.test"
    # browsers have keys of their own: the workers know of no header by which these responses vary
    for machine in (a, b):
        store(machine, redis, "port", [("Origin", "https://a.dapp.test")], new_calls(machine, accounts, 1))
    # the queue of stores has an order: values of the tenants would be stored before
    assert len(value_names(redis)) == 2
    assert a.fleet.hits == b.fleet.hits == 0

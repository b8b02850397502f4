"""A namespace whose node responds for another chain is not cached, in any worker or sandbox, until
it is purged."""

import json

import pytest

from harness import client, hosts
from harness.chain import Chain
from harness.origin import answer
from harness.owner import Owner, owner_of, wait_until_linked
from harness.rpc import call
from harness.fixtures import starting

JSON = ("Content-Type", "application/json")
CHAIN_ID = call("eth_chainId")
FIRST_BLOCK = call("eth_getBlockByNumber", '["0x0",false]')
GENESIS = "/eth/v1/beacon/genesis"
CHAINS = {"eth": b'"0x1"', "polygon": b'"0x89"'}
STORE = {"max_size": "64m", "memory": "16m"}


def wrong_chain_pattern(detail):
    return rf'a node of namespace "main" is on another chain \({detail}\)'


def gateway(request):
    """A node for the chain that a request header names."""
    result = CHAINS[request.header("Target-Service-Id") or "eth"]
    body = b'{"jsonrpc":"2.0","id":1,"result":%b}' % result
    return answer(body, type="application/json")


def send(server, chain, path="/"):
    return server.fetch(path, CHAIN_ID, headers=[("Target-Service-Id", chain)])


def purge(server, scope="namespace=main"):
    response = client.fetch(server.port, f"/purge?{scope}", method="POST", body=b"")
    assert response.status == 200


class Servers:
    """Starts servers with a store; for sandboxes the store is a daemon's."""

    def __init__(self, host, origin):
        self.host, self.origin = host, origin
        self.owners = []

    def make(self, follow=None, interval="100ms", workers=2, **settings):
        """A server; `follow`: URL and API of the node that namespace `main` follows."""
        url, api = follow or (None, None)
        places = {
            "/purge": {"cache_purge": True},
            "/other": {"cache_namespace": "other"},
            "/": {"cache_namespace": "main", **settings},
        }
        general, options = {"cache": True}, {}
        if self.host == "wasm":
            head = {"namespace": "main", "url": url, "api": api, "interval": interval}
            self.owners.append(Owner([head] if follow else [], **STORE).start())
            options["owner"] = self.owners[-1]
        else:
            general["cache_path"] = "@prefix@/cache " + " ".join(f"{name}={size}" for name, size in STORE.items())
            if follow:
                places["/"]["cache_head"] = f"{url} api={api} interval={interval}"
        if self.host != "nginx":
            options["http"] = {"delayed_close_timeout": "0.01s"}
        return hosts.server(self.host, self.origin, places, general, workers=workers, **options)

    def close(self):
        for owner in self.owners:
            owner.close()


@pytest.fixture
def start_unlinked(host, origin):
    servers = Servers(host, origin)
    try:
        yield from starting(servers.make)
    finally:
        servers.close()


@pytest.fixture
def start(host, start_unlinked):
    def start(**settings):
        server = start_unlinked(**settings)
        if host != "wasm":
            wait_until_linked(server)
        return server

    return start


def owner(server):
    return getattr(server, "owner", None) or owner_of(server)


def wait_until_suspended(server):
    def is_suspended():
        return all("wrong-chain" in send(server, chain).header("Cache-Status") for chain in CHAINS for _ in range(8))

    server.wait_for(is_suspended, "all workers to know")


def wait_for_hits(server, chain, path="/"):
    def are_hits():
        return all("; hit" in send(server, chain, path).header("Cache-Status") for _ in range(8))

    server.wait_for(are_hits, f"hits of {chain} at {path}")


def test_namespace_of_a_wrong_chain_is_suspended_in_all_workers_until_it_is_purged(start, origin):
    origin.answers(gateway)
    server = start()
    server.expect(wrong_chain_pattern("eth_chainId was 1, now 137"))
    for _ in range(4):
        assert send(server, "eth", "/other").decoded.endswith(b'"0x1"}')
        assert send(server, "eth").decoded.endswith(b'"0x1"}')
    # the first response of the other chain comes from the node, and is right
    assert send(server, "polygon").decoded.endswith(b'"0x89"}')
    wait_until_suspended(server)
    for chain, result in CHAINS.items():
        assert send(server, chain).decoded.endswith(result + b"}")
    # the other namespace is cached, once each worker has recorded these headers
    wait_for_hits(server, "eth", "/other")
    assert owner(server).status()["suspended"] == 1
    purge(server)
    wait_for_hits(server, "polygon")
    assert owner(server).status()["suspended"] == 0


def genesis(root):
    """A node's response about the genesis of the chain with this root of its validators."""
    data = {"genesis_time": "1", "genesis_validators_root": f"0x{root * 32}", "genesis_fork_version": "0x00000000"}
    return answer(json.dumps({"data": data}).encode())


def test_purge_of_other_entries_does_not_hide_another_chain(start, origin):
    server = start(workers=1)
    server.expect(wrong_chain_pattern("genesis_validators_root was 0x01010101…, now 0x02020202…"))
    # from here on the worker has a session at the owner, and knows no chain
    server.wait_for(lambda: client.fetch(server.port, "/purge?everything", method="POST", body=b"").status == 200, "a purge")
    origin.answers(genesis("01"))
    first = server.fetch(GENESIS)
    server.wait_for(lambda: "; hit" in server.fetch(GENESIS).header("Cache-Status"), "a hit")
    for scope in ("method=eth_call", f"key={'00' * 32}", "namespace=other"):
        purge(server, scope)
    origin.answers(genesis("02"))
    assert server.fetch(GENESIS + "?other").decoded != first.decoded
    server.wait_for(lambda: "wrong-chain" in server.fetch(GENESIS).header("Cache-Status"), "the worker to know")
    assert server.fetch(GENESIS).decoded != first.decoded


@pytest.mark.hosts("nginx")
def test_reload_ends_the_suspension(start, origin):
    origin.answers(gateway)
    nginx = start()
    nginx.expect(wrong_chain_pattern("eth_chainId was 1, now 137"))
    assert send(nginx, "eth").status == 200
    assert send(nginx, "polygon").status == 200
    wait_until_suspended(nginx)
    nginx.reload()
    wait_until_linked(nginx)
    wait_for_hits(nginx, "eth")


@pytest.fixture
def followed():
    """The followed node, of chain 1."""
    chain = Chain()
    yield chain
    chain.stop()


@pytest.fixture
def other():
    """A node of another chain."""
    chain = Chain()
    chain.do({"replace": {"seed": 9, "chain_id": 137}})
    yield chain
    chain.stop()


def forwarding(chain):
    """A node with the responses of `chain`."""

    def forward(request):
        headers = [JSON] if request.method == "POST" else []
        body = request.body or None
        response = client.fetch(chain.port, request.target, method=request.method, headers=headers, body=body)
        return answer(response.decoded)

    return forward


def wait_until_followed(server):
    def is_followed():
        return [chain["state"] for chain in owner(server).status()["chains"]] == ["following"]

    server.wait_for(is_followed, "the chain to be followed")


IDENTITIES = {
    "chain-id": ("execution", "/", CHAIN_ID, "eth_chainId is 1 on .*, and 137 on this one"),
    "block-0": ("execution", "/", FIRST_BLOCK, r"block 0 is 0x\w{8}… on .*, and 0x\w{8}… on this one"),
    "beacon": ("beacon", GENESIS, None, r"genesis_validators_root is 0x\w{8}… on .*, and 0x\w{8}… on this one"),
}


CORE_COMPARES = pytest.mark.wasm_thorough("the core compares the identities of chains")


@pytest.mark.parametrize(
    "identity",
    ["chain-id", pytest.param("block-0", marks=CORE_COMPARES), pytest.param("beacon", marks=CORE_COMPARES)],
)
def test_namespace_is_suspended_when_the_first_response_differs_from_the_followed_chain(start, followed, other, origin, identity):
    api, path, body, detail = IDENTITIES[identity]
    origin.answers(forwarding(other))
    server = start(follow=(f"http://{followed.address}", api))
    wait_until_followed(server)
    server.expect(wrong_chain_pattern(detail))

    def send(path=path):
        return server.fetch(path, body)

    first = send()
    assert "wrong-chain" not in first.header("Cache-Status")
    server.wait_for(lambda: all("wrong-chain" in send().header("Cache-Status") for _ in range(8)), "all workers to know")
    assert send().decoded == first.decoded
    assert owner(server).status()["suspended"] == 1
    # the operator has corrected the route to the node
    origin.answers(forwarding(followed))
    purge(server)
    server.wait_for(lambda: all("; hit" in send().header("Cache-Status") for _ in range(8)), "hits")
    assert send().decoded != first.decoded


@pytest.mark.wasm_thorough("the daemon follows the chain; the other tests purge a suspended namespace")
def test_purge_resets_the_namespace_to_the_present_chain_of_its_node(start, followed, origin):
    """The node is replaced between two polls: it was never unreachable, and no poll detects it."""
    origin.answers(forwarding(followed))
    server = start(follow=(f"http://{followed.address}", "execution"), interval="1s")
    wait_until_followed(server)
    # a poll may occur at that time all the same
    server.expect("the node has another chain")
    server.wait_for(lambda: all("; hit" in server.fetch("/", CHAIN_ID).header("Cache-Status") for _ in range(8)), "hits")
    followed.do({"replace": {"seed": 9, "chain_id": 137}})
    purge(server)

    def is_cached(body, expected):
        responses = [server.fetch("/", body) for _ in range(8)]
        results = [json.loads(response.decoded)["result"] for response in responses]
        return results == [expected] * 8 and all("; hit" in one.header("Cache-Status") for one in responses)

    for body in (CHAIN_ID, FIRST_BLOCK):
        (expected,) = followed.honest(body)
        server.wait_for(lambda body=body, expected=expected: is_cached(body, expected), "hits of the new chain")
    assert owner(server).status()["suspended"] == 0


@pytest.mark.wasm_thorough("test_namespaces has a header in the key, which the core reads")
def test_namespace_is_not_suspended_when_a_keyed_header_chooses_the_chain(start, followed, origin):
    origin.answers(gateway)
    settings = {"cache_credentials": "key Target-Service-Id"}
    server = start(follow=(f"http://{followed.address}", "execution"), **settings)
    wait_until_followed(server)
    for chain in CHAINS:
        wait_for_hits(server, chain)

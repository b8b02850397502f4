"""A namespace whose node answers for another chain is not cached, in any worker, until it is
purged."""

import pytest

from harness import client
from harness.chain import Chain
from harness.origin import answer
from harness.owner import owner_of, wait_until_linked
from harness.rpc import call
from harness.status import metrics

CONFIG = """
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
sszip on;
sszip_cache on;
log_format reasons '$sszip_cache_reason';
server {
    listen 127.0.0.1:@port@;
    access_log @prefix@/reasons.log reasons;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
    location /other { sszip_cache_namespace other; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
    location = /status { sszip_status on; }
}
"""
LINE = r'the node of namespace "main" answers for another chain \(eth_chainId was 1, now 137\)'
CHAINS = {"eth": b'"0x1"', "polygon": b'"0x89"'}


def gateway(request):
    """A node for the chain that a request header names."""
    result = CHAINS[request.header("Target-Service-Id") or "eth"]
    body = b'{"jsonrpc":"2.0","id":1,"result":%b}' % result
    return answer(body, type="application/json")


def ask(nginx, chain, path="/"):
    fields = [("Content-Type", "application/json"), ("Target-Service-Id", chain)]
    body = call("eth_chainId")
    return client.fetch(nginx.port, path, method="POST", headers=fields, body=body)


@pytest.fixture
def nginx(start_nginx, origin):
    origin.answers(gateway)
    nginx = start_nginx(CONFIG, workers=2)
    wait_until_linked(nginx)
    return nginx


def test_namespace_is_suspended_in_all_workers_until_it_is_purged(nginx):
    nginx.expect(LINE)
    for _ in range(4):
        assert ask(nginx, "eth", "/other").decoded.endswith(b'"0x1"}')
        assert ask(nginx, "eth").decoded.endswith(b'"0x1"}')
    # the first answer for the other chain is the node's, and right
    assert ask(nginx, "polygon").decoded.endswith(b'"0x89"}')
    nginx.wait_for(
        lambda: all(
            "wrong-chain" in ask(nginx, chain).header("Cache-Status")
            for chain in ("eth", "polygon")
            for _ in range(8)
        ),
        "all workers to know",
    )
    for chain, result in CHAINS.items():
        assert ask(nginx, chain).decoded.endswith(result + b"}")
    # other namespaces are not concerned, once each worker has seen these headers
    nginx.wait_for(
        lambda: "hit" in ask(nginx, "eth", "/other").header("Cache-Status"), "a hit elsewhere"
    )
    assert metrics(nginx)["sszip_cache_reasons_total", "wrong-chain"] > 8
    assert metrics(nginx)["sszip_owner_suspended_namespaces",] == 1
    assert metrics(nginx)["sszip_owner_links",] == 2
    purge = client.fetch(nginx.port, "/purge?namespace=main", method="POST", body=b"")
    assert purge.status == 200
    nginx.wait_for(
        lambda: all("hit" in ask(nginx, "polygon").header("Cache-Status") for _ in range(8)),
        "the namespace to be cached again",
    )
    assert metrics(nginx)["sszip_owner_suspended_namespaces",] == 0


def test_reload_turns_the_cache_on_again(nginx):
    nginx.expect(LINE)
    assert ask(nginx, "eth").status == 200
    assert ask(nginx, "polygon").status == 200
    nginx.wait_for(
        lambda: "wrong-chain" in ask(nginx, "eth").header("Cache-Status"), "it to be suspended"
    )
    nginx.reload()
    wait_until_linked(nginx)
    nginx.wait_for(lambda: "hit" in ask(nginx, "eth").header("Cache-Status"), "a hit")


FOLLOWED = """
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
sszip on;
sszip_cache on;
server {
    listen 127.0.0.1:@port@;
    location / {
        sszip_cache_namespace main;
        sszip_cache_head http://@head@ interval=100ms;
        %s
        proxy_pass http://@origin@;
    }
    location = /purge { sszip_cache_purge on; }
}
"""


@pytest.fixture
def chain():
    """The node of chain 1 that is followed."""
    chain = Chain()
    yield chain
    chain.stop()


def start_following(start_nginx, chain, origin, setting=""):
    origin.answers(gateway)
    nginx = start_nginx(FOLLOWED.replace("@head@", chain.address) % setting, workers=2)
    wait_until_linked(nginx)
    owner = owner_of(nginx)
    nginx.wait_for(
        lambda: [said["state"] for said in owner.status()["chains"]] == ["following"],
        "the chain to be followed",
    )
    return nginx


def is_hit_everywhere(nginx, name):
    return all("hit" in ask(nginx, name).header("Cache-Status") for _ in range(8))


def test_first_answer_is_of_another_chain_than_the_followed_node(start_nginx, chain, origin):
    nginx = start_following(start_nginx, chain, origin)
    nginx.expect(
        r'the node of namespace "main" answers for another chain '
        r"\(eth_chainId is 1 on the node of sszip_cache_head, and 137 here\)"
    )
    assert ask(nginx, "polygon").decoded.endswith(b'"0x89"}')
    nginx.wait_for(
        lambda: all("wrong-chain" in ask(nginx, name).header("Cache-Status") for name in CHAINS for _ in range(8)),
        "all workers to know",
    )
    purge = client.fetch(nginx.port, "/purge?namespace=main", method="POST", body=b"")
    assert purge.status == 200
    nginx.wait_for(lambda: is_hit_everywhere(nginx, "eth"), "the namespace to be cached again")


def test_keyed_header_may_choose_another_chain_than_the_followed_one(start_nginx, chain, origin):
    nginx = start_following(start_nginx, chain, origin, "sszip_cache_credentials key Target-Service-Id;")
    for name in CHAINS:
        nginx.wait_for(lambda name=name: is_hit_everywhere(nginx, name), f"hits of {name}")

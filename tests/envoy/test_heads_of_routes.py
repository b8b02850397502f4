"""Head sources of routes, which are known after the filter's."""

import contextlib

import pytest

from harness.chain import Chain
from harness.envoy import Envoy, address, cluster, route
from harness.owner import owner_of, wait_until_linked

NAMESPACE = {"cache_namespace": "main"}


@pytest.mark.parametrize("of_filter, of_route", [({}, NAMESPACE), (NAMESPACE, {})], ids=["route", "filter"])
def test_head_is_followed_when_the_route_or_the_filter_sets_the_namespace(of_filter, of_route):
    chain = Chain()
    settings = {"cache": True, "cache_path": "@prefix@/cache max_size=64m", **of_filter}
    own = {"cache_head": f"http://{chain.address} interval=100ms", **of_route}
    envoy = Envoy([route("/", own)], settings=settings, clusters=[cluster("node", address(chain.port))])
    try:
        envoy.start()
        wait_until_linked(envoy)
        envoy.get("/")

        def is_followed():
            with contextlib.suppress(OSError, AssertionError, ValueError):
                chains = owner_of(envoy).status()["chains"]
                return chains and chains[0]["state"] == "following"

        envoy.wait_for(is_followed, "the chain to be followed")
    finally:
        envoy.stop()
        chain.stop()

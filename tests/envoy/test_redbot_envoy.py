"""REDbot (redbot.org) on answers through Envoy, as on nginx's."""

from harness import linting
from harness.envoy import route

HOSTS = ("native", "wasm")


def test_nothing_is_worse_than_at_the_node(start_envoy, origin):
    origin.answers(linting.node)
    places = {"/held": {}, "/at-once": {"hold": "0"}, "/cached": {"cache": True}}
    routes = [route(f"{at}/", said, prefix_rewrite="/") for at, said in places.items()]
    types = ["application/json", "text/html", "application/octet-stream"]
    settings = {"types": types, "ssz": True, "ssz_preset": "mainnet"}
    # a client that reads to the end of the connection
    http = {"delayed_close_timeout": "0s"}
    envoy = start_envoy(routes, settings=settings, http=http)
    assert linting.faults(origin, envoy.port, places) == []

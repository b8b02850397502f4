"""Split batches against random nodes, on Envoy."""

from harness import split_batches
from harness.envoy import route

HOSTS = ("native", "wasm")


def test_each_call_has_one_answer_whatever_the_node_sends(start_envoy, origin, cache_directory):
    routes = [
        route(path, {**split_batches.SETTINGS, **settings})
        for path, settings in split_batches.PATHS.items()
    ]
    envoy = start_envoy(routes)
    parsers = split_batches.parsers(cache_directory)
    split_batches.run_all(envoy, origin, parsers, ends_early=False)

"""Split batches against random nodes, on each host."""

import pytest

from harness import split_batches

pytestmark = pytest.mark.carried("the core decides what becomes of a batch")


def test_calls_of_a_split_batch_have_one_response_each(host, start_server, origin, cache_directory):
    places = {path: {**split_batches.SETTINGS, **more} for path, more in split_batches.PATHS.items()}
    server = start_server(places)
    parsers = split_batches.parsers(cache_directory)
    split_batches.run_all(server, origin, parsers, ends_early=host == "nginx")

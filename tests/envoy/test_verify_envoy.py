"""`verify`: the rows of test_verify.py where the host has a hand in them."""

import json

import pytest

from harness import client
from harness.envoy import route
from test_verify import Verified
from test_verify import test_a_node_that_does_not_answer_proves_nothing as silent
from test_verify import test_a_slow_node_holds_nobody_up as slow
from test_verify import test_batches_that_came_gzipped as gzipped
from test_verify import test_every_call_of_many_batches_has_its_turn as turns
from test_verify import test_nothing_is_asked_where_that_is_not_said as never
from test_verify import test_one_call_of_a_batch as one_call
from test_verify import test_pages_too as pages
from test_verify import test_something_else as other
from test_verify import test_the_same as same
from test_verify import test_what_is_wrong_is_purged as purged

test_the_same = same
test_something_else = other
test_what_is_wrong_is_purged = purged
test_a_node_that_does_not_answer_proves_nothing = silent
test_a_slow_node_holds_nobody_up = slow
test_pages_too = pages
test_one_call_of_a_batch = one_call
test_batches_that_came_gzipped = gzipped
test_every_call_of_many_batches_has_its_turn = turns
test_nothing_is_asked_where_that_is_not_said = never

SETTINGS = {"cache": True, "cache_valid": ["tip 1h", "immutable 1h"]}
ROUTES = [
    route("/status", {"status": True}),
    route("/purge/", {"verify": "100% purge"}),
    route("/never/", {"verify": "off"}),
    route("/", {"verify": "100%"}),
]


def told(port):
    # what was verified Envoy counts with the next request of a client
    client.fetch(port, "/never/counts")
    return json.loads(client.fetch(port, "/status?format=json").decoded)["verified"]


@pytest.fixture(scope="module")
def nginx(start_envoy):
    """For the rows: it is Envoy."""
    return start_envoy(ROUTES, settings=SETTINGS, workers=3)


@pytest.fixture
def place(nginx, origin):
    return lambda path="/": Verified(nginx, origin, lambda: told(nginx.port), path)

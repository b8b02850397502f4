"""`verify`: the rows of test_verify.py that depend on the host."""

import json

import pytest

from harness import client
from harness.envoy import route
from test_verify import Verified
from test_verify import test_failed_request_is_counted_as_unanswered as silent
from test_verify import test_client_does_not_wait_for_the_verification as slow
from test_verify import test_call_of_a_compressed_batch_is_verified as gzipped
from test_verify import test_calls_of_batches_are_verified_in_turn as turns
from test_verify import test_hits_are_not_verified_by_default as never
from test_verify import test_single_call_of_a_batch_is_verified as one_call
from test_verify import test_hits_of_resources_are_verified as pages
from test_verify import test_different_result_is_counted_logged_and_kept as other
from test_verify import test_equal_result_is_counted_as_same as same
from test_verify import test_different_result_is_purged_when_configured as purged

test_equal_result_is_counted_as_same = same
test_different_result_is_counted_logged_and_kept = other
test_different_result_is_purged_when_configured = purged
test_failed_request_is_counted_as_unanswered = silent
test_client_does_not_wait_for_the_verification = slow
test_hits_of_resources_are_verified = pages
test_single_call_of_a_batch_is_verified = one_call
test_call_of_a_compressed_batch_is_verified = gzipped
test_calls_of_batches_are_verified_in_turn = turns
test_hits_are_not_verified_by_default = never

SETTINGS = {"cache": True, "cache_valid": ["tip 1h", "immutable 1h"]}
ROUTES = [
    route("/status", {"status": True}),
    route("/purge/", {"verify": "100% purge"}),
    route("/never/", {"verify": "off"}),
    route("/", {"verify": "100%"}),
]


def verdict_counts(port):
    # Envoy counts verdicts with the next request of a client
    client.fetch(port, "/never/counts")
    return json.loads(client.fetch(port, "/status?format=json").decoded)["verified"]


@pytest.fixture(scope="module")
def nginx(start_envoy):
    """Envoy, under the name that the rows use."""
    return start_envoy(ROUTES, settings=SETTINGS, workers=3)


@pytest.fixture
def place(nginx, origin):
    return lambda path="/": Verified(nginx, origin, lambda: verdict_counts(nginx.port), path)

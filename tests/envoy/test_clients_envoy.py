"""Third-party clients of the Beacon API on Envoy: they receive and send the same values as on
nginx."""

import pytest

from harness.envoy import route
from test_clients import (
    golang_client,
    lodestar,
    values_by_fork,
    python,
    specified,
    test_go_client_decodes_values_of_the_node_and_of_the_cache,
    test_go_client_publishes_and_gets_the_error_of_the_node,
    test_python_client_decodes_values_of_the_node_and_of_the_cache,
    test_python_client_gets_the_error_of_the_node,
    test_submissions_of_a_python_client_reach_the_node_as_json,
    test_lodestar_decodes_values_of_the_node_and_of_the_cache,
    test_lodestar_gets_the_error_of_the_node,
    test_submissions_of_lodestar_reach_the_node_as_json,
)

# pytest finds the fixtures and tests by these names
__all__ = [
    "golang_client",
    "lodestar",
    "values_by_fork",
    "python",
    "specified",
    "test_go_client_decodes_values_of_the_node_and_of_the_cache",
    "test_go_client_publishes_and_gets_the_error_of_the_node",
    "test_python_client_decodes_values_of_the_node_and_of_the_cache",
    "test_python_client_gets_the_error_of_the_node",
    "test_submissions_of_a_python_client_reach_the_node_as_json",
    "test_lodestar_decodes_values_of_the_node_and_of_the_cache",
    "test_lodestar_gets_the_error_of_the_node",
    "test_submissions_of_lodestar_reach_the_node_as_json",
]

HOSTS = ("native", "wasm")
pytestmark = pytest.mark.thorough("SSZ is compared with the specifications and Lodestar in `make ssz`")
SETTINGS = {"ssz": True, "ssz_request": "always", "cache": True, "zstd": True}


@pytest.fixture(scope="module")
def url(start_envoy):
    """The URL of Envoy in front of the node."""
    return f"http://127.0.0.1:{start_envoy([route('/')], settings=SETTINGS).port}"

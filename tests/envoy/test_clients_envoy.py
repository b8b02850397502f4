"""Clients of the Beacon API that others wrote, on Envoy: what they are given and give is what
it is on nginx."""

import pytest

from harness.envoy import route
from test_clients import (
    go,
    lodestar,
    of_forks,
    python,
    specified,
    test_a_go_client_gets_values,
    test_a_go_client_publishes_and_is_told_what_went_wrong,
    test_a_python_client_gets_values,
    test_a_python_client_is_told_what_went_wrong,
    test_a_python_client_publishes,
    test_lodestar_gets_values,
    test_lodestar_is_told_what_went_wrong,
    test_lodestar_publishes,
)

# for pytest, which looks for them here
__all__ = [
    "go",
    "lodestar",
    "of_forks",
    "python",
    "specified",
    "test_a_go_client_gets_values",
    "test_a_go_client_publishes_and_is_told_what_went_wrong",
    "test_a_python_client_gets_values",
    "test_a_python_client_is_told_what_went_wrong",
    "test_a_python_client_publishes",
    "test_lodestar_gets_values",
    "test_lodestar_is_told_what_went_wrong",
    "test_lodestar_publishes",
]

HOSTS = ("native", "wasm")
pytestmark = pytest.mark.thorough("SSZ is compared with the specifications and Lodestar in `make ssz`")
SETTINGS = {"ssz": True, "ssz_request": "always", "cache": True}


@pytest.fixture(scope="module")
def url(start_envoy):
    """Of what is in front of the node."""
    return f"http://127.0.0.1:{start_envoy([route('/')], settings=SETTINGS).port}"

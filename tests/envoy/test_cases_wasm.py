"""The parity table on Envoy's sandbox: each exchange whole, byte by byte and split at random,
on a connection that stays usable."""

import pytest

from harness import cases, parity_rows
from harness.envoy import empty
from harness.response_checks import send_random_pieces, send_bytes, send_whole
from tiers import by_tier

HOSTS = ("wasm",)
CASES = cases.load("wasm")
ROWS = parity_rows.Cases(CASES)
SPLITS = by_tier([send_whole, send_random_pieces], [send_whole, send_bytes, send_random_pieces])


@pytest.fixture(scope="module")
def envoy(start_envoy):
    return start_envoy([empty("/in-step"), *ROWS.routes()])


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_response_equals_the_row_for_every_split(envoy, origin, case, split):
    ROWS.run(envoy, origin, case, split)

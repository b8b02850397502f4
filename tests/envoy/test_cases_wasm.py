"""The parity table on Envoy's sandbox: each exchange whole or divided at random (in `make test-all`
also byte by byte, and in each way), on a connection that stays usable."""

import pytest

from harness import cases, parity_rows
from harness.envoy import empty
from harness.response_checks import send_random_pieces, send_bytes, send_whole
from tiers import by_tier, row_id, rows_with_divisions

HOSTS = ("wasm",)
CASES = cases.load("wasm")
ROWS = parity_rows.Cases(CASES)
DIVISIONS = by_tier([send_whole, send_random_pieces], [send_whole, send_bytes, send_random_pieces])


@pytest.fixture(scope="module")
def envoy(start_envoy):
    return start_envoy([empty("/in-step"), *ROWS.routes()])


@pytest.mark.parametrize("case, division", rows_with_divisions(CASES, DIVISIONS, first=1), ids=row_id)
def test_response_equals_the_row_for_every_division(envoy, origin, case, division):
    ROWS.run(envoy, origin, case, division)

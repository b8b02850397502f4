"""The sequences of the parity table on Envoy: stored responses and their clients, with the
node's responses whole, byte by byte or divided at random (in `make test-all` in each way)."""

import pytest

from harness import parity_rows, sequences
from harness.sequences import at_random, byte_by_byte, whole
from tiers import row_id, rows_with_divisions

SEQUENCES = sequences.load("envoy")
ROWS = parity_rows.Sequences(SEQUENCES)
DIVISIONS = [whole, byte_by_byte, at_random]


@pytest.fixture(scope="module")
def envoy(start_envoy):
    # without the option Envoy rejects a QUERY over HTTP/1
    protocol = {"accept_http_10": True, "allow_custom_methods": True}
    http = {"route_config": {"virtual_hosts": ROWS.hosts()}, "http_protocol_options": protocol}
    envoy = start_envoy([], http=http)
    # rows of a wrong chain
    envoy.expect("is on another chain|are not derived from receipts")
    return envoy


@pytest.mark.parametrize("sequence, division", rows_with_divisions(SEQUENCES, DIVISIONS, first=1), ids=row_id)
def test_sequence_has_the_expected_responses_for_every_division(envoy, origin, sequence, division):
    ROWS.run(envoy, origin, sequence, division)

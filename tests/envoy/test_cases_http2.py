"""The parity table and its sequences with HTTP/2 on both sides of the filter: a hop in front of
it translates HTTP/1.1 to HTTP/2, and one behind it HTTP/2 to HTTP/1.1 for the scripted node.

The arrival of a body's pieces shows nothing over HTTP/2 that the rows on HTTP/1.1 do not
show, so that each row runs once; in `make test` one of three rows, since all rows are there on
HTTP/1.1."""

import pytest

from harness import cases, parity_rows, sequences
from harness.envoy import empty
from harness.response_checks import send_random_pieces
from tiers import one_row_in, row_id

# The hop behind can't distinguish a body delimited by close from a truncated one; and no
# client uses HTTP/1.0 over HTTP/2.
CASES = [
    case
    for case in cases.load("envoy")
    if case.response["framing"] != "close" and case.request["version"] != "1.0"
]
SEQUENCES = [
    sequence
    for sequence in sequences.load("envoy")
    if all(step.node is None or step.node["framing"] != "close" for step in sequence.steps)
]
# The status of Envoy when a node resets a stream whose head is buffered: 503 for a failure
# outside HTTP.
for one in (*CASES, *(step for sequence in SEQUENCES for step in sequence.steps)):
    node = one.response if isinstance(one, cases.Case) else one.node
    if node and node.get("cut_at") is not None and one.expect["status"] == 502:
        one.expect["status"] = 503
PLACES = parity_rows.Cases(CASES)
NAMES = parity_rows.Sequences(SEQUENCES)
PROTOCOL = {
    "header": {"key": "sszip-upstream-protocol", "value": "%UPSTREAM_PROTOCOL%"},
    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
}


@pytest.fixture(scope="module")
def envoy(start_envoy):
    routes = [empty("/in-step"), *PLACES.routes()]
    hosts = [*NAMES.hosts(), {"name": "all", "domains": ["*"], "routes": routes}]
    routes = {"virtual_hosts": hosts, "response_headers_to_add": [PROTOCOL]}
    envoy = start_envoy([], hops="http2", http={"route_config": routes})
    # rows of a wrong chain
    envoy.expect("is on another chain|are not derived from receipts")
    return envoy


@pytest.mark.parametrize("case", one_row_in(3, CASES), ids=row_id)
def test_response_equals_the_row_over_http2(envoy, origin, case):
    response = PLACES.run(envoy, origin, case, send_random_pieces)
    # except for Envoy's local replies
    assert response.status == 503 or response.all("sszip-upstream-protocol") == []


@pytest.mark.parametrize("sequence", one_row_in(3, SEQUENCES), ids=row_id)
def test_sequence_has_the_expected_responses_over_http2(envoy, origin, sequence):
    NAMES.run(envoy, origin, sequence, sequences.at_random)

"""The parity table on Envoy: every exchange whole, byte by byte and split at
random, and the connection still usable after each."""

import pytest

from harness import cases, judging
from harness.envoy import empty, route
from harness.judging import at_random, byte_by_byte, whole

CASES = cases.load("envoy")

# One route for each set of settings that the table uses.
PLACES = {}
for case in CASES:
    PLACES.setdefault(tuple(sorted(case.config.items())), f"/config-{len(PLACES)}/")


@pytest.fixture(scope="module")
def envoy(start_envoy):
    # The window's time is the host's affair; the table speaks of its bytes.
    routes = [route(path, {"hold": "64k 60s", **dict(config)}) for config, path in PLACES.items()]
    return start_envoy([empty("/in-step"), *routes])


@pytest.mark.parametrize(
    "split", [whole, byte_by_byte, at_random], ids=lambda split: split.__name__
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(envoy, origin, case, split):
    origin.answers(case.script(split(case)))
    response = judging.exchange(envoy, PLACES[tuple(sorted(case.config.items()))], case)
    judging.judge(case, response, origin)

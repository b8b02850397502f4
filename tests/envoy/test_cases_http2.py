"""The parity table and its sequences with HTTP/2 on both sides of the filter: a hop in
front of it takes HTTP/1.1 and speaks HTTP/2, and one behind it takes HTTP/2 and speaks
HTTP/1.1 to the scripted node.

How a body's pieces come makes no difference to HTTP/2 that the rows on HTTP/1.1 do not
show, so each row is run once."""

import itertools

import pytest

from harness import cases, judging, sequences
from harness.envoy import empty, route
from harness.judging import at_random

# What ends with its connection the hop behind can't tell from what was cut short; and
# over HTTP/2 nobody asks in HTTP/1.0.
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
# What Envoy answers when a node resets a stream whose head is held: what is no fault of
# HTTP is a 503.
for one in (*CASES, *(step for sequence in SEQUENCES for step in sequence.steps)):
    node = one.response if isinstance(one, cases.Case) else one.node
    if node and node.get("cut_at") is not None and one.expect["status"] == 502:
        one.expect["status"] = 503
PLACES = {}
for case in CASES:
    PLACES.setdefault(tuple(sorted(case.config.items())), f"/config-{len(PLACES)}/")
NAMES = {}
for sequence in SEQUENCES:
    NAMES.setdefault(tuple(sorted(sequence.config.items())), f"config-{len(NAMES)}.test")
PROTOCOL = {
    "header": {"key": "sszip-upstream-protocol", "value": "%UPSTREAM_PROTOCOL%"},
    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
}
_runs = itertools.count(1)


def host(config, name):
    settings = {"cache": "on", "hold": "64k 60s", "ssz_preset": "mainnet", **dict(config)}
    return {"name": name, "domains": [f"*.{name}"], "routes": [route("/", settings)]}


@pytest.fixture(scope="module")
def envoy(start_envoy):
    routes = [route(path, {"hold": "64k 60s", **dict(config)}) for config, path in PLACES.items()]
    hosts = [host(config, name) for config, name in NAMES.items()]
    hosts.append({"name": "all", "domains": ["*"], "routes": [empty("/in-step"), *routes]})
    routes = {"virtual_hosts": hosts, "response_headers_to_add": [PROTOCOL]}
    return start_envoy([], hops="http2", http={"route_config": routes})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(envoy, origin, case):
    origin.answers(case.script(at_random(case)))
    response = judging.exchange(envoy, PLACES[tuple(sorted(case.config.items()))], case)
    judging.judge(case, response, origin)
    # but for what Envoy answers by itself
    assert response.status == 503 or response.all("sszip-upstream-protocol") == []


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.name)
def test_sequence(envoy, origin, sequence):
    name = f"run-{next(_runs)}.{NAMES[tuple(sorted(sequence.config.items()))]}"
    sequences.run(envoy, origin, sequence, sequences.at_random, name)

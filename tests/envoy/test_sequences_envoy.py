"""The sequences of the parity table on Envoy: what is stored, and for whom, with
the node's answers whole, byte by byte and split at random."""

import itertools

import pytest

from harness import sequences
from harness.envoy import route
from harness.sequences import at_random, byte_by_byte, run, whole

SEQUENCES = sequences.load("envoy")

# One host name for each set of settings; and each run has one of its own, so that
# what is stored for one is not for another.
NAMES = {}
for sequence in SEQUENCES:
    NAMES.setdefault(tuple(sorted(sequence.config.items())), f"config-{len(NAMES)}.test")
_runs = itertools.count(1)


def host(config, name):
    # as in the other rows, the window's time is the host's affair
    settings = {"cache": "on", "hold": "64k 60s", "ssz_preset": "mainnet", **dict(config)}
    return {"name": name, "domains": [f"*.{name}"], "routes": [route("/", settings)]}


@pytest.fixture(scope="module")
def envoy(start_envoy):
    hosts = [host(config, name) for config, name in NAMES.items()]
    return start_envoy([], http={"route_config": {"virtual_hosts": hosts}})


@pytest.mark.parametrize(
    "split", [whole, byte_by_byte, at_random], ids=lambda split: split.__name__
)
@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.name)
def test_sequence(envoy, origin, sequence, split):
    name = f"run-{next(_runs)}.{NAMES[tuple(sorted(sequence.config.items()))]}"
    run(envoy, origin, sequence, split, name)

"""The sequences of the parity table on nginx: stored responses and their clients, with the
node's responses whole, byte by byte or divided at random (in `make test-all` in each way)."""

import itertools

import pytest

from harness import sequences
from harness.sequences import at_random, byte_by_byte, run, whole
from tiers import row_id, rows_with_divisions

pytestmark = pytest.mark.carried("the parity table: the core decides its rows")

SEQUENCES = sequences.load("nginx")
DIVISIONS = [whole, byte_by_byte, at_random]

# One server for each set of directives; Host selects it, and separates the namespaces of
# runs.
SERVERS = {}
for sequence in SEQUENCES:
    SERVERS.setdefault(tuple(sorted(sequence.config.items())), f"config-{len(SERVERS)}.test")


def server(name, config):
    # as in the other rows, the host measures the window's time
    config = {"cache": "on", "cache_get": "all", "hold": "64k 60s", **dict(config)}
    # and no probes are sent
    config.setdefault("ssz_preset", "mainnet")
    directives = "".join(f"sszip_{directive} {value}; " for directive, value in config.items())
    return (
        f"server {{ listen 127.0.0.1:@port@; server_name *.{name}; proxy_http_version 1.1;"
        f" sszip on; {directives}"
        "location / { proxy_set_header Host $host; proxy_pass http://@origin_unix@; } }\n"
    )


CONFIG = "".join(server(name, config) for config, name in SERVERS.items())
_runs = itertools.count(1)


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


@pytest.mark.parametrize("sequence, division", rows_with_divisions(SEQUENCES, DIVISIONS), ids=row_id)
def test_sequence_has_the_expected_responses_for_every_division(nginx, origin, sequence, division):
    host = f"run-{next(_runs)}.{SERVERS[tuple(sorted(sequence.config.items()))]}"
    run(nginx, origin, sequence, division, host)

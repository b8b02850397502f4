"""REDbot (redbot.org) on answers through sszip: it has nothing to complain of that it does
not find at the node itself, all that is good there is good here, and gzip is negotiated."""

import pytest

from harness import linting

pytestmark = [
    pytest.mark.once("responses of the core are judged"),
    pytest.mark.thorough("the rows of the parity table state what REDbot would report"),
]

PLACES = {"/held/": {}, "/at-once/": {"hold": "0"}, "/cached/": {"cache": True}}
SETTINGS = {"types": "application/json text/html application/octet-stream", "ssz": True, "ssz_preset": "mainnet"}


def test_responses_are_no_worse_than_the_nodes(host, start_server, origin):
    origin.answers(linting.node)
    server = start_server(PLACES, SETTINGS, rewrites=True)
    assert linting.faults(origin, server.port, [path.rstrip("/") for path in PLACES]) == []

"""REDbot (redbot.org) on responses through sszip: it reports no fault that it does not report for
the node itself, and no lack of a good property; and gzip is negotiated."""

import pytest

from harness import http_lint

pytestmark = [
    pytest.mark.once("responses of the core are judged"),
    pytest.mark.thorough("the rows of the parity table state what REDbot would report"),
]

PLACES = {"/held/": {}, "/at-once/": {"hold": "0"}, "/cached/": {"cache": True}}
SETTINGS = {"types": "application/json text/html application/octet-stream", "ssz": True, "ssz_preset": "mainnet"}


def test_responses_have_no_more_faults_than_the_responses_of_the_node(host, start_server, origin):
    origin.answers(http_lint.node)
    server = start_server(PLACES, SETTINGS, rewrites=True)
    assert http_lint.faults(origin, server.port, [path.rstrip("/") for path in PLACES]) == []

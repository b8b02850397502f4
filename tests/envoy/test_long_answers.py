"""Memory of Envoy for responses of a hundred megabytes."""

import os
import pathlib

import pytest

from harness.client import request_bytes
from harness.envoy import Envoy, address, cluster, route
from harness.nginx import peak, resident
from harness.replay import ReplayNode
from harness.rpc import call

MEGABYTES = int(os.environ.get("SSZIP_WITNESS_MB", "100"))
SETTINGS = {"ssz": True, "ssz_max_size": "2g", "memory": "4g"}
OCTETS = "application/octet-stream"
# memory per byte of the uncompressed response: as in nginx, which drains bodies
MOST = 1.36
CALLS = {
    "ordered": call("debug_executionWitness", '["latest"]'),
    "elsewhere": call("engine_newPayloadWithWitnessV5", '["latest"]'),
}


@pytest.fixture(scope="module")
def node():
    node = ReplayNode("--witness", f"{MEGABYTES}M")
    yield node
    node.stop()


@pytest.fixture
def envoy(node):
    replay = cluster("replay", address(node.port))
    envoy = Envoy([route("/", cluster="replay")], clusters=[replay], settings=SETTINGS)
    yield envoy.start()
    envoy.stop()


def lengths(envoy, body, accept):
    """The lengths of a response, and of its uncompressed body."""
    headers = [("Content-Type", "application/json"), ("Accept", OCTETS)]
    if accept:
        headers.append(("Accept-Encoding", accept))
    with envoy.connect() as connection:
        connection.socket.settimeout(120)
        connection.send(request_bytes("/", method="POST", headers=headers, body=body))
        response = connection.read("POST")
    assert (response.status, response.header("Content-Type")) == (200, OCTETS), response.body[:300]
    assert (response.framing, response.coding) == ("length", accept)
    return len(response.body), len(response.decoded)


@pytest.mark.parametrize("accept", [None, "gzip"])
@pytest.mark.parametrize("kind", CALLS)
def test_memory_for_a_long_response_is_close_to_its_length(envoy, kind, accept):
    """Envoy copies the bytes that it sends; copied bytes are returned to the system."""
    # threads and pools are allocated
    assert envoy.fetch("/", call("eth_blockNumber")).status == 200
    pid = envoy.process.pid
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = resident(pid)
    _, plain = lengths(envoy, CALLS[kind], accept)
    assert plain > MEGABYTES * 400_000
    grown = (peak(pid) - before) * 1024
    assert grown <= MOST * plain, f"{grown / plain:.2f}"

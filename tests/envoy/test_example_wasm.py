"""The configuration of the sandbox that operators copy, unchanged but for its ports and
paths."""

import pathlib

import pytest

from harness.envoy import Envoy
from harness.owner import Owner
from harness.replay import ReplayNode
from harness.sandbox import WASM
from test_example import send, compresses_keeps_and_changes_formats, has_a_status_page_and_purges

FILE = pathlib.Path(__file__).resolve().parents[2] / "configs" / "envoy" / "sszip-wasm.yaml"


@pytest.fixture(scope="module")
def envoy():
    node, owner = ReplayNode("--beacon", "json"), Owner().start()
    text = FILE.read_text()
    for one, other in (
        ("port_value: 8547", "port_value: @port@"),
        ("port_value: 9545", f"port_value: {node.port}"),
        ("/usr/lib/envoy/sszip_envoy.wasm", str(pathlib.Path(WASM).absolute())),
        ("/run/sszip/cached.sock", owner.socket),
    ):
        assert one in text
        text = text.replace(one, other)
    envoy = Envoy([], text=text, workers=2).start()
    yield envoy
    envoy.stop()
    owner.close()
    node.stop()


def test_example_compresses_caches_and_transcodes(envoy):
    compresses_keeps_and_changes_formats(envoy)


def test_response_of_one_worker_is_a_hit_on_another(envoy):
    body = b'{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",true]}'
    headers = [("Content-Type", "application/json")]

    def is_hit():
        response = send(envoy, method="POST", headers=headers, body=body)
        assert response.status == 200
        return "hit" in response.header("Cache-Status")

    envoy.wait_for(is_hit, "a hit")
    # a lookup that takes longer than 20 ms on a busy machine is sent to the node
    assert sum(is_hit() for _ in range(20)) >= 12


def test_example_has_a_status_page_and_purges(envoy):
    has_a_status_page_and_purges(envoy)

"""The configuration that operators copy, unchanged but for its ports."""

import pathlib
import tempfile

import pytest

from harness.client import gunzip
from harness.envoy import Envoy
from harness.replay import ReplayNode
from harness.rpc import call

FILE = pathlib.Path(__file__).resolve().parents[2] / "configs" / "envoy" / "sszip.yaml"
CHAIN_ID = call("eth_chainId", "[]")
BLOCK = "/eth/v2/beacon/blocks/head"


@pytest.fixture(scope="module")
def envoy():
    node = ReplayNode("--beacon", "json")
    text = FILE.read_text()
    with tempfile.TemporaryDirectory(prefix="sszip-envoy-") as folder:
        for one, other in (
            ("port_value: 8546", "port_value: @port@"),
            ("port_value: 9545", f"port_value: {node.port}"),
            ("/var/cache/envoy/sszip", f"{folder}/sszip"),
        ):
            assert one in text
            text = text.replace(one, other)
        envoy = Envoy([], text=text, workers=2).start()
        yield envoy
        envoy.stop()
    node.stop()


def send(envoy, *, target="/", **request):
    with envoy.connect() as connection:
        return connection.exchange(target, **request)


def test_example_compresses_caches_and_transcodes(envoy):
    compresses_keeps_and_changes_formats(envoy)


def compresses_keeps_and_changes_formats(envoy):
    headers = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]

    def status():
        body = call("eth_getBlockByNumber", '["latest",true]')
        response = send(envoy, method="POST", headers=headers, body=body)
        assert (response.status, response.coding, response.framing) == (200, "gzip", "length")
        assert gunzip(response.body).startswith(b"{")
        return response.header("Cache-Status")

    assert status() == "sszip; fwd=miss"
    # a sandbox stores the response some milliseconds later
    envoy.wait_for(lambda: status().startswith("sszip; hit"), "a hit")
    ssz = send(envoy, target=BLOCK, headers=[("Accept", "application/octet-stream")])
    assert (ssz.status, ssz.header("Content-Type")) == (200, "application/octet-stream")
    assert ssz.header("Eth-Consensus-Version")
    json = send(envoy, target=BLOCK, headers=[("Accept", "application/json")])
    assert json.body.startswith(b"{") and len(json.body) > len(ssz.body)
    assert send(envoy, method="POST", headers=headers, body=CHAIN_ID).status == 200


def test_example_has_a_status_page_and_purges(envoy):
    has_a_status_page_and_purges(envoy)
    assert b"sszip_cache_requests_total" in send(envoy, target="/sszip?format=prometheus").body


def has_a_status_page_and_purges(envoy):
    headers = [("Content-Type", "application/json")]

    def is_hit():
        response = send(envoy, method="POST", headers=headers, body=CHAIN_ID)
        return "sszip; hit" in response.header("Cache-Status")

    envoy.wait_for(is_hit, "a hit")
    page = send(envoy, target="/sszip")
    assert page.status == 200 and page.header("Content-Type").startswith("text/html")
    status = send(envoy, target="/sszip?format=json")
    assert status.status == 200 and status.body.startswith(b"{")
    envoy.wait_for(lambda: send(envoy, method="POST", target="/sszip/purge?everything").status == 200, "a purge")
    assert not is_hit()

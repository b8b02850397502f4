"""Filters whose configuration comes by itself (ECDS): streams that are under way have the
one before, and the last of them ends it, on its worker, with what the filter has asked on
its own account."""

import json
import os
import threading

import pytest

from harness.client import request_bytes
from harness.envoy import Envoy, filter_of, route
from harness.load import Load
from harness.origin import Until, answer, chunked, head
from harness.rpc import Node, call

KIND = "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
SETTINGS = {
    "cache": True,
    "cache_namespace": "all",
    "cache_valid": "tip 1ms",
    "cache_use_stale": "updating",
    "cache_background_update": True,
    "ssz": True,
}
CALL = call("eth_blockNumber")
JSON = [("Content-Type", "application/json")]
SPEC = b'{"data":{"PRESET_BASE":"minimal"}}'


class Discovered(Envoy):
    version = 0

    def __init__(self, origin, **options):
        super().__init__([route("/")], origin=origin, settings=SETTINGS, **options)
        (listener,) = self.configuration["static_resources"]["listeners"]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.path = self.prefix / "ecds.json"
        source = {"path_config_source": {"path": str(self.path)}, "resource_api_version": "V3"}
        discovery = {"config_source": source, "type_urls": [KIND]}
        manager["http_filters"][0] = {"name": "sszip", "config_discovery": discovery}
        self.configuration["node"] = {"id": "test", "cluster": "test"}
        self.publish()

    def publish(self, **settings):
        """The filter is another one."""
        self.version += 1
        filter = {
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": "sszip",
            "typed_config": filter_of({**SETTINGS, **settings}),
        }
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"version_info": str(self.version), "resources": [filter]}))
        os.replace(new, self.path)

    def renew(self, **settings):
        def done():
            return sum(self.stats("config_reload$").values())

        before = done()
        self.publish(**settings)
        self.wait_for(lambda: done() > before, "the new filter")


@pytest.fixture
def envoy(origin):
    envoy = Discovered(origin, workers=2)
    yield envoy.start()
    envoy.stop()


def test_a_filter_ends_on_a_worker_while_it_asks(envoy, origin):
    """The node is slow with what nobody waits for."""
    for turn in range(100):
        path = f"/calls/{turn}"
        origin.answers(Node({"eth_blockNumber": b'"0x1"'}), path)
        envoy.ask(path, CALL)
        node = Node({"eth_blockNumber": b'"0x2"'})
        gate = node.gates["eth_blockNumber"] = threading.Event()
        origin.answers(node, path)
        go_on = threading.Event()
        steps = [head(200, [*JSON, ("Transfer-Encoding", "chunked")]), *chunked([b"1"], last=False)]
        origin.answers([*steps, Until(go_on), *chunked([b"2"])], f"/slow/{turn}")
        with envoy.connect() as slow:
            slow.send(request_bytes(f"/slow/{turn}"))
            slow.read_head()
            envoy.wait_for(lambda: origin.received(f"/slow/{turn}"), "the node to be asked")  # noqa: B023
            # what is stored goes out, and the new one is asked for
            assert json.loads(envoy.ask(path, CALL).decoded)["result"] == "0x1"
            envoy.wait_for(node.count, "the update")
            envoy.renew(min_length=turn + 1)
            go_on.set()
            assert slow._chunks() == b"12"
        gate.set()
        envoy.wait_for(lambda: envoy.active() == 0, "all to end")
        envoy.check()


def test_filters_that_change_under_load(envoy, origin):
    """With updates and questions under way all the time: no answer is wrong or lost."""
    path = "/eth/v1/beacon/states/9/pending_consolidations"
    value = b'{"version":"electra","data":[]}'
    fields = [("Eth-Consensus-Version", "electra")]
    origin.answers(answer(SPEC), "/eth/v1/config/spec")
    origin.answers(answer(value, headers=fields), path)
    origin.answers(Node({"eth_blockNumber": b'"0x1"'}, newline=b""), "/calls")
    whole = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
    asks = [((path, []), value), (("/calls", JSON, CALL), whole)]
    with Load(envoy.port, asks, clients=6) as load:
        for number in range(15):
            envoy.renew(min_length=number + 1)
    assert load.faults == [] and load.answered > 100
    envoy.wait_for(lambda: envoy.active() == 0, "all to end")

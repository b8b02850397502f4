"""Wide calls for logs while their filter is replaced, their listener drains, or another Envoy takes
over: each client receives one response, which is the node's."""

import contextlib
import itertools
import json
import os
import threading

import pytest

from harness.client import fetch
from harness.envoy import Envoy, route
from harness.load import ClientThreads
from harness.log_ranges import CONCURRENT, LogStand, closed_gate, logs, new_filter
from test_reloads import is_up_at
from tiers import times

FIRST = 5
HISTORY = logs(FIRST, '"latest"')
# the call of several clients, each with its own id
CALLS = [HISTORY.replace(b'"id":1', b'"id":%d' % id) for id in range(1, 5)]
# a connection lives as long as its test, unless Envoy ends
DRAIN = ["--drain-time-s", "600", "--drain-strategy", "immediate"]
_base_ids = itertools.count()


class DiscoveredResource:
    """A resource that Envoy reads from a file, and the settings of the filter in it. The resource is a
    listener or a filter."""

    # names of the counters of updates
    counters = ""

    def __init__(self, envoy):
        self.envoy = envoy
        self.path = envoy.prefix / "discovered.json"
        self.source = {"path_config_source": {"path": str(self.path)}, "resource_api_version": "V3"}
        envoy.configuration["node"] = {"id": "test", "cluster": "test"}
        (listener,) = envoy.configuration["static_resources"]["listeners"]
        filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
        self.typed_filter = filters[0]["typed_config"]
        self.resource = self._discover(listener, filters)
        self.publish(1)

    def _discover(self, listener, filters):
        raise NotImplementedError

    def publish(self, level):
        """Publishes the resource with another compression level."""
        self.typed_filter["filter_config"]["value"]["comp_level"] = level
        text = json.dumps({"version_info": str(level), "resources": [self.resource]})
        new = self.path.with_suffix(".new")
        new.write_text(text.replace("@prefix@", str(self.envoy.prefix)))
        os.replace(new, self.path)

    def replace(self, level):
        """Replaces the resource, and waits until Envoy has read it."""
        before = self._updates()
        self.publish(level)
        self.envoy.wait_for(lambda: self._updates() > before, "the update")

    def _updates(self):
        return sum(self.envoy.stats(self.counters).values())


class DiscoveredListener(DiscoveredResource):
    counters = r"lds\.update_success$"

    def _discover(self, listener, filters):
        configuration = self.envoy.configuration
        del configuration["static_resources"]["listeners"]
        configuration["dynamic_resources"] = {"lds_config": self.source}
        return {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", **listener}


class DiscoveredFilter(DiscoveredResource):
    counters = r"config_reload$"

    def _discover(self, listener, filters):
        discovery = {"config_source": self.source, "type_urls": [self.typed_filter["@type"]]}
        filters[0] = {"name": "sszip", "config_discovery": discovery}
        return {
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": "sszip",
            "typed_config": self.typed_filter,
        }


@pytest.fixture
def make_stand(origin):
    """Creates a stand that is not started, with these options of Envoy."""

    def make(options=DRAIN):
        stand = LogStand("native", origin, workers=2)
        stand.server.options = list(options)
        return stand

    return make


@contextlib.contextmanager
def waiting_clients(stand, bodies=CALLS):
    """Clients that wait for the pieces of their range, which the node sends when the block ends. Then
    their responses are compared with the node's own."""
    responses = {}

    def send(body):
        responses[body] = stand.fetch(body).decoded.rstrip()

    senders = [threading.Thread(target=send, args=(body,)) for body in bodies]
    try:
        with closed_gate(stand.node):
            for sender in senders:
                sender.start()
            stand.server.wait_for(lambda: stand.node.in_flight == CONCURRENT, "the first pieces at the node")
            yield
    finally:
        for sender in senders:
            sender.join()
    assert responses == {body: stand.direct(body).rstrip() for body in bodies}


def is_split(stand):
    """Whether a call that no client has sent before is split; its response is the node's."""
    before = len(stand.node.bodies)
    stand.assert_equal_to_direct(logs(FIRST, '"latest"', new_filter(stand.chain)))
    return bool(stand.node.ranges(before))


def wait_for_split(stand):
    # for a second after its configuration a filter sends no background requests
    stand.server.wait_for(lambda: is_split(stand), "a call to be split")


class LogClients(ClientThreads):
    """Clients that send calls for the same logs, each with another filter, and compare the responses
    with the node's own."""

    def __init__(self, stand, clients=4):
        self._stand = stand
        (found,) = stand.chain.honest(HISTORY)
        self._topics = sorted({log["topics"][0] for log in found if log["topics"]})[:3]
        self._numbers = itertools.count(1)
        self._expected = stand.direct(self._next_call()).rstrip()
        super().__init__(clients)

    def _next_call(self):
        # no log has this topic
        absent = f"0x{next(self._numbers):064x}"
        return logs(FIRST, '"latest"', f',"topics":[{json.dumps([*self._topics, absent])}]')

    def _send_requests(self, number):
        while not self._stop.is_set():
            try:
                response = self._stand.fetch(self._next_call())
            except Exception as error:  # raised in the test's thread
                self.faults.append(repr(error))
                continue
            if response.decoded.rstrip() != self._expected:
                self.faults.append(f"{response.decoded[:200]}")
            self.answered += 1

    def wait_for_more(self, count):
        until = self.answered + count
        self._stand.server.wait_for(lambda: self.answered >= until or self.faults, "responses")


@pytest.mark.parametrize("discover", [DiscoveredListener, DiscoveredFilter])
def test_waiting_clients_get_the_whole_response_when_their_filter_is_replaced(make_stand, discover):
    """Envoy ends the requests for the pieces with the filter that has sent them."""
    stand = make_stand()
    resource = discover(stand.server)
    with stand:
        for level in range(2, 2 + times(2, 8)):
            # the pieces of other calls are not fetched again
            members = new_filter(stand.chain)
            bodies = [logs(FIRST, '"latest"', members, str(id)) for id in range(1, 5)]
            before = len(stand.node.bodies)
            with waiting_clients(stand, bodies):
                resource.replace(level)
                stand.server.wait_for(lambda before=before: stand.node.single_calls(before), "the whole call")
            wait_for_split(stand)


@pytest.mark.parametrize("discover", [DiscoveredListener, DiscoveredFilter])
def test_responses_are_right_when_the_filter_is_replaced_under_load(make_stand, discover):
    stand = make_stand()
    resource = discover(stand.server)
    with stand:
        with LogClients(stand) as load:
            load.wait_for_more(10)
            for level in range(2, 2 + times(2, 10)):
                resource.replace(level)
                load.wait_for_more(10)
        assert load.faults == []
        assert stand.node.ranges()


def test_waiting_clients_get_the_assembled_response_when_their_listener_is_closed(make_stand):
    """The listener closes no connection whose request is in flight, and the pieces are fetched."""
    with make_stand(["--drain-time-s", "1", "--drain-strategy", "immediate"]) as stand:
        with waiting_clients(stand):
            # a client that is late would find a closed listener
            stand.server.wait_for(lambda: stand.server.active() >= len(CALLS) + CONCURRENT, "all clients")
            drained = fetch(stand.server.admin, "/drain_listeners?graceful", method="POST", body=b"")
            assert drained.status == 200
            stand.server.wait_for(lambda: not is_up_at(stand.server.port), "the listener to be closed")
        assert stand.node.single_calls() == []


def restart_options(base_id, epoch, parent_seconds):
    return [
        "--base-id", str(base_id), "--restart-epoch", str(epoch), "--parent-shutdown-time-s", str(parent_seconds),
        "--drain-time-s", "1", "--drain-strategy", "immediate",
    ]  # fmt: skip


@pytest.fixture
def make_pair(make_stand, origin):
    """Creates a stand that is not started, and an Envoy that takes over from its server, after which
    the server ends in `parent_seconds`."""

    def make(parent_seconds):
        base_id = 300_000 + os.getpid() % 30_000 * 2 + next(_base_ids) % 2
        stand = make_stand(restart_options(base_id, 0, parent_seconds))
        stand.server.restarts = True
        successor = Envoy([route("/")], origin=origin, workers=stand.workers)
        text = json.dumps(stand.server.configuration).replace("@prefix@", str(stand.server.prefix))
        successor.configuration = json.loads(text)
        successor.port = successor.direct = stand.server.port
        successor.admin = stand.server.admin
        successor.options, successor.restarts = restart_options(base_id, 1, parent_seconds), True
        return stand, successor

    return make


@contextlib.contextmanager
def running_envoy(envoy, stand):
    """Starts an Envoy, and waits until the owner of the stand's store has its link."""
    try:
        envoy.start()
        envoy.wait_for(lambda: str(envoy.process.pid) in stand.store_owner.pids(), "the link to the owner")
        yield
    finally:
        envoy.stop()


def test_waiting_clients_get_the_assembled_response_of_the_old_envoy_in_a_hot_restart(make_pair):
    """The old Envoy fetches the pieces though the new one has its sockets."""
    # the old Envoy does not end before its clients have their responses
    stand, successor = make_pair(parent_seconds=600)
    with stand, contextlib.ExitStack() as stack:
        with waiting_clients(stand):
            stand.server.wait_for(lambda: stand.server.active() >= len(CALLS) + CONCURRENT, "all clients")
            stack.enter_context(running_envoy(successor, stand))
        assert stand.node.single_calls() == []
        stand.assert_equal_to_direct(HISTORY)
        wait_for_split(stand)


def test_responses_are_right_when_envoy_is_restarted_hot_under_load(make_pair):
    """The new Envoy becomes the owner of the store, and follows the chain."""
    stand, successor = make_pair(parent_seconds=5)
    old = stand.server
    with stand, contextlib.ExitStack() as stack, LogClients(stand) as load:
        load.wait_for_more(10)
        stack.enter_context(running_envoy(successor, stand))
        load.wait_for_more(10)
        old.wait_for(lambda: old.process.poll() is not None, "the old Envoy to end")
        old.wait_for(lambda: stand.store_owner.pid() == successor.process.pid, "the new Envoy to take over")
        stand.follow()
        wait_for_split(stand)
        load.wait_for_more(10)
        assert load.faults == []
        assert old.process.returncode == 0

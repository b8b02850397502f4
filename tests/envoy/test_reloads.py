"""Configurations that change while requests are in flight, and Envoys that end or take over from
one another."""

import contextlib
import json
import os
import signal
import threading

import pytest

from harness import bodies
from harness.client import Connection, Truncated, fetch
from harness.envoy import Envoy, adapted, filter_of, route
from harness.load import Load
from harness.origin import WaitFor, answer, chunked, head
from harness.response_stream import open_stream
from harness.sandbox import WasmEnvoy, route_metadata
from tiers import by_tier, times

HOSTS = ("native", "wasm")

BODY = bodies.json(30000)
GZIP = [("Accept-Encoding", "gzip")]
LOAD = [(("/", GZIP), BODY), (("/", []), BODY), (("/cached", GZIP), BODY)]
BROWSER = [("Accept-Encoding", "gzip, deflate, br, zstd")]
LOAD_WITH_ZSTD = [*LOAD, (("/", BROWSER), BODY), (("/cached", BROWSER), BODY)]
SETTINGS = {"cache": True, "zstd": True}
# bytes that a node sends before it pauses
SENT = 20000


class Changes:
    """An Envoy whose listeners, routes and clusters are files that change."""

    # settings that are added to each filter's
    own = {}  # noqa: RUF012

    def __init__(self, origin, **options):
        super().__init__([route("/")], origin=origin, settings=SETTINGS, **options)
        static = self.configuration.pop("static_resources")
        (self.listener,) = static["listeners"]
        manager = self.listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.routes = {"name": "routes", **manager.pop("route_config")}
        manager["rds"] = {"route_config_name": "routes", "config_source": self._source("rds")}
        self.manager = manager
        self.cluster, *self.more = static["clusters"]
        self.configuration["node"] = {"id": "test", "cluster": "test"}
        self.configuration["dynamic_resources"] = {
            "lds_config": self._source("lds"),
            "cds_config": self._source("cds"),
        }
        self.version = 0
        for name in ("cds", "rds", "lds"):
            self.publish(name)

    def _source(self, name):
        return {
            "path_config_source": {"path": str(self.prefix / f"{name}.json")},
            "resource_api_version": "V3",
        }

    def publish(self, name):
        """Replaces the file of a resource type."""
        self.version += 1
        kind, *resources = {
            "lds": ("config.listener.v3.Listener", self.listener),
            "rds": ("config.route.v3.RouteConfiguration", self.as_routed()),
            "cds": ("config.cluster.v3.Cluster", self.cluster, *self.more),
        }[name]
        typed_resources = [{"@type": f"type.googleapis.com/envoy.{kind}", **one} for one in resources]
        new = self.prefix / f"{name}.new"
        new.write_text(json.dumps({"version_info": str(self.version), "resources": typed_resources}))
        os.replace(new, self.prefix / f"{name}.json")

    def as_routed(self):
        return self.routes

    def settings(self, **settings):
        """Publishes settings of the filter."""
        typed = self.filter_of(adapted({**settings, **self.own}))
        self.manager["http_filters"][0]["typed_config"] = typed
        self.publish("lds")

    def set_route_settings(self, **settings):
        one = self.routes["virtual_hosts"][0]["routes"][0]
        one["typed_per_filter_config"] = {
            "sszip": filter_of(settings, "DynamicModuleFilterPerRoute")
        }
        self.publish("rds")

    def updates(self):
        return sum(self.stats(r"update_success$").values())

    def refused(self):
        return sum(self.stats(r"update_rejected$").values())


class Dynamic(Changes, Envoy):
    pass


class Sandbox(Changes, WasmEnvoy):
    own = {"cache_owner": "cluster:sszip_cached"}  # noqa: RUF012

    def as_routed(self):
        (host,) = self.routes["virtual_hosts"]
        return {**self.routes, "virtual_hosts": [{**host, "routes": [route_metadata(one) for one in host["routes"]]}]}


@pytest.fixture
def origin_of_bodies(origin):
    origin.answers(answer(BODY))
    origin.answers(answer(BODY, headers=[("Cache-Control", "max-age=60")]), path="/cached")
    return origin


def started(envoy):
    return envoy.start()


@pytest.fixture
def dynamic(host, origin_of_bodies, request):
    """An Envoy whose removed listeners drain for a second, or the seconds of the parameter."""
    envoy = {"native": Dynamic, "wasm": Sandbox}[host](origin_of_bodies, workers=2)
    envoy.options = ["--drain-time-s", str(getattr(request, "param", 1)), "--drain-strategy", "immediate"]
    started(envoy)
    envoy.wait_for(lambda: is_up(envoy), "the listener")
    yield envoy
    envoy.stop()


def is_up(envoy):
    try:
        return envoy.get("/", accept=None).status == 200
    except OSError:
        return False


def mode(envoy):
    return envoy.get("/").mode


# on a busy machine a request takes more than the drain time of the other tests
@pytest.mark.parametrize("dynamic", [20], indirect=True)
def test_responses_are_right_when_xds_files_change_under_load(host, dynamic):
    """Filter, routes and clusters change: no response is lost or wrong. An invalid update
    changes nothing, except that a sandbox is off for a route with invalid settings."""
    with Load(dynamic.port, LOAD, clients=4) as load:
        for number in range(times(2, 6)):
            dynamic.settings(cache=True, min_length=["1m", "1k"][number % 2], comp_level=1 + number)
            expected = ["too-small", "oneshot"][number % 2]
            dynamic.wait_for(lambda expected=expected: mode(dynamic) == expected, expected)
        for number in range(times(2, 6)):
            dynamic.set_route_settings(enable=number % 2 == 1, comp_level=number)
            expected = ["off", "oneshot"][number % 2]
            dynamic.wait_for(lambda expected=expected: mode(dynamic) == expected, expected)
        for patience in ("4s", "5s"):
            before = dynamic.updates()
            dynamic.cluster["connect_timeout"] = patience
            dynamic.publish("cds")
            dynamic.wait_for(lambda before=before: dynamic.updates() > before, "the update")
        dynamic.expect(
            r"gRPC config|\[config\]|Error adding/updating listener|dynamic_modules|there is no such"
        )
        dynamic.expect(r"Wasm VM failed|Plugin .*failed to load|sszip: ")
        changes = [dynamic.settings, dynamic.set_route_settings] if host == "native" else [dynamic.settings]
        for change in changes:
            before = dynamic.refused()
            change(complevel=1)
            dynamic.wait_for(lambda before=before: dynamic.refused() > before, "the refusal")
            assert mode(dynamic) == "oneshot"
        if host == "wasm":
            dynamic.set_route_settings(complevel=1)
            dynamic.wait_for(lambda: mode(dynamic) == "off", "off")
        dynamic.wait_for(lambda: load.answered > 100 or load.faults, "answers")
    assert load.faults == []


@contextlib.contextmanager
def streams_in_progress(envoy, origin):
    """Streams in gzip and in zstd whose node pauses. Afterwards the node continues, and the streams are
    complete."""
    go_on = threading.Event()
    script = [head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
              *chunked([BODY[:SENT]], last=False), WaitFor(go_on), *chunked([BODY[SENT:]])]  # fmt: skip
    with contextlib.ExitStack() as stack:
        streams = []
        for coding in ("gzip", "zstd"):
            origin.answers(script, f"/{coding}")
            stream = open_stream(stack.enter_context(envoy.connect()), f"/{coding}", coding)
            assert (stream.head.coding, stream.chunked) == (coding, True)
            assert stream.until(SENT) == BODY[:SENT]
            streams.append(stream)
        yield
        go_on.set()
        assert [stream.finish() for stream in streams] == [BODY] * len(streams)


# the streams may last longer than the drain time of the other tests
@pytest.mark.parametrize("dynamic", [600], indirect=True)
def test_streams_are_complete_when_their_listener_is_replaced(dynamic, origin):
    """Their settings live as long as the streams."""
    with streams_in_progress(dynamic, origin):
        for number in range(times(2, 3)):
            dynamic.settings(cache=True, min_length=["1m", "1k"][number % 2])
            expected = ["too-small", "oneshot"][number % 2]
            dynamic.wait_for(lambda expected=expected: mode(dynamic) == expected, expected)


class TestEnds:
    @pytest.fixture
    def envoy(self, host, origin_of_bodies):
        kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
        envoy = kind([{"name": "all", "match": {"prefix": "/"}, "route": {"cluster": "node", "timeout": "0s"}}],
                      origin=origin_of_bodies, settings={"cache": True}, workers=2)  # fmt: skip
        envoy.options = ["--drain-time-s", "2", "--drain-strategy", "immediate"]
        yield envoy.start()
        envoy.stop()

    @pytest.mark.wasm_thorough("Envoy closes the connections, whatever its filters are")
    def test_draining_listeners_close_connections_between_responses_only(self, envoy):
        """Draining listeners close connections between responses, never within one."""
        with Load(envoy.port, LOAD, clients=4) as load:
            for health in ("fail", "ok"):
                fetch(envoy.admin, f"/healthcheck/{health}", method="POST", body=b"")
                more = load.answered + 20
                envoy.wait_for(lambda more=more: load.answered > more, "answers")
        assert load.faults == []
        assert (
            fetch(envoy.admin, "/drain_listeners?graceful", method="POST", body=b"").status == 200
        )
        envoy.wait_for(lambda: not is_up_at(envoy.port), "the listener to be closed")

    def test_envoy_exits_under_load_without_wrong_responses(self, envoy):
        """Responses are right until the end, and no request hangs."""
        right, wrong = [], []

        def send_requests():
            try:
                while True:
                    with Connection(envoy.port) as connection:
                        response = connection.exchange("/", headers=GZIP)
                    (right if response.decoded == BODY else wrong).append(response)
            except (OSError, Truncated):
                return  # Envoy has ended

        threads = [threading.Thread(target=send_requests) for _ in range(4)]
        for thread in threads:
            thread.start()
        envoy.wait_for(lambda: len(right) > 20, "answers")
        envoy.process.send_signal(signal.SIGTERM)
        assert envoy.process.wait(60) == 0
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert not wrong


def is_up_at(port):
    try:
        with Connection(port):
            return True
    except OSError:
        return False


def envoy_of_epoch(host, origin, epoch, parent_seconds, first=None):
    """An Envoy that is not started. It takes over the sockets of `first` and its successors, which end
    `parent_seconds` later."""
    kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
    envoy = kind([route("/")], origin=origin, settings=SETTINGS, workers=2)
    if first:
        envoy.configuration = json.loads(json.dumps(first.configuration))
        envoy.port = envoy.direct = first.port
        envoy.admin = first.admin
    envoy.options = ["--base-id", str(os.getpid() % 30000), "--parent-shutdown-time-s", str(parent_seconds),
                     "--drain-time-s", "2", "--drain-strategy", "immediate", "--restart-epoch", str(epoch)]  # fmt: skip
    envoy.restarts = True
    return envoy


def test_responses_are_right_during_hot_restarts_under_load(host, origin_of_bodies):
    """A second Envoy takes over the sockets of the first one, each with its own entries."""
    envoys = []
    first = envoy_of_epoch(host, origin_of_bodies, 0, 3)
    try:
        envoys.append(first.start())
        for epoch in by_tier([1], [1, 2]):
            following = envoy_of_epoch(host, origin_of_bodies, epoch, 3, first)
            with Load(first.port, LOAD_WITH_ZSTD, clients=4) as load:
                first.wait_for(lambda load=load: load.answered > 25, "answers of the one before")
                envoys.append(following.start())
                before = envoys[-2]
                following.wait_for(
                    lambda before=before: before.process.poll() is not None, "the one before to end"
                )
                more = load.answered + 25
                following.wait_for(
                    lambda load=load, more=more: load.answered > more, "answers of the next one"
                )
            assert load.faults == []
            assert before.process.returncode == 0
    finally:
        for envoy in envoys:
            envoy.stop()


def hot_restart_epoch(envoy):
    """The epoch of the Envoy that has the admin port; None while none has it."""
    with contextlib.suppress(OSError, AssertionError):
        return max(envoy.stats(r"^server\.hot_restart_epoch$").values(), default=None)


@pytest.mark.wasm_thorough("test_streams_are_complete_when_their_listener_is_replaced has streams in sandboxes that end")
def test_streams_are_complete_when_envoy_is_restarted_hot(host, origin_of_bodies):
    """The old Envoy sends the rest, though the new one has its sockets."""
    # the old Envoy does not end before its streams
    first = envoy_of_epoch(host, origin_of_bodies, 0, 600)
    following = envoy_of_epoch(host, origin_of_bodies, 1, 600, first)
    with contextlib.ExitStack() as stack:
        stack.callback(first.stop)
        stack.callback(following.stop)
        first.start()
        with streams_in_progress(first, origin_of_bodies):
            following.start()
            following.wait_for(lambda: hot_restart_epoch(following) == 1, "the new Envoy to take over")
        assert is_up(following)

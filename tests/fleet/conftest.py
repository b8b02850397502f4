"""Fixtures of the fleet's tests: a real redis-server, faults in front of it, and machines that
share entries."""

import contextlib
import itertools
import os
import pathlib
import shutil

import pytest

from cluster_servers import Cluster
from fault_proxy import FaultProxy
from machines import MACHINES, fleet_settings
from sentinel_servers import SentinelGroup, SimulatedSentinel, sentinel_settings
from servers import REDIS_SERVER, Redis
from slow_fleet import SlowFleet

from harness.chain import Chain
from harness.nginx import MODULE, NGINX
from harness.owner import SSZIP_CACHED
from harness.sandbox import WASM
from harness.stands import VALID

_NEEDED = {
    "SSZIP_NGINX": NGINX,
    "SSZIP_MODULE": MODULE,
    "SSZIP_CACHED": SSZIP_CACHED,
    "SSZIP_ENVOY": os.environ.get("SSZIP_ENVOY", "envoy"),
    "SSZIP_WASM": WASM,
}


def pytest_sessionstart(session):
    for name, path in _NEEDED.items():
        if not shutil.which(path) and not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")
    if not REDIS_SERVER:
        raise pytest.UsageError("redis-server is missing; run scripts/setup test")


class World:
    """The servers, nodes and machines of a test, which end with it.

    At the end no command of an owner may have been denied by the ACL of docs/fleet.md."""

    def __init__(self, folder):
        self._folder = folder
        self._numbers = itertools.count(1)
        self._started = []
        self._servers = []

    def _add(self, started):
        self._started.append(started)
        return started

    def redis(self, is_started=True, **options):
        redis = self._add(Redis(**options))
        self._servers.append(redis)
        return redis.start() if is_started else redis

    def cluster(self, **options):
        cluster = self._add(Cluster(**options))
        self._servers += cluster.nodes
        return cluster.start()

    def sentinels(self, **options):
        """Sentinels, and the servers that they watch."""
        group = self._add(SentinelGroup(**options))
        self._servers += group.servers
        return group.start()

    def simulated_sentinel(self, primary):
        return self._add(SimulatedSentinel(primary))

    def proxy(self, redis):
        return self._add(FaultProxy(redis.port))

    def chain(self, *arguments, final_blocks=40):
        """A node that has blocks up to `final_blocks` after the first final one as final."""
        chain = Chain(*arguments)
        self._add(_Ending(chain.stop))
        chain.do({"finalize": chain.final + final_blocks}, {"extend": 1})
        return chain

    def settings(self, url, **more):
        folder = self._folder / f"fleet-{next(self._numbers)}"
        folder.mkdir()
        return fleet_settings(folder, url, **more)

    def sentinel_settings(self, **password):
        """The settings of a fleet for its user on the Sentinels."""
        folder = self._folder / f"sentinels-{next(self._numbers)}"
        folder.mkdir()
        return sentinel_settings(folder, **password)

    def new_machine(self, chain, settings, kind="daemon", **options):
        """A machine that is not started, and ends with the world."""
        return self._add(MACHINES[kind](chain, settings, **options))

    def machine(self, chain, url, kind="daemon", is_used=True, valid=VALID, **fleet):
        """Starts a machine; `fleet` has settings of its fleet."""
        machine = self.new_machine(chain, self.settings(url, **fleet), kind, valid=valid).start()
        return machine.wait_until_used() if is_used else machine

    def check(self):
        """Checks that the owners' user has had all rights that it needed."""
        for redis in self._servers:
            if redis.is_running:
                assert redis.denied_commands() == []

    def close(self):
        failures = []
        for started in reversed(self._started):
            try:
                started.close()
            except Exception as failure:  # the others end, too
                failures.append(f"{started!r}: {failure}")
        assert not failures, "\n".join(failures)


class _Ending:
    def __init__(self, close):
        self.close = close


def _world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("fleet"))
    try:
        yield world
        world.check()
    finally:
        world.close()


@pytest.fixture
def world(tmp_path_factory):
    yield from _world(tmp_path_factory)


@pytest.fixture
def new_fleet(world):
    """Creates machines that take leases for slow requests."""
    with contextlib.ExitStack() as stack:

        def new_fleet(kind=SlowFleet, redis=None, **options):
            fleet = kind(world, redis or world.redis(), **options)
            stack.callback(fleet.close)
            return fleet

        yield new_fleet


@pytest.fixture(scope="module")
def file_world(tmp_path_factory):
    """A world that the tests of a file share."""
    yield from _world(tmp_path_factory)

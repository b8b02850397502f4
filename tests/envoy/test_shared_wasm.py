"""One daemon, one namespace: Envoy's Wasm filter, Envoy's module and nginx share entries and
purges, and coalesce requests."""

import random
import signal

import pytest

from harness import chain_model, client, store_model
from harness.chain import Chain
from harness.chain_checks import OPERATOR_METHODS, check_operator_methods, check_replaced_blocks
from harness.envoy import Envoy, address, cluster, route
from harness.guards import SHIPPED_LEASE
from harness.nginx import Nginx
from harness.owner import Owner
from harness.processes import kill_all
from harness.rpc import Node
from harness.sandbox import WasmEnvoy
from harness.stands import SandboxStand
from test_store_life import LARGE, Clients, end, hits
from tiers import by_tier, seeds, times

VALID = ["immutable 1h", "unfinalized 1h", "tip 1h", "nothing 1h"]
NGINX = """
sszip on;
sszip_cache on;
sszip_cache_owner unix:%(socket)s;
sszip_cache_memory 2m;
sszip_cache_valid immutable 1h;
sszip_cache_valid unfinalized 1h;
sszip_cache_valid tip 1h;
sszip_cache_valid nothing 1h;
%(more)s
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace %(namespace)s; proxy_pass http://%(node)s; }
    location = /purge { sszip_cache_purge on; }
}
"""
# log lines about purges without an owner
COMPLAINTS = "purge of|owner"


def wasm_of(owner, origin=None, routes=None, workers=2, settings=None, **more):
    envoy = WasmEnvoy(
        routes or [route("/purge", {"cache_purge": True}), route("/")],
        origin=origin,
        owner=owner,
        workers=workers,
        settings={
            "cache": True,
            "cache_valid": VALID,
            **(settings or {"cache_namespace": "main"}),
        },
        **more,
    )
    envoy.expect(COMPLAINTS)
    return envoy


def native_of(owner, origin=None, routes=None, settings=None, **more):
    envoy = Envoy(
        routes or [route("/purge", {"cache_purge": True}), route("/")],
        origin=origin,
        workers=2,
        settings={
            "cache": True,
            "cache_memory": "2m",
            "cache_valid": VALID,
            "cache_owner": f"unix:{owner.socket}",
            **(settings or {"cache_namespace": "main"}),
        },
        **more,
    )
    envoy.expect(COMPLAINTS)
    return envoy


def nginx_of(owner, node, namespace="main", more=""):
    words = {"socket": owner.socket, "node": node, "namespace": namespace, "more": more}
    nginx = Nginx(NGINX % words, workers=2)
    nginx.expect("exited on signal 9")
    nginx.expect(COMPLAINTS)
    return nginx


class Hosts:
    """Several hosts with one daemon; each request goes to one of them at random."""

    def __init__(self, *hosts):
        self.hosts = hosts
        self.dice = random.Random(1)

    @property
    def port(self):
        return self.dice.choice(self.hosts).port

    def start(self):
        for host in self.hosts:
            host.start()

    def stop(self):
        faults = []
        for host in reversed(self.hosts):
            try:
                host.stop()
            except AssertionError as fault:
                faults.append(str(fault))
        assert not faults, "\n".join(faults)

    def wait_for(self, *arguments, **options):
        return self.hosts[0].wait_for(*arguments, **options)


@pytest.fixture(scope="module")
def daemon():
    owner = Owner(max_size="64m", memory="32m").start()
    yield owner
    owner.process.send_signal(signal.SIGCONT)
    owner.close()


@pytest.fixture
def node(origin):
    node = Node({"eth_getBlockByHash": LARGE})
    origin.answers(node)
    return node


def linked(owner, native, nginx):
    pids = {str(pid) for pid in [*native.workers(), *nginx.workers()]}
    native.wait_for(lambda: pids <= owner.pids(), "the links to the owner")


def purge(host, query="everything"):
    return client.fetch(host.port, f"/purge?{query}", method="POST").status


@pytest.fixture(scope="module")
def running_hosts(session_origin, daemon):
    wasm = wasm_of(daemon, session_origin, workers=4)
    native = native_of(daemon, session_origin)
    nginx = nginx_of(daemon, session_origin.address)
    hosts = Hosts(wasm, native, nginx)
    hosts.start()
    linked(daemon, native, nginx)
    yield hosts
    hosts.stop()


class TestThreeHosts:
    @pytest.fixture
    def hosts(self, running_hosts, daemon):
        """The hosts without entries."""
        daemon.purge(everything=True)
        return running_hosts

    def test_response_of_one_host_is_a_hit_in_the_others(self, hosts, daemon, node):
        for turn, by in enumerate(hosts.hosts):
            numbers = range(20 * turn, 20 * turn + 20)
            assert hits(by, numbers) == 0
            by.wait_for(lambda by=by, which=numbers: hits(by, which) == 20, "hits")
            before = node.count()
            for other in hosts.hosts:
                assert hits(other, numbers) == 20
            assert node.count() == before

    def test_purge_by_one_host_is_in_effect_in_all(self, hosts, daemon, node):
        for by in (*hosts.hosts, daemon):
            for host in hosts.hosts:
                host.wait_for(lambda host=host: hits(host, range(5)) == 5, "hits")
            if by is daemon:
                daemon.purge(method="eth_getBlockByHash")
            else:
                assert purge(by) == 200
            # an entry that the first host fetches again is a hit in the others
            for first in hosts.hosts:
                before = node.count()
                assert hits(first, range(5)) == 0 and node.count() == before + 5
                daemon.purge(everything=True)

    def test_responses_are_current_after_purges_under_load(self, hosts, daemon, origin):
        clients = Clients(hosts, clients=9)
        origin.answers(clients.serve)
        with clients:
            for turn in range(times(12, 1000)):
                clients.await_more(40)
                if turn % 4 == 3:
                    clients.version += 1
                    version = clients.version
                    daemon.purge(everything=True)
                    clients.floor = version
                else:
                    assert clients.purge()
            clients.await_more(60)
        assert clients.faults == []


class StoreRun(store_model.Run):
    """The store's model, with all kinds of hosts of one daemon."""

    def __init__(self, seed, origin):
        super().__init__(seed, origin)
        self.owner = Owner(max_size="64m", memory="16m", environment={"SSZIP_TIMES": SHIPPED_LEASE}).start()
        routes = store_model.envoy_routes()
        # each route names its namespace
        own = {"enable": True}
        self.kinds = {
            "wasm": wasm_of(self.owner, origin, routes, settings=own),
            "native": native_of(self.owner, origin, routes, settings=own),
            "nginx": nginx_of(self.owner, origin.address, "$arg_chain"),
        }
        self.hosts = Hosts(*self.kinds.values())

    def start(self):
        self.hosts.start()

    def any(self):
        self.kind = self.dice.choice(list(self.kinds))
        self.server = self.kinds[self.kind]

    def request(self):
        self.any()
        super().request()

    def purge(self):
        self.any()
        super().purge()

    def kill_owner(self):
        self.owner.kill(self.dice.choice([signal.SIGKILL, signal.SIGTERM]))
        self.owner.start()

    def kill_all(self):
        self.any()
        if self.kind == "nginx":
            kill_all(self.server)
        else:
            self.server.end(signal.SIGKILL)
        self.server.start()

    def kill_worker(self):
        nginx = self.kinds["nginx"]
        nginx.kill(self.dice.choice(nginx.workers()))

    def reload(self):
        self.kinds["nginx"].reload()

    def restart(self):
        self.any()
        number = self.dice.choice([signal.SIGTERM, signal.SIGQUIT])
        if self.kind == "nginx":
            end(self.server, number)
        else:
            self.server.end()
        self.server.start()

    def settle(self):
        linked(self.owner, self.kinds["native"], self.kinds["nginx"])

    def stop(self):
        try:
            self.hosts.stop()
        finally:
            self.owner.close()


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_responses_equal_the_model_after_random_purges_and_crashes(seed, origin):
    StoreRun(seed, origin).take_steps(times(90, 150))


class Stand(SandboxStand):
    """A daemon that follows a chain, and all kinds of hosts in front of it."""

    def __init__(self, *arguments, methods=(), times=""):
        self.chain = Chain(*arguments)
        follows = {"namespace": "main", "url": f"http://{self.chain.address}", "interval": "100ms"}
        self.owner = Owner([follows], max_size="64m", memory="32m", environment={"SSZIP_TIMES": times})
        node = cluster("node", address(self.chain.port))
        settings = {"cache_namespace": "main"}
        if methods:
            settings["cache_method"] = list(methods)
        self.wasm = wasm_of(self.owner, settings=settings, clusters=[node])
        self.native = native_of(self.owner, settings=settings, clusters=[node])
        rows = "".join(f"sszip_cache_method {method};\n" for method in methods)
        self.by_nginx = nginx_of(self.owner, self.chain.address, more=rows)
        # a test's requests go to any of them
        self.nginx = Hosts(self.wasm, self.native, self.by_nginx)
        for host in (self.wasm, self.native):
            # log lines about a node that is down, or syncing
            host.expect("finality unknown")

    def __enter__(self):
        self.owner.start()
        self.nginx.start()
        linked(self.owner, self.native, self.by_nginx)
        self.follows()
        return self

    def wait_for_workers(self):
        """Does not purge: entries that other hosts are still storing would be refused."""

    def assert_right_results(self, bodies):
        """Hosts are notified of a change in turn; an entry that is not removed stays."""
        for body, honest in zip(bodies, self.chain.honest(*bodies), strict=True):
            self.nginx.wait_for(lambda body=body, honest=honest: self.result(body) == honest, f"the node's answer to {body}")


class ChainRun(chain_model.Run):
    """The chain's model, with all kinds of hosts of one daemon."""

    stand_type = Stand

    def kill_owner(self):
        self.stand.owner.kill()
        self.stand.owner.start()

    def kill_worker(self):
        self.stand.wasm.end(signal.SIGKILL)
        self.stand.wasm.start()

    def reload(self):
        self.stand.by_nginx.reload()

    def settle(self):
        linked(self.stand.owner, self.stand.native, self.stand.by_nginx)


class TestAChain:
    """No host sends a response of a replaced block."""

    @pytest.mark.parametrize("depth, by", by_tier([(3, 4)], [(1, 1), (3, 4)]))
    def test_entries_of_replaced_blocks_are_removed_by_a_reorg(self, depth, by):
        with Stand() as stand:
            check_replaced_blocks(stand, depth, by)

    def test_method_rows_of_the_operator_expire_on_all_hosts(self):
        with Stand(methods=OPERATOR_METHODS) as stand:
            check_operator_methods(stand)

    @pytest.mark.parametrize("seed", seeds(1, 3))
    def test_responses_equal_those_of_an_honest_node_of_a_moment_ago(self, seed):
        run = ChainRun(seed)
        with run.stand:
            run.take_steps(times(100, 200))

"""A Redis Cluster under test: primaries, their replicas, and the slots of keys."""

import contextlib

from documented_acl import documented_rules
from fault_proxy import FaultProxy
from servers import ADMIN_PASSWORD, PREFIX, Redis, wait_until

from harness.guards import GUARD_SECONDS
from harness.nginx import free_port

SLOTS = 16384
# Milliseconds after which a node that does not respond counts as failed. A busy machine delays
# heartbeats for longer: failovers that no test has caused do no harm, but take time.
NODE_TIMEOUT = 2_000
# of the nodes that remain primaries, see `keep_primaries`
NO_NODE_TIMEOUT = 600_000


class ClusterNode(Redis):
    """A node; its id is known from its start on."""

    id = None

    def __init__(self, tls=None, command=None):
        super().__init__(tls=tls, command=command, rules=documented_rules("cluster|slots"))
        self.bus_port = free_port()
        self.configure(
            "cluster-enabled yes",
            "cluster-config-file nodes.conf",
            f"cluster-port {self.bus_port}",
            f"cluster-node-timeout {NODE_TIMEOUT}",
            "cluster-replica-validity-factor 0",
            "cluster-allow-replica-migration no",
        )
        if tls:
            self.configure("tls-cluster yes", "tls-replication yes")

    def start(self):
        super().start()
        self.id = self.execute("CLUSTER", "MYID")
        return self

    @property
    def is_primary(self):
        return self.is_running and self.role == "master"

    def is_serving(self):
        return b"cluster_state:ok" in self.execute("CLUSTER", "INFO")

    def known_nodes(self):
        """For each node that this one knows: its id, flags, and the id of its primary."""
        lines = self.execute("CLUSTER", "NODES").splitlines()
        return [(words[0], words[2].split(b","), words[3]) for words in map(bytes.split, lines)]

    def values(self):
        """All values of the node by name, without those that have moved meanwhile."""
        with self.connect_as_administrator() as client:
            names = client.execute("KEYS", f"{PREFIX}:1:*")
            # keys of a slot that moves to this node
            commands = [command for name in names for command in (["ASKING"], ["GET", name])]
            values = client.execute_pipeline(commands)[1::2]
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    def set_slot(self, slot, *state):
        assert self.execute("CLUSTER", "SETSLOT", slot, *state) == "OK"


class Cluster:
    """Primaries with equal parts of the slots, and as many replicas for each of them.

    Commands of the administrator that concern keys are sent to the nodes that have them."""

    def __init__(self, primaries=3, replicas=0, tls=None, command=None, has_proxies=False):
        """`has_proxies`: owners connect to each node through a proxy of its own."""
        self._primaries = primaries
        self._scheme = "rediss" if tls else "redis"
        self.nodes = [ClusterNode(tls, command) for _ in range(primaries * (1 + replicas))]
        self.proxies = [FaultProxy(node.port) for node in self.nodes] if has_proxies else []
        for node, proxy in zip(self.nodes, self.proxies, strict=False):
            node.configure(f"cluster-announce-port {proxy.port}")

    @property
    def url(self):
        ports = [server.port for server in self.proxies] or [node.client_port for node in self.nodes]
        return self.url_of(*ports[: self._primaries])

    def url_of(self, *ports):
        """A URL that names these ports only."""
        return f"{self._scheme}+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)

    # the processes

    def start(self):
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        primaries, replicas = self.nodes[: self._primaries], self.nodes[self._primaries :]
        bounds = [SLOTS * number // len(primaries) for number in range(len(primaries) + 1)]
        for node, start, end in zip(primaries, bounds, bounds[1:], strict=False):
            node.execute("CLUSTER", "ADDSLOTSRANGE", start, end - 1)
        for number, node in enumerate(self.nodes, 1):
            node.execute("CLUSTER", "SET-CONFIG-EPOCH", number)
        for node in others:
            first.execute("CLUSTER", "MEET", "127.0.0.1", node.client_port, node.bus_port)
        wait_until(lambda: all(map(self._knows_all_nodes, self.nodes)), "nodes to know each other")
        for number, node in enumerate(replicas):
            node.execute("CLUSTER", "REPLICATE", primaries[number % len(primaries)].id)
        for node in replicas:
            node.wait_until_replicated()
        wait_until(lambda: all(map(self._knows_replicas, self.nodes)), "replicas to be known")
        self.wait_until_serving()
        return self

    def _knows_all_nodes(self, node):
        known = node.known_nodes()
        ids = {node.id for node in self.nodes}
        return {id for id, _, _ in known} == ids and not any(b"handshake" in flags for _, flags, _ in known)

    def _knows_replicas(self, node):
        count = sum(b"slave" in flags for _, flags, _ in node.known_nodes())
        return count == len(self.nodes) - self._primaries

    def wait_until_serving(self):
        wait_until(lambda: all(node.is_serving() for node in self.running_nodes()), "the cluster to serve")

    def keep_primaries(self):
        """Prevents further failovers, so that a former primary that returns becomes a replica."""
        for node in self.running_nodes():
            assert node.execute("CONFIG", "SET", "cluster-node-timeout", NO_NODE_TIMEOUT) == "OK"

    def close(self):
        failures = []
        for server in [*self.proxies, *self.nodes]:
            try:
                server.close()
            except Exception as failure:  # the others end, too
                failures.append(repr(failure))
        assert not failures, failures

    # the nodes

    def running_nodes(self):
        return [node for node in self.nodes if node.is_running]

    def primaries(self):
        return [node for node in self.nodes if node.is_primary]

    def _node(self, id):
        return next(node for node in self.nodes if node.id == id)

    def replica_of(self, primary):
        """A replica of a primary, as soon as another node knows it."""

        def replicas():
            known = self.running_nodes()[0].known_nodes()
            return [id for id, flags, of in known if b"slave" in flags and of == primary.id]

        return self._node(wait_until(replicas, "a replica to be known")[0])

    def slot_of(self, name):
        return self.execute("CLUSTER", "KEYSLOT", name)

    def primary_of_slot(self, slot):
        for first, last, (_, _, id, *_), *_ in self.execute("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self._node(id)
        raise AssertionError(f"no node has slot {slot}")

    def primary_of(self, name):
        """The primary that has a key, or would have it."""
        return self.primary_of_slot(self.slot_of(name))

    def primary_without(self, name):
        """A primary that has other keys."""
        primary = self.primary_of(name)
        return next(node for node in self.primaries() if node is not primary)

    # slots

    @contextlib.contextmanager
    def moving_slot(self, slot, target):
        """Moves the keys of a slot: in the context their former node, which the context has, redirects
        single commands, and after it all of them."""
        source = self.primary_of_slot(slot)
        assert source is not target
        target.set_slot(slot, "IMPORTING", source.id)
        source.set_slot(slot, "MIGRATING", target.id)
        while names := source.execute("CLUSTER", "GETKEYSINSLOT", slot, 10):
            place = ["127.0.0.1", target.client_port, "", 0, GUARD_SECONDS * 1000]
            source.execute("MIGRATE", *place, "AUTH", ADMIN_PASSWORD, "KEYS", *names)
        yield source
        target.set_slot(slot, "NODE", target.id)
        for node in self.primaries():
            node.set_slot(slot, "NODE", target.id)

    # commands of the administrator

    def execute(self, *words):
        """Sends a command that concerns no key to a node that runs."""
        return self.running_nodes()[0].execute(*words)

    def value_names(self):
        return set().union(*(node.value_names() for node in self.primaries()))

    def values(self):
        """All shared values by name."""
        values = {}
        for node in self.primaries():
            values |= node.values()
        return values

    def disconnect_clients(self):
        """Closes the connections of the owners."""
        for node in self.running_nodes():
            node.disconnect_clients()

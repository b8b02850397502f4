"""Machines of a fleet: each has an owner with a store of its own, and a proxy with its cache."""

import itertools
import json
import os

from fleet_status import FleetStatus
from servers import PASSWORD, USER

from harness import client
from harness.envoy import Envoy, address, cluster, route
from harness.guards import SHIPPED_LEASE
from harness.nginx import Nginx
from harness.owner import Owner, owner_of, wait_until_linked
from harness.rpc import call
from harness.sandbox import WasmEnvoy
from harness.stands import VALID, cache_key

NAMESPACE = "main"
TIMES = {"SSZIP_TIMES": SHIPPED_LEASE}
# A busy machine delays replies by more than the default 10 ms.
TIMEOUT = "900ms"
# Of a purge; a busy machine delays confirmations.
PURGE_WAIT = "5s"

# The kernel assigns connections to workers: 30 leave one of three workers out once in 60,000 times.
LOOKUPS_PER_WORKER = 10

# Seconds after which a new Envoy ends its predecessor; requests in flight have to end before.
PARENT_SECONDS = 12

# hashes of transactions that are in no block
_transactions = itertools.count(1)
# Envoys that run at the same time have different base ids
_restart_bases = itertools.count(0)
_HEADERS = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
_ONLY_IF_CACHED = ("Cache-Control", "only-if-cached")

_HTTP = """
sszip on;
sszip_cache on;
%(store)s
sszip_cache_memory 16m;
%(valid)s
sszip_cache_lock_timeout %(lock_timeout)s;
sszip_cache_namespace main;
proxy_http_version 1.1;
"""
_SERVER = """
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { %(head)s proxy_pass http://%(node)s; }
    location = /purge { sszip_cache_purge on; }
}
"""


def secret_file(folder, name, content):
    """A file that only its user can read."""
    path = folder / name
    path.write_text(content)
    path.chmod(0o600)
    return str(path)


def fleet_settings(folder, url, **more):
    """The settings of a fleet with a password and a key file; None omits one."""
    settings = {
        "url": url,
        "user": USER,
        "password_file": secret_file(folder, "password", PASSWORD),
        "key_file": secret_file(folder, "key", "the key of the fleet " * 4),
        "timeout": TIMEOUT,
        "purge_wait": PURGE_WAIT,
    }
    return {name: value for name, value in {**settings, **more}.items() if value is not None}


def directive(fleet):
    """The value of the directive `cache_fleet`."""
    words = [f"{name}={value}" for name, value in fleet.items() if name != "url"]
    return " ".join([fleet["url"], *words])


class FleetOwner(Owner):
    """A daemon with a fleet."""

    def __init__(self, heads, fleet, **settings):
        super().__init__(heads, environment=TIMES, **settings)
        with open(self.config, "a") as config:
            config.write("\n[fleet]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fleet.items()))


def is_followed(chain, status):
    """Whether the owner's status of a chain is the present one of the node."""
    state = chain.state
    block = state["served_head"]["number"], state["finalized"]["number"]
    return status["state"] == "following" and (status["head"], status["final"]) == block


class Machine:
    """nginx and a daemon, which follows the node."""

    def __init__(self, chain, fleet, workers=2, valid=VALID, lock_timeout="30s", beacon=None, **settings):
        """`lock_timeout`: a batch waits for other machines for this time without two lookup timeouts.

        `beacon`: the daemon follows this node over the Beacon API, in place of the node of the requests."""
        self.chain = chain
        self._beacon = beacon
        self._valid = valid
        self._lock_timeout = lock_timeout
        self._workers = workers
        self.server, self.owner = self._new_servers(fleet, workers, settings)

    def _new_servers(self, fleet, workers, settings):
        owner = self._new_owner(fleet, settings)
        return Nginx(self._config(f"sszip_cache_owner unix:{owner.socket};"), workers=workers), owner

    def _new_owner(self, fleet, settings, **others):
        """A daemon that follows the node, and `others` by namespace."""
        nodes = {NAMESPACE: self.chain, **others}
        heads = [
            {"namespace": name, "url": f"http://{node.address}", "interval": "100ms"} for name, node in nodes.items()
        ]
        if self._beacon:
            heads[0] |= {"url": f"http://{self._beacon.address}", "api": "beacon"}
        return FleetOwner(heads, fleet, **{"max_size": "64m", "memory": "16m"} | settings)

    def _config(self, store, head=""):
        return self._http(store) + _SERVER % {"head": head, "node": self.chain.address}

    def _http(self, store):
        valid = "\n".join(f"sszip_cache_valid {value};" for value in self._valid)
        return _HTTP % {"store": store, "valid": valid, "lock_timeout": self._lock_timeout}

    def start(self):
        self.owner.start()
        self.server.start()
        self.wait_until_ready()
        return self

    def wait_until_ready(self):
        """Waits until the workers are linked, and the chain is followed."""
        wait_until_linked(self.server, self.owner)
        self.wait_for(self._follows, "the chain to be followed")

    def _follows(self):
        (status,) = self.owner.status()["chains"]
        # no slot is missed: the number of a block is its slot
        return is_followed(self._beacon or self.chain, status)

    def close(self):
        try:
            self.server.stop()
        finally:
            self.owner.close()

    def wait_for(self, condition, description):
        return self.server.wait_for(condition, description)

    # requests

    def fetch(self, body):
        response = client.fetch(self.server.port, "/", method="POST", headers=_HEADERS, body=body)
        assert response.status == 200, response.body
        return response

    def page(self, path):
        """The response to a request of the Beacon API."""
        response = client.fetch(self.server.port, path, headers=[("Accept", "application/json"), ("Accept-Encoding", "gzip")])
        assert response.status == 200, response.body
        return response

    def result(self, body):
        response = json.loads(self.fetch(body).decoded)
        return response.get("result", response.get("error"))

    def assert_right(self, *calls):
        """Checks that the responses to calls equal the responses of an honest node."""
        for body, honest in zip(calls, self.chain.honest(*calls), strict=True):
            assert self.result(body) == honest, f"the response to {body} is not the node's"

    def requested(self, *calls):
        """Sends calls, checks the responses, and returns the number of requests that the node
        received for them."""
        before = self._node_requests(calls)
        self.assert_right(*calls)
        return self._node_requests(calls) - before

    def _node_requests(self, calls):
        methods = {json.loads(body)["method"] for body in calls}
        return sum(self.chain.count(method) for method in methods)

    def key(self, body):
        """The cache key of a call; None if it is not looked up. The node receives no request."""
        headers = [*_HEADERS, _ONLY_IF_CACHED]
        return cache_key(client.fetch(self.server.port, "/", method="POST", headers=headers, body=body))

    # the owner

    @property
    def fleet(self):
        return FleetStatus(self.owner.status()["fleet"])

    @property
    def position(self):
        """The position in the purge stream: purges up to it are in effect on this machine."""
        return self.fleet.json["stream"]["position"] or 0

    def wait_for_position(self, position):
        self.wait_for(lambda: self.position >= position, f"position {position} in the purge stream")

    @property
    def namespace(self):
        (status,) = self.owner.status()["chains"]
        return status["namespace"]

    def wait_until_used(self):
        """Waits until lookups of all workers query the fleet: the owner uses it, and each worker knows the identity
        of the chain. The owner probes a server whose breaker is open. It publishes the identity after its first
        poll of the node, and again after a purge of everything or of the namespace."""
        self.wait_for(lambda: self.fleet.is_used, "the fleet to be used")
        # calls to a node that is followed over the Beacon API are not shared
        if not self._beacon:
            self.wait_for(self._all_workers_query_fleet, "the workers to query the fleet")
        return self

    def _all_workers_query_fleet(self):
        count = LOOKUPS_PER_WORKER * self._workers
        before = self.fleet.lookups()
        for _ in range(count):
            self._send_lookup()
        return self.fleet.lookups() >= before + count

    def _send_lookup(self):
        """Sends a request that queries the fleet, and whose response is not shared: it is `null`."""
        number = next(_transactions)
        self.fetch(call("eth_getTransactionReceipt", f'["0x{number:064x}"]'))

    def wait_until_unused(self):
        self.wait_for(lambda: not self.fleet.is_used, "the fleet not to be used")

    def purge(self, **scope):
        """Purges by the owner, and returns its reply."""
        status, _, body = self.owner.request("POST", "/v1/purges", json.dumps(scope))
        assert status == 200, body
        return json.loads(body)

    def has_entry(self, key):
        """Whether the owner itself has an entry; the fleet is not queried for it."""
        return self.owner.request("GET", f"/v1/entries/{key}")[0] == 200

    def restart_owner(self):
        """Kills the daemon, and starts it again with the same store."""
        self.owner.kill()
        self.owner.start()
        self.wait_until_ready()


class StoreMachine(Machine):
    """nginx, whose cache manager is the owner."""

    def _new_servers(self, fleet, workers, settings):
        store = f"sszip_cache_path @prefix@/cache max_size=64m memory=16m;\nsszip_cache_fleet {directive(fleet)};"
        head = f"sszip_cache_head http://{self.chain.address} interval=100ms;"
        nginx = Nginx(self._config(store, head), workers=workers, environment=TIMES)
        return nginx, owner_of(nginx)

    def start(self):
        self.server.start()
        self.wait_until_ready()
        return self

    def close(self):
        self.server.stop()


class EnvoyMachine(StoreMachine):
    """Envoy with the module, whose library is the owner."""

    def __init__(self, chain, fleet, workers=2, can_restart=False, **settings):
        """`can_restart`: another Envoy may take over, see `restart_hot`."""
        super().__init__(chain, fleet, workers, **settings)
        self._former = []
        if can_restart:
            self._base_id = 40_000 + os.getpid() % 30_000 * 8 + next(_restart_bases) % 8
            self._allow_restart(self.server)

    def _allow_restart(self, envoy):
        epoch = str(len(self._former))
        envoy.options = ["--base-id", str(self._base_id), "--restart-epoch", epoch, "--drain-strategy", "immediate"]
        envoy.options += ["--parent-shutdown-time-s", str(PARENT_SECONDS), "--drain-time-s", "1"]
        envoy.restarts = True

    def restart_hot(self):
        """Starts another Envoy, which takes over the sockets at once, and the store when the present
        Envoy ends. Returns the present Envoy, which completes its requests and ends by itself."""
        former = self.server
        self._former.append(former)
        envoy = Envoy([], workers=former.concurrency, environment=TIMES)
        text = json.dumps(former.configuration).replace("@prefix@", str(former.prefix))
        envoy.configuration = json.loads(text)
        envoy.port = envoy.direct = former.port
        envoy.admin = former.admin
        envoy.expect(r"fleet rediss?(\+\w+)?://")
        self._allow_restart(envoy)
        self.server = envoy
        envoy.start()
        return former

    def close(self):
        try:
            super().close()
        finally:
            for former in self._former:
                former.stop()

    def _new_servers(self, fleet, workers, settings):
        envoy = Envoy(
            [route("/purge", {"cache_purge": True}), route("/")],
            settings={
                "cache": True,
                "cache_path": "@prefix@/cache max_size=64m memory=16m",
                "cache_fleet": directive(fleet),
                "cache_memory": "16m",
                "cache_valid": self._valid,
                "cache_lock_timeout": self._lock_timeout,
                "cache_namespace": NAMESPACE,
                "cache_head": f"http://{self.chain.address} interval=100ms",
            },
            workers=workers,
            environment=TIMES,
            clusters=[cluster("node", address(self.chain.port))],
        )
        # log lines about a server that is not reachable
        envoy.expect(r"fleet rediss?(\+\w+)?://")
        return envoy, owner_of(envoy)


class WasmMachine(Machine):
    """Envoy with the proxy-wasm filter, and a daemon."""

    def __init__(self, chain, fleet, workers=1, **settings):
        """`filter_settings`: further settings of the filter."""
        super().__init__(chain, fleet, workers, **settings)

    def _new_servers(self, fleet, workers, settings):
        own = {"cache": True, "cache_valid": list(self._valid), "cache_namespace": NAMESPACE}
        own |= settings.pop("filter_settings", {})
        owner = self._new_owner(fleet, settings)
        envoy = WasmEnvoy(
            [route("/purge", {"cache_purge": True}), route("/")],
            owner=owner,
            workers=workers,
            settings=own,
            clusters=[cluster("node", address(self.chain.port))],
        )
        # log lines about purges, and about an owner that a test restarts
        envoy.expect("purge of|owner")
        return envoy, owner

    def wait_until_ready(self):
        """Waits until the chain is followed. The sandboxes may not have reached the owner yet."""
        self.wait_for(self._follows, "the chain to be followed")


class ConfiguredMachine(Machine):
    """nginx with servers of the test's own, and a daemon.

    In `config`, `@node@` is the node, and `@node_NAME@` the one of the namespace NAME in `others`. One
    of the servers listens on `@port@`."""

    def __init__(self, chain, fleet, config, others=None, main="", **settings):
        self._servers = config
        self.others = others or {}
        self._main = main
        super().__init__(chain, fleet, **settings)

    def _new_servers(self, fleet, workers, settings):
        owner = self._new_owner(fleet, settings, **self.others)
        http = self._config(f"sszip_cache_owner unix:{owner.socket};")
        return Nginx(http, workers=workers, main=self._main), owner

    def _config(self, store, head=""):
        servers = self._servers.replace("@node@", self.chain.address)
        for name, node in self.others.items():
            servers = servers.replace(f"@node_{name}@", node.address)
        return self._http(store) + servers

    def _follows(self):
        nodes = {NAMESPACE: self.chain, **self.others}
        statuses = {status["name"]: status for status in self.owner.status()["chains"]}
        return all(is_followed(node, statuses[name]) for name, node in nodes.items())


MACHINES = {
    "daemon": Machine,
    "nginx": StoreMachine,
    "envoy": EnvoyMachine,
    "wasm": WasmMachine,
    "configured": ConfiguredMachine,
}


# calls about blocks; no follower sends these methods


def receipts(number):
    return call("eth_getBlockReceipts", f'["0x{number:x}"]')


def balance(number, account=1):
    """A call with any number of different accounts."""
    return call("eth_getBalance", f'["0x{account:040x}","0x{number:x}"]')


# sharing

# where a value has its cache key (shared-core/src/cache/fleet/value.rs)
KEY_AT = slice(64, 96)


_probes = itertools.count(1 << 40)


def send_probe(machine):
    """Sends a call whose value ends the pause after a refused one."""
    machine.fetch(balance(machine.chain.final, next(_probes)))


def wait_until_sharing_after_a_loss(machines, position):
    """Waits until machines use the fleet after the purge stream was lost, whose position was `position` at most. Each
    of them may have set a fence, and does not use values that others store before they know it."""
    for machine in machines:
        machine.wait_for_position(position + 1)
        machine.wait_until_used()
    last = max(machine.position for machine in machines)
    for machine in machines:
        machine.wait_for_position(last)


def share(machine, redis, *calls):
    """Sends calls until the fleet has a new value for each; returns the names of the values."""
    names = []
    # a value that can't be stored at once is not stored later
    machine.wait_for(lambda: machine.fleet.stores_values or send_probe(machine), "stores to be used")
    for body in calls:
        before = redis.values()

        def new_value(body=body, before=before):
            machine.fetch(body)
            values = redis.values().items()
            # a value may expire while they are read
            new = {value[KEY_AT].hex(): name for name, value in values if value and value != before.get(name)}
            # values of earlier calls may arrive meanwhile, from this machine or another
            return new.get(machine.key(body)) if new else None

        names.append(machine.wait_for(new_value, f"a value of {body}"))
    return names


def wait_until_shared_again(a, b, redis):
    """Waits until machine `b` uses new values of `a`, after a restart or a failover of the server, in which the purge
    stream may have lost records. A machine that notices it after it is connected sets a fence, and earlier values are
    not used."""
    accounts = itertools.count(10**6)

    def is_shared():
        body = balance(a.chain.final, next(accounts))
        share(a, redis, body)
        return b.requested(body) == 0

    a.wait_for(is_shared, "new values to be used")

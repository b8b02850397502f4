"""Sentinels under test with the primary and the replicas that they watch, and a simulated Sentinel."""

import contextlib
import socketserver
import threading

from documented_acl import documented_rules, documented_sentinel_rules
from machines import secret_file
from servers import ADMIN_PASSWORD, Redis, wait_until

from harness.guards import GUARD_SECONDS
from harness.nginx import free_port

# the name of the primary
NAME = "fleet-primary"
# Milliseconds after which a primary that does not respond counts as down: while a test lets it fail.
# Otherwise it never does, as a busy machine may delay its replies for longer.
DOWN_AFTER = 1_000
NEVER_DOWN = 600_000


class DataNode(Redis):
    """A primary, or a replica."""

    def __init__(self, tls=None, command=None):
        super().__init__(tls=tls, command=command, rules=documented_rules("role"))
        if tls:
            self.configure("tls-replication yes")


class Sentinel(Redis):
    """A Sentinel. The owners use a user with exactly the rules of docs/fleet.md."""

    user, password = "sszip-sentinel", "password-of-the-sentinels"
    arguments = ("--sentinel",)

    def __init__(self, primary, quorum, tls=None, command=None):
        super().__init__(tls=tls, command=command, rules=documented_sentinel_rules())
        if tls:
            self.configure("tls-replication yes")
        self.configure(
            f"sentinel monitor {NAME} 127.0.0.1 {primary.client_port} {quorum}",
            f"sentinel auth-user {NAME} default",
            f"sentinel auth-pass {NAME} {ADMIN_PASSWORD}",
            f"sentinel down-after-milliseconds {NAME} {NEVER_DOWN}",
            f"sentinel failover-timeout {NAME} 5000",
            "sentinel sentinel-user default",
            f"sentinel sentinel-pass {ADMIN_PASSWORD}",
        )

    def start(self):
        super().start()
        # a Sentinel whose timer was delayed by 2 s, as on a busy machine, does nothing for 30 s
        assert self.execute("SENTINEL", "DEBUG", "tilt-trigger", NEVER_DOWN) == "OK"
        return self

    def primary(self):
        """The fields of the primary."""
        return _fields(self.execute("SENTINEL", "MASTER", NAME))

    def replicas(self):
        """The fields of each replica."""
        return [_fields(fields) for fields in self.execute("SENTINEL", "REPLICAS", NAME)]


def _fields(words):
    words = [word.decode() for word in words]
    return dict(zip(words[::2], words[1::2], strict=True))


class SentinelGroup:
    """A primary, its replicas, and the Sentinels that watch them."""

    def __init__(self, replicas=0, sentinels=1, tls=None, command=None):
        self._scheme = "rediss" if tls else "redis"
        self.nodes = [DataNode(tls, command) for _ in range(1 + replicas)]
        quorum = sentinels // 2 + 1
        self.sentinels = [Sentinel(self.nodes[0], quorum, tls, command) for _ in range(sentinels)]

    @property
    def servers(self):
        return [*self.nodes, *self.sentinels]

    @property
    def url(self):
        return self.url_of(*(sentinel.client_port for sentinel in self.sentinels))

    def url_of(self, *ports, name=NAME):
        """A URL that names Sentinels at these ports."""
        return f"{self._scheme}+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + f"/{name}"

    def start(self):
        primary, *replicas = self.nodes
        primary.start()
        for replica in replicas:
            replica.start().replicate(primary)
        for sentinel in self.sentinels:
            sentinel.start()
        wait_until(lambda: all(map(self._knows_all_servers, self.sentinels)), "Sentinels to know all servers")
        return self

    def _knows_all_servers(self, sentinel):
        primary, replicas = sentinel.primary(), sentinel.replicas()
        are_linked = all(replica.get("master-link-status") == "ok" for replica in replicas)
        counts = len(replicas), int(primary["num-other-sentinels"])
        return primary["flags"] == "master" and are_linked and counts == (len(self.nodes) - 1, len(self.sentinels) - 1)

    def close(self):
        failures = []
        for server in reversed(self.servers):
            try:
                server.close()
            except Exception as failure:  # the others end, too
                failures.append(repr(failure))
        assert not failures, failures

    def execute(self, *words):
        """Sends a command to a Sentinel that runs."""
        return next(sentinel for sentinel in self.sentinels if sentinel.is_running).execute(*words)

    def set_down_after(self, milliseconds):
        """Sets the time after which a primary that does not respond counts as down."""
        for sentinel in self.sentinels:
            if sentinel.is_running:
                reply = sentinel.execute("SENTINEL", "SET", NAME, "down-after-milliseconds", milliseconds)
                assert reply == "OK"

    def wait_for_failover(self, former):
        """Waits until another server is the primary, which it remains."""
        wait_until(lambda: self.primary() is not former, "a failover")
        self.set_down_after(NEVER_DOWN)

    def primary(self):
        """The primary that the Sentinels name."""
        _, port = self.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return next(node for node in self.nodes if node.client_port == int(port))


def sentinel_settings(folder, password=Sentinel.password):
    """The settings of a fleet for its user on the Sentinels."""
    return {
        "sentinel_user": Sentinel.user,
        "sentinel_password_file": secret_file(folder, "sentinel-password", password),
    }


class SimulatedSentinel:
    """A Sentinel that names the server that a test chooses. It watches none."""

    def __init__(self, primary):
        self.port = free_port()
        self.primary = primary
        # the commands that it has received, in upper case
        self.commands = []
        self._server = _Server(("127.0.0.1", self.port), _Connection)
        self._server.sentinel = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"redis+sentinel://127.0.0.1:{self.port}/{NAME}"

    def reply(self, words):
        words = [word.upper() for word in words]
        self.commands.append(words[0])
        if words[0] in (b"AUTH", b"HELLO"):
            return b"+OK\r\n"
        if words == [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", NAME.upper().encode()]:
            port = b"%d" % self.primary.client_port
            return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port)
        return b"-ERR unknown command\r\n"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(GUARD_SECONDS)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


class _Connection(socketserver.StreamRequestHandler):
    def handle(self):
        # clients may reset their connection
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline():
                words = [self._word() for _ in range(int(line[1:]))]
                self.wfile.write(self.server.sentinel.reply(words))

    def _word(self):
        length = int(self.rfile.readline()[1:])
        return self.rfile.read(length + 2)[:-2]

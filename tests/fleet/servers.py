"""A server of the Redis protocol under test; the default is Debian's redis-server."""

import contextlib
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import saved_logs
from documented_acl import documented_rules
from resp_client import ErrorReply, RespClient

from harness import guards, processes
from harness.guards import GUARD_SECONDS
from harness.nginx import free_port

REDIS_SERVER = shutil.which("redis-server")
ADMIN_PASSWORD = "password-of-the-administrator"
# the user of the owners, and the prefix of their keys
USER = "sszip"
PASSWORD = "password-of-the-fleet"
PREFIX = "sszip"


def wait_until(condition, description):
    """Waits for a server; returns the value of the condition."""
    return guards.wait_until(condition, lambda: f"timed out waiting for {description}")


class Redis:
    """A redis-server with a folder of its own, which persists nothing.

    `default` is the administrator of the tests. The owners use USER, with exactly the rules of
    docs/fleet.md."""

    user, password = USER, PASSWORD
    # of the command line, after the configuration
    arguments = ()

    def __init__(self, tls=None, client_certificates=False, rules=None, command=None):
        """`tls`: a Certificates; the server then has a port for TLS in addition. `command`: another
        server of the same protocol and configuration."""
        self._command = command or [REDIS_SERVER]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sszip-redis-"))
        self.port = free_port()
        self.tls_port = free_port() if tls else None
        self.process = None
        self.is_paused = False
        rules = documented_rules() if rules is None else rules
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {self.folder}",
            f"logfile {self.folder}/redis.log",
            'save ""',
            "appendonly no",
            "maxmemory 64mb",
            f"user default on >{ADMIN_PASSWORD} ~* &* +@all",
            f"user {self.user} on >{self.password} {' '.join(rules)}",
            f"masterauth {ADMIN_PASSWORD}",
            "repl-diskless-sync-delay 0",
        ]
        if tls:
            lines += [
                f"tls-port {self.tls_port}",
                f"tls-cert-file {tls.certificate}",
                f"tls-key-file {tls.key}",
                f"tls-ca-cert-file {tls.ca}",
                f"tls-auth-clients {'yes' if client_certificates else 'no'}",
            ]
        self._config = self.folder / "redis.conf"
        self.configure(*lines)

    def configure(self, *lines):
        """Adds lines to the configuration of a server that is not started yet."""
        with open(self._config, "a") as config:
            config.write("\n".join(lines) + "\n")

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client_port(self):
        """The port for owners and other servers."""
        return self.tls_port or self.port

    # the process

    def start(self):
        command = [*self._command, self._config, *self.arguments]
        assert command[0], "redis-server is missing; run scripts/setup test"
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        guards.wait_until(self._is_ready, self.log)
        return self

    def _is_ready(self):
        assert self.process.poll() is None, self.log()
        return self._responds()

    def _responds(self):
        try:
            return self.execute("PING") == "PONG"
        except (OSError, ErrorReply):
            return False

    @property
    def is_running(self):
        return bool(self.process) and self.process.poll() is None and not self.is_paused

    def kill(self):
        """Ends the server at once, with all that it has stored."""
        self.process.kill()
        self.process.wait(GUARD_SECONDS)

    def pause(self):
        """Stops the process; its connections stay open."""
        processes.stop(self.process.pid)
        self.is_paused = True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def close(self):
        try:
            if self.process and self.process.poll() is None:
                if self.is_paused:
                    self.resume()
                self.process.terminate()
                self.process.wait(GUARD_SECONDS)
        finally:
            saved_logs.discard(self.folder)

    def log(self):
        path = self.folder / "redis.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def connect_as_owner(self):
        """A connection of the owners' user."""
        client = RespClient(self.port)
        client.execute("AUTH", self.user, self.password)
        return client

    # commands of the administrator

    def execute(self, *words):
        """Sends a command on a connection of its own."""
        with self.connect_as_administrator() as client:
            return client.execute(*words)

    def connect_as_administrator(self):
        client = RespClient(self.port)
        client.execute("AUTH", ADMIN_PASSWORD)
        return client

    def info(self, section):
        """The fields of a section of INFO, as text."""
        lines = self.execute("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls(self, command):
        """Number of calls of a command that the server has executed."""
        return self._count(f"cmdstat_{command}", "commandstats")

    def errors(self, code):
        """Number of errors that the server has sent with a code, such as `MOVED`."""
        return self._count(f"errorstat_{code}", "errorstats")

    def _count(self, name, section):
        text = self.info(section).get(name, "")
        found = re.match(r"(?:calls|count)=(\d+)", text)
        return int(found[1]) if found else 0

    @property
    def role(self):
        """`master` or `slave`; None while a Sentinel closes the connections to change it."""
        with contextlib.suppress(ConnectionError):
            return self.execute("ROLE")[0].decode()

    def replicate(self, primary):
        """Makes the server a replica, and waits until it has the primary's data."""
        assert self.execute("REPLICAOF", "127.0.0.1", primary.client_port) == "OK"
        self.wait_until_replicated()

    def wait_until_replicated(self):
        wait_until(lambda: self.info("replication").get("master_link_status") == "up", "replication")

    def owner_connections(self):
        """Number of connections of owners."""
        return self.execute("CLIENT", "LIST").decode().count(f" user={self.user} ")

    def primary_of(self, name):
        """The server that has a key."""
        return self

    def value_names(self):
        """The names of all shared values."""
        return set(self.execute("KEYS", f"{PREFIX}:1:*"))

    def values(self):
        """All shared values by name."""
        names = sorted(self.value_names())
        return dict(zip(names, self.execute("MGET", *names), strict=True)) if names else {}

    def set_value(self, name, value):
        """Replaces a shared value; its remaining lifetime stays."""
        assert self.execute("SET", name, value, "KEEPTTL") == "OK"

    def set_rules(self, *rules):
        """Changes the rules of the owners' user, also on its open connections."""
        assert self.execute("ACL", "SETUSER", self.user, *rules) == "OK"

    def disconnect_clients(self):
        """Closes the connections of the owners."""
        return self.execute("CLIENT", "KILL", "USER", self.user)

    def denied_commands(self):
        """Commands, keys and passwords of the owners that the ACL has rejected, as text."""
        entries = self.execute("ACL", "LOG")
        return [" ".join(str(member) for member in entry) for entry in entries]

    def forget_denied_commands(self):
        assert self.execute("ACL", "LOG", "RESET") == "OK"

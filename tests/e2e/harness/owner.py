"""The cache's owner as a daemon, with a folder of its own."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import weakref

import saved_logs

from harness.guards import GUARD_SECONDS, server_environment, wait_until
from harness.processes import assert_not_crashed

SSZIP_CACHED = os.environ.get("SSZIP_CACHED", "build/bin/sszip-cached")


# seconds for a query when a test has failed, whose owner may hang
STATUS_SECONDS = 5
_started = weakref.WeakSet()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=GUARD_SECONDS):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """The requests of an operator to an owner, over its socket."""

    def __init__(self, path):
        self.socket = str(path)

    def request(self, method, path, body=None, headers=()):
        connection = UnixConnection(self.socket)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def status(self):
        status, _, body = self.request("GET", "/v1/status")
        assert status == 200, body
        return json.loads(body)

    def answers(self):
        try:
            self.status()
        except OSError:
            return False
        return True

    def pid(self):
        """The owner's process id; None while it is unreachable."""
        try:
            return self.status()["pid"]
        except (OSError, http.client.HTTPException):
            return None

    def pids(self):
        """Ids of the processes that receive its events; none while it is unreachable."""
        try:
            return {name.split("-")[0] for name in self.status()["processes"]}
        except (OSError, http.client.HTTPException):
            return set()

    def purge(self, **scope):
        status, _, body = self.request("POST", "/v1/purges", json.dumps(scope))
        assert status == 200, body
        return json.loads(body)["generation"]


def owner_of(nginx):
    """The owner of nginx's own store, in its folder `cache`."""
    return Client(nginx.prefix / "cache/owner.sock")


def _owner_of_server(server):
    return getattr(server, "owner", None) or owner_of(server)


def wait_until_linked(nginx, owner=None):
    """Waits until each worker has reached the owner. After a reload of nginx this is the new cache manager: new workers
    may reach the former one first, which ends a moment later."""
    owner = owner or _owner_of_server(nginx)

    def linked():
        pids = {str(pid) for pid in nginx.workers()}
        return pids and owner.pid() not in nginx.former_managers and pids <= owner.pids()

    nginx.wait_for(linked, "the workers to reach the owner")


def wait_until_open(server, owner=None):
    """Waits until each process knows that its session is open. Until then its lookups are misses if an attempt
    to reach the owner has failed, as after a restart. It confirms a purge, here of an unused key, in its session."""
    wait_until_linked(server, owner)
    (owner or _owner_of_server(server)).purge(key="0" * 64)


def _lines(settings):
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


class Owner(Client):
    def __init__(self, heads=(), environment=None, **settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sszip-owner-"))
        self.folder.chmod(0o755)
        super().__init__(self.folder / "socket")
        settings = {"socket": self.socket, "path": str(self.folder / "store"), **settings}
        self.config = self.folder / "cached.toml"
        tables = ("\n[[head]]\n" + _lines(head) for head in heads)
        self.config.write_text(_lines(settings) + "".join(tables))
        self.environment = environment or {}
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [SSZIP_CACHED, str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=server_environment(self.environment),
            )
        _started.add(self)
        wait_until(self._is_ready, self.log)
        return self

    def _is_ready(self):
        assert self.process.poll() is None, self.log()
        return self.answers()

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def save_status(self):
        """Writes the status to the folder, unless the owner has ended or hangs."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = UnixConnection(self.socket, STATUS_SECONDS)
            connection.request("GET", "/v1/status")
            (self.folder / "status.json").write_bytes(connection.getresponse().read())

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        assert_not_crashed("the owner", self.process.wait(GUARD_SECONDS))

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill(signal.SIGTERM)
        saved_logs.discard(self.folder)


@saved_logs.at_failure.append
def _save_statuses(_target):
    for owner in list(_started):
        owner.save_status()

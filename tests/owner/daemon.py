"""sszip-cached under test, and clients of it that share no code with it."""

import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

from harness.guards import GUARD_SECONDS, wait_until

CACHED = pathlib.Path(os.environ.get("SSZIP_CACHED", "build/bin/sszip-cached"))
NAMESPACE = "5a" * 16


def monotonic():
    """The clock of the protocol, in milliseconds."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


def key(n):
    """A hash, on which the owner relies."""
    return hashlib.sha256(str(n).encode()).hexdigest()


class Client(http.client.HTTPConnection):
    """HTTP over the owner's socket."""

    def __init__(self, path, timeout=GUARD_SECONDS):
        super().__init__("owner", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.fields = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


def _lines(settings):
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


class Daemon:
    """One sszip-cached with a directory of its own."""

    def __init__(self, folder, heads=(), **settings):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket = self.folder / "socket"
        self.store = self.folder / "store"
        self.config = self.folder / "cached.toml"
        self.log = self.folder / "log"
        self.process = None
        self.files = None  # soft and hard limit of open files
        settings = {"socket": str(self.socket), "path": str(self.store), "max_size": "64m", "memory": "8m"} | settings
        tables = ("\n[[head]]\n" + _lines(head) for head in heads)
        self.config.write_text(_lines(settings) + "".join(tables))

    def spawn(self):
        with open(self.log, "ab") as log:
            command = [CACHED, self.config]
            if self.files:
                command = ["prlimit", "--nofile={}:{}".format(*self.files), *command]
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        return self

    def start(self):
        self.spawn()
        self.wait()
        return self

    def wait(self):
        """Waits until the daemon serves."""

        def serves():
            assert self.process.poll() is None, self.log_text()
            try:
                return self.status()["pid"] == self.process.pid
            except (OSError, http.client.HTTPException):
                return False

        self.wait_for(serves, "the daemon to serve")

    def wait_for(self, condition, description):
        """Waits until `condition` returns a true value, and returns it."""
        return wait_until(condition, lambda: f"waited in vain for {description}\n{self.log_text()[-3000:]}")

    def kill(self):
        self.process.kill()
        self.process.wait(GUARD_SECONDS)

    def stop(self, by=signal.SIGTERM):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(by)
            assert self.process.wait(GUARD_SECONDS) == 0, self.log_text()

    def log_text(self):
        return self.log.read_text()

    def request(self, method, path, body=None, fields=None):
        client = Client(self.socket)
        try:
            client.request(method, path, body, fields or {})
            return Answer(client.getresponse())
        finally:
            client.close()

    def status(self):
        return self.request("GET", "/v1/status").json()

    @property
    def generation(self):
        return self.status()["generation"]

    def get(self, n):
        return self.request("GET", f"/v1/entries/{key(n)}")

    def put(self, n, body=b"body", **fields):
        """Puts an entry. The headers are named without sszip-; None omits one."""
        if "generation" not in fields:
            fields["generation"] = self.generation
        fields = {"fresh": 3_600_000, "class": "immutable", "namespace": NAMESPACE} | fields
        head = {f"sszip-{name}": str(value) for name, value in fields.items() if value is not None}
        return self.request("PUT", f"/v1/entries/{key(n)}", body, head)

    def purge(self, **scope):
        return self.request("POST", "/v1/purges", json.dumps(scope))

    def begin_purge(self, **scope):
        """Starts a purge in a thread, whose `wait` returns the response."""
        return Later(lambda: self.purge(**scope))


class Later(threading.Thread):
    def __init__(self, work):
        super().__init__(daemon=True)
        self.work = work
        self.answer = None
        self.at = None
        self.start()

    def run(self):
        self.answer = self.work()
        self.at = monotonic()

    def wait(self):
        self.join(GUARD_SECONDS)
        assert self.answer is not None
        return self.answer

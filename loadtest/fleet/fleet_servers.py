"""The servers of the measurements: redis-server, the node's chain, and nginx with a fleet."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess

import machine
from stack import MODULE, Coder, free_port, stop, wait_for, wait_for_port

VALID = " ".join(f"sszip_cache_valid {one} 1h;" for one in ("immutable", "unfinalized", "tip"))


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def exchange(path, method, target, body=None):
    """Sends a request to a Unix socket, and returns the JSON of the response."""
    connection = UnixConnection(path)
    try:
        connection.request(method, target, body, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise SystemExit(f"{method} {target} at {path}: status {response.status}: {content[:300]!r}")
        return json.loads(content)
    finally:
        connection.close()


class Redis:
    """A redis-server that persists nothing."""

    def __init__(self, work, addresses=("127.0.0.1",)):
        self.addresses = addresses
        self.port = free_port()
        self.log = work / f"redis-{self.port}.log"
        self.key = work / f"fleet-key-{self.port}"
        self.key.write_text("the key of the measured fleet " * 2)
        self.key.chmod(0o600)
        program = shutil.which("redis-server")
        if not program:
            raise SystemExit("redis-server is missing; run apt-get install redis-server")
        self._command = [program, "--port", str(self.port), "--bind", "127.0.0.1", *set(addresses) - {"127.0.0.1"}]
        self._command += ["--protected-mode", "no", "--save", "", "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lfu"]
        self._command += ["--logfile", str(self.log), "--dir", str(work)]
        self._start()

    def _start(self):
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_port(self.port, self.process, self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)
        stop(self.process)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def fleet(self, prefix, address="127.0.0.1", **parameters):
        """The value of `sszip_cache_fleet`; entries of another prefix are not shared with it."""
        words = {"key_file": self.key, "prefix": prefix, **parameters}
        return f"redis://{address}:{self.port} " + " ".join(f"{name}={value}" for name, value in words.items())

    def execute(self, *words):
        """Sends a command, and returns the first line of its reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            parts = [f"${len(str(word).encode())}\r\n{word}\r\n" for word in words]
            client.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return client.makefile("rb").readline().rstrip().decode()

    def value_count(self):
        return int(self.execute("DBSIZE").lstrip(":"))


def cache_coder(name, head, fleet=None, memory="64m", valid=VALID, more=""):
    """nginx with a cache that follows the node; `fleet` is the value of the directive."""
    http = "sszip_cache_path @PREFIX@/cache max_size=4g memory=256m; "
    http += f"sszip_cache_memory {memory}; sszip_cache_lookup_timeout 100ms;"
    if fleet:
        http += f" sszip_cache_fleet {fleet};"
    directives = f"sszip on; sszip_cache on; sszip_cache_namespace fleet; {valid} sszip_cache_head {head}; {more}"
    return Coder(name, directives, "gzip", http=http, module=MODULE)


def wait_until_ready(nginx):
    """Waits until the owner follows the chain, and its fleet, if there is one, is used."""

    def is_ready():
        status = nginx.owner_status()
        fleet = status.get("fleet")
        return all(chain["final"] for chain in status["chains"]) and (fleet is None or fleet["up"])

    wait_for(is_ready, "the chain to be followed, and the fleet to be used")


def machine_facts():
    """Rows that describe the machine."""
    redis = machine.output("redis-server", "--version")
    return [
        ("Commit", machine.commit() or "unknown"),
        ("Machine", f"{machine.cpu_model()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the run"),
        ("Server", redis),
    ]

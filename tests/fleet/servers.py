"""Debian's redis-server under test, and a client of it that shares no code with sszip."""

import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time

import saved_logs

from harness import processes
from harness.guards import GUARD_SECONDS
from harness.nginx import free_port

REDIS_SERVER = shutil.which("redis-server")
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs/fleet.md"
ADMIN_PASSWORD = "password-of-the-administrator"
# the user of the owners, and the prefix of their keys
USER = "sszip"
PASSWORD = "password-of-the-fleet"
PREFIX = "sszip"

_ACL_USER = re.compile(r"(?:\bACL SETUSER|^user)[ \t]+\S+[ \t]+(on\b[^\n`]+)", re.MULTILINE | re.IGNORECASE)


def documented_rules():
    """The ACL rules that docs/fleet.md gives the user of the owners, without its password."""
    found = _ACL_USER.search(DOCS.read_text().replace("\\\n", " "))
    assert found, f"{DOCS} has no line with ACL SETUSER"
    rules = [word.strip("'\"") for word in found[1].split()[1:]]
    return [rule for rule in rules if not rule.startswith((">", "#"))]


class ErrorReply(Exception):
    """An error of the server, such as `WRONGPASS`."""


class RespClient:
    """A connection that speaks RESP2."""

    def __init__(self, port, timeout=GUARD_SECONDS):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def execute(self, *words):
        """Sends a command, and returns its reply."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self._socket.sendall(b"*%d\r\n%b" % (len(words), b"".join(parts)))
        return self._reply()

    def _reply(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the connection ended in a reply: {line!r}")
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise ErrorReply(text.decode())
        if kind == b"+":
            return text.decode()
        number = int(text)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"$":
            return self._file.read(number + 2)[:-2]
        assert kind == b"*", line
        return [self._reply() for _ in range(number)]


class Redis:
    """A redis-server with a folder of its own, which persists nothing.

    `default` is the administrator of the tests. The owners use USER, with exactly the rules of
    docs/fleet.md."""

    def __init__(self, tls=None, client_certificates=False, rules=None):
        """`tls`: a Certificates; the server then has a port for TLS in addition."""
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
            f"user {USER} on >{PASSWORD} {' '.join(rules)}",
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
        self._config.write_text("\n".join(lines) + "\n")

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    # the process

    def start(self):
        assert REDIS_SERVER, "redis-server is missing; run scripts/setup test"
        self.process = subprocess.Popen(
            [REDIS_SERVER, self._config], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + GUARD_SECONDS
        while not self._responds():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.002)
        return self

    def _responds(self):
        try:
            return self.execute("PING") == "PONG"
        except (OSError, ErrorReply):
            return False

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
        client.execute("AUTH", USER, PASSWORD)
        return client

    # commands of the administrator

    def execute(self, *words):
        """Sends a command on a connection of its own."""
        with RespClient(self.port) as client:
            client.execute("AUTH", ADMIN_PASSWORD)
            return client.execute(*words)

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
        assert self.execute("ACL", "SETUSER", USER, *rules) == "OK"

    def disconnect_clients(self):
        """Closes the connections of the owners."""
        return self.execute("CLIENT", "KILL", "USER", USER)

    def denied_commands(self):
        """Commands, keys and passwords of the owners that the ACL has rejected, as text."""
        entries = self.execute("ACL", "LOG")
        return [" ".join(str(member) for member in entry) for entry in entries]

    def forget_denied_commands(self):
        assert self.execute("ACL", "LOG", "RESET") == "OK"


class Certificates:
    """A CA, and certificates of a server at 127.0.0.1 and of a client."""

    def __init__(self, folder, days=2):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca = self.folder / "ca.pem"
        self._openssl("req", "-x509", *self._new_key("ca"), "-days", "2", "-subj", "/CN=CA of a test", "-out", self.ca)
        self._days = days
        self.renew()
        self.client_certificate, self.client_key = self._issue("client", 2, "extendedKeyUsage=clientAuth")

    def renew(self):
        """Issues the certificate of the server, with another key."""
        self.certificate, self.key = self._issue("server", self._days, "subjectAltName=IP:127.0.0.1")

    def _issue(self, name, days, extension):
        request, certificate = self.folder / f"{name}.csr", self.folder / f"{name}.pem"
        self._openssl("req", *self._new_key(name), "-subj", f"/CN={name}", "-addext", extension, "-out", request)
        self._openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.folder / "ca.key", "-days", str(days),
            "-copy_extensions", "copy", "-out", certificate,
        )  # fmt: skip
        return certificate, self.folder / f"{name}.key"

    def _new_key(self, name):
        curve = "ec_paramgen_curve:P-256"
        return ["-newkey", "ec", "-pkeyopt", curve, "-nodes", "-keyout", self.folder / f"{name}.key"]

    def has_expired(self):
        """Whether the certificate of the server has expired, for more than a second."""
        command = ["openssl", "x509", "-in", self.certificate, "-noout", "-enddate"]
        end = subprocess.check_output(command, text=True).strip().partition("=")[2]
        return ssl.cert_time_to_seconds(end) < time.time() - 1

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

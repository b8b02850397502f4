"""A real nginx with the module, in a directory of its own.

The configuration is a template: `@port@` and `@port_NAME@` become free ports,
`@origin@` and `@origin_unix@` the scripted node, `@prefix@` the directory.
"""

import contextlib
import fcntl
import itertools
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile

import saved_logs

from . import client
from .logged_server import LoggedServer
from .processes import Processes, assert_not_crashed, runs

from harness.guards import GUARD_SECONDS, lookup_settings, server_environment, wait_until

NGINX = os.environ.get("SSZIP_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("SSZIP_MODULE", "build/nginx/ngx_http_sszip_module.so")
if os.environ.get("SSZIP_SHIPPED"):
    # only what the tests run has faults and times that can be set
    assert b"SSZIP_TIMES" not in pathlib.Path(MODULE).read_bytes(), f"{MODULE} is not what `make build` makes"
SANITIZED = os.environ.get("SSZIP_NGINX_ASAN") == "1"

# Lines that a healthy nginx never logs. A test that provokes one expects it.
_BAD = re.compile(
    r"\[(alert|crit|emerg)\]|exited on signal|Sanitizer|runtime error:|panicked|core dumped"
)

_FRAME = """\
load_module @module@;
@main@
daemon @daemon@;
worker_processes @workers@;
worker_shutdown_timeout 60s;
pid @prefix@/nginx.pid;
error_log @prefix@/error.log notice;
env ASAN_OPTIONS;
env LSAN_OPTIONS;
@user@
events { worker_connections 2048; }
http {
    log_format story escape=json '{"uri":"$request_uri","status":"$status","mode":"$sszip_mode",'
        '"ratio":"$sszip_ratio","accept_encoding":"$http_accept_encoding",'
        '"sent":$body_bytes_sent,"cache":"$upstream_cache_status"}';
    access_log @prefix@/access.log story;
    default_type application/octet-stream;
    keepalive_requests 1000000;
    lingering_close off;
    client_body_temp_path @prefix@/body;
    proxy_temp_path @prefix@/proxy;
    fastcgi_temp_path @prefix@/fastcgi;
    uwsgi_temp_path @prefix@/uwsgi;
    scgi_temp_path @prefix@/scgi;
    server_tokens off;
@http@
}
"""

# Below the ephemeral range, so that no outgoing connection takes a port between its choice and
# nginx's bind. A worker of pytest-xdist begins with ports of its own.
_worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
_ports = itertools.cycle(
    range(
        10000 + 2500 * (_worker % 8) + random.Random(os.getpid()).randrange(500),
        12400 + 2500 * (_worker % 8),
    )
)
# Byte N is locked by the process of the tests that use port N, until it ends: a server that is not
# started yet, or is restarted, does not listen, and two servers with SO_REUSEPORT would share a port.
_RESERVATIONS = pathlib.Path(f"/tmp/sszip-test-ports-{os.getuid()}")
_reservations = None


def _adapted(http):
    """The http block with defaults of tests: a machine that runs them may be busy for longer than
    the default 20 ms and 5 s, and most tests of GETs are about RFC 9111."""
    if "sszip_cache on" in http and "sszip_cache_get" not in http:
        http = f"sszip_cache_get all;\n{http}"
    if "sszip_cache on" in http and "sszip_cache_lock_timeout" not in http:
        http = f"sszip_cache_lock_timeout 60s; {http}"
    has_store = re.search(r"\bsszip_cache_(path|owner)\b", http)
    if has_store and "sszip_cache_lookup_timeout" not in http:
        lines = "".join(f"sszip_{name} {value};\n" for name, value in lookup_settings().items())
        return lines + http
    return http


def _is_reserved(port):
    """Whether another process uses the port; otherwise it is reserved for this one."""
    global _reservations
    if _reservations is None:
        _reservations = os.open(_RESERVATIONS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(_reservations, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return True
    return False


def free_port():
    for port in itertools.islice(_ports, 2400):
        if _is_reserved(port):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def version():
    text = subprocess.run([NGINX, "-v"], capture_output=True, text=True, check=True).stderr
    return tuple(int(part) for part in re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", text).groups())


class Nginx(LoggedServer):
    def __init__(
        self,
        http,
        *,
        origin=None,
        main="",
        workers=1,
        files=None,
        module=None,
        daemon=False,
        single=False,
        environment=None,
    ):
        self.prefix = pathlib.Path(tempfile.mkdtemp(prefix="sszip-e2e-"))
        self.prefix.chmod(0o755)
        self.processes = Processes(self.prefix / "error.log")
        self._set_up = set()
        self.ports = {}
        self.process = None
        self.single = single
        self.environment = environment or {}
        self._allowed = []
        self._judged = {}
        for name, content in (files or {}).items():
            path = self.prefix / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.values = {
            "module": str(pathlib.Path(module or MODULE).resolve()),
            "main": main,
            "workers": str(workers),
            "daemon": "on" if daemon else "off",
            "prefix": str(self.prefix),
            # Workers must be able to read the directory, whichever user runs the tests.
            "user": "user root;" if os.geteuid() == 0 else "",
        }
        if origin is not None:
            self.values["origin"] = origin.address
            self.values["origin_unix"] = f"unix:{origin.path}"
        self.write(http)

    # configuration

    def write(self, http):
        """Writes the configuration; a running nginx reads it at the reload."""
        text = _FRAME.replace("@http@", _adapted(http))
        for _ in range(2):  # values may contain names themselves
            text = re.sub(r"@(\w+)@", self._value, text)
        (self.prefix / "nginx.conf").write_text(text)
        return text

    def _value(self, match):
        name = match[1]
        if name.startswith("port"):
            if name not in self.ports:
                self.ports[name] = free_port()
            return str(self.ports[name])
        return self.values[name]

    @property
    def port(self):
        return self.ports["port"]

    def _command(self, *arguments):
        # -e: the compiled-in error log need not exist
        names = {"-p": "", "-c": "nginx.conf", "-e": "error.log"}
        options = [word for flag, name in names.items() for word in (flag, str(self.prefix / name))]
        # workers keep the variable, in a configuration that others published, too
        return [NGINX, *options, "-g", "env SSZIP_TIMES;", *arguments]

    def _environment(self):
        # A small quarantine, so that memory tests pass with a sanitizer too; and the
        # sanitizer need not be the first library, as harness/preload.c is.
        asan_options = os.environ.get("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0")
        own = {
            name: value.replace("@prefix@", str(self.prefix))
            for name, value in self.environment.items()
        }
        asan_options = f"{asan_options}:quarantine_size_mb=8:verify_asan_link_order=0"
        return server_environment({"ASAN_OPTIONS": asan_options, **own})

    def test(self):
        """Runs `nginx -t`; returns the exit status and the output."""
        done = subprocess.run(
            self._command("-t"), capture_output=True, text=True, env=self._environment(), timeout=60
        )
        return done.returncode, done.stderr + done.stdout

    # processes

    def start(self):
        self._stderr = open(self.prefix / "stderr.log", "wb")
        self.process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            env=self._environment(),
        )
        self.wait_for(self._listens, "nginx to listen")
        return self

    def _listens(self):
        if self.process.poll() not in ((None, 0) if self.values["daemon"] == "on" else (None,)):
            raise AssertionError("nginx did not start:\n" + self.all_logs())
        # The pid file is written after the sockets are bound.
        if self.single:
            return self.master_or_none()
        return self.master_or_none() and len(self.workers()) == int(self.values["workers"])

    def wait_for(self, condition, description, seconds=GUARD_SECONDS):
        return wait_until(condition, lambda: f"waited in vain for {description}\n" + self.all_logs()[-3000:], seconds)

    @property
    def master(self):
        return int((self.prefix / "nginx.pid").read_text())

    def master_or_none(self):
        try:
            return self.master
        except (OSError, ValueError):
            return None

    def workers(self):
        """Process ids of the workers that accept connections (not of those shutting down)."""
        return [pid for pid in self.processes.children_of(self.master, "worker") if self._is_set_up(pid)]

    def _is_set_up(self, worker):
        """Whether the worker has set its title, which is read as rarely as possible."""
        if worker not in self._set_up:
            try:
                title = pathlib.Path(f"/proc/{worker}/cmdline").read_bytes()
            except OSError:
                return False
            if b"worker process" not in title:
                return False
            self._set_up.add(worker)
        return True

    def all_workers(self):
        return self.processes.children_of(self.master, "worker", leaving=True)

    def manager(self):
        """The cache manager, which owns the store; None while there is none."""
        return next(iter(self.processes.children_of(self.master, "cache manager")), None)

    def kill(self, worker):
        """Ends a worker at once, and waits for its successor."""
        count = len(self.workers())
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        self.wait_for(
            lambda: worker not in (now := self.workers()) and len(now) == count, "a new worker"
        )

    def reload(self):
        """Sends HUP, and waits until a new generation of workers has taken over."""
        before = set(self.workers())
        self.former_managers |= set(self.processes.children_of(self.master, "cache manager"))
        os.kill(self.master, signal.SIGHUP)
        self.wait_for(lambda: (now := set(self.workers())) and not now & before, "new workers")

    def stop(self):
        """Stops nginx gracefully: it then reports connections that leaked."""
        if self.process is None:  # only tested
            saved_logs.discard(self.prefix)
            return
        try:
            if (master := self.master_or_none()) and runs(master):
                os.kill(master, signal.SIGQUIT)
                try:
                    self.wait_for(lambda: not runs(master), "nginx to stop after SIGQUIT")
                except AssertionError:
                    os.kill(master, signal.SIGKILL)
                    raise
            assert_not_crashed("nginx", self.process.wait(GUARD_SECONDS))
            self.check()
        finally:
            self.process = None
            self._stderr.close()
            saved_logs.discard(self.prefix)

    # output

    def error_log(self):
        path = self.prefix / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stderr(self):
        return (self.prefix / "stderr.log").read_text(errors="replace")

    def all_logs(self):
        return self.error_log() + self.stderr()

    def expect(self, pattern):
        """Accepts log lines that match from here on."""
        self._allowed.append(re.compile(pattern))

    def check(self):
        """Fails if a log has lines that a healthy nginx never writes."""
        bad = []
        for name, text in (("error.log", self.error_log()), ("stderr", self.stderr())):
            start = self._judged.get(name, 0)
            self._judged[name] = len(text)
            bad += [
                line
                for line in text[start:].splitlines()
                if _BAD.search(line) and not any(allowed.search(line) for allowed in self._allowed)
            ]
        assert not bad, "nginx complained:\n" + "\n".join(bad[:50])


    # requests


    def get(self, path, accept="gzip", *, port="port", headers=(), **request):
        """A response, read strictly, on a connection of its own."""
        uri = self.uri(path)
        if accept is not None:
            headers = [("Accept-Encoding", accept), *headers]
        return self.named(client.fetch(self.ports[port], uri, headers=headers, **request), uri)


    def connect(self, port="port", **options):
        return client.Connection(self.ports[port], **options)


def resident(pid):
    """The resident set in KiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1])


def anonymous_memory(pid):
    """The resident memory in KiB without the pages of files, such as code that runs for the first
    time."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text)[1])


def peak(pid):
    """The peak of the resident set in KiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text)[1])


def open_descriptors(pid):
    """The number of open file descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_ticks(pid, thread=None):
    """User and system time of a process or one of its threads, in ticks."""
    path = f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat"
    fields = pathlib.Path(path).read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def threads(pid):
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))

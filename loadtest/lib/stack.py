"""Starts and stops the replay node and nginx, one process per encoder.

Each encoder has an nginx of its own, so that the allocations of one do not affect the heap of
another; all of them run at once, and are idle while another is measured. Processes are ended
only by the handles kept here.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NGINX = os.environ.get("SSZIP_NGINX", "/usr/sbin/nginx")
MODULE = Path(
    os.environ.get("SSZIP_MODULE", ROOT / "build/nginx/ngx_http_sszip_module.so")
).resolve()
REPLAY_NODE = Path(
    os.environ.get("SSZIP_REPLAY_NODE", ROOT / "build/bin/replay-node")
).resolve()
CACHE = Path(os.environ.get("SSZIP_CACHE", Path.home() / ".cache/sszip"))
OHA = CACHE / "tools/bin/oha"
BROTLI_MODULE = Path("/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so")

WORKER_CORE = 0
LOAD_CORE = 1
START_SECONDS = 30
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Coder:
    """A row of the tables: directives of nginx, and the expected response.

    `accept` is the value of Accept-Encoding, `media` the value of Accept. `handler` is the
    directive that makes responses, `http` the configuration outside of locations; `@PREFIX@`
    stands for the server's own folder in all of them.
    """

    name: str
    directives: str
    coding: str
    accept: str = "gzip"
    handler: str = "proxy_pass http://node/;"
    http: str = ""
    module: Path | None = None
    without_igzip: bool = False
    media: str = ""


def gzip_coder(level):
    return Coder(
        f"nginx gzip {level}",
        f"gzip on; gzip_comp_level {level}; gzip_types application/json; "
        "gzip_min_length 1000; gzip_proxied any;",
        "gzip",
    )


def sszip_coder(level, name=None):
    """Returns sszip with a level; None omits the directive, for the operator's default."""
    setting = "" if level is None else f"sszip_comp_level {level}; "
    return Coder(
        name or f"sszip {level}",
        f"sszip on; {setting}sszip_types application/json; "
        "sszip_min_length 1000; gzip_proxied any;",
        "gzip",
        module=MODULE,
    )


PASS = Coder("pass-through", "", "")
BROTLI = Coder(
    "brotli 4",
    "brotli on; brotli_comp_level 4; brotli_types application/json; "
    "brotli_min_length 1000;",
    "br",
    accept="br",
    module=BROTLI_MODULE,
)


def zstd_coder(level):
    """Returns sszip for a client that prefers zstd, at a level of zstd."""
    return Coder(
        f"sszip zstd {level}",
        f"sszip on; sszip_zstd on; sszip_zstd_level {level}; sszip_types application/json; "
        "sszip_min_length 1000; gzip_proxied any;",
        "zstd",
        accept="zstd",
        module=MODULE,
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(core, command):
    return command if core is None else ["taskset", "-c", str(core), *command]


def pin(pid, core):
    """Moves all threads of a process to a core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def wait_for(condition, description):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_SECONDS} s for {description}")
        time.sleep(0.01)


def wait_for_port(port, process, log):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    raise SystemExit(f"{process.args} did not listen on port {port}; its log ends with:\n{tail}")


def stop(process):
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Node:
    """The replay node, on the core of the load generator, on TCP and on a Unix socket."""

    def __init__(self, work, folders, core=LOAD_CORE, options=()):
        self.port = free_port()
        self.socket = work / f"node-{self.port}.sock"
        log = work / f"node-{self.port}.log"
        command = [str(REPLAY_NODE), "--listen", f"127.0.0.1:{self.port}"]
        command += ["--listen", f"unix:{self.socket}", *map(str, options)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                pinned(core, command + [str(f) for f in folders]),
                stdout=out,
                stderr=out,
            )
        wait_for_port(self.port, self.process, log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)

    def stats(self):
        """Returns the node's counters: its requests, in all and by method."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats", timeout=START_SECONDS) as reply:
            return json.load(reply)


class Nginx:
    """One nginx with one worker by default, on a port and a Unix socket. `upstream` is a port
    or a Unix socket, `coders` maps a path to its encoder."""

    def __init__(
        self, work, name, upstream, coders, core=WORKER_CORE, listen="", workers=1,
        connections=4096,
    ):
        self.port, self.workers, self.core = free_port(), workers, core
        prefix = self.prefix = work / f"nginx-{slug(name)}-{self.port}"
        shutil.rmtree(prefix, ignore_errors=True)
        prefix.mkdir(parents=True)
        self.socket = prefix / "nginx.sock"
        modules = {c.module for c in coders.values() if c.module}
        location = (HERE / "location.conf.in").read_text()
        conf = fill(
            (HERE / "nginx.conf.in").read_text(),
            HTTP="\n    ".join(sorted({c.http for c in coders.values()})),
            LOCATIONS="\n        ".join(
                fill(location, PATH=path, HANDLER=coder.handler, CODER=coder.directives)
                for path, coder in coders.items()
            ),
            USER="user root;" if os.geteuid() == 0 else "",
            WORKERS=str(workers),
            CONNECTIONS=str(connections),
            AFFINITY="" if core is None else f"worker_cpu_affinity {1 << core:b};",
            PREFIX=str(prefix),
            MODULE="\n".join(f"load_module {m};" for m in sorted(modules)),
            UPSTREAM=f"unix:{upstream}"
            if isinstance(upstream, Path)
            else f"127.0.0.1:{upstream}",
            PORT=str(self.port),
            SOCKET=str(self.socket),
            LISTEN=f" {listen}" if listen else "",
        )
        (prefix / "nginx.conf").write_text(conf)
        self.log = prefix / "error.log"
        self.environment = self._environment(prefix, coders)
        self._start()

    def _start(self):
        self.process = subprocess.Popen(
            [NGINX, "-p", str(self.prefix), "-e", str(self.log)]
            + ["-c", str(self.prefix / "nginx.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )
        wait_for_port(self.port, self.process, self.log)
        try:
            self.worker = self._child("worker process")
            # the process that opens the cache's store, if there is one
            owned = "sszip_cache_path" in (self.prefix / "nginx.conf").read_text()
            self.owner = self._child("cache manager process") if owned else None
            if owned:
                self._wait_for_owner()
        except BaseException:
            stop(self.process)
            raise

    def restart(self):
        """Restarts nginx with the same configuration and store."""
        stop(self.process)
        self._start()

    @staticmethod
    def _environment(prefix, coders):
        """Returns the environment of nginx. The module loads igzip by name at run time; an
        invalid file of that name, found first, makes it run without igzip."""
        if not any(c.without_igzip for c in coders.values()):
            return None
        (prefix / "libisal.so.2").write_text("no library\n")
        return dict(os.environ, LD_LIBRARY_PATH=str(prefix))

    def _child(self, title):
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for child in children.read_text().split():
                if title in Path(f"/proc/{child}/cmdline").read_text():
                    return int(child)
            time.sleep(0.02)
        raise SystemExit(f"nginx (process {pid}) has no {title!r}; its error log ends with:\n{self.complaints()[-2000:]}")

    def owner_status(self):
        """Returns the owner's status, or None if the owner does not respond."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(START_SECONDS)
            try:
                peer.connect(str(self.prefix / "cache/owner.sock"))
                peer.sendall(b"GET /v1/status HTTP/1.0\r\n\r\n")
                text = peer.makefile("rb").read()
            except OSError:
                return None
        return json.loads(text.partition(b"\r\n\r\n")[2])

    def _wait_for_owner(self):
        """Waits until the owner has all workers as its processes, and moves it to the core of
        the load, because one of two cores is the worker's."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            status = self.owner_status()
            if status and len(status["processes"]) >= self.workers:
                break
            time.sleep(0.02)
        else:
            raise SystemExit(
                f"the owner did not respond, or not all {self.workers} workers are connected to it; nginx's error "
                f"log ends with:\n{self.complaints()[-2000:]}"
            )
        if self.core is not None:
            pin(self.owner, LOAD_CORE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)

    def complaints(self):
        """Returns the lines that nginx logged at `warn` and above; none is expected."""
        return self.log.read_text(errors="replace").strip()


def slug(name):
    return "".join(c if c.isalnum() else "-" for c in name)


def fill(template, **values):
    """Replaces names by values in their order: a value may contain names of later ones."""
    for key, value in values.items():
        template = template.replace(f"@{key}@", value)
    return template

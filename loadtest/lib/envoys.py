"""Envoy servers to measure, one for each row."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from stack import ROOT, WORKER_CORE, free_port, pinned, slug, stop, wait_for_port

_INSTALLED = Path(os.environ.get("SSZIP_CACHE", Path.home() / ".cache/sszip")) / "envoy"
ENVOY = Path(
    os.environ.get("SSZIP_ENVOY")
    or next(_INSTALLED.glob("lib/python3*/site-packages/envoy/_bin/envoy"), _INSTALLED)
)
MODULE = Path(
    os.environ.get("SSZIP_ENVOY_MODULE", ROOT / "build/envoy/libsszip_envoy.so")
).resolve()
WASM = Path(os.environ.get("SSZIP_WASM", ROOT / "build/envoy/sszip_envoy.wasm")).resolve()
CACHED = Path(os.environ.get("SSZIP_CACHED", ROOT / "build/bin/sszip-cached")).resolve()
_TYPE = "type.googleapis.com/envoy.extensions"


@dataclass(frozen=True)
class Row:
    """Filters in front of the router, and the expected response."""

    name: str
    coding: str = ""
    accept: str = "gzip"
    filters: str = "[]"
    workers: int = 1
    # Whether a daemon stores the entries, and an addition to its configuration.
    cached: bool = False
    daemon_config: str = ""


PLAIN = Row("no filter")


def sszip(name="sszip", **settings):
    """Returns the filter with these settings; like the other servers it does not compress
    short responses."""
    settings = {"types": "application/json", "min_length": 1000} | settings
    module = {
        "name": "sszip",
        "typed_config": {
            "@type": f"{_TYPE}.filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {"name": "sszip_envoy", "do_not_close": True},
            "filter_name": "sszip",
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.Struct",
                "value": settings,
            },
        },
    }
    return Row(name, "gzip", filters=json.dumps([module]))


def wasm(name="Wasm", **settings):
    """Returns the filter in a sandbox with these settings, with a daemon if it caches. No server
    writes an access log."""
    settings = {"types": "application/json", "min_length": 1000, "log_variables": False} | settings
    is_cached = "cache" in settings
    if is_cached:
        settings |= {"cache_owner": "cluster:cached"}
    module = {
        "name": "sszip",
        "typed_config": {
            "@type": f"{_TYPE}.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "sszip",
                "failure_policy": "FAIL_RELOAD",
                "allow_on_headers_stop_iteration": True,
                "vm_config": {
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": str(WASM)}},
                },
                "configuration": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": json.dumps(settings),
                },
            },
        },
    }
    return Row(name, "gzip", filters=json.dumps([module]), cached=is_cached)


def compressor(name, level, coding="gzip"):
    kind = coding.capitalize()
    library = {"@type": f"{_TYPE}.compression.{coding}.compressor.v3.{kind}"}
    if level:
        library["compression_level"] = level
    coder = {
        "name": "envoy.filters.http.compressor",
        "typed_config": {
            "@type": f"{_TYPE}.filters.http.compressor.v3.Compressor",
            "response_direction_config": {
                "common_config": {"min_content_length": 1000, "content_type": ["application/json"]}
            },
            "compressor_library": {"name": coding, "typed_config": library},
        },
    }
    return Row(name, coding, accept=coding, filters=json.dumps([coder]))


def configuration(row, listens, admin, node):
    action = {"route": {"cluster": "node", "timeout": "60s"}}
    routes = {
        "virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [{"name": "all", "match": {"prefix": "/"}, **action}]}
        ],
    }
    manager = {
        "@type": f"{_TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "generate_request_id": False,
        "route_config": routes,
        "http_filters": [
            *json.loads(row.filters),
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"},
            },
        ],
    }
    network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [
                {
                    "name": f"bench-{number}",
                    "address": address(where),
                    "filter_chains": [{"filters": [network]}],
                }
                for number, where in enumerate(listens)
            ],
            "clusters": [cluster("node", node), cluster("cached", "@PREFIX@/cached.sock")],
        },
    }


def cluster(name, where):
    endpoint = {"endpoint": {"address": address(where)}}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }


def address(where):
    """Returns the address for a port, or for the path of a Unix socket."""
    if isinstance(where, int):
        return {"socket_address": {"address": "127.0.0.1", "port_value": where}}
    return {"pipe": {"path": str(where)}}


class Envoy:
    """One Envoy, on a port and a socket, with the attributes of an Nginx that load.measure
    uses."""

    owner = daemon = None

    def __init__(self, work, row, node, core=WORKER_CORE):
        self.port, self.admin = free_port(), free_port()
        prefix = self.prefix = work / f"envoy-{slug(row.name)}-{self.port}"
        prefix.mkdir(parents=True)
        if "sszip_envoy" in row.filters:
            shutil.copy(MODULE, prefix / "libsszip_envoy.so")
            (prefix / "libsszip_owner.so").symlink_to(MODULE.with_name("libsszip_owner.so"))
        self.socket = prefix / "envoy.sock"
        listens = (self.port, self.socket)
        text = json.dumps(configuration(row, listens, self.admin, node))
        text = text.replace("@PREFIX@", str(prefix))
        (prefix / "envoy.json").write_text(text)
        self.log = prefix / "envoy.log"
        if row.cached:
            self._start_daemon(prefix, row.daemon_config)
        command = [ENVOY, "-c", prefix / "envoy.json", "--concurrency", row.workers]
        command += ["--disable-hot-restart", "-l", "warning"]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                pinned(core, list(map(str, command))),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "ENVOY_DYNAMIC_MODULES_SEARCH_PATH": str(prefix)},
            )
        # taskset executes it under the same process id
        self.worker = self.process.pid
        wait_for_port(self.port, self.process, self.log)

    def _start_daemon(self, prefix, daemon_config):
        """Starts a daemon as the owner of the cache, whose resources are counted too."""
        socket = prefix / "cached.sock"
        settings = {"socket": socket, "path": prefix / "cached", "memory": "256m"}
        lines = (f'{name} = "{value}"\n' for name, value in settings.items())
        (prefix / "cached.toml").write_text("".join(lines) + daemon_config)
        with (prefix / "cached.log").open("wb") as out:
            self.daemon = subprocess.Popen(
                [CACHED, prefix / "cached.toml"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.owner = self.daemon.pid
        until = time.monotonic() + 10
        while not socket.exists():
            if time.monotonic() > until or self.daemon.poll() is not None:
                log = (prefix / "cached.log").read_text(errors="replace")
                raise SystemExit(f"sszip-cached did not start; its log:\n{log}")
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        stop(self.process)
        if self.daemon:
            stop(self.daemon)

    def complaints(self):
        """Returns the lines of the log at `warning` and above that concern sszip or an error."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if "[error]" in line or "sszip" in line)


def resident(pid):
    """Returns the resident memory of a process in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def version():
    done = subprocess.run([ENVOY, "--version"], capture_output=True, text=True)
    return done.stdout.split("version:")[-1].strip()

"""Servers other than nginx and Envoy: their configurations and processes.

A class has `program()`, the path or name of the program or None, `remedy`, the command that
installs it, and `version_option`, the option for its version. An instance has `port`,
`process`, `config` and `complaints()`.
"""

import os
import shutil
import subprocess

from stack import CACHE, free_port, pinned, stop, wait_for_port


def built(name, variable):
    """Returns a program that scripts/setup builds if its source is available."""
    return os.environ.get(variable) or shutil.which(str(CACHE / "tools/bin" / name))


class Peer:
    version_option = "--version"
    environment = {}

    def __init__(self, work, node, slot_ms=0, core=0):
        self.port, self.node, self.slot_ms = free_port(), node, slot_ms
        self.prefix = work / f"{type(self).__name__.lower()}-{self.port}"
        self.prefix.mkdir(parents=True)
        self.log = self.prefix / "log"
        self.config = self.configure()
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                pinned(core, list(map(str, self.command()))),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.prefix,
                env={**os.environ, **self.environment},
            )
        try:
            wait_for_port(self.port, self.process, self.log)
        except BaseException:
            stop(self.process)
            raise

    def __exit__(self, *_):
        stop(self.process)

    def complaints(self):
        return ""

    def written(self, name, text):
        (self.prefix / name).write_text(text)
        return text


class Varnish(Peer):
    remedy = "apt-get install varnish"
    version_option = "-V"

    @staticmethod
    def program():
        return shutil.which("varnishd") or "/usr/sbin/varnishd"

    def configure(self):
        # It cannot know when a page of a growing chain changes.
        ttl = "1s" if self.slot_ms else "1h"
        return self.written(
            "default.vcl",
            f"""vcl 4.1;

backend node {{
    .host = "127.0.0.1";
    .port = "{self.node}";
}}

sub vcl_backend_response {{
    if (beresp.http.Content-Type ~ "json") {{
        set beresp.do_gzip = true;
        set beresp.ttl = {ttl};
    }}
}}
""",
        )

    def command(self):
        options = f"-F -j none -n {self.prefix}/state -a 127.0.0.1:{self.port} -T none"
        options += f" -f {self.prefix}/default.vcl -s malloc,256m -p gzip_level=1"
        self.config += f"\n# varnishd {options}\n"
        return [self.program(), *options.split()]


class HAProxy(Peer):
    remedy = "apt-get install haproxy"
    version_option = "-v"

    @staticmethod
    def program():
        return shutil.which("haproxy") or "/usr/sbin/haproxy"

    def configure(self):
        return self.written(
            "haproxy.cfg",
            f"""global
    nbthread 1
    maxconn 8000

defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s

frontend rpc
    bind 127.0.0.1:{self.port}
    compression algo gzip
    compression type application/json
    default_backend nodes

backend nodes
    http-reuse always
    server node 127.0.0.1:{self.node}
""",
        )

    def command(self):
        # -db: one process in the foreground
        return [self.program(), "-db", "-f", self.prefix / "haproxy.cfg"]


class Blutgang(Peer):
    remedy = "scripts/setup compare"

    @staticmethod
    def program():
        return built("blutgang", "SSZIP_BLUTGANG")

    def configure(self):
        # Without health checks it does not know the head, and with them it polls it in intervals.
        # Its times are in milliseconds; a response later than `ttl` is an error.
        is_moving = str(self.slot_ms > 0).lower()
        return self.written(
            "blutgang.toml",
            f"""[blutgang]
do_clear = true
address = "127.0.0.1:{self.port}"
ma_length = 100
sort_on_startup = false
health_check = {is_moving}
header_check = true
ttl = 30000
max_retries = 2
expected_block_time = {self.slot_ms or 12_000}
health_check_ttl = {max(100, self.slot_ms // 12)}
supress_rpc_check = true

[admin]
enabled = false
address = "127.0.0.1:0"
readonly = true
jwt = false
key = ""

[sled]
db_path = "{self.prefix}/db"
mode = "HighThroughput"
cache_capacity = 268435456
compression = false
print_profile = false
flush_every_ms = 240

[node]
url = "http://127.0.0.1:{self.node}"
max_consecutive = 1000000
max_per_second = 0
""",
        )

    def command(self):
        # its log lines for each request would be measured
        return ["sh", "-c", f"exec {self.program()} -c {self.prefix}/blutgang.toml >/dev/null"]


class Proxyd(Peer):
    remedy = "scripts/setup compare, with a Go module proxy that serves its module"

    @staticmethod
    def program():
        return built("proxyd", "SSZIP_PROXYD")

    def configure(self):
        from calls import PROVIDER

        methods = "\n".join(f'{m} = "main"' for m in [*PROVIDER, "trace_block"])
        return self.written(
            "proxyd.toml",
            f"""[server]
rpc_host = "127.0.0.1"
rpc_port = {self.port}
ws_port = 0
max_body_size_bytes = 33554432
max_concurrent_rpcs = 20000
log_level = "error"

[cache]
enabled = true

[backend]
response_timeout_seconds = 60
max_response_size_bytes = 1073741824
max_retries = 1
out_of_service_seconds = 1

[backends.node]
rpc_url = "http://127.0.0.1:{self.node}"

[backend_groups.main]
backends = ["node"]

[rpc_method_mappings]
{methods}
""",
        )

    def command(self):
        return [self.program(), self.prefix / "proxyd.toml"]


# Servers that are not available in a registry.
NOT_HAD = {
    "proxyd": "`scripts/setup compare` builds it if the Go module proxy serves "
    "`github.com/ethereum-optimism/infra/proxyd`; here it served neither that module nor the older "
    "`github.com/ethereum-optimism/optimism/proxyd`. blutgang is the JSON-RPC caching proxy that "
    "could be built.",
    "nodecore, eRPC": "Go programs whose modules the Go module proxy did not serve.",
    "dshackle, web3-proxy, subway": "not published in a package registry.",
    "Varnish with bodyaccess": "the module that adds a POST's body to the cache key is not in Debian.",
}

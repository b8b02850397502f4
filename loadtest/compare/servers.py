"""Servers of the comparison: each in front of the same node, with the best settings of its
documentation.

Each has one worker on one core. A server that can store responses stores them for an hour if
the node's responses never change (`Stage.slot_ms` is 0), and otherwise for as long as they are
right: one second if it cannot know of a new head.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import http_client
import load
import envoys
from caches import GZIP_1, OPEN_FILES, any_id, proxy_cache
from peers import Blutgang, HAProxy, Proxyd, Varnish
from stack import BROTLI, BROTLI_MODULE, MODULE, NGINX, PASS, WORKER_CORE, Coder, Nginx, gzip_coder

OURS, THEIRS, CONTROL = "ours", "theirs", "control"


@dataclass
class Stage:
    """The setting of a measured server: its node, with the duration of the node's slots."""

    work: Path
    port: int
    slot_ms: int = 0
    core: int | None = WORKER_CORE

    @property
    def is_moving(self):
        return self.slot_ms > 0


@dataclass(frozen=True)
class Row:
    key: str
    name: str
    kind: str
    start: object
    # the reason why the server is not available, or an empty list
    missing: object
    coding: str = "gzip"
    # Kinds of responses that the server may store: to calls, to GETs.
    keeps: str = ""
    remark: str = ""


class Server:
    """A running server: its address, its processes, and its configuration."""

    def __init__(self, row, process, config, pids):
        self.row, self.process, self.config = row, process, config
        self.place, self.roots = http_client.local_address(process.port), pids
        self.url = f"http://127.0.0.1:{process.port}/"

    def pids(self):
        return [pid for root in self.roots for pid in family(root)]

    def cpu_ns(self):
        return sum(load.process_ns(pid) for pid in self.pids())

    def resident_kb(self):
        return sum(envoys.resident(pid) for pid in self.pids())

    def complaints(self):
        return self.process.complaints()

    def close(self):
        self.process.__exit__(None, None, None)


class ExternalServer:
    """A server that the runner did not start: its resources are unknown."""

    roots = ()
    config = "not known: it was given by its address"

    def __init__(self, row, url, place):
        self.row, self.url, self.place = row, url, place

    def cpu_ns(self):
        return None

    def resident_kb(self):
        return None

    def complaints(self):
        return ""

    def close(self):
        pass


def family(pid):
    """Returns a process and all of its descendants."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += family(int(child))
    return found


# --- nginx

# In the order of docs/caching.md: immutable, unfinalized, and dependent on the head.
def lifetimes(stage):
    if not stage.is_moving:
        return {"immutable": "1h", "unfinalized": "1h", "tip": "1h"}
    slot = stage.slot_ms
    return {"immutable": "24h", "unfinalized": f"{96 * slot}ms", "tip": f"{slot}ms"}


def followed(stage):
    return f"http://127.0.0.1:{stage.port} interval={max(100, stage.slot_ms // 12)}ms"


NGINX_COMPRESSION = "sszip on; sszip_ssz on; sszip_types application/json; sszip_min_length 1000;"
NGINX_MEMORY = "sszip_cache_memory 256m;"


def our_nginx(stage, http=f"{NGINX_MEMORY} sszip_cache_path @PREFIX@/cache max_size=4g memory=256m;"):
    valid = " ".join(f"sszip_cache_valid {c} {t};" for c, t in lifetimes(stage).items())
    head = f" sszip_cache_head {followed(stage)};" if stage.is_moving else ""
    return Coder(
        "sszip",
        f"{NGINX_COMPRESSION} sszip_cache on; sszip_cache_namespace mainnet; {valid}{head}",
        "gzip",
        http=http,
        module=MODULE,
    )


def our_nginx_without_store(stage):
    return our_nginx(stage, http=NGINX_MEMORY)


def our_nginx_without_cache(_):
    return Coder("sszip", NGINX_COMPRESSION, "gzip", module=MODULE)


def short(coder, stage):
    """Limits nginx's cache, which cannot know of a new head, to one second; of coalesced
    misses one reaches the node."""
    valid = "1s" if stage.is_moving else "1h"
    lock = " proxy_cache_lock on; proxy_cache_use_stale updating;"
    # the buffers must hold a key, which contains a batch here
    lock += " proxy_buffer_size 64k; proxy_busy_buffers_size 128k;"
    text = coder.directives.replace("proxy_cache_valid 200 1h;", f"proxy_cache_valid 200 {valid};")
    return replace(coder, directives=text + lock)


def nginx(row, coder):
    def start(stage):
        made = coder(stage) if callable(coder) else coder
        one = Nginx(stage.work, row, stage.port, {"/": made}, core=stage.core)
        return one, (one.prefix / "nginx.conf").read_text(), [one.process.pid]

    return start


# --- Envoy


def envoy(make):
    def start(stage):
        one = envoys.Envoy(stage.work, make(stage), stage.port, core=stage.core)
        text = (one.prefix / "envoy.json").read_text()
        if one.daemon:
            text += "\n\n# sszip-cached\n" + (one.prefix / "cached.toml").read_text()
        return one, text, [one.process.pid] + ([one.daemon.pid] if one.daemon else [])

    return start


def ours_in_envoy(stage):
    return {
        "cache": True,
        "cache_namespace": "mainnet",
        "cache_valid": [[c, t] for c, t in lifetimes(stage).items()],
        "ssz": True,
    }


def our_module(stage, **more):
    settings = ours_in_envoy(stage) | more | {
        "cache_memory": "256m",
        "cache_path": "@PREFIX@/cache max_size=4g memory=256m",
    }
    if stage.is_moving:
        settings["cache_head"] = followed(stage)
    return envoys.sszip("sszip", **settings)


def our_module_without_store(stage):
    return envoys.sszip("sszip", **ours_in_envoy(stage), cache_memory="256m")


def our_module_without_cache(_, **more):
    return envoys.sszip("sszip", ssz=True, **more)


def our_wasm_without_cache(_, **more):
    return envoys.wasm("Wasm", ssz=True, **more)


def our_wasm(stage, **more):
    row = envoys.wasm("Wasm", **ours_in_envoy(stage), **more)
    if not stage.is_moving:
        return row
    url, _, interval = followed(stage).partition(" interval=")
    head = {"namespace": "mainnet", "url": url, "interval": interval}
    daemon_config = "[[head]]\n" + "".join(f'{name} = "{value}"\n' for name, value in head.items())
    return replace(row, daemon_config=daemon_config)


# --- which there are


def there(*files, remedy):
    def missing():
        return [f"{f} is missing; run {remedy}" for f in files if not Path(f).exists()]

    return missing


def program(peer):
    def start(stage):
        one = peer(stage.work, stage.port, stage.slot_ms, stage.core)
        return one, one.config, [one.process.pid]

    def missing():
        found = peer.program()
        return [] if found and shutil.which(found) else [f"{peer.__name__.lower()} is missing; run {peer.remedy}"]

    return start, missing


NGINX_IS = there(NGINX, remedy="apt-get install nginx")
OURS_IS = there(NGINX, MODULE, MODULE.with_name("libsszip_owner.so"), remedy="make build")
ENVOY_IS = there(envoys.ENVOY, remedy="scripts/setup run")
MODULE_IS = there(envoys.ENVOY, envoys.MODULE, remedy="scripts/setup run, make build")
WASM_IS = there(envoys.ENVOY, envoys.WASM, envoys.CACHED, remedy="scripts/setup run, make build")
BROTLI_IS = there(NGINX, BROTLI_MODULE, remedy="apt-get install libnginx-mod-http-brotli-filter")

KEEPS_CALLS, KEEPS_GETS = "calls and GETs", "GETs"


def plain_cache(stage):
    return short(proxy_cache("proxy_cache, gzip 1", f"{GZIP_1} {OPEN_FILES}", "gzip"), stage)


def ids_cache(stage):
    return short(any_id("proxy_cache, ids, gzip 1", f"{GZIP_1} {OPEN_FILES}", "gzip"), stage)


def compressor(_):
    return envoys.compressor("compressor", "BEST_SPEED")


def zstd_compressor(_):
    return envoys.compressor("zstd compressor", 1, "zstd")


def nginx_with_zstd(make):
    """Returns the maker of an nginx for clients that prefer zstd."""

    def made(stage):
        coder = make(stage)
        return replace(coder, directives=f"{coder.directives} sszip_zstd on;", coding="zstd", accept="zstd")

    return made


def envoy_with_zstd(make, level=1):
    """Returns the maker of an Envoy for clients that prefer zstd."""

    def made(stage):
        return replace(make(stage, zstd=True, zstd_level=level), coding="zstd", accept="zstd")

    return made


ROWS = [
    Row("sszip-nginx", "sszip in nginx", OURS, nginx("sszip", our_nginx), OURS_IS,
        keeps=KEEPS_CALLS),
    Row("sszip-envoy", "sszip in Envoy", OURS, envoy(our_module), MODULE_IS, keeps=KEEPS_CALLS),
    Row("sszip-wasm", "sszip in Envoy, Wasm", OURS, envoy(our_wasm), WASM_IS, keeps=KEEPS_CALLS),
    Row("nginx-gzip-1", "nginx gzip 1", THEIRS, nginx("gzip-1", gzip_coder(1)), NGINX_IS),
    Row("nginx-gzip-6", "nginx gzip 6", THEIRS, nginx("gzip-6", gzip_coder(6)), NGINX_IS),
    Row("proxy-cache", "nginx proxy_cache + gzip 1", THEIRS, nginx("proxy-cache", plain_cache),
        NGINX_IS, keeps=KEEPS_CALLS,
        remark="The body is the key, so another id is another entry."),
    Row("proxy-cache-ids", "nginx proxy_cache, ids replaced, + gzip 1", THEIRS,
        nginx("proxy-cache-ids", ids_cache), NGINX_IS, keeps=KEEPS_CALLS,
        remark="The id is taken out of the key by a regular expression, and put into the answer by "
        "sub_filter: what stock nginx can do to hit under any id, if calls come one by one."),
    Row("brotli", "nginx brotli 4", THEIRS, nginx("brotli", BROTLI), BROTLI_IS, coding="br"),
    Row("varnish", "Varnish, gzip 1", THEIRS, *program(Varnish), keeps=KEEPS_GETS,
        remark="Calls pass: a POST has no key without a module that Debian has not (bodyaccess)."),
    Row("haproxy", "HAProxy, gzip", THEIRS, *program(HAProxy)),
    Row("envoy-gzip", "Envoy's compressor, BEST_SPEED", THEIRS, envoy(compressor), ENVOY_IS),
    Row("blutgang", "blutgang, uncompressed", THEIRS, *program(Blutgang), coding="", keeps=KEEPS_CALLS,
        remark="It compresses nothing."),
    Row("proxyd", "proxyd, uncompressed", THEIRS, *program(Proxyd), coding="", keeps=KEEPS_CALLS,
        remark="It compresses nothing, and keeps eight methods that never change."),
    Row("pass", "nginx, nothing on, uncompressed", CONTROL, nginx("pass", PASS), NGINX_IS, coding=""),
]


# What a miss costs without the cache, or without its store: measured only if `--rows` names them.
ROWS_WITHOUT_STORE_OR_CACHE = [
    Row("sszip-nginx-memory", "sszip in nginx, cache without a store", OURS,
        nginx("sszip-memory", our_nginx_without_store), OURS_IS, keeps=KEEPS_CALLS),
    Row("sszip-nginx-uncached", "sszip in nginx, no cache", OURS,
        nginx("sszip-uncached", our_nginx_without_cache), OURS_IS),
    Row("sszip-envoy-memory", "sszip in Envoy, cache without a store", OURS,
        envoy(our_module_without_store), MODULE_IS, keeps=KEEPS_CALLS),
    Row("sszip-envoy-uncached", "sszip in Envoy, no cache", OURS, envoy(our_module_without_cache), MODULE_IS),
    Row("sszip-wasm-uncached", "sszip in Envoy, Wasm, no cache", OURS, envoy(our_wasm_without_cache), WASM_IS),
]


# The clients accept zstd in place of gzip: measured only if `--rows` names them.
ROWS_WITH_ZSTD = [
    Row("sszip-nginx-zstd", "sszip in nginx, zstd", OURS, nginx("sszip-zstd", nginx_with_zstd(our_nginx)),
        OURS_IS, coding="zstd", keeps=KEEPS_CALLS),
    Row("sszip-nginx-uncached-zstd", "sszip in nginx, no cache, zstd", OURS,
        nginx("sszip-uncached-zstd", nginx_with_zstd(our_nginx_without_cache)), OURS_IS, coding="zstd"),
    Row("sszip-envoy-zstd", "sszip in Envoy, zstd", OURS, envoy(envoy_with_zstd(our_module)), MODULE_IS,
        coding="zstd", keeps=KEEPS_CALLS),
    Row("sszip-envoy-uncached-zstd", "sszip in Envoy, no cache, zstd", OURS,
        envoy(envoy_with_zstd(our_module_without_cache)), MODULE_IS, coding="zstd"),
    Row("sszip-wasm-zstd", "sszip in Envoy, Wasm, zstd", OURS, envoy(envoy_with_zstd(our_wasm)), WASM_IS,
        coding="zstd", keeps=KEEPS_CALLS),
    Row("sszip-wasm-uncached-zstd", "sszip in Envoy, Wasm, no cache, zstd", OURS,
        envoy(envoy_with_zstd(our_wasm_without_cache)), WASM_IS, coding="zstd"),
    *(
        Row(f"sszip-wasm-uncached-zstd-{level}", f"sszip in Envoy, Wasm, no cache, zstd level {level}", OURS,
            envoy(envoy_with_zstd(our_wasm_without_cache, level)), WASM_IS, coding="zstd")
        for level in (2, 3)
    ),
    Row("envoy-zstd", "Envoy's zstd compressor, level 1", THEIRS, envoy(zstd_compressor), ENVOY_IS,
        coding="zstd"),
]


ALL_ROWS = [*ROWS, *ROWS_WITHOUT_STORE_OR_CACHE, *ROWS_WITH_ZSTD]


def start(row, stage):
    process, config, pids = row.start(stage)
    return Server(row, process, config, pids)


def versions():
    by_name = {}
    for name, command in (
        ("nginx", [NGINX, "-v"]),
        *((peer.__name__, [peer.program(), peer.version_option]) for peer in (Varnish, HAProxy, Blutgang)),
    ):
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        except OSError:
            continue
        if found := re.search(r"\d+\.\d+(\.\d+)?[-+~\w.]*", done.stdout + done.stderr):
            by_name[name] = found.group()
    if envoys.ENVOY.is_file():
        by_name["Envoy"] = envoys.version().split("/")[1]
    return by_name

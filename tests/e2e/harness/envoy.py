"""A real Envoy with the module, in a directory of its own."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import weakref

import saved_logs

from . import client
from .logged_server import LoggedServer
from .nginx import free_port

from harness.guards import GUARD_SECONDS, lookup_settings, server_environment, wait_until

ENVOY = os.environ.get("SSZIP_ENVOY", "envoy")
MODULE = os.environ.get("SSZIP_ENVOY_MODULE", "build/envoy/libsszip_envoy.so")
OWNER = os.environ.get("SSZIP_OWNER_LIBRARY", "build/envoy/libsszip_owner.so")

# Lines that a healthy Envoy never logs. A test that provokes one expects it.
_BAD = re.compile(r"\]\[(critical|error)\]|Caught|Backtrace|panicked|assert failure")
_TYPE = "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3."
_routes = itertools.count(1)
# seconds for a query when a test has failed, whose Envoy may hang
STATS_SECONDS = 5
_started = weakref.WeakSet()


def filter_of(settings, kind="DynamicModuleFilter"):
    """The filter with these settings, as a part of Envoy's configuration."""
    return {
        "@type": f"{_TYPE}{kind}",
        "dynamic_module_config": {
            "name": "sszip_envoy",
            "do_not_close": True,
            "metrics_namespace": "sszip",
        },
        "filter_name": "sszip",
        "filter_config": {
            "@type": "type.googleapis.com/google.protobuf.Struct",
            "value": settings,
        },
    }


def adapted(settings):
    """The settings with defaults of tests: a machine that runs them may be busy for longer than
    the default 20 ms and 5 s, and most tests of GETs are about RFC 9111."""
    settings = {"cache_get": "all", "cache_lock_timeout": "60s", **settings}
    if {"cache_path", "cache_owner"} & settings.keys():
        return {**lookup_settings(), **settings}
    return settings


def typed(kind, **settings):
    """A part of Envoy's configuration with its type, without the common prefix."""
    return {"@type": f"type.googleapis.com/envoy.extensions.{kind}", **settings}


def filter(name, kind, **settings):
    """One of Envoy's own filters, whose type is in a folder with the filter's name."""
    return {
        "name": f"envoy.filters.http.{name}",
        "typed_config": typed(f"filters.http.{name}.v3.{kind}", **settings),
    }


def route(prefix, settings=None, cluster="node", **more):
    """A route, with settings of its own if there are any."""
    found = {
        "name": f"{prefix} {next(_routes)}",
        "match": {"prefix": prefix},
        "route": {"cluster": cluster, "timeout": "0s", **more},
    }
    if settings is not None:
        found["typed_per_filter_config"] = {
            "sszip": filter_of(settings, "DynamicModuleFilterPerRoute")
        }
    return found


def empty(path):
    """A route for which Envoy itself sends a 204."""
    return {"match": {"path": path}, "direct_response": {"status": 204}}


class Envoy(LoggedServer):
    filter_of = staticmethod(filter_of)

    def __init__(
        self,
        routes,
        *,
        origin=None,
        settings=None,
        workers=1,
        filters=(),
        clusters=(),
        http=None,
        text=None,
        per_connection=None,
        hops=None,
        tls=False,
        last=(),
        environment=None,
    ):
        self.prefix = pathlib.Path(tempfile.mkdtemp(prefix="sszip-envoy-"))
        self.port, self.admin = free_port(), free_port()
        self.concurrency = workers
        self.process = None
        # replaces the generated configuration
        self.text = text
        self.environment = environment or {}
        # options of the command line; and whether another Envoy may take over
        self.options = []
        self.restarts = False
        # an owner that is gone is logged as an error, also when the test stops it
        self._allowed = [re.compile(r"the cache\W+s owner.* (does not respond|does not speak the protocol of this version)")]
        self._judged = 0
        for name, library in (("envoy", MODULE), ("owner", OWNER)):
            (self.prefix / f"libsszip_{name}.so").symlink_to(pathlib.Path(library).absolute())
        # the port of the filter; with hops, clients use another one
        self.direct = free_port() if hops else self.port
        nodes = [cluster("node", pipe(origin.path))] if origin else []
        more = []
        if hops:
            back = self.prefix / "back.sock"
            nodes = [
                cluster("node", pipe(back), http2=True),
                cluster("origin", pipe(origin.path)),
                cluster("under-test", address(self.direct), **{hops: True}),
            ]
            if hops == "http3":
                trusted = {"trusted_ca": {"filename": str(self.prefix / "certificate.pem")}}
                nodes[-1]["transport_socket"] = quic("Upstream", validation_context=trusted)
            more = [
                listener("front", address(self.port), hop("under-test")),
                listener("back", pipe(back), hop("origin")),
            ]
        filters = [
            *filters,
            {"name": "sszip", "typed_config": self.filter_of(adapted(settings or {}))},
            *last,
        ]
        managed = manager("test", routes, filters, access_log=[self._access_log()], **(http or {}))
        under_test = listener("test", address(self.direct), managed)
        chain = under_test["filter_chains"][0]
        if tls or hops == "http3":
            certificate = self._certificate()
        if tls:
            chain["transport_socket"] = tls_socket(
                tls_certificates=[certificate], alpn_protocols=["h2", "http/1.1"]
            )
        if hops == "http3":
            managed["codec_type"] = "HTTP3"
            under_test["address"]["socket_address"]["protocol"] = "UDP"
            under_test["udp_listener_config"] = {"quic_options": {}}
            chain["transport_socket"] = quic("Downstream", tls_certificates=[certificate])
        if per_connection is not None:
            under_test["per_connection_buffer_limit_bytes"] = per_connection
        self.configuration = {
            "admin": {"address": address(self.admin)},
            "static_resources": {
                "listeners": [under_test, *more],
                "clusters": [*nodes, *clusters],
            },
        }

    def _certificate(self):
        """A self-signed certificate, and its key."""
        key, certificate = self.prefix / "key.pem", self.prefix / "certificate.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                   "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return {
            "certificate_chain": {"filename": str(certificate)},
            "private_key": {"filename": str(key)},
        }

    def _access_log(self):
        fields = {
            "uri": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
            "status": "%RESPONSE_CODE%",
            "details": "%RESPONSE_CODE_DETAILS%",
            **{
                name: f"%DYNAMIC_METADATA(sszip:{name})%"
                for name in ("mode", "ratio", "cache_status", "cache_reason")
            },
        }
        return {
            "name": "envoy.access_loggers.file",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": str(self.prefix / "access.log"),
                "log_format": {"json_format": fields},
            },
        }

    def _command(self, *more):
        if self.text:
            path = self.prefix / "envoy.yaml"
            admin = json.dumps(self.configuration["admin"])
            path.write_text(f"admin: {admin}\n{self.text.replace('@port@', str(self.port))}")
        else:
            path = self.prefix / "envoy.json"
            path.write_text(json.dumps(self.configuration).replace("@prefix@", str(self.prefix)))
        return [
            ENVOY, "-c", str(path), "--concurrency", str(self.concurrency),
            *([] if self.restarts else ["--disable-hot-restart"]),
            "--file-flush-interval-msec", "5", "-l", "warning", *self.options, *more,
        ]  # fmt: skip

    def _environment(self):
        return server_environment({"ENVOY_DYNAMIC_MODULES_SEARCH_PATH": str(self.prefix), **self.environment})

    def validate(self):
        """Runs `--mode validate`; returns the exit status and the output."""
        done = subprocess.run(
            self._command("--mode", "validate"),
            capture_output=True,
            text=True,
            env=self._environment(),
            timeout=60,
        )
        return done.returncode, done.stderr + done.stdout

    def start(self):
        self._log = open(self.prefix / "error.log", "ab")
        self.process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment(),
        )
        _started.add(self)
        self.wait_for(self._is_ready, "Envoy to be ready", 90)
        return self

    def _is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError("Envoy did not start:\n" + self.error_log()[:3000])
        with contextlib.suppress(OSError, AssertionError):
            return client.fetch(self.admin, "/ready").status == 200

    def wait_for(self, condition, description, seconds=GUARD_SECONDS):
        return wait_until(condition, lambda: f"waited in vain for {description}\n" + self.error_log()[-3000:], seconds)

    def workers(self):
        """The process that links itself to the owner of a store."""
        return [self.process.pid]

    def end(self, number=signal.SIGTERM):
        """Ends Envoy; its files stay, and it may be started again."""
        process, self.process = self.process, None
        try:
            process.send_signal(number)
            try:
                process.wait(GUARD_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
        finally:
            self._log.close()
        expected = {0 if number == signal.SIGTERM else -number}
        if self.restarts and "caught ENVOY_SIGTERM" in self.error_log():
            # a successor that ends requests its end as well: this signal may be the second one, which
            # Envoy does not handle any more
            expected.add(-signal.SIGTERM)
        assert process.returncode in expected, f"Envoy ended with {process.returncode}"

    def stop(self):
        try:
            if self.process:
                self.end()
                self.check()
        finally:
            saved_logs.discard(self.prefix)

    def save_stats(self):
        """Writes the stats to the folder, unless Envoy has ended or hangs."""
        with contextlib.suppress(OSError, AssertionError):
            stats = client.fetch(self.admin, "/stats?usedonly", timeout=STATS_SECONDS)
            (self.prefix / "stats.txt").write_bytes(stats.body)

    # output

    def error_log(self):
        path = self.prefix / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def expect(self, pattern):
        """Accepts log lines that match from here on."""
        self._allowed.append(re.compile(pattern))

    def check(self):
        """Fails if the log has lines that a healthy Envoy never writes, or if Envoy has ended."""
        ended = self.process and self.process.poll()
        assert ended in (None, 0), f"Envoy has ended:\n{self.error_log()[-5000:]}"
        text = self.error_log()
        lines = text[self._judged :].splitlines()
        self._judged = len(text)
        bad = [
            line
            for line in lines
            if _BAD.search(line) and not any(one.search(line) for one in self._allowed)
        ]
        assert not bad, "Envoy complained:\n" + "\n".join(bad[:50])


    def stats(self, pattern):
        """Counters and gauges whose names match, by name."""
        text = client.fetch(self.admin, "/stats?format=json").body
        stats = {one["name"]: one["value"] for one in json.loads(text)["stats"] if "value" in one}
        return {name: value for name, value in stats.items() if re.search(pattern, name)}

    def active(self):
        """Number of requests in flight, of clients and to nodes. A sandbox always polls its daemon."""
        pattern = r"^(http\.(?!admin)|cluster\.(?!sszip_cached)).*_rq(_pending)?_active$"
        return sum(self.stats(pattern).values())

    # requests


    def get(self, path, accept="gzip", *, headers=(), **request):
        """A response, read strictly, on a connection of its own."""
        uri = self.uri(path)
        if accept is not None:
            headers = [("Accept-Encoding", accept), *headers]
        return self.named(client.fetch(self.port, uri, headers=headers, **request), uri)


    def connect(self, **options):
        return client.Connection(self.port, **options)

    def settle(self):
        """Waits until responses are stored."""

def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def pipe(path):
    return {"pipe": {"path": str(path)}}


def manager(name, routes, filters=(), **more):
    """The connection manager of a listener; its last filter is the router.

    Clients of tests read to the end of the connection, and after a local reply Envoy would
    wait a second for them to close it first (test_connection_close.py)."""
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": name,
        "http_protocol_options": {"accept_http_10": True},
        # Clients read to the end of the connection: Envoy closes it after the last byte. With a
        # timeout a busy Envoy drops what it has not written when the time is over.
        "delayed_close_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [*filters, filter("router", "Router")],
        **more,
    }


def hop(to):
    """A hop that forwards its requests, WebSockets included."""
    return manager(
        to,
        [route("/", None, to)],
        upgrade_configs=[{"upgrade_type": "websocket"}],
        http2_protocol_options={"allow_connect": True},
    )


def listener(name, where, managed):
    network = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": managed,
    }
    return {"name": name, "address": where, "filter_chains": [{"filters": [network]}]}


def tls_socket(kind="Downstream", **more):
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{kind}TlsContext",
            "common_tls_context": more,
        },
    }


def quic(kind, **more):
    tls = tls_socket(kind, **more)["typed_config"]
    return {
        "name": "envoy.transport_sockets.quic",
        "typed_config": {
            "@type": f"type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.Quic{kind}Transport",
            f"{kind.lower()}_tls_context": {
                "common_tls_context": tls["common_tls_context"],
                **({"sni": "localhost"} if kind == "Upstream" else {}),
            },
        },
    }


def cluster(name, where, *, http2=False, http3=False, requests=1, **more):
    """A node; over HTTP/1.1 with one request per connection, as nginx connects."""
    protocol = "http2" if http2 else "http3" if http3 else "http"
    options = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {
                f"{protocol}_protocol_options": {"allow_connect": True} if http2 else {}
            },
            **(
                {"common_http_protocol_options": {"max_requests_per_connection": requests}}
                if protocol == "http" and requests
                else {}
            ),
        }
    }
    endpoint = {"endpoint": {"address": where}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": options,
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
        **more,
    }


@saved_logs.at_failure.append
def _save_stats(_target):
    for envoy in list(_started):
        if envoy.process:
            envoy.save_stats()

"""A real Envoy with the module, in a directory of its own."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from . import client
from .nginx import free_port

ENVOY = os.environ.get("SSZIP_ENVOY", "envoy")
MODULE = os.environ.get("SSZIP_ENVOY_MODULE", "build/envoy/libsszip_envoy.so")

# What a healthy Envoy never writes. A test that provokes one expects it.
_BAD = re.compile(r"\]\[(critical|error)\]|Caught|Backtrace|panicked|assert failure")
_TYPE = "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3."
_numbers = itertools.count(1)
_routes = itertools.count(1)


def filter_of(settings, kind="DynamicModuleFilter"):
    """The filter with these settings, as a part of Envoy's configuration."""
    return {
        "@type": f"{_TYPE}{kind}",
        "dynamic_module_config": {"name": "sszip_envoy", "do_not_close": True},
        "filter_name": "sszip",
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.Struct", "value": settings},
    }


def route(prefix, settings=None, cluster="node", **more):
    """A route, perhaps with settings of its own."""
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
    """A route that is answered 204 by Envoy itself."""
    return {"match": {"path": path}, "direct_response": {"status": 204}}


class Envoy:
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
    ):
        self.prefix = pathlib.Path(tempfile.mkdtemp(prefix="sszip-envoy-", dir="/tmp"))
        self.port, self.admin = free_port(), free_port()
        self.workers = workers
        self.process = None
        # in place of what comes of the rest
        self.text = text
        self._allowed = []
        self._judged = 0
        self._log_read = 0
        self._log_lines = {}
        shutil.copy(MODULE, self.prefix / "libsszip_envoy.so")
        nodes = [cluster("node", {"pipe": {"path": str(origin.path)}})] if origin else []
        listener = self._listener(routes, settings or {}, list(filters), http or {})
        if per_connection is not None:
            listener["per_connection_buffer_limit_bytes"] = per_connection
        self.configuration = {
            "admin": {"address": address(self.admin)},
            "static_resources": {
                "listeners": [listener],
                "clusters": [*nodes, *clusters],
            },
        }

    def _listener(self, routes, settings, filters, http):
        manager = {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
            ".HttpConnectionManager",
            "stat_prefix": "test",
            "http_protocol_options": {"accept_http_10": True},
            "access_log": [self._access_log()],
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]
            },
            "http_filters": [
                *filters,
                {"name": "sszip", "typed_config": filter_of(settings)},
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                    },
                },
            ],
            **http,
        }
        network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
        return {
            "name": "test",
            "address": address(self.port),
            "filter_chains": [{"filters": [network]}],
        }

    def _access_log(self):
        said = {
            "uri": "%REQ(:PATH)%",
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
                "log_format": {"json_format": said},
            },
        }

    def _command(self, *more):
        if self.text:
            path = self.prefix / "envoy.yaml"
            admin = json.dumps(self.configuration["admin"])
            path.write_text(f"admin: {admin}\n{self.text.replace('@port@', str(self.port))}")
        else:
            path = self.prefix / "envoy.json"
            path.write_text(json.dumps(self.configuration))
        return [
            ENVOY, "-c", str(path), "--concurrency", str(self.workers), "--disable-hot-restart",
            "--file-flush-interval-msec", "5", "-l", "warning", *more,
        ]  # fmt: skip

    def _environment(self):
        return {**os.environ, "ENVOY_DYNAMIC_MODULES_SEARCH_PATH": str(self.prefix)}

    def validate(self):
        """`--mode validate`: the exit status and what it said."""
        done = subprocess.run(
            self._command("--mode", "validate"),
            capture_output=True,
            text=True,
            env=self._environment(),
            timeout=60,
        )
        return done.returncode, done.stderr + done.stdout

    def start(self):
        self._log = open(self.prefix / "error.log", "wb")
        self.process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment(),
        )
        self.wait_for(self._is_ready, "Envoy to be ready")
        return self

    def _is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError("Envoy did not start:\n" + self.error_log())
        with contextlib.suppress(OSError, AssertionError):
            return client.fetch(self.admin, "/ready").status == 200

    def wait_for(self, condition, what, seconds=30):
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}\n" + self.error_log()[-3000:])
            time.sleep(0.005)
        return value

    def stop(self):
        try:
            if self.process:
                self.process.send_signal(signal.SIGTERM)
                try:
                    self.process.wait(20)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                    raise
                assert self.process.returncode == 0, f"Envoy ended with {self.process.returncode}"
                self.check()
        finally:
            if self.process:
                self._log.close()
            shutil.rmtree(self.prefix, ignore_errors=True)

    # what it wrote

    def error_log(self):
        path = self.prefix / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def expect(self, pattern):
        """From here on lines that match are no fault."""
        self._allowed.append(re.compile(pattern))

    def check(self):
        """Fails if the log holds what a healthy Envoy never writes, or it has ended."""
        assert self.process.poll() in (None, 0), f"Envoy has ended:\n{self.error_log()[-5000:]}"
        text = self.error_log()
        lines = text[self._judged :].splitlines()
        self._judged = len(text)
        bad = [
            line
            for line in lines
            if _BAD.search(line) and not any(one.search(line) for one in self._allowed)
        ]
        assert not bad, "Envoy complained:\n" + "\n".join(bad[:50])

    def logged(self, uri):
        """The access log's line about a request, written after the answer has gone out."""

        def look():
            with open(self.prefix / "access.log", "rb") as log:
                log.seek(self._log_read)
                new = log.read()
            complete = new.rfind(b"\n") + 1
            self._log_read += complete
            for line in new[:complete].splitlines():
                entry = json.loads(line)
                self._log_lines[entry["uri"]] = entry
            return self._log_lines.get(uri)

        return self.wait_for(look, f"the log line of {uri}")

    # requests

    def uri(self, path):
        """The path made unique, so that its log line can be found."""
        return f"{path}{'&' if '?' in path else '?'}n={next(_numbers)}"

    def named(self, response, uri):
        response.uri = uri
        response.nginx = self
        return response

    def get(self, path, accept="gzip", *, headers=(), **request):
        """One request on a connection of its own, read strictly."""
        uri = self.uri(path)
        if accept is not None:
            headers = [("Accept-Encoding", accept), *headers]
        return self.named(client.fetch(self.port, uri, headers=headers, **request), uri)

    def post(
        self,
        path,
        body=b'{"jsonrpc":"2.0","id":1,"method":"x"}',
        accept="gzip",
        headers=(),
        **request,
    ):
        headers = [("Content-Type", "application/json"), *headers]
        return self.get(path, accept, method="POST", body=body, headers=headers, **request)

    def connect(self, **options):
        return client.Connection(self.port, **options)


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def cluster(name, where):
    """A node, with one request a connection, as nginx asks it."""
    options = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "common_http_protocol_options": {"max_requests_per_connection": 1},
            "explicit_http_config": {"http_protocol_options": {}},
        }
    }
    endpoint = {"endpoint": {"address": where}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": options,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }

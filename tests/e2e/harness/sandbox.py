"""A real Envoy with the proxy-wasm filter, and the daemon that stores its entries."""

import copy
import json
import os
import pathlib
import time

from . import client
from .envoy import Envoy, cluster, pipe
from .owner import Owner

WASM = os.environ.get("SSZIP_WASM", "build/envoy/sszip_envoy.wasm")
_TYPE = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"

# the cluster of the daemon
CACHED = "sszip_cached"
# longer than any body of the parity table
LIMIT = 64 << 20


def filter_of(settings):
    """The filter with these settings, as a part of Envoy's configuration."""
    return {
        "@type": _TYPE,
        "config": {
            "name": "sszip",
            "fail_open": False,
            "failure_policy": "FAIL_RELOAD",
            "reload_config": {"backoff": {"base_interval": "0.05s"}},
            "allow_on_headers_stop_iteration": True,
            "vm_config": {
                "runtime": "envoy.wasm.runtime.v8",
                "code": {"local": {"filename": str(pathlib.Path(WASM).absolute())}},
            },
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": json.dumps(settings),
            },
        },
    }


def route_metadata(found):
    """A route of the native module, with the settings where this filter reads them."""
    found = copy.deepcopy(found)
    settings = found.get("typed_per_filter_config", {}).pop("sszip", {}).get("filter_config")
    if settings:
        # memory is a setting of the daemon
        value = {name: it for name, it in settings["value"].items() if name != "cache_memory"}
        config = {"config": json.dumps(value)}
        found["metadata"] = {"filter_metadata": {"sszip": config}}
    return found


class WasmEnvoy(Envoy):
    filter_of = staticmethod(filter_of)
    # a worker of a busy machine stores later than the next request comes
    late_stores = 500

    def __init__(self, routes, *, settings=None, clusters=(), owner=True, http=None, **more):
        # an owner of its own, with the environment that a sandbox has not; one that is shared; or none
        own = {"environment": more.get("environment")}
        self.owner = Owner(**own).start() if owner is True else owner or None
        self.has_owner = owner is True
        settings = dict(settings or {})
        clusters = list(clusters)
        if self.owner:
            settings.setdefault("cache_owner", f"cluster:{CACHED}")
            clusters.append(cluster(CACHED, pipe(self.owner.socket), requests=None))
        settings.setdefault("buffer_limit", LIMIT)
        more.setdefault("per_connection", LIMIT)
        if http and "route_config" in http:
            http = copy.deepcopy(http)
            for host in http["route_config"]["virtual_hosts"]:
                host["routes"] = [route_metadata(one) for one in host["routes"]]
        routes = [route_metadata(one) for one in routes]
        super().__init__(routes, settings=settings, clusters=clusters, http=http, **more)

    def filter_at(self, name):
        """A filter's configuration."""
        listener = self.configuration["static_resources"]["listeners"][0]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        (found,) = [one for one in manager["http_filters"] if one["name"] == name]
        return found["typed_config"]

    def _access_log(self):
        log = super()._access_log()
        fields = log["typed_config"]["log_format"]["json_format"]
        for name in ("mode", "ratio", "cache_status", "cache_reason"):
            fields[name] = f"%FILTER_STATE(wasm.sszip.{name}:PLAIN)%"
        return log

    def connect(self, **options):
        self.settle()
        return super().connect(**options)

    def settle(self):
        """Waits, for a limited time, until responses are stored."""
        if not self.owner:
            return
        path = f"/stats?filter=^cluster.{CACHED}.upstream_rq_(active|total)$"
        until, seen = time.monotonic() + 0.5, [None, b""]
        # a sandbox sends what it stores within two milliseconds, and always has a poll in flight
        while len(set(seen)) > 1 and time.monotonic() < until:
            time.sleep(0.004)
            seen = [*seen[-1:], client.fetch(self.admin, path).body]

    def stop(self):
        try:
            super().stop()
        finally:
            if self.has_owner:
                self.owner.close()

"""Envoy with a filter whose configuration is discovered (ECDS)."""

import json
import os

from .envoy import Envoy, route, typed
from .sandbox import WasmEnvoy

# a filter of Envoy's own
OTHER = typed("filters.http.header_mutation.v3.HeaderMutation")


class EcdsEnvoy:
    """An Envoy that discovers its filter from a file. Each version overrides the common
    `settings`."""

    version = 0

    def __init__(self, origin, settings, **options):
        self.settings = settings
        super().__init__([route("/")], origin=origin, settings=settings, **options)
        (listener,) = self.configuration["static_resources"]["listeners"]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.path = self.prefix / "ecds.json"
        source = {"path_config_source": {"path": str(self.path)}, "resource_api_version": "V3"}
        kinds = [self.filter_of({})["@type"], OTHER["@type"]]
        discovery = {"config_source": source, "type_urls": kinds}
        manager["http_filters"][0] = {"name": "sszip", "config_discovery": discovery}
        self.configuration["node"] = {"id": "test", "cluster": "test"}
        self.publish()

    def publish(self, *others, **settings):
        """Publishes another version of the filter."""
        self.version += 1
        filter = {
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": "sszip",
            "typed_config": others[0] if others else self.filter_of({**self.settings, **settings}),
        }
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"version_info": str(self.version), "resources": [filter]}))
        os.replace(new, self.path)

    def publish_and_wait(self, *others, **settings):
        def done():
            return sum(self.stats("config_reload$").values())

        before = done()
        self.publish(*others, **settings)
        self.wait_for(lambda: done() > before, "the new filter")


class EcdsModuleEnvoy(EcdsEnvoy, Envoy):
    pass


class EcdsSandboxEnvoy(EcdsEnvoy, WasmEnvoy):
    pass

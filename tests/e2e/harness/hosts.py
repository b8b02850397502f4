"""nginx, Envoy's module and its Wasm filter behind one interface, for tests/hosts.

SSZIP_HOSTS has the names of the hosts on which a suite runs its tests."""

import os

from .envoy import Envoy, route
from .nginx import Nginx
from .sandbox import WasmEnvoy

HOSTS = os.environ.get("SSZIP_HOSTS", "nginx native wasm").split()

_SERVER = """
proxy_http_version 1.1;
client_max_body_size 64m;
sszip on;
@settings@
@more@
server {
    listen 127.0.0.1:@port@;
@locations@
}
"""


def directives(settings):
    """Envoy's settings as nginx's directives; a list is one directive for each value."""
    words = {True: "on", False: "off"}
    lines = []
    for name, values in settings.items():
        for value in values if isinstance(values, list) else [values]:
            lines.append(f"sszip_{name} {words.get(value, value)};")
    return " ".join(lines)


# locations with these settings need no node
_ANSWERED = {"cache_purge", "status"}


class Routes(dict):
    """Settings by path of a location or route. `rewrites`: the node's path lacks the prefix."""

    rewrites = False

    def locations(self):
        to = "/" if self.rewrites else ""
        lines = []
        for path, settings in self.items():
            node = "" if _ANSWERED & settings.keys() else f"proxy_pass http://@origin@{to};"
            lines.append(f"    location {path} {{ {directives(settings)} {node} }}")
        return "\n".join(lines)

    def routes(self):
        more = {"prefix_rewrite": "/"} if self.rewrites else {}
        # Envoy uses the first matching route, nginx the longest matching location
        paths = sorted(self, key=len, reverse=True)
        return [route(path, self[path], **more) for path in paths]


def server(
    host, origin, places, settings=None, *, rewrites=False, more="", workers=1, environment=None, **options
):
    """A server that is not started; `more` is for nginx's http block, `options` for Envoy."""
    places = Routes(places)
    places.rewrites = rewrites
    settings = settings or {}
    if host == "nginx":
        text = _SERVER.replace("@settings@", directives(settings))
        text = text.replace("@more@", more).replace("@locations@", places.locations())
        return Nginx(text, origin=origin, workers=workers, environment=environment)
    kind = {"native": Envoy, "wasm": WasmEnvoy}[host]
    options |= {"workers": workers, "environment": environment}
    return kind(places.routes(), origin=origin, settings=settings, **options)

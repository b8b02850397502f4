"""GET through the cache on Envoy, as http-cache-tests sees it: what nginx's sszip does right,
Envoy's does too, and what Envoy's own cache does right as well."""

import json

from harness.envoy import address, cluster, filter, route, typed
from harness.nginx import Nginx
from test_http_cache import CONFIG, cases, lost, passed, run_all, suite

# for pytest, which looks for them here
__all__ = ["cases", "suite"]

OURS = {
    "cache": True,
    # caches are compared, not coders
    "types": "application/x-nothing",
    "cache_credentials": "ignore",
}
STOCK = filter(
    "cache",
    "CacheConfig",
    typed_config=typed("http.cache.simple_http_cache.v3.SimpleHttpCacheConfig"),
)
# Where the two hosts differ, and why.
ENVOY = {
    "age-parse-prefix-twoline": "Envoy makes 0,7200 of the lines, of which the first counts (RFC 9111, 5.1)",
    "freshness-max-age-s-maxage-shared-longer-multiple": "Envoy joins the lines without a space, which the test reads",
    "invalidate-M-SEARCH": "400 by Envoy: it knows no such method",
    "invalidate-M-SEARCH-cl": "the same",
    "invalidate-M-SEARCH-failed": "the same",
}


def test_no_worse_than_on_nginx_and_than_envoys_own(start_envoy, suite, cases):
    routes = [route("/", None, "cases")]
    nodes = [cluster("cases", address(cases), requests=0)]
    envoy = start_envoy(routes, clusters=nodes, settings=OURS)
    own = start_envoy(routes, clusters=nodes, settings={"enable": False}, filters=[STOCK])
    nginx = Nginx(CONFIG.replace("@cases@", str(cases)), workers=1)
    nginx.start()
    try:
        ports = (envoy.port, own.port, nginx.ports["port_sszip"])
        ours, stock, nginxs = map(passed, run_all(suite, *ports))
    finally:
        nginx.stop()
    missed = lost(suite, envoy.port, sorted(nginxs - ours - set(ENVOY)))
    assert len(nginxs) > 180 and not missed, json.dumps(missed, indent=1)
    # 225 and 191 were; some requests Envoy's own cache never answers
    assert len(ours) > len(stock) > 100

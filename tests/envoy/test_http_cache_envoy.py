"""GET through the cache on Envoy as http-cache-tests sees it: the module passes every test that
sszip in nginx passes, and Envoy's own cache is compared."""

import json

import pytest

from harness.envoy import address, cluster, filter, route, typed
from harness.nginx import Nginx
from harness.sandbox import WasmEnvoy
from test_http_cache import CONFIG, cases, failures_after_retry, passed, run_all, suite

# pytest finds the fixtures by these names
__all__ = ["cases", "suite"]

OURS = {
    "cache": True,
    # caches are compared, not encoders
    "types": "application/x-nothing",
    "cache_credentials": "ignore",
}
STOCK = filter(
    "cache",
    "CacheConfig",
    typed_config=typed("http.cache.simple_http_cache.v3.SimpleHttpCacheConfig"),
)
# Differences between the two hosts, and their reasons.
ENVOY = {
    "age-parse-prefix-twoline": "Envoy makes 0,7200 of the lines, of which the first counts (RFC 9111, 5.1)",
    "freshness-max-age-s-maxage-shared-longer-multiple": "Envoy joins the lines without a space, which the test reads",
    "invalidate-M-SEARCH": "400 by Envoy: it knows no such method",
    "invalidate-M-SEARCH-cl": "the same",
    "invalidate-M-SEARCH-failed": "the same",
}
# Differences between sandbox and module: expired entries are neither sent nor revalidated
# (docs/envoy-wasm.md).
WASM = ("304-etag-update-response-", "304-lm-use-stored-", "conditional-etag-", "stale-sie-",
        "cc-resp-must-revalidate-stale")  # fmt: skip


@pytest.mark.thorough("rows of the parity table and tests of freshness state the same rules")
def test_http_cache_tests_that_nginx_or_the_module_pass_are_passed(start_envoy, suite, cases):
    routes = [route("/", None, "cases")]
    nodes = [cluster("cases", address(cases), requests=0)]
    envoy = start_envoy(routes, clusters=nodes, settings=OURS)
    own = start_envoy(routes, clusters=nodes, settings={"enable": False}, filters=[STOCK])
    sandboxed = WasmEnvoy(routes, clusters=nodes, settings=OURS)
    nginx = Nginx(CONFIG.replace("@cases@", str(cases)), workers=1)
    nginx.start()
    try:
        sandboxed.start()
        ports = (envoy.port, own.port, nginx.ports["port_sszip"], sandboxed.port)
        ours, stock, nginxs, wasms = map(passed, run_all(suite, *ports))
        missed = failures_after_retry(suite, envoy.port, sorted(nginxs - ours - set(ENVOY)))
        assert len(nginxs) > 180 and not missed, json.dumps(missed, indent=1)
        known = {name for name in ours if name.startswith(WASM)}
        missed = sorted(ours - wasms - known)
        # a sandbox stores a moment after its response, which is long on a busy machine, where the
        # module may also pass a test only since the entry has expired meanwhile
        for _ in range(8):
            ours, wasms = map(passed, run_all(suite, envoy.port, sandboxed.port, only=missed))
            missed = sorted(set(missed) & ours - wasms)
            if not missed:
                break
        assert not missed, json.dumps(missed, indent=1)
    finally:
        sandboxed.stop()
        nginx.stop()
    # at the time of writing: 225 and 191; Envoy's own cache never answers some requests
    assert len(ours) > len(stock) > 100

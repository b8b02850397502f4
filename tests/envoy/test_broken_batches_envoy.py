"""Split batches whose node breaks off, where Envoy has TLS and HTTP/2, its CORS filter, brotli on
either side of sszip, and retries."""

import pytest

from harness.broken_batches import (
    BATCH, CLIENTS, CUTS, ORIGIN, STORED, asked, clients_leave, curl, cut, held, is_whole, judge, node, prime,
)  # fmt: skip
from harness.envoy import filter, route, typed
from harness.origin import CLOSE, RESET

HOSTS = ("native", "wasm")
SETTINGS = {"cache": True, "cache_namespace": "broken", "method": ["deny debug_*"]}
CORS = "envoy.filters.http.cors"
POLICY = typed("filters.http.cors.v3.CorsPolicy", allow_origin_string_match=[{"exact": ORIGIN}], allow_methods="POST")
RETRIES = {"retry_on": "connect-failure,reset,gateway-error", "num_retries": 1}
BROTLI = filter(
    "compressor",
    "Compressor",
    compressor_library={"name": "brotli", "typed_config": typed("compression.brotli.compressor.v3.Brotli")},
)


@pytest.fixture(scope="module", params=["before", "after"])
def envoy(request, start_envoy):
    """brotli is before sszip, or behind it."""
    found = route("/", SETTINGS, retry_policy=RETRIES)
    found["typed_per_filter_config"][CORS] = POLICY
    filters, last = [filter("cors", "Cors")], []
    (filters if request.param == "before" else last).append(BROTLI)
    return start_envoy([found], filters=filters, last=last, tls=True, workers=2)


@pytest.fixture
def port(envoy, origin):
    prime(envoy, envoy.port, origin)
    return envoy.port


@pytest.mark.parametrize("coding, version", CLIENTS[:2])
@pytest.mark.parametrize("kind", CUTS)
def test_batch_that_breaks_off_is_an_error_and_none_of_it_is_stored(envoy, port, origin, kind, coding, version):
    origin.answers(cut(kind))
    got = curl(port, BATCH, coding=coding, version=version)
    if kind == "gzip":
        # a whole message of HTTP: Envoy lets the filter answer
        judge(got, 200, whole=[2], coding=coding)
    else:
        assert got[0] in (502, 503)
    assert asked(origin)[0] == [2, "four"]
    origin.answers(node)
    assert is_whole(curl(port, BATCH, coding=coding, version=version))
    assert "; hit" in curl(port, STORED)[1]["cache-status"]


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
def test_retry_answers_what_broke_off_before_its_head(port, origin, end):
    coding = "br, gzip"
    turns = iter([lambda _: [end], node])
    origin.answers(lambda request: next(turns)(request))
    judge(curl(port, BATCH, coding=coding), 200, whole=[2, "four"], coding=coding)
    assert asked(origin) == [[2, "four"]] * 2
    # no try is answered
    origin.answers([end])
    judge(curl(port, BATCH, coding=coding), 503, coding=coding)


@pytest.mark.parametrize("kind", CUTS)
def test_client_that_leaves_costs_nobody_else_anything(envoy, port, origin, kind):
    script, left = held(kind)
    origin.answers(script)
    clients_leave(envoy, port, origin)
    left.set()
    envoy.wait_for(lambda: envoy.active() == 0, "requests to end")
    origin.answers(node)
    assert is_whole(curl(port, BATCH))

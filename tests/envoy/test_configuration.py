"""Settings in Envoy, and the errors that are logged for invalid ones."""

import json

import pytest

from harness.envoy import Envoy, route
from harness.origin import answer
from harness.fixtures import starting
from harness.sandbox import WasmEnvoy

HOSTS = ("native", "wasm")
BODY = b'{"a":"' + b"b" * 5000 + b'"}'
SANDBOX = "is not available in the sandbox: "

WRONG = [
    (
        {"comp_level": 13},
        '"comp_level" has an invalid value "13": it must be a number from 0 to 12',
    ),
    ({"complevel": 1}, '"complevel" is an unknown setting; did you mean "comp_level"?'),
    (
        {"min_length": {"a": 1}},
        '"min_length" must be a string, a number, a boolean or a list of these',
    ),
    ({"hold": "1k 1ms 1"}, '"hold" takes one or two values'),
]
WRONG_IN_MODULE = [({"cache": True, "cache_head": "http://127.0.0.1:1 chain_id=1"}, '"cache_head"')]
WRONG_IN_SANDBOX = [
    ({"cache": True}, '"cache" needs "cache_owner": "cluster:NAME"'),
    (
        {"cache": True, "cache_owner": "unix:/run/sszip/cached.sock"},
        '"cache_owner" has an invalid value "unix:/run/sszip/cached.sock": it must be "cluster:NAME"',
    ),
    ({"cache_path": "/var/cache/sszip"}, f'"cache_path" {SANDBOX}sszip-cached owns the store'),
    ({"cache_head": "http://127.0.0.1:1"}, f'"cache_head" {SANDBOX}sszip-cached follows the chain'),
    ({"cache_memory": "1g"}, f'"cache_memory" {SANDBOX}entries are in the memory of sszip-cached'),
    ({"status": True}, f'"status" {SANDBOX}sandboxes share no memory; Envoy'),
    (
        {"cache_background_update": True},
        f'"cache_background_update" {SANDBOX}a request for a stale entry waits for the new response',
    ),
    (
        {"verify": "1%"},
        f'"verify" {SANDBOX}hits cannot be compared with the node from there',
    ),
    (
        # Envoy's conversion of the value is no JSON
        {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"ssz": True}},
        "configuration (a google.protobuf.StringValue) is not JSON",
    ),
    ({"cache_lookup_timeout": "2s"}, '"cache_lookup_timeout" has an invalid value "2s": it must be a time with its unit'),
    ({"buffer_limit": "1k"}, '"buffer_limit" has an invalid value "1k": it must be a size from'),
]
# a sandbox reads the settings of routes with their requests
PLACES = [("native", "filter"), ("native", "route"), ("wasm", "filter")]
WRONG_BY_HOST = {"native": WRONG + WRONG_IN_MODULE, "wasm": WRONG + WRONG_IN_SANDBOX}


@pytest.fixture(scope="module")
def start_sandbox(session_origin):
    yield from starting(lambda routes: WasmEnvoy(routes, origin=session_origin))


def validated(host, place, origin, settings):
    """The exit status of `--mode validate`, and its log."""
    if host == "native":
        of_route = settings if place == "route" else None
        envoy = Envoy([route("/", of_route)], origin=origin, settings={} if of_route else settings)
    else:
        struct = settings if "@type" in settings else None
        envoy = WasmEnvoy([route("/")], origin=origin, settings={} if struct else settings, owner=False)
        if struct:
            envoy.filter_at("sszip")["config"]["configuration"] = struct
    try:
        return envoy.validate()
    finally:
        envoy.stop()


@pytest.mark.parametrize(
    "kind, place, settings, message",
    [(*at, *one) for at in PLACES for one in WRONG_BY_HOST[at[0]]],
    ids=lambda value: "-".join(value)[:30] if isinstance(value, dict) else value[:12],
)
def test_invalid_setting_is_an_error_that_names_it(session_origin, kind, place, settings, message):
    status, text = validated(kind, place, session_origin, settings)
    assert status != 0
    assert message in text


UNKNOWN_METHODS = [
    ({"method": "deny eth_sendRawTransacton debug-*"}, "eth_sendRawTransaction"),
    ({"method": ["allow eth_*", "deny debug-*"]}, "debug_*"),
    ({"max_answer": "eth_getLog 1m"}, "eth_getLogs"),
    ({"cache_valid": "eth_gasPrise 1s"}, "eth_gasPrice"),
    ({"cache_method": "eth_getBalanse block=p[1]"}, "eth_getBalance"),
]


@pytest.mark.parametrize("settings, meant", UNKNOWN_METHODS, ids=lambda value: "-".join(value)[:20])
@pytest.mark.parametrize("kind, place", PLACES)
def test_unknown_methods_are_warned_of_with_the_nearest_known_method(session_origin, kind, place, settings, meant):
    status, text = validated(kind, place, session_origin, settings)
    assert status == 0, text
    (name,) = settings
    lines = [line for line in text.splitlines() if "unknown method" in line or "no known method" in line]
    # each thread of Envoy has a sandbox that reads the settings
    (line,) = {line.rpartition("] ")[2] for line in lines} if kind == "wasm" else lines
    assert f'sszip: "{name}" ' in line and f'did you mean "{meant}"?' in line


def test_route_overrides_settings_of_the_filter(start_envoy, origin):
    routes = [
        route("/off", {"enable": False}),
        route("/long", {"min_length": "1m"}),
        route("/text", {"types": ["text/plain"]}),
        route("/"),
    ]
    envoy = start_envoy(routes, settings={"comp_level": 9, "types": ["application/json"]})
    assert envoy.validate()[0] == 0
    origin.answers(answer(BODY))
    modes = {path: envoy.get(path).mode for path in ("/off", "/long", "/text", "/")}
    assert modes == {"/off": "off", "/long": "too-small", "/text": "type", "/": "oneshot"}
    # a setting of the filter applies where the route has none
    origin.answers(answer(BODY, type="text/plain"))
    assert {path: envoy.get(path).mode for path in ("/text", "/")} == {
        "/text": "oneshot",
        "/": "type",
    }


@pytest.mark.parametrize(
    "config, why",
    [
        ({"comp_level": 13}, '"comp_level" has an invalid value "13"'),
        ({"cache_owner": "cluster:other"}, '"cache_owner" is a setting of the filter'),
        ({"cache_path": "/x"}, '"cache_path" is not available in the sandbox'),
        ("{", "config is not JSON"),
    ],
    ids=["value", "owner", "path", "json"],
)
def test_sandbox_is_off_for_a_route_that_is_invalid(start_sandbox, origin, config, why):
    wrong = route("/wrong")
    text = config if isinstance(config, str) else json.dumps(config)
    wrong["metadata"] = {"filter_metadata": {"sszip": {"config": text}}}
    envoy = start_sandbox([wrong, route("/")])
    envoy.expect("sszip: disabled for a route")
    origin.answers(answer(BODY))
    plain = envoy.get("/wrong")
    assert (plain.mode, plain.body) == ("off", BODY)
    assert envoy.get("/").mode == "oneshot"
    assert why in envoy.error_log()
    # the error is logged once
    assert envoy.get("/wrong").body == BODY
    assert envoy.error_log().count("sszip: disabled for a route") == 1

"""Settings in Envoy, and the errors that are logged for invalid ones."""

import json

import pytest

from harness.ecds import EcdsSandboxEnvoy
from harness.envoy import Envoy, adapted, route
from harness.origin import answer
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
    ({"log_split": 1000}, '"log_split" is an unknown setting; did you mean "logs_split"?'),
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
    ({"cache_fleet": "redis://127.0.0.1"}, f'"cache_fleet" {SANDBOX}sszip-cached connects to the fleet'),
    ({"cache_memory": "1g"}, '"cache_memory" has an invalid value "1g": it must be a size from 1m to 512m'),
    ({"status": True}, f'"status" {SANDBOX}sandboxes share no memory; Envoy'),
    (
        {"cache_background_update": True},
        f'"cache_background_update" {SANDBOX}a request for a stale entry waits for the new response',
    ),
    (
        {"logs_split": 1000},
        f'"logs_split" {SANDBOX}pieces cannot be fetched from the node from there',
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


STRUCT = "type.googleapis.com/google.protobuf.Struct"


class Sandbox(EcdsSandboxEnvoy):
    """An Envoy that compiles the Wasm filter once for all settings that it loads."""

    def load(self, settings):
        """Whether a filter with these settings is accepted, and the log lines about it."""
        filter = self.filter_of({} if settings.get("@type") == STRUCT else {**self.settings, **adapted(settings)})
        if settings.get("@type") == STRUCT:
            filter["config"]["configuration"] = settings
        begin = len(self.error_log())
        before = self.updates()
        self.publish(filter)
        self.wait_for(lambda: self.updates() != before, "the filter to be loaded or rejected")
        return self.updates()["config_fail"] == before["config_fail"], self.error_log()[begin:]

    def updates(self):
        """The numbers of updates, and of rejected ones among them."""
        stats = self.stats(r"\.sszip\.config_(reload|fail)$")
        return {name.rpartition(".")[2]: count for name, count in stats.items()}


@pytest.fixture(scope="module")
def sandbox(session_origin):
    envoy = Sandbox(session_origin, {}, owner=False)
    envoy.expect(r"Wasm VM failed|Plugin .*failed to load|sszip: |\[config\]")
    envoy.start()
    yield envoy
    envoy.stop()


def validated(host, place, origin, settings):
    """The exit status of `--mode validate`, and its log."""
    if host == "native":
        of_route = settings if place == "route" else None
        envoy = Envoy([route("/", of_route)], origin=origin, settings={} if of_route else settings)
    else:
        envoy = WasmEnvoy([route("/")], origin=origin, settings=settings, owner=False)
    try:
        return envoy.validate()
    finally:
        envoy.stop()


def name_of(value):
    return "-".join(value)[:30] if isinstance(value, dict) else value[:12]


@pytest.mark.parametrize(
    "kind, place, settings, message",
    [*((*at, *one) for at in PLACES if at[0] == "native" for one in WRONG_BY_HOST["native"]), ("wasm", "filter", *WRONG[0])],
    ids=name_of,
)
def test_invalid_setting_is_an_error_of_the_validation(session_origin, kind, place, settings, message):
    status, text = validated(kind, place, session_origin, settings)
    assert status != 0
    assert message in text


@pytest.mark.parametrize("settings, message", WRONG_BY_HOST["wasm"], ids=name_of)
def test_invalid_setting_of_a_sandbox_is_an_error_that_names_it(sandbox, settings, message):
    is_accepted, text = sandbox.load(settings)
    assert not is_accepted
    assert message in text


UNKNOWN_METHODS = [
    ({"method": "deny eth_sendRawTransacton debug-*"}, "eth_sendRawTransaction"),
    ({"method": ["allow eth_*", "deny debug-*"]}, "debug_*"),
    ({"max_answer": "eth_getLog 1m"}, "eth_getLogs"),
    ({"cache_valid": "eth_gasPrise 1s"}, "eth_gasPrice"),
    ({"cache_method": "eth_getBalanse block=p[1]"}, "eth_getBalance"),
]


def assert_warned(lines, settings, meant):
    (name,) = settings
    (line,) = [line for line in lines if "unknown method" in line or "no known method" in line]
    assert f'sszip: "{name}" ' in line and f'did you mean "{meant}"?' in line


# a sandbox is validated with one of them: its start takes seconds
@pytest.mark.parametrize(
    "kind, place, settings, meant",
    [*((*at, *one) for at in PLACES if at[0] == "native" for one in UNKNOWN_METHODS), ("wasm", "filter", *UNKNOWN_METHODS[0])],
    ids=name_of,
)
def test_validation_warns_of_unknown_methods_with_the_nearest_known_method(session_origin, kind, place, settings, meant):
    status, text = validated(kind, place, session_origin, settings)
    assert status == 0, text
    lines = text.splitlines()
    assert_warned(without_repetitions(lines) if kind == "wasm" else lines, settings, meant)


@pytest.mark.parametrize("settings, meant", UNKNOWN_METHODS, ids=name_of)
def test_sandbox_warns_of_unknown_methods_with_the_nearest_known_method(sandbox, settings, meant):
    is_accepted, text = sandbox.load(settings)
    assert is_accepted, text
    assert_warned(without_repetitions(text.splitlines()), settings, meant)


def without_repetitions(lines):
    """The messages, once: each thread of Envoy has a sandbox that reads the settings."""
    return {line.rpartition("] ")[2] for line in lines}


# metadata of routes in a sandbox
WRONG_ROUTES = {
    "value": ({"comp_level": 13}, '"comp_level" has an invalid value "13"'),
    "owner": ({"cache_owner": "cluster:other"}, '"cache_owner" is a setting of the filter'),
    "path": ({"cache_path": "/x"}, '"cache_path" is not available in the sandbox'),
    "json": ("{", "config is not JSON"),
}


def wrong_route(name):
    config, _ = WRONG_ROUTES[name]
    text = config if isinstance(config, str) else json.dumps(config)
    return {**route(f"/wrong-{name}"), "metadata": {"filter_metadata": {"sszip": {"config": text}}}}


@pytest.fixture(scope="module")
def envoy(host, start_envoy):
    routes = [
        route("/off", {"enable": False}),
        route("/long", {"min_length": "1m"}),
        route("/text", {"types": ["text/plain"]}),
        *(map(wrong_route, WRONG_ROUTES) if host == "wasm" else []),
        route("/"),
    ]
    return start_envoy(routes, settings={"comp_level": 9, "types": ["application/json"]})


def test_route_overrides_settings_of_the_filter(host, envoy, origin):
    # a sandbox is validated by the test of unknown methods
    assert host == "wasm" or envoy.validate()[0] == 0
    origin.answers(answer(BODY))
    modes = {path: envoy.get(path).mode for path in ("/off", "/long", "/text", "/")}
    assert modes == {"/off": "off", "/long": "too-small", "/text": "type", "/": "oneshot"}
    # a setting of the filter applies where the route has none
    origin.answers(answer(BODY, type="text/plain"))
    assert {path: envoy.get(path).mode for path in ("/text", "/")} == {
        "/text": "oneshot",
        "/": "type",
    }


@pytest.mark.wasm("the module rejects such a route")
@pytest.mark.parametrize("name", WRONG_ROUTES)
def test_sandbox_is_off_for_a_route_that_is_invalid(envoy, origin, name):
    _, why = WRONG_ROUTES[name]
    envoy.expect("sszip: disabled for a route")
    origin.answers(answer(BODY))
    plain = envoy.get(f"/wrong-{name}")
    assert (plain.mode, plain.body) == ("off", BODY)
    assert envoy.get("/").mode == "oneshot"
    # the error is logged once
    assert envoy.get(f"/wrong-{name}").body == BODY
    lines = [line for line in envoy.error_log().splitlines() if "sszip: disabled for a route" in line]
    assert len([line for line in lines if why in line]) == 1

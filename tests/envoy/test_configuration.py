"""What may be configured, and what is said of what may not."""

import pytest

from harness.envoy import Envoy, route
from harness.origin import answer

BODY = b'{"a":"' + b"b" * 5000 + b'"}'

WRONG = [
    (
        {"comp_level": 13},
        '"comp_level" has an invalid value "13": it must be a number from 0 to 12',
    ),
    ({"complevel": 1}, '"complevel" is an unknown setting; did you mean "comp_level"?'),
    (
        {"min_length": {"a": 1}},
        '"min_length" must be a text, a number, true or false, or a list of these',
    ),
    ({"hold": "1k 1ms 1"}, '"hold" takes one or two values'),
    ({"cache": True, "cache_head": "http://127.0.0.1:1 chain_id=1"}, '"cache_head"'),
]


@pytest.mark.parametrize(
    "settings, said", WRONG, ids=lambda value: next(iter(value)) if isinstance(value, dict) else ""
)
@pytest.mark.parametrize("place", ["filter", "route"])
def test_what_is_wrong_is_said(session_origin, settings, said, place):
    of_route = settings if place == "route" else None
    envoy = Envoy(
        [route("/", of_route)], origin=session_origin, settings={} if of_route else settings
    )
    try:
        status, text = envoy.validate()
    finally:
        envoy.stop()
    assert status != 0
    assert said in text


UNKNOWN_METHODS = [
    ({"method": "deny eth_sendRawTransacton debug-*"}, "eth_sendRawTransaction"),
    ({"method": ["allow eth_*", "deny debug-*"]}, "debug_*"),
    ({"max_answer": "eth_getLog 1m"}, "eth_getLogs"),
    ({"cache_valid": "eth_gasPrise 1s"}, "eth_gasPrice"),
    ({"cache_method": "eth_getBalanse block=p[1]"}, "eth_getBalance"),
]


@pytest.mark.parametrize("settings, meant", UNKNOWN_METHODS, ids=lambda value: "-".join(value)[:20])
@pytest.mark.parametrize("place", ["filter", "route"])
def test_unknown_methods_are_warned_of_with_the_nearest_known_one(session_origin, settings, meant, place):
    of_route = settings if place == "route" else None
    envoy = Envoy(
        [route("/", of_route)], origin=session_origin, settings={} if of_route else settings
    )
    try:
        status, text = envoy.validate()
    finally:
        envoy.stop()
    assert status == 0, text
    (name,) = settings
    (line,) = [line for line in text.splitlines() if "unknown method" in line or "no known method" in line]
    assert f'"{name}" ' in line and f'did you mean "{meant}"?' in line


def test_a_route_says_what_is_different(start_envoy, origin):
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
    # what the filter says holds where the route says nothing
    origin.answers(answer(BODY, type="text/plain"))
    assert {path: envoy.get(path).mode for path in ("/text", "/")} == {
        "/text": "oneshot",
        "/": "type",
    }

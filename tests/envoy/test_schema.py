"""The JSON Schema of the settings: Envoy accepts values that are valid by the schema, and
rejects the others with an error that lists the allowed ones."""

import json
import pathlib
import re

import jsonschema
import pytest
import yaml

from harness.envoy import Envoy, route
from tiers import by_tier

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "configs" / "envoy" / "sszip.yaml"
SCHEMA = json.loads((ROOT / "configs" / "envoy" / "sszip.schema.json").read_text())
JUDGE = jsonschema.Draft202012Validator(SCHEMA)

# Of each setting: valid values, and invalid ones with their errors.
FLAG = ([True, False, "on", "OFF"], [("yes", '"on" or "off"'), (1, '"on" or "off"')])
SETTINGS = {
    "enable": FLAG,
    "types": (
        ["*", "text/* +json", ["application/json", "text/plain"]],
        [
            ("json", '"type/subtype"'),
            ("*/x", '"type/subtype"'),
            ([], "at least one media type"),
        ],
    ),
    "min_length": (
        [0, "2k", "1g", "1073741824", "0008K"],
        [
            ("2g", "a size from 0 to 1g"),
            (-1, "from 0 to 1g"),
            (1.5, "from 0 to 1g"),
            ("1025m", "1g"),
        ],
    ),
    "comp_level": (
        [0, 12, "9"],
        [(13, "a number from 0 to 12"), ("1k", "from 0 to 12")],
    ),
    "max_oneshot": (
        ["1k", 1024, "16m"],
        [(1023, "from 1k to 1g"), ("0k", "from 1k to 1g")],
    ),
    "hold": (
        ["64k 5ms", "0", 0, "16m", ["1k", "60s"], "1k 0"],
        [
            ("17m", "from 0 to 16m"),
            ("1k 61s", "to 60000ms"),
            ("1k 5", "60000ms"),
            ("1k 1ms 1", "one or two"),
        ],
    ),
    "stream_level": ([1, 3], [(0, "from 1 to 3"), (4, "from 1 to 3")]),
    "zstd": FLAG,
    "zstd_level": (
        [1, 19, "9"],
        [(0, "a number from 1 to 19"), (20, "from 1 to 19"), ("1k", "from 1 to 19")],
    ),
    "buffers": (
        ["2 6k", [1024, "1m"], "1 64"],
        [
            ("0 4k", "a number from 1 to 1024"),
            ("1 63", "a size from 64 to 1m"),
            (8, "two values"),
        ],
    ),
    "memory": (
        ["256m", "1024g", 0],
        [("1025g", "from 0 to 1024g"), ("x", "from 0 to 1024g")],
    ),
    "upstream_encoding": (["identity", "pass"], [("gzip", '"identity" or "pass"')]),
    "request_decoding": (
        ["off", False, "auto", "always"],
        [("on", '"off", "auto" or "always"'), (True, '"auto"')],
    ),
    "ssz": FLAG,
    "ssz_preset": (
        ["auto", "gnosis"],
        [("goerli", '"mainnet", "minimal" or "gnosis"')],
    ),
    "ssz_max_size": (["4095m", 0], [("4g", "from 0 to 4095m")]),
    "ssz_hold": (["1g", 7], [("2g", "from 0 to 1g")]),
    "ssz_concurrency": (
        ["off", 1, "65535"],
        [(0, '"off"'), (65536, "from 1 to 65535"), ("on", "65535")],
    ),
    "ssz_request": (["off", "auto", "always"], [("on", '"always"')]),
    "ssz_witness": (["off", "rpc", "rest"], [("grpc", '"rpc" or "rest"')]),
    "cache": FLAG,
    "cache_namespace": (["mainnet"], [("", "one value"), ("two words", "one value")]),
    "cache_valid": (
        ["tip 1s", ["immutable 1h", "eth_call 500ms", "nothing 0"], "config 365d"],
        [
            ("tip", "two values"),
            ("tip 1", "a time with its unit"),
            ("head 1s", '"immutable"'),
            ("tip 366d", "365d"),
        ],
    ),
    "cache_memory": (["1m", "1024g"], [("1k", "from 1m to 1024g")]),
    "cache_max_entry": (["1k", "1g"], [(1, "from 1k to 1g")]),
    "cache_max_request": (["64m"], [("65m", "from 1k to 64m")]),
    "cache_get": (["beacon", "all"], [("some", '"beacon" or "all"'), (True, '"beacon" or "all"')]),
    "batch_max": (
        [0, 10000, "5 deny", [5, "deny"]],
        [(10001, "from 0 to 10000"), ("5 refuse", '"deny"'), ("5 deny 5", "one or two")],
    ),
    "query": FLAG,
    "upgrade": (["off", False, "websocket"], [("h2c", '"websocket"'), (True, '"websocket"')]),
    "method": (
        [
            "deny debug_* eth_sign",
            ["allow *", "deny a_b c_*"],
            ["allow eth_*", "deny eth_sign", "limit=2 trace_*", "limit=1048576 a"],
        ],
        [
            ("forbid a_b", '"allow", "deny"'),
            ("deny", "method name"),
            ("deny a*b", "method name"),
            ("deny a,b", "method name"),
            ("limit a_b", '"allow", "deny"'),
            ("limit=0 a_b", "from 1 to 1048576"),
            ("limit=1048577 a_b", "from 1 to 1048576"),
            ("limit=2", "method name"),
        ],
    ),
    "max_answer": (
        ["eth_getLogs 20m", ["debug_* 1k", "* 1g"], ["eth_call 4096"]],
        [
            ("eth_getLogs", "exactly two values"),
            ("eth_getLogs 1023", "from 1k to 1g"),
            ("eth_getLogs 2g", "from 1k to 1g"),
            ("a*b 1m", "method name"),
            ("a 1m 2m", "exactly two values"),
        ],
    ),
    "logs_max_range": (
        ["off", 1, "1000000000"],
        [(0, '"off"'), (1000000001, "from 1 to 1000000000"), ("1k", "1000000000"), ("on", '"off"')],
    ),
    "logs_split": (
        ["off", 1, "1000000", "1000 concurrent=1", "1000 concurrent=32"],
        [
            (0, '"off"'),
            (1000001, "from 1 to 1000000"),
            ("1k", '"off"'),
            ("1000 concurrent=33", "from 1 to 32"),
            ("1000 4", '"concurrent=K"'),
            ("1000 concurrent=1 concurrent=1", "one or two"),
        ],
    ),
    "logs_from_receipts": FLAG,
    "cache_method": (
        [
            "a_b block=p[1]",
            "a_b block=p[15].blockNumber block=result[0].x[0].number",
            ["a_b block=result", "c_d range=p[0]", "e-f.g transaction=p[0]"],
            ["a_b class=immutable", "eth_sign class=none"],
            "ab block=result.receipt.blockNumber",
        ],
        [
            ("a_b", "two or three"),
            ("a_b block=p[0] block=result.a block=result.b", "two or three"),
            ("a_b block=p[16]", '"block=p[N]"'),
            ("a_b block=p1", "a number from 0 to 15"),
            ("a_b block=result[0]", '"block=result.MEMBER"'),
            ("a_b class=never", '"class=none"'),
            ("a_b class=tip block=p[0]", "omitted"),
            ("a_* block=p[0]", "method name"),
            ("block=p[0] a_b", "method name"),
        ],
    ),
    "cache_credentials": (
        [
            "bypass",
            "ignore",
            "key",
            "key Authorization X-Api-Key",
            ["key", "X-Api-Key"],
            ["key X-Api-Key", "ignore"],
        ],
        [
            ("off", '"ignore" or "key"'),
            ("X-Api-Key", '"ignore" or "key"'),
            ("key X:Y", "the name of a request header"),
            (["key", "ignore"], "the name of a request header"),
        ],
    ),
    "cache_use_stale": (
        ["off", "error timeout http_502", ["updating"]],
        [("http_501", '"http_500"'), (True, '"off"')],
    ),
    "cache_background_update": FLAG,
    "cache_lookup_timeout": (
        ["1ms", "1s"],
        [("0ms", "from 1ms"), ("1001ms", "to 1s"), (5, "its unit")],
    ),
    "verify": (
        ["0.5%", "off", "100% purge", ["001%", "purge"], False, ["12.0001%"], "0.0001%"],
        [
            ("1", "a share of the hits"),
            ("0%", "0.0001%"),
            ("100.1%", "to 100%"),
            ("0.00001%", "0.0001%"),
            ("1% drop", '"purge"'),
            (["1%", "purge", "purge"], "one or two"),
        ],
    ),
    "status": FLAG,
    "cache_lock": FLAG,
    "cache_lock_timeout": (
        ["1ms", "1h"],
        [("0ms", "from 1ms"), ("61m", "to 1h"), (5, "its unit")],
    ),
}
# Settings of the process: allowed in a filter, and in no route.
OF_PROCESS = {"cache_lookup_timeout"}
# Combinations of store settings in a filter.
STORES = [
    {
        "cache": True,
        "cache_namespace": "main",
        "cache_path": "/var/cache/sszip max_size=1g",
        "cache_head": "http://127.0.0.1:1",
        "cache_fleet": "redis://127.0.0.1:1 timeout=5ms",
        "cache_purge": True,
    },
    {
        "cache": True,
        "cache_path": ["/var/cache/sszip"],
        "cache_fleet": ["rediss://[::1]/1", "max_entry=64k", "prefix=a"],
        "cache_head": [
            ["http://127.0.0.1:1", "header=Authorization: Basic x", "namespace=a"],
            "ws://127.0.0.1:2 namespace=b",
        ],
    },
    {"cache_owner": "unix:/run/sszip/socket", "cache_purge": "on"},
]
WRONG = [
    (name, value, message) for name, (_, wrong) in SETTINGS.items() for value, message in wrong
]
# The first invalid value of each setting; the core and test_directives reject the others, too.
FIRST_WRONG = [(name, *wrong[0]) for name, (_, wrong) in SETTINGS.items()]


def validated(origin, *, of_filter, of_route=None):
    envoy = Envoy([route("/", of_route)], origin=origin, settings=of_filter)
    try:
        return envoy.validate()
    finally:
        envoy.stop()


def test_schema_is_valid_and_lists_all_settings():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"].keys() == SETTINGS.keys() | {name for one in STORES for name in one}


def test_example_is_valid_by_the_schema():
    text = EXAMPLE.read_text()
    manager = yaml.safe_load(text)["static_resources"]["listeners"][0]["filter_chains"][0][
        "filters"
    ][0]
    filters = manager["typed_config"]["http_filters"]
    settings = filters[0]["typed_config"]["filter_config"]["value"]
    assert len(settings) > 1
    JUDGE.validate(settings)


@pytest.mark.parametrize("place", ["filter", "route"])
def test_valid_settings_are_accepted_by_envoy(session_origin, place):
    for turn in range(max(len(right) for right, _ in SETTINGS.values())):
        settings = {name: right[turn % len(right)] for name, (right, _) in SETTINGS.items()}
        JUDGE.validate(settings)
        of_route = {name: value for name, value in settings.items() if name not in OF_PROCESS}
        places = (
            {"of_filter": settings}
            if place == "filter"
            else {"of_filter": {}, "of_route": of_route}
        )
        status, text = validated(session_origin, **places)
        assert status == 0, text


@pytest.mark.parametrize("settings", STORES, ids=lambda settings: next(reversed(settings)))
def test_valid_store_settings_are_accepted_by_envoy(session_origin, settings):
    JUDGE.validate(settings)
    status, text = validated(session_origin, of_filter=settings)
    assert status == 0, text


@pytest.mark.parametrize("name, value, message", WRONG, ids=lambda value: json.dumps(value))
def test_invalid_settings_are_invalid_by_the_schema(name, value, message):
    assert not JUDGE.is_valid({name: value})


@pytest.mark.parametrize("name, value, message", by_tier(FIRST_WRONG, WRONG), ids=lambda value: json.dumps(value))
def test_invalid_settings_are_rejected_by_envoy(session_origin, name, value, message):
    """The error of filter and route has the setting's name and the allowed values."""
    settings = {name: value}
    places = [{"of_filter": settings}]
    if value == SETTINGS[name][1][0][0] and name not in OF_PROCESS:
        places.append({"of_filter": {}, "of_route": settings})
    for place in places:
        status, text = validated(session_origin, **place)
        assert status != 0
        line = re.search(rf'sszip: "{name}" (.*)', text)
        assert line and message in line[1], text


@pytest.mark.parametrize("name", sorted(OF_PROCESS))
def test_settings_of_the_process_are_rejected_in_a_route(session_origin, name):
    settings = {name: SETTINGS[name][0][0]}
    status, text = validated(session_origin, of_filter={}, of_route=settings)
    assert status != 0 and f'"{name}" is a setting of the process' in text


def test_unknown_settings_are_rejected(session_origin):
    for name in ("complevel", "sszip_comp_level", "thread_pool"):
        assert not JUDGE.is_valid({name: 1})
        status, text = validated(session_origin, of_filter={name: 1})
        assert status != 0 and f'"{name}" is an unknown setting' in text

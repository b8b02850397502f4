"""Fixtures of every end-to-end test: a scripted node, and nginx with the module in front of
it."""

import pathlib

import pytest

from harness.decoders import decode, decode_sized_zstd, decode_zstd, decoder_processes, zstd_decoder_processes
from harness.nginx import MODULE, NGINX, Nginx
from harness.fixtures import assert_no_error_log, daemon, origin, preload, session_origin, starting
from harness.spec_vectors import cache_directory

# pytest finds the fixtures by these names
__all__ = [
    "cache_directory",
    "assert_no_error_log",
    "daemon",
    "decode",
    "decode_sized_zstd",
    "decode_zstd",
    "decoder_processes",
    "origin",
    "preload",
    "session_origin",
    "zstd_decoder_processes",
]


def pytest_sessionstart(session):
    for name, path in (("SSZIP_NGINX", NGINX), ("SSZIP_MODULE", MODULE)):
        if not pathlib.Path(path).exists():
            raise pytest.UsageError(f"{name}: there is no {path}")


@pytest.fixture(scope="module")
def start_nginx(session_origin):
    """Starts nginx with a configuration; it runs until the file's tests end."""
    yield from starting(lambda http, **options: Nginx(http, origin=session_origin, **options))


@pytest.fixture(scope="module")
def nginx(request, start_nginx):
    """nginx with the file's own CONFIG."""
    options = getattr(request.module, "OPTIONS", {})
    return start_nginx(request.module.CONFIG, **options)

"""The tests of test_streaming without ISA-L: zlib-rs compresses."""

import pytest

from harness.recorded_nodes import BODY
from harness.origin import answer
from test_streaming import CONFIG, TestConnections, TestCut, TestFlush, TestMemory, TestSizes, loaded, test_decoders_read_streams

pytestmark = pytest.mark.carried("test_streaming again, with another coder of the core")

__all__ = ["CONFIG", "TestConnections", "TestCut", "TestFlush", "TestMemory", "TestSizes", "test_decoders_read_streams"]

# The loader finds a file first that is no library.
OPTIONS = {"files": {"no/libisal.so.2": b"no library\n" * 100}, "environment": {"LD_LIBRARY_PATH": "@prefix@/no"}}


def test_zlib_rs_is_used_without_igzip(nginx, origin):
    origin.answers(answer(BODY, framing="chunked"))
    response = nginx.get("/")
    assert (response.mode, response.decoded) == ("stream", BODY)
    assert not loaded(nginx, b"libisal")

"""The same streams where there is no ISA-L: they are coded by zlib-rs."""

import pytest

from harness.nodes import BODY
from harness.origin import answer
from test_streaming import CONFIG, TestConnections, TestCut, TestFlush, TestMemory, TestSizes, helpers, loaded, test_every_decoder

pytestmark = pytest.mark.carried("test_streaming again, with another coder of the core")

__all__ = ["CONFIG", "TestConnections", "TestCut", "TestFlush", "TestMemory", "TestSizes", "helpers", "test_every_decoder"]

# What the loader finds first is no library.
OPTIONS = {"files": {"no/libisal.so.2": b"no library\n" * 100}, "environment": {"LD_LIBRARY_PATH": "@prefix@/no"}}


def test_igzip_is_not_there(nginx, origin):
    origin.answers(answer(BODY, framing="chunked"))
    response = nginx.get("/")
    assert (response.mode, response.decoded) == ("stream", BODY)
    assert not loaded(nginx, b"libisal")

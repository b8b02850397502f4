"""The examples of docs/lua.md are valid for an nginx with Lua."""

import pytest

from harness.lua import LIBRARY, NAMES, modules
from harness.nginx import Nginx
from test_pages import examples, placed

pytestmark = pytest.mark.once("Debian's Lua module is for Debian's nginx")


@pytest.mark.parametrize("block", list(examples(["docs/lua.md"])))
def test_examples_of_the_lua_page_are_valid(session_origin, block):
    here = block.replace("/etc/nginx/lua", str(LIBRARY))
    nginx = Nginx(placed(here), origin=session_origin, main=modules(*NAMES))
    status, output = nginx.test()
    nginx.stop()
    assert status == 0, output
    assert "[warn]" not in output, output

"""What docs/lua.md shows for pasting is good: an nginx with Lua takes it."""

import pytest

from harness.lua import LIBRARY, NAMES, modules
from harness.nginx import Nginx
from test_pages import examples, placed

pytestmark = pytest.mark.once("Debian's Lua module is for Debian's nginx")


@pytest.mark.parametrize("block", list(examples(["docs/lua.md"])))
def test_nginx_takes_it(session_origin, block):
    here = block.replace("/etc/nginx/lua", str(LIBRARY))
    nginx = Nginx(placed(here), origin=session_origin, main=modules(*NAMES))
    status, said = nginx.test()
    nginx.stop()
    assert status == 0, said
    assert "[warn]" not in said, said

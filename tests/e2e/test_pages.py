"""What the pages show for pasting is good: nginx takes each configuration."""

import pathlib
import re

import pytest

from harness.nginx import Nginx

ROOT = pathlib.Path(__file__).parents[2]
# The page about Lua is for an nginx that has it: test_lua_page.py.
PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "lua.md")]

# What the examples take for granted.
AROUND = """
upstream node { server @origin@; }
upstream cache { server @origin@; }
upstream mainnet_node { server @origin@; }
upstream gnosis_node { server @origin@; }
limit_req_zone $binary_remote_addr zone=keys:1m rate=1000r/s;
map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
"""


def examples(pages):
    for page in pages:
        blocks = re.findall(r"^```nginx\n(.*?)^```$", (ROOT / page).read_text(), flags=re.M | re.S)
        for number, block in enumerate(blocks, start=1):
            yield pytest.param(block, id=f"{page}-{number}")


def placed(block):
    """The example inside the http block of the harness, on files of its own."""
    block = re.sub(r"^ *(load_module .*|\.\.\.)\n", "", block, flags=re.M)
    whole = re.fullmatch(r"\s*http \{\n(.*)\}\s*", block, flags=re.S)
    block = whole[1] if whole else block
    if re.match(r"location ", block.lstrip()) and not re.search(r"^server \{", block, flags=re.M):
        block = f"server {{ listen 127.0.0.1:@port@;\n{block} }}"
    block = re.sub(r"listen [0-9.:]+;|(server \{(?!\s*listen))", lambda it: "listen 127.0.0.1:@port@;" if not it[1] else it[1] + " listen 127.0.0.1:@port@;", block)
    for said, own in {
        "/var/cache/nginx/sszip": "@prefix@/cache",
        "/var/log/nginx": "@prefix@",
        "user_file passwords": "user_file @prefix@/passwords",
    }.items():
        block = block.replace(said, own)
    store = "" if "sszip_cache_path" in block else "sszip_cache_path @prefix@/cache;\n"
    on = "" if re.search(r"^ *sszip on;", block, flags=re.M) else "sszip on; sszip_cache on;\n"
    return AROUND + store + on + block


@pytest.mark.parametrize("block", list(examples(PAGES)))
def test_nginx_takes_it(session_origin, block):
    nginx = Nginx(placed(block), origin=session_origin, files={"passwords": b"me:{PLAIN}secret\n"})
    status, said = nginx.test()
    nginx.stop()
    assert status == 0, said
    assert "[warn]" not in said or "conflicting server name" in said, said

"""Each configuration that the documentation shows is valid for nginx."""

import pathlib
import re

import pytest

from harness import client
from harness.nginx import Nginx
from harness.origin import answer
from harness.rpc import call

ROOT = pathlib.Path(__file__).parents[2]
# The page about Lua requires an nginx with Lua: test_lua_page.py.
PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "lua.md")]

# The configuration that the examples presuppose.
AROUND = """
client_body_buffer_size 128k;
proxy_http_version 1.1;
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
    for published, own in {
        "/var/cache/nginx/sszip": "@prefix@/cache",
        "/var/log/nginx": "@prefix@",
        "user_file passwords": "user_file @prefix@/passwords",
        "/etc/sszip/": "@prefix@/",
    }.items():
        block = block.replace(published, own)
    store = "" if "sszip_cache_path" in block else "sszip_cache_path @prefix@/cache;\n"
    on = "" if re.search(r"^ *sszip on;", block, flags=re.M) else "sszip on; sszip_cache on;\n"
    around = AROUND
    if "upstream node {" in block:
        around = around.replace("upstream node { server @origin@; }\n", "")
    return around + store + on + block


def test_first_configuration_of_the_readme_is_valid_alone(session_origin):
    (block,) = [one.values[0] for one in examples(["README.md"])]
    # the example, with the node's address only
    alone = "http {" + block.split("http {", 1)[1]
    alone = alone.replace("server 127.0.0.1:8545;", "server @origin@;")
    text = placed(alone)
    text = text.replace(text.split("sszip_cache_path")[0], "", 1)
    nginx = Nginx(text, origin=session_origin)
    status, output = nginx.test()
    nginx.stop()
    assert status == 0 and "[warn]" not in output, output
    # operators' locations have paths in one style
    assert "location = /sszip " in block and "location = /sszip/purge " in block


@pytest.mark.parametrize("block", list(examples(PAGES)))
def test_examples_of_the_pages_are_valid(session_origin, block):
    secrets = {"fleet-password": b"secret\n", "fleet-key": b"k" * 32}
    nginx = Nginx(placed(block), origin=session_origin, files={"passwords": b"me:{PLAIN}secret\n", **secrets})
    for name in secrets:
        (nginx.prefix / name).chmod(0o600)
    status, output = nginx.test()
    nginx.stop()
    assert status == 0, output
    assert "[warn]" not in output or "conflicting server name" in output, output


def by_header(request):
    chain = {"eth": b"0x1", "polygon": b"0x89"}[request.header("target-service-id")]
    return answer(b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % chain)


def test_recipe_keeps_chains_apart_when_a_request_header_chooses_the_chain(session_origin, origin):
    text = (ROOT / "docs/recipes.md").read_text().split("## A chain chosen by a request header")[1]
    block = re.search(r"```nginx\n(.*?)```", text, flags=re.S)[1]
    nginx = Nginx(placed(block), origin=session_origin)
    nginx.start()
    origin.answers(by_header)
    try:
        def send(chain):
            headers = [("Content-Type", "application/json"), ("target-service-id", chain)]
            return client.fetch(nginx.port, "/", method="POST", body=call("eth_chainId"), headers=headers)

        for chain, result in (("eth", b"0x1"), ("polygon", b"0x89")):
            assert result in send(chain).body
            nginx.wait_for(lambda chain=chain: "sszip; hit" in send(chain).header("Cache-Status"), "a hit")
            assert result in send(chain).body
        assert send("other").status == 404
    finally:
        nginx.stop()

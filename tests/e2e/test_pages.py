"""What the pages show for pasting is good: nginx takes each configuration, and the
recipes that promise hits have them."""

import base64
import pathlib
import re

import pytest

from harness.client import fetch
from harness.nginx import Nginx
from harness.origin import answer
from harness.rpc import call

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "configs/nginx/README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
JSON = ("Content-Type", "application/json")
BLOCK = call("eth_getBlockByHash", '["0x' + "ab" * 32 + '",true]')
RESULT = b'{"jsonrpc":"2.0","id":1,"result":"0x' + b"ab" * 20000 + b'"}'

# What the examples take for granted.
AROUND = """
upstream node { server @origin@; }
upstream cache { server @origin@; }
upstream mainnet_node { server @origin@; }
upstream gnosis_node { server @origin@; }
limit_req_zone $binary_remote_addr zone=keys:1m rate=1000r/s;
map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
"""


def examples():
    for page in PAGES:
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


@pytest.mark.parametrize("block", list(examples()))
def test_nginx_takes_it(session_origin, block):
    nginx = Nginx(placed(block), origin=session_origin, files={"passwords": b"me:{PLAIN}secret\n"})
    status, said = nginx.test()
    nginx.stop()
    assert status == 0, said
    assert "[warn]" not in said or "conflicting server name" in said, said


def recipe(heading):
    page = (ROOT / "docs/recipes.md").read_text()
    return re.search(rf"^## {heading}\n.*?^```nginx\n(.*?)^```$", page, flags=re.M | re.S)[1]


def serving(start_nginx, heading, without=()):
    block = recipe(heading)
    for line in without:
        assert line in block
        block = block.replace(line, "")
    return start_nginx(placed(block), files={"passwords": b"me:{PLAIN}secret\n"})


def ask(nginx, target="/", headers=()):
    return fetch(nginx.port, target, method="POST", body=BLOCK, headers=[JSON, *headers])


def is_hit(response):
    return response.header("Cache-Status").startswith("sszip; hit")


def test_keys_share(start_nginx, origin):
    origin.answers(answer(RESULT))
    # the rewrite makes all keys ask for the same; the name has to do it alone
    nginx = serving(start_nginx, "Keys in paths", without=["auth_request /judge;", "rewrite ^ / break;"])
    assert [is_hit(ask(nginx, f"/v3/{key}")) for key in ("a", "b", "c")] == [False, True, True]


def test_who_has_the_password_shares(start_nginx, origin):
    origin.answers(answer(RESULT))
    nginx = serving(start_nginx, "A password")
    nginx.expect("no user")
    password = [("Authorization", "Basic " + base64.b64encode(b"me:secret").decode())]
    assert [is_hit(ask(nginx, headers=password)) for _ in range(2)] == [False, True]
    assert ask(nginx).status == 401
    assert origin.last().header("Authorization") is None


def test_origins_share(start_nginx, origin):
    origin.answers(answer(RESULT))
    nginx = serving(start_nginx, "CORS")
    for n, one in enumerate(("https://a.test", "https://b.test", "https://c.test")):
        response = ask(nginx, headers=[("Origin", one)])
        assert response.all("Access-Control-Allow-Origin") == [one]
        assert is_hit(response) == (n > 0)


def test_chains_are_apart(start_nginx, origin):
    origin.answers(lambda request: answer(b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % request.path.encode()))
    nginx = serving(start_nginx, "Several chains")
    assert [is_hit(ask(nginx, path)) for path in ("/mainnet", "/gnosis", "/mainnet", "/gnosis")] == [False, False, True, True]

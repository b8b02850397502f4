"""The nginx examples and the upgrade of docs/rollout.md."""

import json
import os
import pathlib
import re
import socket
import subprocess

import pytest

from harness import client
from harness.guards import GUARD_SECONDS
from harness.load import Load
from harness.origin import answer
from harness.owner import wait_until_linked
from harness.processes import runs
from harness.rpc import call
from test_pages import placed
from test_reload import await_more

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/rollout.md"
UPGRADE = ROOT / "configs/ansible/sszip/roles/sszip/files/upgrade-nginx"
COMMAND = pathlib.Path(os.environ.get("SSZIP_COMMAND", "build/bin/sszip"))
JSON = [("Content-Type", "application/json")]
BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
BODY = b'{"jsonrpc":"2.0","id":1,"result":{"hash":"0x%b","x":"%b"}}' % (b"ab" * 32, b"0" * 3000)
CLIENTS = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(1000)]

STORE = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
sszip_cache_namespace main;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    @status@
}
"""
STATUS = "location = /sszip { sszip_status on; }"


class ClientAt(client.Connection):
    """A connection of a client with this address."""

    def __init__(self, port, address):
        self.socket = socket.create_connection(("127.0.0.1", port), GUARD_SECONDS, (address, 0))
        self.buffer = bytearray()
        self.received = 0


def uses_sszip(nginx, address):
    with ClientAt(nginx.port, address) as connection:
        response = connection.exchange("/", method="POST", headers=JSON, body=BLOCK)
    assert response.status == 200 and response.decoded == BODY
    return "sszip" in (response.header("Cache-Status") or "")


def split_example(share):
    section = PAGE.read_text().split("\n### nginx\n", 1)[1]
    block = re.search(r"^```nginx\n(.*?)^```$", section, flags=re.M | re.S)[1]
    assert '    1%  "";' in block and "server 127.0.0.1:9545;" in block
    block = block.replace('    1%  "";', f'    {share}%  "";')
    return placed(block).replace("server 127.0.0.1:9545;", "server @origin@;")


@pytest.mark.once("split_clients and rewrite choose the location")
def test_split_example_sends_a_share_of_the_clients_through_sszip(start_nginx, origin):
    origin.answers(answer(BODY))
    nginx = start_nginx(split_example(10))
    chosen = [address for address in CLIENTS if uses_sszip(nginx, address)]
    # the hash of an address is the same in each run
    assert 60 < len(chosen) < 140
    assert all(uses_sszip(nginx, address) for address in chosen)

    def modes():
        return [json.loads(line)["mode"] for line in (nginx.prefix / "access.log").read_text().splitlines()]

    # the log distinguishes both groups
    nginx.wait_for(lambda: len(modes()) == len(CLIENTS) + len(chosen), "the log")
    assert modes().count("off") == len(CLIENTS) - len(chosen)
    # a larger share has the same clients, and others
    nginx.write(split_example(50))
    nginx.reload()
    assert all(uses_sszip(nginx, address) for address in chosen)
    assert 400 < sum(uses_sszip(nginx, address) for address in CLIENTS) < 600


def upgrade(nginx, seconds):
    """Runs upgrade-nginx, which finds the command `sszip` in its PATH."""
    environment = {**os.environ, "PATH": f"{COMMAND.parent.absolute()}:{os.environ['PATH']}"}
    page = f"http://127.0.0.1:{nginx.port}/sszip"
    command = [UPGRADE, nginx.prefix / "nginx.pid", page, str(seconds)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def upgraded(start_nginx, origin):
    origin.answers(answer(BODY))
    nginx = start_nginx(STORE.replace("@status@", STATUS), workers=2, daemon=True)
    wait_until_linked(nginx)
    return nginx


def test_upgrade_script_replaces_nginx_without_a_lost_response(upgraded):
    nginx = upgraded
    old = nginx.master
    with Load(nginx.port, [(("/", JSON, BLOCK), BODY)]) as load:
        await_more(load, nginx, 30)
        done = upgrade(nginx, GUARD_SECONDS)
        assert done.returncode == 0, done.stderr
        nginx.wait_for(lambda: not runs(old), "the old master to end", seconds=60)
        await_more(load, nginx, 30)
    assert load.faults == []
    assert nginx.master != old
    # the new cache manager has taken the store over
    wait_until_linked(nginx)


def test_upgrade_script_returns_to_the_old_nginx_if_the_new_one_fails(upgraded):
    nginx = upgraded
    old = nginx.master
    nginx.write(STORE.replace("@status@", "location = /sszip { return 404; }"))
    with Load(nginx.port, [(("/", JSON, BLOCK), BODY)]) as load:
        await_more(load, nginx, 30)
        done = upgrade(nginx, 5)
        assert done.returncode == 1 and "the old nginx serves again" in done.stderr, done.stderr
        nginx.wait_for(lambda: nginx.master_or_none() == old and len(nginx.workers()) == 2, "the old workers")
        await_more(load, nginx, 30)
    assert load.faults == []
    wait_until_linked(nginx)
    # the old master still has the configuration with the status page
    assert client.fetch(nginx.port, "/sszip?format=json").status == 200


def test_upgrade_script_reports_a_new_nginx_that_does_not_start(upgraded):
    nginx = upgraded
    nginx.expect(r"\[emerg\]")
    old = nginx.master
    nginx.write("not_a_directive;")
    done = upgrade(nginx, 3)
    assert done.returncode == 1 and "cannot start the new nginx" in done.stderr, done.stderr
    assert nginx.master == old
    assert client.fetch(nginx.port, "/", method="POST", headers=JSON, body=BLOCK).status == 200

"""The Ansible role of configs/: a first run, a second one, and an upgrade under load."""

import json
import pathlib
import re
import shutil

import pytest

from chroot import wait_for
from harness import client
from harness.load import Load
from harness.nginx import free_port
from nginx_site import HEADERS, call

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
CHAIN_ID = call("eth_chainId", [])
# of conf.d/sszip.conf
STATUS_PORT = 8580


class Playbook:
    """The playbook in a Debian, whose only machine is that Debian."""

    def __init__(self, system, node):
        self.system = system
        self.port = free_port()
        for name in ("ansible", "nginx"):
            shutil.copytree(CONFIGS / name, system.path(f"/configs/{name}"))
        variables = {
            # no connection, and no sudo
            "ansible_connection": "local",
            "ansible_become": False,
            "sszip_listen": f"127.0.0.1:{self.port}",
            "sszip_node": f"127.0.0.1:{node.port}",
            "sszip_head": "off",
        }
        system.write("/configs/inventory.json", json.dumps({"sszip": {"hosts": {"localhost": variables}}}))

    def run(self, build):
        """Runs it with the packages of a build; the number of its changes."""
        command = ["ansible-playbook", "-i", "/configs/inventory.json", "-e", f"sszip_packages=/packages/{build}"]
        output = self.system.run(*command, "/configs/ansible/sszip/site.yml").stdout
        return int(re.search(r"^localhost +: ok=\d+ +changed=(\d+) ", output, flags=re.M)[1])

    def fetch(self):
        response = client.fetch(self.port, "/", method="POST", headers=HEADERS, body=CHAIN_ID)
        assert response.status == 200, response
        return response

    def version(self):
        """The version of sszip that serves the status page."""
        response = client.fetch(STATUS_PORT, "/sszip?format=json")
        assert response.status == 200, response
        return json.loads(response.body)["software"]

    def master(self):
        return self.system.read("/run/nginx.pid").strip()

    def has_deleted_module(self):
        """Whether the running master has a module that an upgrade has replaced."""
        maps = self.system.run("cat", f"/proc/{self.master()}/maps").stdout
        assert "ngx_http_sszip_module.so" in maps
        return "ngx_http_sszip_module.so (deleted)" in maps


@pytest.fixture
def playbook(system, node):
    return Playbook(system, node)


def test_role_makes_nginx_a_cache_and_changes_nothing_at_the_second_run(playbook):
    assert playbook.run("first") > 0
    wait_for("a hit", lambda: "; hit" in (playbook.fetch().header("Cache-Status") or ""))
    assert playbook.version().startswith("sszip/")
    master = playbook.master()
    assert playbook.run("first") == 0
    assert playbook.master() == master


def test_role_upgrades_nginx_without_a_lost_response(playbook):
    playbook.run("first")
    body = playbook.fetch().decoded
    master = playbook.master()
    with Load(playbook.port, [(("/", HEADERS, CHAIN_ID), body)]) as load:
        wait_for("responses", lambda: load.answered > 30)
        playbook.run("next")
        more = load.answered + 30
        wait_for("responses of the new nginx", lambda: load.answered > more)
    assert load.faults == []
    assert playbook.master() != master and not playbook.has_deleted_module()

"""An upgrade of a package replaces module and owner library, and reloads nginx: the master runs the
module that it has loaded, with the library of the same build, until its binary is upgraded."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from harness import client
from harness.nginx import MODULE
from harness.owner import owner_of, wait_until_linked
from harness.processes import runs
from harness.rpc import Node, call

LIBRARY = pathlib.Path(MODULE).with_name("libsszip_owner.so")

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
    location = /purge { sszip_cache_purge on; }
}
"""


@pytest.fixture
def library(tmp_path):
    """The path of a copy of the library, next to a copy of the module."""
    shutil.copy(MODULE, tmp_path / "module.so")
    return pathlib.Path(shutil.copy(LIBRARY, tmp_path))


def owner_library(nginx):
    """The file of the library that the owner has loaded, as it is named in its memory map."""
    nginx.wait_for(lambda: nginx.manager() and owner_of(nginx).pid() == nginx.manager(), "the owner to serve")
    wait_until_linked(nginx)
    lines = pathlib.Path(f"/proc/{nginx.manager()}/maps").read_text().splitlines()
    names = {line.split(maxsplit=5)[5] for line in lines if "libsszip_owner.so" in line}
    assert len(names) == 1, names
    return names.pop()


def check_store(nginx):
    """A purge is in effect in all workers, and the next response is stored again."""
    response = client.fetch(nginx.port, "/purge?everything", method="POST")
    assert response.status == 200, response.body
    nginx.wait_for(
        lambda: "; hit" in nginx.fetch("/", call("eth_chainId")).header("Cache-Status"), "a hit"
    )


def test_reload_keeps_the_library_and_a_new_binary_loads_the_new_one(start_nginx, origin, library, tmp_path):
    origin.answers(Node({"eth_chainId": b'"0x1"'}))
    nginx = start_nginx(CONFIG, module=tmp_path / "module.so", workers=2, daemon=True)
    assert owner_library(nginx) == str(library)
    source = tmp_path / "owner.c"
    source.write_text("unsigned sszip_owner_abi(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "other", source], check=True)
    os.replace(tmp_path / "other", library)
    for _ in range(2):
        manager = nginx.manager()
        nginx.reload()
        nginx.wait_for(lambda manager=manager: nginx.manager() not in (None, manager), "a new cache manager")
        assert owner_library(nginx) == f"{library} (deleted)"
        check_store(nginx)
    shutil.copy(LIBRARY, tmp_path / "other")
    os.replace(tmp_path / "other", library)
    old = nginx.master
    os.kill(old, signal.SIGUSR2)
    nginx.wait_for(lambda: nginx.master_or_none() not in (None, old), "the new master")
    nginx.wait_for(nginx.workers, "the new workers")
    os.kill(old, signal.SIGQUIT)
    nginx.wait_for(lambda: not runs(old), "the old master to go")
    assert owner_library(nginx) == str(library)
    check_store(nginx)


def test_library_at_the_path_is_loaded_when_the_opened_one_does_not_fit(start_nginx, origin, library, tmp_path):
    origin.answers(Node({"eth_chainId": b'"0x1"'}))
    source = tmp_path / "owner.c"
    source.write_text("unsigned sszip_owner_abi(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    nginx = start_nginx(CONFIG, module=tmp_path / "module.so", workers=2)
    nginx.expect("cannot start the owner of the store|cache's owner at .* does not respond")
    nginx.wait_for(lambda: "from another build" in nginx.error_log(), "the complaint")
    shutil.copy(LIBRARY, tmp_path / "fitting")
    os.replace(tmp_path / "fitting", library)
    nginx.reload()
    nginx.wait_for(lambda: owner_of(nginx).pid() == nginx.manager(), "the owner to serve")
    wait_until_linked(nginx)
    check_store(nginx)

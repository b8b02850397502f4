"""Errors whose message names the remedy."""

import os
import subprocess

import pytest

from known_calls import send_call, call, fetch
from stack import PROXIES, ROOT, TAG, docker, wait_for

OPTIONS = ("--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp")
RUN = ("run", "--rm", *OPTIONS)


@pytest.mark.parametrize("image", ["nginx", "envoy"])
@pytest.mark.parametrize(
    "url, message",
    [
        ("node:8545", "is not http://HOST[:PORT][/PATH]"),
        ("http://node:8545/?key=1", "is not http://HOST[:PORT][/PATH]"),
        ("http://node:99999", "99999 is no port"),
        ("http://127.0.0.1:8545", "http://host.docker.internal:8545"),
        ("http://nowhere.invalid:8545", "there is no host nowhere.invalid"),
        ("http://a|b;c:8545", "characters that are none of a URL"),
    ],
)
def test_invalid_node_url_is_reported_with_its_remedy(image, url, message):
    done = docker(*RUN, "--network", "none", "--env", f"NODE_URL={url}", f"sszip-{image}:{TAG}", check=False)
    assert done.returncode != 0
    assert f"NODE_URL={url}" in done.stderr and message in done.stderr


def test_invalid_head_url_is_reported():
    done = docker(*RUN, "--tmpfs", "/run/sszip:uid=10545", "--tmpfs", "/var/cache/sszip:uid=10545", "--env", "HEAD_URL=x", f"sszip-cached:{TAG}", check=False)
    assert done.returncode != 0 and "HEAD_URL=x is not http://HOST" in done.stderr


@pytest.mark.parametrize(
    "setting, message",
    [
        ("CACHE_SIZE=10x", "expected"),
        ("FLEET_URL=memcached://redis:11211", "redis://"),
        ('FLEET_URL=redis://"redis', "is not redis://HOST[:PORT]"),
    ],
)
def test_invalid_setting_of_the_daemon_is_reported(setting, message):
    done = docker(*RUN, "--tmpfs", "/run/sszip:uid=10545", "--tmpfs", "/var/cache/sszip:uid=10545", "--env", setting, f"sszip-cached:{TAG}", check=False)
    assert done.returncode != 0
    assert setting.partition("=")[2] in done.stderr and message in done.stderr


@pytest.mark.parametrize("folder", ["/var/cache/sszip", "/run/sszip"])
def test_folder_of_another_user_is_reported_with_its_remedy(folder):
    others = {"/run/sszip": "uid=10545", "/var/cache/sszip": "uid=10545"} | {folder: "uid=0,mode=0755"}
    mounts = [each for path, options in others.items() for each in ("--tmpfs", f"{path}:{options}")]
    done = docker(*RUN, *mounts, f"sszip-cached:{TAG}", check=False)
    assert done.returncode != 0
    assert f"{folder} can't be written by uid 10545: chown -R 10545:10545" in done.stderr


def test_unwritable_report_folder_is_reported_with_its_remedy(stack):
    done = stack.compose("run", "--rm", "--no-deps", "loadtest", check=False, LOADTEST_USER="12345:12345")
    assert done.returncode != 0
    assert "can't be written as uid 12345" in done.stderr and "LOADTEST_USER=$(id -u):$(id -g)" in done.stderr


def test_allocated_port_is_reported(stack, new_stack):
    second = new_stack(NGINX_PORT=str(stack.ports["NGINX_PORT"]))
    done = second.compose("up", "--detach", "--no-build", "--no-deps", "nginx", check=False)
    assert done.returncode != 0
    assert f"127.0.0.1:{stack.ports['NGINX_PORT']}" in done.stderr and "already allocated" in done.stderr


def test_missing_engine_is_reported(tmp_path):
    environment = os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/none"}
    for arguments, status, message in (([], 1, "no docker engine is available"), (["--if-possible"], 0, "the tests are skipped")):
        done = subprocess.run([ROOT / "scripts/docker-test", *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status
        assert message in done.stdout + done.stderr and f"DOCKER_HOST=unix://{tmp_path}/none" in done.stderr


def test_second_stack_is_independent_and_works_with_a_full_disk(stack, new_stack):
    """The second stack has other ports, a followed chain, and little room for its store."""
    second = new_stack("node.yml", "second.yml", HEAD_URL="http://node:9545")
    newest = call("eth_getBlockByNumber", ["latest", True])

    def answers():
        for proxy in PROXIES:
            for coding in ("gzip", "identity", "gzip"):
                assert send_call(second.url(proxy), newest, coding).json() == send_call(second.url("node"), newest).json()

    second.up("node", "cached", "nginx", "envoy")
    chain = wait_for("the chain is followed", lambda: followed(second))
    assert chain["name"] == "mainnet"
    answers()
    # and the responses of the first one are its own
    head = call("eth_blockNumber", [])
    assert send_call(stack.url("nginx"), head).json() == send_call(stack.url("node"), head).json()

    fill = "cat /dev/zero >/var/cache/sszip/fill"
    assert "No space left" in second.compose("exec", "-T", "cached", "bash", "-c", fill, check=False).stderr
    answers()
    # a purge that can't be written is reported, and is in effect all the same
    purge = fetch(second.local("nginx"), "/sszip/purge?everything", body="")
    assert purge.status == 507, purge.body
    answers()


def test_daemon_reports_a_full_disk_and_waits(run_container):
    """The daemon logs the error, and waits."""
    folders = ("--tmpfs", "/run/sszip:uid=10545", "--tmpfs", "/var/cache/sszip:uid=10545,size=64k")
    one = run_container(*OPTIONS, *folders, f"sszip-cached:{TAG}")
    wait_for("it says why", lambda: "No space left on device" in docker("logs", one).stderr)
    assert docker("exec", one, "sszip-cached", "--status", "/tmp/cached.toml", check=False).returncode == 1


def followed(stack):
    answer = fetch(stack.local("nginx"), "/sszip/owner?format=json")
    chains = answer.json()["chains"] if answer.status == 200 else []
    return next((chain for chain in chains if chain["state"] == "following"), None)

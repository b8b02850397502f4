"""`make run` reports invalid variables."""

import os
import pathlib
import socket
import subprocess

import pytest

from harness.nginx import free_port

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = [
    pytest.mark.once("it ends before there is an nginx"),
    pytest.mark.shipped("`make run` takes what `make build` makes"),
]


@pytest.mark.parametrize(
    "upstream, message",
    [
        ("http://127.0.0.1:{port}", "port {port}"),
        ("http://localhost:{port}/path", "localhost port {port}"),
        ("http://nowhere.invalid", "nowhere.invalid"),
        ("127.0.0.1:8545", "is not http://HOST[:PORT][/PATH]"),
    ],
)
def test_invalid_upstream_is_reported(upstream, message):
    port = free_port()
    ports = {name: str(free_port()) for name in ("NGINX_PORT", "ENVOY_PORT", "WASM_PORT", "REPLAY_PORT")}
    upstream = upstream.format(port=port)
    environment = os.environ | ports | {"UPSTREAM": upstream}
    command = [ROOT / "scripts/run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode != 0
    assert f"UPSTREAM={upstream}" in done.stderr and message.format(port=port) in done.stderr


def test_invalid_port_is_reported():
    environment = os.environ | {"NGINX_PORT": "x"}
    done = subprocess.run([ROOT / "scripts/run"], env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode != 0 and "NGINX_PORT=x is not a port" in done.stderr


def test_ports_in_use_are_reported_with_the_variables_to_set():
    names = ("NGINX_PORT", "ENVOY_PORT", "WASM_PORT", "REPLAY_PORT")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = {name: str(free_port()) for name in names}
        ports |= {"ENVOY_PORT": str(one.getsockname()[1]), "REPLAY_PORT": str(other.getsockname()[1])}
        done = subprocess.run([ROOT / "scripts/run"], env=os.environ | ports, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode != 0
    for name, server in (("ENVOY_PORT", "Envoy"), ("REPLAY_PORT", "the replay node")):
        assert f"127.0.0.1:{ports[name]}, for {server}, is in use; set {name} to a free port" in done.stderr
    assert "set NGINX_PORT" not in done.stderr and "set WASM_PORT" not in done.stderr

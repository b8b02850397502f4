"""A node below a path, and one over TLS, with the configuration that each image's entry point
makes."""

import json

import pytest

from harness.nginx import free_port
from known_calls import CALLS, send_call, call
from stack import TAG, docker, wait_for

IMAGES = {"nginx": (8545,), "envoy": (8546, 8547)}


@pytest.fixture
def run(stack, run_container):
    """Runs an image in the stack's network; returns the URLs of its proxies."""

    def start(image, url, *options):
        ports = {inside: free_port() for inside in IMAGES[image]}
        published = [each for inside, outside in ports.items() for each in ("--publish", f"127.0.0.1:{outside}:{inside}")]
        one = run_container(
            "--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp", "--network", f"{stack.project}_default",
            "--env", f"NODE_URL={url}", "--env", "CACHE_OWNER=off", *published, *options, f"sszip-{image}:{TAG}",
        )

        def healthy():
            state = json.loads(docker("inspect", one).stdout)[0]["State"]
            assert state["Running"], docker("logs", one).stderr
            return state["Health"]["Status"] == "healthy"

        wait_for(f"{image} is healthy", healthy)
        return [f"http://127.0.0.1:{port}" for port in ports.values()]

    return start


@pytest.mark.parametrize("image", IMAGES)
def test_node_below_a_path_is_served(stack, run, image):
    for url in run(image, "http://node:9545/rpc/v1"):
        for method, params in CALLS[:4]:
            request = call(method, params, "x")
            assert send_call(url, request, "gzip").json() == send_call(stack.url("node"), request).json()


@pytest.mark.parametrize("image", IMAGES)
def test_proxy_starts_with_a_node_over_tls_that_is_down(run, image):
    """No server listens there: the proxy starts, and responds with an error."""
    for url in run(image, "https://node.example:1443/rpc", "--add-host", "node.example:127.0.0.1"):
        assert send_call(url, call("eth_chainId", [])).status in (502, 503)

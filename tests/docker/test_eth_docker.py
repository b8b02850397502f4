"""The file for eth-docker, with services that have the names of its own files."""

import json

import yaml

from harness.nginx import free_port
from known_calls import send_call, call, fetch
from stack import LIMIT, OVERRIDES, ROOT, TAG, docker, wait_for

FILE = ROOT / "docker/eth-docker/sszip.yml"


def labels(service):
    return dict(each.split("=", 1) for each in yaml.safe_load(FILE.read_text())["services"][service]["labels"])


def test_sszip_serves_the_nodes_of_eth_docker(new_stack):
    port = free_port()
    one = new_stack(SSZIP_TAG=TAG, SSZIP_PORT=str(port), NETWORK="hoodi", DOMAIN="example.org", COMPOSE_PROFILES="")
    one.files = [FILE, OVERRIDES / "eth-docker.yml"]
    url = f"http://127.0.0.1:{port}"
    one.up("execution", "consensus")
    one.up("sszip", "sszip-cached")
    block = send_call(url, call("eth_getBlockByNumber", ["latest", True], "x"), "gzip").json()
    assert block["id"] == "x" and block["result"]["number"].startswith("0x")
    wait_for("a hit", lambda: "; hit" in send_call(url, call("eth_chainId", [])).fields["cache-status"], 30)
    # requests of the Beacon API reach the other node, as SSZ as well
    beacon = fetch(url, "/eth/v2/beacon/blocks/head", Accept="application/octet-stream")
    assert beacon.fields["content-type"] == "application/octet-stream"
    assert fetch(url, "/eth/v1/node/version").json()["data"]["version"]
    # its node is followed, under the network's name
    status = json.loads(one.compose("exec", "-T", "sszip-cached", "sszip-cached", "--status", "/tmp/cached.toml").stdout)
    assert {chain["name"] for chain in status["chains"]} == {"hoodi", "hoodi-beacon"}
    # labels for its Prometheus and its traefik
    monitoring_labels = labels("sszip")
    metrics = one.compose("exec", "-T", "sszip", "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{monitoring_labels['metrics.port']}; "
                          f"printf 'GET {monitoring_labels['metrics.path']} HTTP/1.0\\r\\n\\r\\n' >&3; timeout {LIMIT} cat <&3").stdout
    assert "sszip_requests_total" in metrics
    found = json.loads(docker("inspect", one.id("sszip")).stdout)[0]["Config"]["Labels"]
    assert found["traefik.http.routers.sszip.rule"] == "Host(`sszip.example.org`)"
    assert found["metrics.network"] == "hoodi"

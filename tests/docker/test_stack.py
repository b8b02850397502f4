"""The responses of the stack, and the properties of its containers."""

import collections
import json
import pathlib
import re

import pytest
import yaml

from known_calls import CALLS, HEAD, send_call, call, fetch
from stack import PROXIES, ROOT, docker, wait_for

SERVICES = ("node", "cached", "nginx", "envoy", "prometheus")
ROUNDS = 5


@pytest.mark.parametrize("coding", ["gzip", "identity"])
@pytest.mark.parametrize("proxy", PROXIES)
def test_responses_equal_the_responses_of_the_node(stack, proxy, coding):
    for turn, (method, params) in enumerate(CALLS * 2):
        request = call(method, params, f"id {turn}")
        own, answer = send_call(stack.url("node"), request), send_call(stack.url(proxy), request, coding)
        assert answer.status == 200
        assert answer.body == own.body
        # shorter responses are not compressed
        if coding == "gzip" and len(own.body) > 1024:
            assert answer.fields["content-encoding"] == "gzip"
            assert len(answer.raw) < len(own.body) // 2
        else:
            assert "content-encoding" not in answer.fields


@pytest.mark.parametrize("proxy", PROXIES)
def test_batch_equals_the_batch_of_the_node(stack, proxy):
    batch = [call(method, params, turn) for turn, (method, params) in enumerate(CALLS[:6])]
    own, answer = send_call(stack.url("node"), batch), send_call(stack.url(proxy), batch, "gzip")
    assert answer.json() == own.json()


def test_json_of_the_node_is_sent_as_ssz(stack):
    path = "/eth/v2/beacon/blocks/head"
    block = fetch(stack.url("node"), path).json()["data"]
    bodies = set()
    for proxy in PROXIES:
        answer = fetch(stack.url(proxy), path, Accept="application/octet-stream")
        assert answer.fields["content-type"] == "application/octet-stream"
        assert answer.fields["eth-consensus-version"] == "fulu"
        bodies.add(answer.body)
    (ssz,) = bodies
    # SignedBeaconBlock: an offset, the signature, and the message, which begins with its slot
    assert ssz[4:100].hex() == block["signature"][2:]
    assert int.from_bytes(ssz[100:108], "little") == int(block["message"]["slot"])


@pytest.mark.parametrize("first", PROXIES)
def test_response_of_one_proxy_is_a_hit_in_the_others(stack, first):
    """A response that one proxy has fetched is a hit in the others. A lookup has 20 ms, which a busy
    machine exceeds at times; then the node has one more request."""
    block = hex(HEAD - 3 - PROXIES.index(first))
    own = send_call(stack.url("node"), call("eth_getBlockByNumber", [block, False])).json()["result"]
    request = call("eth_getBlockByHash", [own["hash"], False], 7)
    others = [proxy for proxy in PROXIES if proxy != first]

    def node_requests():
        return fetch(stack.url("node"), "/stats").json()["methods"].get("eth_getBlockByHash", 0)

    hits, misses = collections.Counter(), collections.Counter()

    def is_hit(proxy):
        answer = send_call(stack.url(proxy), request, "gzip")
        assert answer.json()["result"] == own
        found = answer.fields["cache-status"].startswith("sszip; hit")
        (hits if found else misses)[proxy] += 1
        return found

    before = node_requests()
    for _ in range(ROUNDS):
        stack.purge()
        assert not is_hit(first)
        # it is stored after it was sent
        wait_for(f"a hit in {first}", lambda: is_hit(first))
        for proxy in others:
            is_hit(proxy)
    assert node_requests() == before + misses.total()
    assert all(hits[proxy] > ROUNDS / 2 for proxy in others), (hits, misses)


@pytest.mark.parametrize("by", ["nginx", "envoy"])
def test_purge_is_in_effect_in_all_proxies(stack, by):
    request = call("eth_chainId", [])

    def is_hit(proxy):
        return send_call(stack.url(proxy), request).fields["cache-status"].startswith("sszip; hit")

    for proxy in PROXIES:
        wait_for(f"a hit in {proxy}", lambda p=proxy: is_hit(p))
    node = fetch(stack.url("node"), "/stats").json()["methods"]["eth_chainId"]
    assert fetch(stack.local(by), "/sszip/purge?everything", body="").status == 200
    for proxy in PROXIES:
        wait_for(f"a hit in {proxy}", lambda p=proxy: is_hit(p))
    assert fetch(stack.url("node"), "/stats").json()["methods"]["eth_chainId"] > node


def test_prometheus_scrapes_all_targets_and_loads_the_alerts(stack):
    url = stack.local("prometheus")

    def up():
        targets = fetch(url, "/api/v1/targets").json()["data"]["activeTargets"]
        return len(targets) == 3 and {each["health"] for each in targets} == {"up"}

    wait_for("all targets are up", up)
    groups = fetch(url, "/api/v1/rules").json()["data"]["groups"]
    rules = yaml.safe_load((ROOT / "configs/prometheus/alerts.yml").read_text())["groups"]
    assert [rule["name"] for rule in groups[0]["rules"]] == [rule["alert"] for rule in rules[0]["rules"]]

    def values(query):
        found = fetch(url, f"/api/v1/query?query={query}").json()["data"]["result"]
        return {each["metric"]["instance"]: float(each["value"][1]) for each in found}

    for query in ("sszip_requests_total", "sszip_owner_up"):
        wait_for(query, lambda q=query: (found := values(q)).keys() == {"nginx:8580", "envoy:8580"} and min(found.values()) > 0)
    for page in ("alerts", "targets"):
        assert fetch(url, f"/classic/{page}").status == 200
    # the sandbox's metrics are among Envoy's own
    wait_for("the sandbox's", lambda: values("sszip_cache_hit").get("envoy:8580"))


def test_dashboard_is_mounted_where_grafana_looks():
    folder = pathlib.Path(ROOT / "docker/grafana")
    provider = yaml.safe_load((folder / "dashboards.yml").read_text())["providers"][0]
    service = yaml.safe_load((ROOT / "docker/docker-compose.yml").read_text())["services"]["grafana"]
    mounts = dict(each.split(":")[:2] for each in service["volumes"] if each.startswith("."))
    (dashboard,) = (source for source, to in mounts.items() if to.startswith(provider["options"]["path"] + "/"))
    assert json.loads((ROOT / "docker" / dashboard).read_text())["uid"] == "sszip"
    source = yaml.safe_load((folder / "datasource.yml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert re.fullmatch(r"\$\{GRAFANA_IMAGE:-grafana/[a-z-]+:\d+\.\d+\.\d+\}", service["image"])


def test_built_images_have_the_certificates_secret():
    services, override = (
        yaml.safe_load((ROOT / f"docker/{name}.yml").read_text())["services"] for name in ("docker-compose", "certificates")
    )
    built = {name for name, service in services.items() if "build" in service}
    assert built == override.keys()
    assert all(service["build"] == {"secrets": ["certificates"]} for service in override.values())


@pytest.mark.parametrize("service", SERVICES)
def test_container_is_healthy_and_has_no_privileges(stack, service):
    found = stack.inspect(service)
    assert found["State"]["Health"]["Status"] == "healthy"
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in found["HostConfig"]["SecurityOpt"]
    assert found["HostConfig"]["Memory"] > 0 and found["HostConfig"]["NanoCpus"] > 0
    # whatever runs in it
    output = stack.compose("exec", "-T", service, "bash", "-c", "cat /proc/[0-9]*/status; touch /x /usr/x", check=False)
    assert set(re.findall(r"^Uid:\t(.*)$", output.stdout, re.M)) == {"10545\t10545\t10545\t10545"}
    assert set(re.findall(r"^CapEff:\t(.*)$", output.stdout, re.M)) == {"0" * 16}
    assert set(re.findall(r"^NoNewPrivs:\t(.*)$", output.stdout, re.M)) == {"1"}
    assert output.stderr.count("Read-only file system") == 2
    # published for this machine alone
    for ports in found["NetworkSettings"]["Ports"].values():
        assert all(each["HostIp"] == "127.0.0.1" for each in ports or [])


def concurrency(stack):
    metrics = fetch(stack.local("envoy"), "/stats/prometheus").body.decode()
    return int(re.search(r"^envoy_server_concurrency\{\} (\d+)$", metrics, re.M)[1])


def nginx_workers(stack):
    return docker("top", stack.id("nginx")).stdout.count("nginx: worker process")


def test_workers_are_as_many_as_cpus(stack):
    """The default is one; where the machine has more, a higher limit gives more."""
    assert (concurrency(stack), nginx_workers(stack)) == (1, 1)
    cpus = json.loads(docker("info", "--format", "{{json .NCPU}}").stdout)
    if cpus > 1:
        stack.up("nginx", "envoy", NGINX_CPUS="2", ENVOY_CPUS="2")
        assert (concurrency(stack), nginx_workers(stack)) == (2, 2)
        stack.up("nginx", "envoy")
    assert (concurrency(stack), nginx_workers(stack)) == (1, 1)


def test_images_are_smaller_than_their_limits(stack):
    for service, most in (("node", 150), ("cached", 200), ("nginx", 250), ("envoy", 450), ("prometheus", 350)):
        size = json.loads(docker("inspect", stack.inspect(service)["Image"]).stdout)[0]["Size"]
        assert size < most << 20, f"{service}: {size >> 20} MiB"

"""The Envoy example of docs/rollout.md: a share of the requests uses sszip, and the share changes at
run time."""

import pathlib
import re

import pytest
import yaml

from harness import client
from harness.envoy import Envoy
from harness.origin import answer
from harness.rpc import call

PAGE = pathlib.Path(__file__).parents[2] / "docs/rollout.md"
REQUESTS = 400


def page_examples():
    """The routes and the runtime layer of the page."""
    section = PAGE.read_text().split("\n### Envoy\n", 1)[1]
    routes, runtime = (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", section, flags=re.M | re.S)[:2])
    return routes["routes"], runtime


@pytest.fixture
def envoy(origin, session_origin):
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'))
    routes, runtime = page_examples()
    assert routes[0]["match"]["runtime_fraction"]["default_value"] == {"numerator": 1, "denominator": "HUNDRED"}
    envoy = Envoy(routes, origin=session_origin, settings={"cache": True}, workers=2)
    envoy.configuration |= runtime
    yield envoy.start()
    envoy.stop()


def set_share(envoy, percent):
    target = f"/runtime_modify?sszip.canary={percent}"
    assert f"'http://127.0.0.1:9901{target}'".replace(f"={percent}", "=10") in PAGE.read_text()
    response = client.fetch(envoy.admin, target, method="POST", body=b"")
    assert response.status == 200, response.body


def count_sszip(envoy):
    """The number of REQUESTS that sszip processes."""
    responses = [envoy.fetch("/", call("eth_chainId")) for _ in range(REQUESTS)]
    assert {response.status for response in responses} == {200}
    return sum("sszip" in (response.header("Cache-Status") or "") for response in responses)


def test_runtime_fraction_of_the_page_chooses_the_share_of_sszip(envoy):
    # the default of 1 %: ten times as many have a probability below 10^-20
    assert count_sszip(envoy) < REQUESTS / 10
    for percent, least, most in ((0, 0, 0), (50, REQUESTS * 0.3, REQUESTS * 0.7), (100, REQUESTS, REQUESTS)):
        set_share(envoy, percent)
        assert least <= count_sszip(envoy) <= most

"""Grafana's dashboard, and Prometheus's alerts and recording rules: each query has values in a real
Prometheus that scrapes a real nginx."""

import itertools
import json
import pathlib
import re
import time

import pytest
import yaml

from harness.guards import GUARD_SECONDS
from harness.prometheus import Prometheus, promtool
from harness.rpc import call
from harness.spec_vectors import cache_directory
from harness.stands import Stand

# pytest finds the fixture by this name
__all__ = ["cache_directory"]

ROOT = pathlib.Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "configs/grafana/sszip.json").read_text())
ALERTS = ROOT / "configs/prometheus/alerts.yml"
RECORDING = ROOT / "configs/prometheus/recording.yml"
ROLLOUT = ROOT / "docs/rollout.md"
PAGE = ROOT / "docs/observability.md"
FLEET_PAGE = ROOT / "docs/fleet.md"
STATUS = "server { listen 127.0.0.1:@port_status@; location = /sszip { sszip_status on; } }"
TURNS = 12
# this nginx has no fleet, and neither derives nor splits logs; the core's tests compare the names of
# the fleet's metrics with sszip's, and promtool's tests have values for the alerts
ABSENT = ("sszip_fleet_", "sszip_derived_logs_", "sszip_log_splits_")

pytestmark = pytest.mark.once("what Prometheus makes of metrics is not nginx's affair")


def queries():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def grafana_query(expression):
    """The query as Grafana sends it, with all variables set and an interval that includes the
    requests of a busy machine."""
    for name, value in {"$__rate_interval": "5m", "$job": "sszip", "$instance": ".*"}.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def await_values(prometheus, query, until):
    """A query's values, if there are any before a time. There are none after a scrape that took
    too long."""
    while not (values := prometheus.query(query)) and time.monotonic() < until:
        time.sleep(0.25)
    return values


@pytest.fixture(scope="module")
def prometheus(cache_directory):
    settings = {"verify": "100%"}
    with (
        Stand(more=STATUS, settings=settings) as stand,
        Prometheus(cache_directory, stand.nginx.ports["port_status"], "/sszip", rules=[RECORDING]) as it,
    ):
        blocks = [call("eth_getBlockByNumber", f'["0x{stand.chain.head - back:x}",true]') for back in range(3)]
        balance = call("eth_getBalance", '["0xdac17f958d2ee523a2206206994597c13d831ec7","latest"]', "2")
        for turn in range(TURNS):
            for body in [*blocks, balance, call("eth_sendRawTransaction", '["0x00"]')]:
                stand.fetch(body)
            stand.fetch(b"[" + blocks[turn % 3] + b"," + balance + b"]")
            if turn in (4, 8):
                stand.chain.do({"extend": 1})
            # the queries compute rates between scrapes
            stand.nginx.wait_for(
                lambda sent=7 * (turn + 1): sum(it.query("sszip_rpc_calls_total").values()) == sent, "a scrape"
            )
        yield it


@pytest.mark.thorough("names and alerts of the dashboard are in `make test`")
def test_dashboard_queries_have_values(prometheus):
    missing, seen = [], 0
    until = time.monotonic() + GUARD_SECONDS
    for title, expression in queries():
        if any(name in expression for name in ABSENT):
            continue
        values = await_values(prometheus, grafana_query(expression), until)
        seen += 1
        # NaN is zero divided by zero
        if not values or all(value != value for value in values.values()):
            missing.append((title, expression))
    assert seen > 35 and not missing


@pytest.mark.thorough("names and alerts of the dashboard are in `make test`")
def test_panels_show_the_requests_that_were_sent(prometheus):
    """The first panel of a title shows the total of all."""
    titles = {}
    for title, expression in queries():
        titles.setdefault(title, expression)
    until = time.monotonic() + GUARD_SECONDS
    (ratio,) = await_values(prometheus, grafana_query(titles["Hit ratio"]), until).values()
    assert 0.5 < ratio < 1
    (compressed,) = await_values(prometheus, grafana_query(titles["Compression ratio"]), until).values()
    assert 0 < compressed < 0.6
    calls = await_values(prometheus, "sszip_rpc_calls_total", until)
    calls = {dict(labels)["method"]: value for labels, value in calls.items()}
    assert calls == {"eth_getBlockByNumber": 4 * TURNS, "eth_getBalance": 2 * TURNS, "eth_sendRawTransaction": TURNS}


@pytest.mark.thorough("promtool's tests of the rules are in `make test`")
def test_recording_rules_have_values(prometheus):
    until = time.monotonic() + GUARD_SECONDS
    for rule in recording_rules():
        values = await_values(prometheus, rule, until)
        assert values and all({"job", "instance"} <= dict(labels).keys() for labels in values), rule
    # every query of the page is evaluated: most have no value for this nginx
    queries = re.findall(r"^```promql\n(.*?)^```$", ROLLOUT.read_text(), flags=re.M | re.S)
    assert len(queries) > 2
    for query in queries:
        prometheus.query(query)


def recording_rules():
    (group,) = yaml.safe_load(RECORDING.read_text())["groups"]
    return [rule["record"] for rule in group["rules"]]


def test_recording_rules_of_the_pages_exist():
    rules = set(recording_rules())
    named = set(re.findall(r"\bsszip:\w+:\w+", ROLLOUT.read_text()))
    assert len(rules) == 8 and named and named <= rules


def test_dashboard_panels_do_not_overlap():
    cells = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for cell in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            other = cells.setdefault(cell, panel["title"])
            assert other is panel["title"], f"{panel['title']} overlaps {other}"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_metrics_of_dashboard_and_alerts_are_documented():
    """The pages document each metric of the files; test_status.py compares them with sszip."""
    page = PAGE.read_text() + FLEET_PAGE.read_text()
    used = set()
    for text in [*(expression for _, expression in queries()), ALERTS.read_text(), RECORDING.read_text()]:
        used |= set(re.findall(r"\bsszip_\w+", text))
    used -= {"sszip_cache_head", "sszip_logs_split", "sszip_memory", "sszip_status"}
    assert len(used) > 25
    known = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}
    assert not [
        name
        for name in sorted(known)
        if name not in page and not re.match(r"sszip_(owner|store)_", name)
    ]


@pytest.mark.parametrize(("rules", "count"), [(ALERTS, 22), (RECORDING, 8)], ids=["alerts", "recording"])
def test_rules_pass_their_promtool_tests(cache_directory, rules, count):
    assert f"{count} rules found" in promtool(cache_directory, "check", "rules", rules)
    assert "SUCCESS" in promtool(cache_directory, "test", "rules", ROOT / "tests/prometheus" / rules.name)


def test_alerts_are_listed_in_their_promtool_tests():
    """promtool accepts an alert without a test."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    tests = yaml.safe_load((ROOT / "tests/prometheus/alerts.yml").read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one.get("exp_alerts")}
    assert {rule["alert"] for rule in group["rules"]} == fired

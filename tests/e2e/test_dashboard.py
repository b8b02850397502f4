"""Grafana's dashboard and Prometheus's alerts: each query has values in a real Prometheus
that scrapes a real nginx."""

import json
import pathlib
import re
import time

import pytest

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
PAGE = ROOT / "docs/observability.md"
FLEET_PAGE = ROOT / "docs/fleet.md"
STATUS = "server { listen 127.0.0.1:@port_status@; location = /sszip { sszip_status on; } }"
TURNS = 12

pytestmark = pytest.mark.once("what Prometheus makes of metrics is not nginx's affair")


def queries():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def grafana_query(expression):
    """The query as Grafana sends it, with all variables set and the shortest interval."""
    for name, value in {"$__rate_interval": "20s", "$job": "sszip", "$instance": ".*"}.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


@pytest.fixture(scope="module")
def prometheus(cache_directory):
    with Stand(more=STATUS) as stand, Prometheus(cache_directory, stand.nginx.ports["port_status"], "/sszip") as it:
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
        # this nginx has no fleet; the core's tests compare the names with sszip's metrics
        if "sszip_fleet_" in expression:
            continue
        while not (values := prometheus.query(grafana_query(expression))) and time.monotonic() < until:
            time.sleep(0.25)
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
    (ratio,) = prometheus.query(grafana_query(titles["Hit ratio"])).values()
    assert 0.5 < ratio < 1
    (compressed,) = prometheus.query(grafana_query(titles["Compressed to"])).values()
    assert 0 < compressed < 0.6
    calls = prometheus.query("sszip_rpc_calls_total")
    calls = {dict(labels)["method"]: value for labels, value in calls.items()}
    assert calls == {"eth_getBlockByNumber": 4 * TURNS, "eth_getBalance": 2 * TURNS, "eth_sendRawTransaction": TURNS}


def test_metrics_of_dashboard_and_alerts_are_documented():
    """The pages document each metric of the files; test_status.py compares them with sszip."""
    page = PAGE.read_text() + FLEET_PAGE.read_text()
    used = set()
    for text in [*(expression for _, expression in queries()), ALERTS.read_text()]:
        used |= set(re.findall(r"\bsszip_\w+", text))
    used -= {"sszip_cache_head", "sszip_memory", "sszip_status"}
    assert len(used) > 25
    known = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}
    assert not [
        name
        for name in sorted(known)
        if name not in page and not re.match(r"sszip_(owner|store)_", name)
    ]


def test_alert_rules_pass_their_promtool_tests(cache_directory):
    assert "15 rules found" in promtool(cache_directory, "check", "rules", ALERTS)
    assert "SUCCESS" in promtool(cache_directory, "test", "rules", ROOT / "tests/prometheus/alerts.yml")

"""The history of the status page: the requests of all workers by interval, as JSON and as graphs."""

import json

import pytest

from harness.browser import Browser
from harness.rpc import Node
from harness.status import read_status
from test_status import RESULTS, block
from tiers import by_tier

pytestmark = pytest.mark.hosts("nginx", "native")

# the history of 60 intervals is longer than the tests take
INTERVAL = 5
CACHE = {"cache": True, "cache_namespace": "main", "cache_valid": ["immutable 1h", "tip 1h"]}


@pytest.fixture(scope="module")
def server(start_server):
    times = {"SSZIP_TIMES": f"history_interval={INTERVAL}s"}
    return start_server({"/status": {"status": True}, "/": CACHE}, workers=4, environment=times)


def total(series):
    return sum(filter(None, series))


def wait_for_complete_intervals(server):
    """The report once all counted requests are in complete intervals."""

    def complete():
        status = read_status(server)
        return status if total(status["history"]["requests"]) == status["requests"] else None

    return server.wait_for(complete, "the interval to be complete")


def test_history_has_all_requests_hits_and_upstream_requests_by_interval(server, origin):
    upstream = Node(RESULTS)
    origin.answers(upstream)
    before = read_status(server)
    for number in range(12):
        assert server.post("/", block(number % 3)).status == 200
    server.wait_for(lambda: read_status(server)["requests"] == before["requests"] + 12, "all to be counted")
    status = wait_for_complete_intervals(server)
    history = status["history"]
    assert history["interval_seconds"] == INTERVAL
    node, ratios, times = history["node_requests"], history["hit_ratio"], history["microseconds"]
    series = [history["requests"], node, ratios, *times["hit"].values(), *times["miss"].values()]
    assert [len(one) for one in series] == [60] * 7
    # workers without a store have entries of their own
    fetched_count = upstream.count()
    assert 3 <= fetched_count <= 12
    assert total(node) == status["node"]["requests"] == before["node"]["requests"] + fetched_count
    hits = total((ratio or 0) * (requests or 0) for ratio, requests in zip(ratios, history["requests"], strict=True))
    assert round(hits) == before["hits"] + 12 - fetched_count
    for requests, fetched, ratio, hit, miss in zip(*series[:3], times["hit"]["p99"], times["miss"]["p99"], strict=True):
        # neither a ratio nor a latency without requests
        assert (ratio is not None) == bool(requests)
        assert (miss is not None) == bool(fetched)
        assert (hit is not None) == ((fetched or 0) < (requests or 0))
    # the server is not as old as the history
    assert all(one[0] is None for one in series)


# the page is the same on both hosts
@pytest.mark.hosts(*by_tier(["nginx"], ["nginx", "native"]))
def test_page_has_graphs_with_the_last_values(server, origin):
    origin.answers(Node(RESULTS))

    def status_after_requests():
        for _ in range(2):
            server.post("/", block(7))
        status = wait_for_complete_intervals(server)
        # not if the machine has slept through the next interval
        return status if status["history"]["requests"][-1] else None

    status = server.wait_for(status_after_requests, "a complete interval with requests")
    with Browser() as browser:
        page = browser.page(f"http://127.0.0.1:{server.port}/status", 360, scheme="dark")
        page.wait_for("document.querySelectorAll('#graphs svg').length == 5", "the graphs")
        page.wait_for("before.history.requests.some((it) => it > 0)", "the requests of the history")
        # the server's report of before, at each update
        report = json.dumps(status)
        page.run(f"void (window.fetch = async () => new Response({json.dumps(report)}))")
        same = f"JSON.stringify(before.history) == JSON.stringify(JSON.parse({json.dumps(report)}).history)"
        page.wait_for(same, "the graphs of that report")
        figures = page.run("""Object.fromEntries([...document.querySelectorAll('#graphs div')]
            .map((it) => [it.querySelector('span').textContent, it.querySelector('b').textContent]))""")
        lines = page.run("[...document.querySelectorAll('#graphs path:first-child')].map((it) => it.getAttribute('d'))")
        width = page.run("document.documentElement.scrollWidth")
    last = {name: status["history"][name][-1] for name in ("requests", "node_requests", "hit_ratio")}
    assert float(figures["Requests/s"]) == pytest.approx(last["requests"] / INTERVAL, abs=0.051)
    assert float(figures["Upstream requests/s"]) == pytest.approx(last["node_requests"] / INTERVAL, abs=0.051)
    ratio = float(figures["Hit ratio"].removesuffix("\u00a0%"))
    assert ratio == pytest.approx(100 * last["hit_ratio"], abs=0.051)
    assert list(figures)[3:] == ["Latency p50 / p99 (hit)", "Latency p50 / p99 (miss)"]
    # the last interval is at the right edge
    assert all("59 " in line for line in lines[:3]) and width <= 360

"""The page of sszip_status in a browser."""

import json
import os
import pathlib
import threading
import time

import pytest

from harness.browser import Browser
from harness.owner import wait_until_linked
from harness.rpc import Node, call
from test_status import CONFIG, RESULTS, block
from tiers import by_tier

pytestmark = pytest.mark.once("what a browser makes of the page is not nginx's affair")

MARKUP = "<img src=x onerror=document.title=1>"
CHAINS = f'<b onclick=1>{"long" * 30}</b>'


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def served(start_nginx, session_origin):
    path = "sszip_cache_path @prefix@/cache max_size=64m memory=16m;\nsszip on;"
    config = CONFIG.replace("sszip on;", path, 1)
    owner = "location = /owner { proxy_pass http://unix:@prefix@/cache/owner.sock:/v1/status; }\n    location / "
    times = {"SSZIP_TIMES": "history_interval=500ms"}
    nginx = start_nginx(config.replace("location / ", owner), workers=2, environment=times)
    wait_until_linked(nginx)
    # a page is open when nginx ends
    nginx.expect("owner.sock failed")
    return nginx


@pytest.fixture
def busy(served, origin):
    """nginx under load: responses and hits, and calls whose names are markup."""
    origin.answers(Node(RESULTS))
    ends = threading.Event()

    def load():
        number = 0
        while not ends.is_set():
            number += 1
            served.post("/", block(number % 50))
            served.post("/", call("eth_chainId"))
            served.post("/", call(MARKUP))
            # leave the processor to the browser
            time.sleep(0.01)

    thread = threading.Thread(target=load)
    thread.start()
    yield served
    ends.set()
    thread.join()


def number_of(label):
    """A script: the number of the tile with that label."""
    return f"""[...document.querySelectorAll('#tiles div')]
        .find((tile) => tile.textContent.includes({label!r}))?.querySelector('b').textContent"""


def wait_for_another_number(page, label):
    first = page.wait_for(number_of(label), f"the number of {label}")
    page.wait_for(f"{number_of(label)} !== {first!r}", "another number")


@pytest.mark.parametrize(
    ("width", "scheme"),
    by_tier([(360, "light"), (1200, "dark")], [(360, "light"), (360, "dark"), (1200, "light"), (1200, "dark")]),
)
def test_page_fits_the_window_and_has_enough_contrast(browser, busy, width, scheme):
    page = browser.page(f"http://127.0.0.1:{busy.port}/status", width, scheme=scheme)
    page.wait_for("document.querySelectorAll('table').length >= 4", "the tables")
    page.wait_for("[...document.querySelectorAll('#graphs path:first-child')].every((it) => it.getAttribute('d'))", "lines")
    # no element is wider than the window
    assert page.run("document.documentElement.scrollWidth") <= width
    light = page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    # the contrast of text and background, and of lines and the background of graphs
    text, lines = page.run("""(() => {
        const of = (color) => color.match(/\\d+/g).slice(0, 3).map(Number).map((c) => c / 255)
            .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const styles = (selector) => [...document.querySelectorAll(selector)].map((it) => getComputedStyle(it));
        const lowest = (colors, background) => Math.min(...colors.map((color) => [of(color), of(background)].sort((a, b) => b - a))
            .map(([more, less]) => (more + 0.05) / (less + 0.05)));
        const [body] = styles('body'), [box] = styles('#graphs div');
        return [
            lowest(styles('body, p').map((it) => it.color), body.backgroundColor),
            lowest(styles('#graphs path').map((it) => it.stroke), box.backgroundColor),
        ];
    })()""")
    # WCAG 2.2, 1.4.3 and 1.4.11
    assert text > 4.5 and lines > 3
    if folder := os.environ.get("SSZIP_PICTURES"):
        page.screenshot(pathlib.Path(folder) / f"status-{scheme}-{width}.png")


def test_page_updates_and_shows_names_as_text(browser, busy):
    url = f"http://127.0.0.1:{busy.port}/status"
    page = browser.page(url)
    page.wait_for("document.querySelectorAll('table').length >= 4", "the tables")
    wait_for_another_number(page, "Requests")
    page.wait_for(number_of("/s"), "a rate")
    assert page.run("document.querySelectorAll('img, b[onclick]').length") == 0
    assert page.run("document.title") == "sszip"
    assert "eth_getBlockByHash" in page.run("document.body.textContent")
    assert page.run("document.querySelector('#trouble').textContent") == ""
    urls, thrown = page.requested_urls()
    assert set(urls) == {url, f"{url}?format=json"} and not thrown


@pytest.mark.parametrize("width", by_tier([360], [360, 1200]))
def test_page_of_the_owner_updates_and_fits_the_window(browser, busy, width):
    url = f"http://127.0.0.1:{busy.port}/owner?format="
    page = browser.page(f"{url}html", width)
    page.wait_for("document.querySelectorAll('table').length == 1", "the store's table")
    wait_for_another_number(page, "Lookups")
    assert "the owner of a store" in page.run("document.querySelector('#about').textContent")
    # no graphs of zeros
    assert "not available" in page.run("document.querySelector('#history').textContent")
    assert page.run("document.querySelectorAll('#graphs, #history path').length") == 0
    assert page.run("document.documentElement.scrollWidth") <= width
    page.run(f"""show({{ ...before, chains: [{{ name: {CHAINS!r}, state: "unreachable", error: {CHAINS!r},
        head: 1, final: null, reorgs: 0 }}] }})""")
    assert page.run("document.querySelectorAll('b[onclick]').length") == 0
    assert page.run("document.documentElement.scrollWidth") <= width
    urls, thrown = page.requested_urls()
    assert set(urls) == {f"{url}html", f"{url}json"} and not thrown


def test_names_of_nodes_and_operators_are_shown_as_text(browser, busy):
    """The names are long, and contain markup."""
    page = browser.page(f"http://127.0.0.1:{busy.port}/status", 360)
    page.wait_for("typeof before !== 'undefined' && before !== null", "the first numbers")
    page.run(f"""show({{ ...before, owner: {{ chains: [{{ name: {CHAINS!r}, state: "unreachable",
        error: {CHAINS!r}, head: 1, final: null, reorgs: 0 }}] }},
        reasons: {{ {CHAINS!r}: 3 }}, methods: [{{ name: {CHAINS!r}, calls: 1, hits: 0, microseconds: 5 }}] }}, before)""")
    assert page.run("document.querySelectorAll('b[onclick]').length") == 0
    assert CHAINS in page.run("document.body.textContent")
    assert page.run("document.documentElement.scrollWidth") <= 360


def test_page_warns_when_the_server_is_gone(browser, busy):
    """The last numbers stay, marked as old."""
    page = browser.page(f"http://127.0.0.1:{busy.port}/status")
    page.wait_for("typeof before !== 'undefined' && before !== null", "the first numbers")
    page.run("window.fetch = () => Promise.reject(new Error('it is gone'))")
    page.wait_for("document.querySelector('#trouble').textContent.includes('Update failed: it is gone')", "the warning")
    assert page.run("document.querySelectorAll('#tiles div').length") > 5


def test_graphs_have_the_last_values_and_gaps_where_values_are_unknown(browser, served):
    page = browser.page(f"http://127.0.0.1:{served.port}/status")
    page.wait_for("typeof before !== 'undefined' && before !== null", "the first numbers")
    unknown = [None] * 3

    def graphs(**series):
        history = {"interval_seconds": 2, "requests": unknown, "node_requests": unknown, "hit_ratio": unknown}
        latency = {"p50": unknown, "p99": unknown}
        history |= {"microseconds": {"hit": latency, "miss": latency}} | series
        return page.run(f"""show({{ ...before, history: {json.dumps(history)} }})
            || Object.fromEntries([...document.querySelectorAll('#graphs div')].map((it) => [
                it.querySelector('span').textContent,
                [it.querySelector('b').textContent, it.querySelector('small').textContent,
                    ...[...it.querySelectorAll('path')].map((path) => path.getAttribute('d'))],
            ]))""")

    drawn = graphs(
        hit_ratio=[0.5, None, 1],
        requests=[None, 30, 0],
        microseconds={
            "hit": {"p50": [10, 20, 30], "p99": [40, None, 6000]},
            "miss": {"p50": unknown, "p99": unknown},
        },
    )
    assert drawn == {
        "Hit ratio": ["100.0\u00a0%", "0 to 100.0\u00a0%", "M0 20.0h0M2 1.0h0", None],
        "Requests/s": ["0.0", "0 to 15.0", "M1 1.0h0L2 39.0h0", None],
        "Upstream requests/s": ["–", "no data", "", None],
        "Latency p50 / p99 (hit)": [
            "30 µs / 6.0 ms", "0 to 6.0 ms", "M0 38.9h0L1 38.9h0L2 38.8h0", "M0 38.7h0M2 1.0h0"
        ],
        "Latency p50 / p99 (miss)": ["– / –", "no data", "", ""],
    }

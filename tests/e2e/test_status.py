"""sszip_status: the counters of all workers as a page, JSON and metrics, compared with the
requests that the node counted."""

import os
import pathlib
import random
import re
import signal
import threading
import time

import pytest

from harness import client
from harness.nginx import Nginx
from harness.origin import answer
from harness.owner import owner_of, wait_until_linked
from harness.processes import stop
from harness.rpc import Node, call
from harness.status import metrics, read_status

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_valid tip 1h;
sszip_cache_valid immutable 1h;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
    location /old { rewrite ^ / last; }
    location = /status { sszip_status on; }
    location = /denied { sszip_status on; deny all; }
}
"""
LONG = b'"0x' + b"00112233" * 2000 + b'"'
RESULTS = {"eth_chainId": b'"0x1"', "eth_getBlockByHash": LONG, "debug_traceCall": LONG}
FOLDER = pathlib.Path(__file__).parents[2]
MARKUP = "<b onclick=alert(1)>"


def block(number, id="1"):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id)


def methods(status):
    return {row["name"]: (row["calls"], row["hits"]) for row in status["methods"]}


def test_status_is_reported_as_html_json_and_metrics(start_nginx, origin):
    nginx = start_nginx(CONFIG)
    origin.answers(Node(RESULTS))
    for _ in range(4):
        assert nginx.post("/", block(1)).status == 200
    nginx.post("/", call(MARKUP))
    status = read_status(nginx)
    assert status["software"].startswith("sszip/") and status["host"].startswith("nginx/1.")
    assert (status["requests"], status["hits"], status["node"]["requests"]) == (5, 3, 2)
    assert methods(status) == {"eth_getBlockByHash": (4, 3), "other": (1, 0)}
    assert status["hit_ratio"] == 0.75 and status["owner"] is None
    assert status["cache"] == {"hit": 3, "miss": 1, "bypass": 1}
    assert status["workers"]["cache_memory.entries"] == 1
    assert 0 < status["microseconds"]["hit"]["p50"] <= status["microseconds"]["hit"]["p99"]
    assert status["bytes"]["uncompressed"] > 16_000 > status["bytes"]["compressed"] > 0
    found = metrics(nginx)
    assert found["sszip_requests_total",] == 5
    assert found["sszip_rpc_hits_total", "eth_getBlockByHash"] == 3
    assert found["sszip_request_duration_seconds_count", "miss"] == 2
    assert not any("onclick" in label for labels in found for label in labels)
    page = client.fetch(nginx.port, "/status")
    assert page.header("Content-Type") == "text/html; charset=utf-8"
    assert b"<title>sszip</title>" in page.decoded
    # the page loads nothing else
    assert not re.search(rb"(src|href)=(?!\"(\?|data:,\"))|https?://|@import|url\(", page.decoded)


def test_age_of_hits_is_reported(start_nginx, origin):
    nginx = start_nginx(CONFIG)
    origin.answers(Node(RESULTS))
    began = time.monotonic()
    for _ in range(3):
        nginx.post("/", block(1))
    young = time.monotonic() - began
    # the last hit is in another bucket than the first ones, however busy the machine is
    time.sleep(2 + 2 * young)
    nginx.post("/", block(1))
    nginx.wait_for(lambda: read_status(nginx)["hits"] == 3, "all to be counted")
    ages = read_status(nginx)["hit_age_seconds"]
    assert ages["count"] == 3 and ages["sum"] >= 2 and ages["p50"] < ages["p99"]
    seen = metrics(nginx)
    assert seen["sszip_hit_age_seconds_count",] == 3
    assert seen["sszip_hit_age_seconds_sum",] == ages["sum"]
    # two hits before the pause, unless the machine was busy
    assert seen["sszip_hit_age_seconds_bucket", "1.6"] <= 2


def test_evictions_are_reported(start_nginx, origin):
    nginx = start_nginx(CONFIG.replace("sszip on;", "sszip on; sszip_cache_memory 1m;", 1))
    result = b'"0x%b"' % random.Random(5).randbytes(20_000).hex().encode()
    origin.answers(Node({"eth_getBlockByHash": result}))
    for number in range(100):
        nginx.post("/", block(number))

    def is_each_eviction_counted():
        # they are counted with the next request after a while
        nginx.post("/", block(99))
        now = read_status(nginx)
        return now["evicted"] == 100 - now["workers"]["cache_memory.entries"] and now["evicted"]

    evicted = nginx.wait_for(is_each_eviction_counted, "all evictions to be counted")
    assert 20 < evicted < 100
    assert metrics(nginx)["sszip_cache_memory_evictions_total",] == evicted


def test_invalid_status_request_is_rejected_and_not_counted(start_nginx):
    nginx = start_nginx(CONFIG.replace("@origin@", "127.0.0.1:1"))
    nginx.expect("access forbidden by rule")
    response = client.fetch(nginx.port, "/status?format=xml")
    assert (response.status, response.decoded) == (400, b"format must be html, json or prometheus\n")
    assert client.fetch(nginx.port, "/status?hello").status == 400
    response = client.fetch(nginx.port, "/status", method="POST", body=b"x")
    assert response.status == 405 and response.header("Allow") == "GET, HEAD"
    head = client.fetch(nginx.port, "/status?format=json", method="HEAD")
    assert head.status == 200 and int(head.header("Content-Length")) > 100 and not head.body
    # status requests are not counted
    assert read_status(nginx)["requests"] == 0
    assert client.fetch(nginx.port, "/denied").status == 403
    assert read_status(nginx)["modes"] == {"too-small": 1}


def test_status_in_a_location_with_a_handler_is_rejected(start_nginx):
    other = CONFIG.replace("sszip_status on; deny all;", "proxy_pass http://127.0.0.1:1; sszip_status on;")
    nginx = Nginx(other.replace("@origin@", "127.0.0.1:1"))
    try:
        status, output = nginx.test()
    finally:
        nginx.stop()
    assert status != 0 and '"sszip_status" directive conflicts with the content handler of its location' in output
    assert re.search(r"nginx.conf:\d+", output)


def test_status_includes_the_owner(start_nginx, origin):
    path = "sszip_cache_path @prefix@/cache max_size=64m memory=16m;\nsszip on;"
    nginx = start_nginx(CONFIG.replace("sszip on;", path, 1))
    owner = owner_of(nginx)
    pids = {str(pid) for pid in nginx.workers()}
    nginx.wait_for(lambda: pids <= owner.pids(), "the workers to reach the owner")
    origin.answers(Node(RESULTS))
    nginx.post("/", block(7))
    nginx.wait_for(lambda: read_status(nginx)["owner"]["memory"]["entries"] == 1, "the owner to have it")
    assert metrics(nginx)["sszip_owner_memory_entries",] == 1
    # with an unreachable owner the rest is reported all the same
    nginx.expect("does not respond")
    pid = owner.status()["pid"]
    stop(pid)
    try:
        status = read_status(nginx)
        assert status["owner"] == {"error": "the owner does not respond"} and status["requests"] == 1
        assert metrics(nginx)["sszip_owner_up",] == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    nginx.wait_for(lambda: "memory" in read_status(nginx)["owner"], "the owner to be back")


def test_status_of_the_owner_is_served_through_a_proxy(start_nginx, origin):
    """The proxy is configured as in docs/observability.md."""
    page = (FOLDER / "docs/observability.md").read_text()
    place = re.search(r"```nginx\n(location = /sszip/owner .*?)```", page, re.DOTALL)[1]
    place = place.replace("/run/sszip/cached.sock", "@prefix@/cache/owner.sock")
    path = "sszip_cache_path @prefix@/cache max_size=64m memory=16m;\nsszip on;"
    nginx = start_nginx(CONFIG.replace("sszip on;", path, 1).replace("location / ", place + "    location / "))
    wait_until_linked(nginx)
    origin.answers(Node(RESULTS))
    nginx.post("/", block(7))
    nginx.wait_for(lambda: read_status(nginx, "/sszip/owner")["memory"]["entries"] == 1, "the owner to have it")
    owner = read_status(nginx, "/sszip/owner")
    assert owner["software"].startswith("sszip/") and owner["memory"]["evicted"] == 0
    seen = metrics(nginx, "/sszip/owner")
    assert seen["sszip_owner_memory_entries",] == 1 and seen["sszip_owner_up",] == 1
    assert ("sszip_requests_total",) not in seen
    shown = client.fetch(nginx.port, "/sszip/owner")
    assert shown.header("Content-Type") == "text/html; charset=utf-8" and b"<title>sszip" in shown.decoded
    refused = client.fetch(nginx.port, "/sszip/owner?format=xml")
    assert refused.status == 400 and b"html, json or prometheus" in refused.decoded


@pytest.mark.parametrize("workers", [1, 4])
def test_counters_equal_the_counts_of_clients_and_node(start_nginx, origin, workers):
    """Includes reloads, aborts, batches and redirects, on one worker and on several."""
    nginx = start_nginx(CONFIG, workers=workers)
    node = Node(RESULTS)
    origin.answers(node)
    counted = threading.Lock()
    sent = {"requests": 0, "eth_chainId": 0, "eth_getBlockByHash": 0, "debug_traceCall": 0}

    def load(seed):
        chance = random.Random(seed)
        for _ in range(150):
            kind = chance.random()
            number = chance.randrange(20)
            if kind < 0.4:
                requested, body = {"eth_getBlockByHash": 1}, block(number)
            elif kind < 0.6:
                requested, body = {"eth_chainId": 1}, call("eth_chainId")
            elif kind < 0.7:
                requested, body = {"debug_traceCall": 1}, call("debug_traceCall", "[{}]")
            else:
                parts = [block(number, "1"), call("eth_chainId", id="2"), block(number + 1, "3")]
                requested = {"eth_getBlockByHash": 2, "eth_chainId": 1}
                body = b"[" + b",".join(parts) + b"]"
            path = chance.choice(["/", "/old"])
            assert nginx.post(path, body).status == 200
            with counted:
                sent["requests"] += 1
                for method, calls in requested.items():
                    sent[method] += calls

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(8)]
    for one in threads:
        one.start()
    for _ in range(2):
        nginx.reload()
    for one in threads:
        one.join()

    def status():
        now = read_status(nginx)
        return now if now["requests"] >= sent["requests"] else None

    now = nginx.wait_for(status, "all to be counted")
    assert now["requests"] == sent["requests"]
    assert now["node"]["requests"] == len(origin.requests)
    calls = methods(now)
    for method in RESULTS:
        assert calls[method][0] == sent[method]
        # each call that is no hit was sent to the node
        assert calls[method][0] - calls[method][1] == node.count(method)
    assert now["node"]["calls_saved"] == sum(hits for _, hits in calls.values())
    times = now["microseconds"]
    assert times["hit"]["count"] + times["miss"]["count"] == now["requests"]
    assert times["miss"]["count"] == now["node"]["requests"]


def test_counters_outlive_workers(start_nginx, origin):
    nginx = start_nginx(CONFIG, workers=2)
    origin.answers(answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'))
    nginx.post("/", call("eth_chainId"))
    nginx.expect("exited on signal 9")
    for worker in nginx.workers():
        nginx.kill(worker)
    nginx.wait_for(lambda: read_status(nginx)["requests"] == 1, "the count")
    nginx.reload()
    nginx.post("/", call("eth_chainId"))
    assert read_status(nginx)["requests"] == 2


def test_gauges_exclude_workers_that_have_ended(start_nginx, origin):
    """Workers end by a reload, and by a kill."""
    path = "sszip_cache_path @prefix@/cache max_size=64m memory=16m;"
    nginx = start_nginx(path + CONFIG.replace(" reuseport", ""), workers=2)
    nginx.expect("exited on signal 9")
    origin.answers(Node(RESULTS))

    def gauges():
        # a worker reports its gauges with its requests
        for number in range(4):
            nginx.post("/", block(number))
        now = metrics(nginx)
        return now["sszip_owner_links",], now["sszip_cache_memory_entries",]

    def is_settled():
        links, entries = gauges()
        return links == 2 and 0 < entries <= 8

    wait_until_linked(nginx)
    nginx.wait_for(is_settled, "both workers to show their links and entries")
    for end in (nginx.reload, lambda: nginx.kill(nginx.workers()[0])):
        end()
        nginx.wait_for(lambda: nginx.all_workers() == nginx.workers(), "workers of before to be gone")
        wait_until_linked(nginx)
        nginx.wait_for(is_settled, "workers that there are to be counted, and no others")

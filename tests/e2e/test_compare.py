"""The comparison of loadtest/compare: it runs, reports servers with wrong responses, and
writes a page that loads nothing else."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import threading

import pytest

from harness.browser import Browser
from harness.replay import BINARY

ROOT = pathlib.Path(__file__).parents[2]
COMPARE = ROOT / "loadtest/compare"
ROWS = ["sszip-nginx", "nginx-gzip-1", "proxy-cache-ids"]
SECTIONS = ["mix", "batch", "cold", "stampede", "witness", "head"]

WHOLE_RUN = pytest.mark.thorough("the command's errors and a run against two servers are in `make test`")
pytestmark = pytest.mark.once("the comparison starts servers of its own")


def run(*arguments, seconds=600, **environment):
    command = [COMPARE / "run", *map(str, arguments)]
    environment = os.environ | {"SSZIP_REPLAY_NODE": BINARY} | environment
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds, cwd=ROOT
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A short run over the replay node's sample, not over recorded calls."""
    out = tmp_path_factory.mktemp("compare")
    done = run("--tiny", "--only", *SECTIONS, "--rows", *ROWS, "--corpus", out / "none", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def read(results):
    return json.loads((results[0] / "compare.json").read_text())


@WHOLE_RUN
def test_sections_have_a_sample_of_every_server(results):
    summary = read(results)
    assert set(summary["sections"]) == {"mix", "batch", "cold-30", "cold-246", "stampede", "witness", "head"}
    assert summary["rates"] == []
    for name, section in summary["sections"].items():
        assert {one["row"] for one in section["samples"]} == set(ROWS), name
        for one in section["samples"]:
            assert "failed" not in one, (name, one)
            assert one["requests"] > 0 and one["cpu_us"] > 0 and one["resident_kb"] > 0, (name, one)


@WHOLE_RUN
def test_responses_of_all_servers_are_verified_and_misses_are_stored(results):
    sections = read(results)["sections"]
    for name, section in sections.items():
        if section["verified"]:
            assert section["verified"]["sszip-nginx"]["wrong"] == 0, name
            assert section["verified"]["nginx-gzip-1"]["wrong"] == 0, name
    assert sections["mix"]["verified"]["proxy-cache-ids"]["wrong"] == 0
    for name in ("cold-30", "cold-246"):
        # the first of three requests is a miss
        assert sections[name]["verified"]["sszip-nginx"]["hits"] == 2, name
    audit = {one["row"]: one["audit"] for one in sections["head"]["samples"]}
    assert audit["sszip-nginx"]["wrong"] == 0 and audit["sszip-nginx"]["compared"] > 0
    herd = {one["row"]: one for one in sections["stampede"]["samples"]}
    assert herd["sszip-nginx"]["node"] == 1 and herd["nginx-gzip-1"]["node"] == 20
    assert all(one["wrong"] == one["lost"] == 0 for one in herd.values())


@WHOLE_RUN
def test_share_of_upstream_requests_matches_the_cache(results):
    sections = read(results)["sections"]
    mix = {one["row"]: one["asked"] for one in sections["mix"]["samples"]}
    cold = {one["row"]: one["asked"] for one in sections["cold-30"]["samples"]}
    assert mix["sszip-nginx"] < 0.2 < 0.9 < mix["nginx-gzip-1"]
    assert all(share > 0.9 for share in cold.values())


@WHOLE_RUN
def test_page_loads_nothing_else_and_fits_a_narrow_screen(results):
    path = results[0] / "compare.html"
    text = path.read_text()
    assert not re.search(r"""(src|href)=["'](?!#)""", text) and "@import" not in text
    assert text.count("<svg") >= len(SECTIONS) and "load_module" in text
    with Browser() as browser:
        for width in (360, 1200):
            for scheme in ("light", "dark"):
                page = browser.page(path.as_uri(), width=width, scheme=scheme)
                page.wait_for("document.readyState == 'complete' && document.querySelectorAll('svg').length > 0", "a plot")
                assert page.run("document.documentElement.scrollWidth") <= width
                urls, wrong = page.requested_urls()
                assert urls == [path.as_uri()] and wrong == []


@WHOLE_RUN
def test_tables_have_a_row_for_every_server(results):
    text = (results[0] / "compare.md").read_text()
    for name in ("sszip in nginx", "nginx gzip 1", "nginx proxy_cache, ids replaced, + gzip 1"):
        assert text.count(f"| {name}") + text.count(f"**{name}**") >= len(SECTIONS)
    assert "A quick run" in text and "sszip in nginx" in results[1]


class Liar(http.server.BaseHTTPRequestHandler):
    """A node, or a cache that sends the first caller's response to all callers."""

    protocol_version = "HTTP/1.1"
    lies, answers, prefix = False, {}, ""

    def do_POST(self):
        assert self.path == (self.prefix or "/")
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        single = call[0] if isinstance(call, list) else call
        key = json.dumps([single["method"], single.get("params")])
        answer = [self.answer(one) for one in call] if isinstance(call, list) else self.answer(call)
        self.send(self.answers.setdefault(key, answer) if self.lies else answer)

    def do_GET(self):
        self.send({})

    def answer(self, call):
        block = {"number": "0x5", "hash": "0x" + "5" * 64, "transactions": []}
        result = {"eth_blockNumber": "0x5", "eth_getBlockByNumber": block}.get(call["method"], "0x1")
        return {"jsonrpc": "2.0", "id": call["id"], "result": result}

    def send(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

    def handle(self):
        # wrk ends in the midst of requests
        with contextlib.suppress(ConnectionError):
            super().handle()


@pytest.fixture
def serving():
    servers = []

    def start(handler, tls=None):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_wrong_responses_of_an_external_server_are_reported(serving, tmp_path):
    honest = serving(Liar)
    liar = serving(type("Lies", (Liar,), {"lies": True, "answers": {}}))
    done = run("--tiny", "--targets", f"honest={honest},liar={liar}", "--node", honest,
               "--only", "single", "--out", tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr == "wrong responses from: liar; the report lists them\n"
    section = json.loads((tmp_path / "compare.json").read_text())["sections"]["block-30"]
    assert section["verified"]["honest"]["wrong"] == 0
    # the first caller gets the right response
    assert section["verified"]["liar"]["kinds"] == {"another caller's id": 2}
    assert "another caller's id" in done.stdout
    assert all(one["rps"] > 0 and "cpu_us" not in one for one in section["samples"])


@pytest.mark.thorough("a run against two servers is in `make test`, without TLS")
def test_external_server_is_measured_over_tls_below_a_path(serving, tmp_path):
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", chain]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=node", *files], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain, key)
    handler = type("AtPath", (Liar,), {"answers": {}, "prefix": "/v3/KEY"})
    url = serving(handler, tls) + "/v3/KEY"
    arguments = ["--tiny", "--targets", f"node={url}", "--node", url, "--only", "single", "--out", tmp_path,
                 "--seconds", "1", "--connections", "2"]
    done = run(*arguments, SSL_CERT_FILE=str(chain))
    assert done.returncode == 0, done.stdout + done.stderr
    section = json.loads((tmp_path / "compare.json").read_text())["sections"]["block-30"]
    assert section["verified"]["node"]["wrong"] == 0 and section["samples"][0]["requests"] > 0


@pytest.mark.parametrize("arguments, message", [
    (["--targets", "x"], "'x' is not NAME=URL"),
    (["--targets", "a=ftp://127.0.0.1:1"], "'ftp://127.0.0.1:1' is not http[s]://HOST"),
    (["--targets", "a=http://x:y"], "'http://x:y' is not http[s]://HOST"),
    (["--targets", "a=http://127.0.0.1:1", "--seconds", "0"], "'0' is not a number from 1 to 3600"),
    (["--seconds", "1"], "--seconds requires --targets"),
    (["--only", "everything"], "invalid choice: 'everything'"),
    (["--node", "http://127.0.0.1:1"], "--node requires --targets"),
])
def test_invalid_arguments_are_reported(arguments, message):
    done = run(*arguments)
    assert done.returncode != 0 and message in done.stderr


def test_hit_model_returns_plausible_shares():
    sys.path.insert(0, str(COMPARE))
    try:
        import model
    finally:
        sys.path.remove(str(COMPARE))
    costs = {"hot": 1, "memory": 10, "store": 20, "node": 100}
    # no requests: all are misses; few keys and many requests: all are in memory
    assert model.shares(1_000, 1, 500, 500, 0)["node"] == pytest.approx(1)
    assert model.shares(1_000, 1, 2_000, 2_000, 1e7)["hot"] == pytest.approx(1, abs=1e-3)
    shares = model.shares(1_000_000, 1, 1_000, 10_000, 1e6)
    assert sum(shares.values()) == pytest.approx(1)
    assert 0.3 < shares["hot"] < 0.45 < shares["hot"] + shares["memory"] < 0.65
    assert model.cost(shares, costs) == pytest.approx(sum(shares[p] * costs[p] for p in costs))
    # with equal popularity a memory has its share of the keys
    even = model.shares(10_000, 1e-9, 2_500, 2_500, 1e7)
    assert even["hot"] == pytest.approx(0.25, abs=0.02)

"""sszip_verify in a realistic nginx: five workers, TLS with HTTP/2, brotli in either load order,
CORS, `if`, several nodes and limits; with clients that abort, and reloads."""

import json
import pathlib
import subprocess

import pytest

from harness import client
from harness.load import Load
from harness.nginx import MODULE
from harness.owner import wait_until_linked
from harness.rpc import Node
from harness.status import read_status
from test_node_capabilities_configs import certificate
from test_store_life import by_hash
from test_third_party_modules import FOLDER, modules, order

# pytest finds the fixtures by these names
__all__ = ["certificate", "order"]

pytestmark = pytest.mark.once("Debian's modules are for Debian's nginx; test_verify runs on each")

CONFIG = """
upstream nodes { server @origin@; server 127.0.0.1:1 backup; keepalive 8; }
limit_req_zone $binary_remote_addr zone=all:1m rate=100000r/s;
map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=16m;
sszip_cache_valid immutable 1h;
sszip_verify 100%;
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_tls@ ssl http2;
    ssl_certificate @prefix@/certificate.pem;
    ssl_certificate_key @prefix@/key.pem;
    brotli on;
    brotli_types *;
    brotli_min_length 1;
    location / {
        add_header Access-Control-Allow-Origin $http_origin always;
        add_header X-Request-ID $request_id;
        if ($request_method = OPTIONS) { return 204; }
        sszip_cache_namespace main;
        limit_req zone=all burst=10000 nodelay;
        proxy_next_upstream error timeout http_502;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection_upgrade;
        proxy_pass http://nodes;
    }
    location = /status { sszip_status on; }
}
"""
NUMBERS = range(1, 5)
RESULT = b'{"number":"0x1","x":"' + b"0123456789" * 2000 + b'"}'
FIELDS = [
    ("Content-Type", "application/json"),
    ("Accept-Encoding", "gzip, deflate, br"),
    ("Origin", "https://a.test"),
]


@pytest.fixture
def nginx(start_nginx, certificate, order):
    names = ["ngx_http_brotli_filter_module"]
    options = {"files": certificate, "workers": 5}
    if order == "before":
        nginx = start_nginx(CONFIG, main=modules(*names), **options)
    else:
        ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
        nginx = start_nginx(CONFIG, main=ours, module=FOLDER / f"{names[0]}.so", **options)
    wait_until_linked(nginx)
    return nginx


def results_by_curl(nginx, number):
    command = ["curl", "-sSk", "--http2", "--parallel", "--compressed", "-d", by_hash(number).decode()]
    for name, value in FIELDS[:1] + FIELDS[2:]:
        command += ["-H", f"{name}: {value}"]
    url = f"https://127.0.0.1:{nginx.ports['port_tls']}/"
    for n in range(8):
        command += [url, "-o", str(nginx.prefix / f"out{n}")]
    subprocess.run([*command, "-w", "%{http_code}"], check=True, capture_output=True, timeout=60)
    return [json.loads((nginx.prefix / f"out{n}").read_bytes())["result"] for n in range(8)]


def test_hits_are_verified_in_a_realistic_configuration(nginx, origin):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    body = b'{"jsonrpc":"2.0","id":1,"result":' + RESULT + b"}\n"
    requests = [(("/", FIELDS, by_hash(number)), body) for number in NUMBERS]
    with Load(nginx.port, requests, clients=4) as load:
        for _ in range(3):
            for _ in range(30):
                with nginx.connect() as connection:
                    connection.send(client.request_bytes("/", method="POST", headers=FIELDS, body=by_hash(1)))
            nginx.reload()
    assert not load.faults, load.faults[:3]
    assert load.answered > 20
    # a worker that is not linked to the new owner yet stores nothing
    wait_until_linked(nginx)
    for number in NUMBERS:
        assert results_by_curl(nginx, number) == [json.loads(RESULT)] * 8
    response = client.fetch(nginx.port, "/", method="POST", headers=FIELDS, body=by_hash(1))
    assert "; hit" in response.header("Cache-Status") and response.coding == "gzip"
    assert response.all("Access-Control-Allow-Origin") == ["https://a.test"]
    assert len(response.all("X-Request-ID")) == 1

    def verdicts():
        client.fetch(nginx.port, "/", method="POST", headers=FIELDS, body=by_hash(1))
        return read_status(nginx)["verified"]

    nginx.wait_for(lambda: verdicts().get("same", 0) > 50, "hits to be verified")
    assert read_status(nginx)["verified"].keys() <= {"same", "unanswered"}
    # any worker with the entry detects a difference
    nginx.expect("a hit differs from the node's response")
    node.results["eth_getBlockByHash"] = RESULT.replace(b'"0x1"', b'"0x2"')
    nginx.wait_for(lambda: verdicts().get("different"), "it to be seen")
    assert "eth_getBlockByHash, key " in nginx.error_log()

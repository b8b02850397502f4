"""The configuration for Lua that operators copy (configs/openresty), served by nginx:
each of its plans fulfils its purpose."""

import gzip
import json
import os
import signal

import pytest

from harness.copied_configs import CONFIGS, CopiedConfig, certificate
from harness.lua import FOLDER, LIBRARY, NAMES
from harness.rpc import Node, call

pytestmark = pytest.mark.once("Debian's Lua module is for Debian's nginx")

KEYS = b"""
# whose they are, and what they may
0123abcd free
free2 free
456789ef   pro
index indexer
test tester
"""
RESULT = b'{"hash":"0x%b","x":"%b"}' % (b"ab" * 32, b"0" * 3000)
BLOCK = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
MODULES = "".join(f"load_module {FOLDER / name}.so;\n" for name in NAMES)


@pytest.fixture(scope="module")
def serving(tmp_path_factory, session_origin):
    changes = {
        "/etc/nginx/lua/": f"{LIBRARY}/",
        # Lua opens the file relative to the directory in which nginx was started
        "/etc/nginx/sszip-": "@prefix@/sszip-",
    }
    signed = certificate(tmp_path_factory.mktemp("certificate"))
    site = CONFIGS / "openresty/keys.conf"
    server = CopiedConfig(
        signed, site, nodes={8545: session_origin.port}, files={"sszip-plans": KEYS}, changes=changes, main=MODULES
    ).start()
    yield server
    server.stop()


@pytest.fixture
def node(origin, serving):
    node = Node({"eth_getBlockByHash": RESULT, "eth_blockNumber": b'"0x10"', "debug_traceTransaction": b"[]", "net_version": b'"1"'})
    origin.answers(node)
    yield node
    serving.nginx.check()


def send(serving, key, body, headers=()):
    fields = [("X-Api-Key", key)] if key else []
    return serving.fetch("plans", body=body, headers=[*fields, *headers])


def error(response):
    return json.loads(response.decoded)["error"]["code"]


def test_request_without_a_valid_key_is_rejected(serving, node):
    for key in (None, "", "nobody", "0123abcd free"):
        response = send(serving, key, BLOCK)
        assert (response.status, error(response)) == (401, -32600), key
    assert node.count() == 0


def test_valid_keys_share_entries(serving, node, origin):
    before = node.count()
    for key in ("free2", "456789ef", "free2"):
        response = send(serving, key, BLOCK)
        assert response.status == 200 and json.loads(response.decoded)["result"] == json.loads(RESULT)
    assert node.count() - before <= 2
    assert not any(request.header("X-Api-Key") for request in origin.requests)


def test_methods_outside_the_plan_are_denied(serving, node):
    trace = call("debug_traceTransaction", '["0x00"]', id='"a"')
    denied = send(serving, "free2", trace)
    assert (denied.status, json.loads(denied.decoded)["id"], error(denied)) == (200, "a", -32601)
    assert json.loads(send(serving, "index", trace).decoded)["result"] == []
    # in a batch, and with any coding
    notification = b'{"jsonrpc":"2.0","method":"net_version"}'
    batch = b"[" + BLOCK + b"," + notification + b"," + trace + b"]"
    for body, headers in ((batch, ()), (gzip.compress(batch), [("Content-Encoding", "gzip")])):
        answers = json.loads(send(serving, "free2", body, headers).decoded)
        assert [(one["id"], one["error"]["code"]) for one in answers] == [(1, -32601), ("a", -32601)]
    for key in ("free2", "index"):
        assert error(send(serving, key, call("eth_sendTransaction"))) == -32601
    assert node.count("eth_sendTransaction") == 0


@pytest.mark.parametrize(
    "body, headers, status",
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"eth_call","method":"debug_x"}', (), 400),
        (b"", (), 400),
        (BLOCK, [("Content-Encoding", "br")], 415),
        (b"[" + b" " * (9 << 20) + BLOCK + b"]", (), 413),
    ],
    ids=["twice", "empty", "coded", "long"],
)
def test_unreadable_request_is_rejected(serving, node, body, headers, status):
    response = send(serving, "index", body, headers)
    assert (response.status, error(response)) == (status, -32600)


def test_rate_limit_counts_the_calls_of_a_batch(serving, node):
    batch = b"[" + b",".join(call("net_version", id=str(n)) for n in range(100)) + b"]"
    statuses = [send(serving, "0123abcd", batch).status for _ in range(8)]
    # 300 a minute, or twice the number if a minute began meanwhile
    assert statuses.count(200) in (3, 4, 5, 6) and statuses[-1] == 429
    refused = send(serving, "0123abcd", batch)
    answers = json.loads(refused.decoded)
    assert len(answers) == 100 and answers[7]["id"] == 7 and answers[7]["error"]["code"] == -32005
    assert 0 < int(refused.header("Retry-After")) <= 60
    # another key has a limit of its own
    assert send(serving, "free2", BLOCK).status == 200
    assert send(serving, "456789ef", batch).status == 200


def test_plan_decides_about_lookup_and_storage(serving, node):
    number = call("eth_blockNumber")
    before = node.count("eth_blockNumber")
    for _ in range(3):
        assert send(serving, "index", number).status == 200
    assert node.count("eth_blockNumber") - before == 3
    block = call("eth_getBlockByHash", '["0x%s",true]' % ("cd" * 32))
    before = node.count("eth_getBlockByHash")
    for _ in range(3):
        assert send(serving, "test", block).status == 200
    # neither looked up nor stored
    assert node.count("eth_getBlockByHash") - before == 3
    assert send(serving, "index", block).status == 200
    assert node.count("eth_getBlockByHash") - before == 4


def test_invalid_plan_is_not_applied(serving, node):
    nginx = serving.nginx
    plans = nginx.prefix / "sszip-plans"
    plans.write_bytes(KEYS + b"789 nothing\n")
    os.kill(nginx.master, signal.SIGHUP)
    nginx.wait_for(lambda: "not a key and a plan: 789 nothing" in nginx.error_log(), "the mistake to be said")
    assert send(serving, "free2", BLOCK).status == 200
    plans.write_bytes(KEYS + b"789 free\n")
    nginx.reload()
    nginx.wait_for(lambda: send(serving, "789", BLOCK).status == 200, "the new key")

"""Stored JSON-RPC responses: a repeated call is not sent to the node."""

import itertools
import json
import re
import threading

import pytest

from harness import bodies
from harness.client import request_bytes
from harness.guards import GUARD_SECONDS
from harness.origin import answer
from harness.rpc import Node, call
from harness.nginx_state import wait_for_followers, waiting_requests

HASH = '"0x' + "ab" * 32 + '"'
BY_HASH = f"[{HASH},true]"
LARGE = b'"0x' + bodies.json(30000).hex().encode() + b'"'
SMALL = b'"0x10"'

CONFIG = """
log_format cache '$uri $sszip_cache_status $sszip_rpc_method $sszip_batch_size $sszip_mode';
sszip on;
sszip_cache on;
sszip_cache_valid tip 1h;
sszip_cache_valid unfinalized 1h;
proxy_http_version 1.1;
map $arg_bypass $bypass { default 0; 1 1; }
upstream two { server 127.0.0.1:@port_closed@ max_fails=0; server @origin@ max_fails=0; }
server {
    listen 127.0.0.1:@port@;
    access_log @prefix@/cache.log cache;
    location / { sszip_cache_namespace all; proxy_pass http://@origin@; }
    location /a { sszip_cache_namespace a; proxy_pass http://@origin@; }
    location /b { sszip_cache_namespace b; proxy_pass http://@origin@; }
    location /default { proxy_pass http://@origin@; }
    location /chosen { sszip_cache_namespace $arg_chain; proxy_pass http://@origin@; }
    location /a1 { sszip_cache_namespace a1; proxy_pass http://@origin@; }
    location /b1 { sszip_cache_namespace b1; proxy_pass http://@origin@; }
    location /off { sszip_cache off; proxy_pass http://@origin@; }
    location /bypass { sszip_cache_namespace bypass; sszip_cache_bypass $bypass; proxy_pass http://@origin@; }
    location /no-store { sszip_cache_namespace no-store; sszip_no_cache $bypass; proxy_pass http://@origin@; }
    location /ignore { sszip_cache_namespace ignore; sszip_cache_credentials ignore; proxy_pass http://@origin@; }
    location /key { sszip_cache_namespace key; sszip_cache_credentials key; proxy_pass http://@origin@; }
    location /named { sszip_cache_namespace named; sszip_cache_credentials key X-Api-Key; proxy_pass http://@origin@; }
    location /short { sszip_cache_namespace short; sszip_cache_valid tip 100ms; proxy_pass http://@origin@; }
    location /never { sszip_cache_namespace never; sszip_cache_valid tip 0; proxy_pass http://@origin@; }
    location /small { sszip_cache_namespace small; sszip_cache_max_entry 20k; sszip_cache_max_request 1k; proxy_pass http://@origin@; }
    location /denied { sszip_cache_namespace all; deny all; proxy_pass http://@origin@; }
    location /guarded { sszip_cache_namespace all; auth_request /auth; proxy_pass http://@origin@; }
    location = /auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_pass http://@origin@; }
    location /unbuffered { sszip_cache_namespace unbuffered; proxy_buffering off; proxy_pass http://@origin@; }
    location /coded { sszip_cache_namespace coded; proxy_pass http://@origin@; }
    location /held { sszip_cache_namespace held; sszip_max_oneshot 50k; proxy_pass http://@origin@; }
    location /set-body { sszip_cache_namespace set-body; proxy_set_body $request_body; proxy_pass http://@origin@; }
    location /few { sszip_cache_namespace few; sszip_batch_max 3; proxy_pass http://@origin@; }
    location /next { sszip_cache_namespace next; proxy_next_upstream error timeout; proxy_pass http://two; }
    location /no-threads { sszip_cache_namespace no-threads; sszip_thread_pool off; proxy_pass http://@origin@; }
    location = /sszip-status { sszip_status on; }
    location /vary { sszip_cache_namespace vary; gzip_vary on; proxy_pass http://@origin@; }
}
"""

JSON = ("Content-Type", "application/json")
_places = iter(range(10**6))


@pytest.fixture
def rpc(nginx, origin):
    """A function that sends calls under a namespace of its own; its node is an attribute."""
    number = next(_places)

    def rpc(body, path=f"/chosen?chain={number}", accept="gzip", headers=(), **request):
        return nginx.post(path, body, accept, headers, **request)

    def serve(results, **options):
        rpc.node = Node(results, **options)
        origin.answers(rpc.node)
        return rpc.node

    rpc.serve = serve
    rpc.path = f"/chosen?chain={number}"
    serve({"eth_getBlockByHash": LARGE, "eth_chainId": SMALL, "eth_blockNumber": SMALL, "eth_getLogs": LARGE})
    return rpc


def result_of(response):
    return json.loads(response.decoded)["result"]


class TestHits:
    @pytest.mark.parametrize("first", ["gzip", None])
    @pytest.mark.parametrize("second", ["gzip", None])
    def test_second_request_is_a_hit_for_any_accept_encoding(self, rpc, first, second):
        miss = rpc(call("eth_getBlockByHash", BY_HASH, "1"), accept=first)
        hit = rpc(call("eth_getBlockByHash", BY_HASH, "2"), accept=second)
        assert rpc.node.count() == 1
        assert miss.decoded.replace(b'"id":1,', b'"id":2,') == hit.decoded
        assert hit.coding == ("gzip" if second else None)
        assert hit.length == len(hit.body)
        assert hit.header("Content-Type") == "application/json"
        assert miss.header("Cache-Status") == "sszip; fwd=miss"
        (ttl,) = re.fullmatch(r"sszip; hit; ttl=(\d+)", hit.header("Cache-Status")).groups()
        assert 3600 - GUARD_SECONDS < int(ttl) <= 3600
        assert hit.header("Vary") == "Accept-Encoding"

    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_response_is_stored_with_any_framing(self, rpc, framing, accept):
        rpc.serve({"eth_getBlockByHash": LARGE}, framing=framing)
        bodies = {rpc(call("eth_getBlockByHash", BY_HASH), accept=accept).decoded for _ in range(4)}
        assert len(bodies) == 1 and rpc.node.count() == 1

    def test_response_is_stored_when_proxy_buffering_is_off(self, rpc, nginx):
        answers = [
            nginx.post("/unbuffered", call("eth_getBlockByHash", BY_HASH)).decoded for _ in range(3)
        ]
        assert len(set(answers)) == 1 and rpc.node.count() == 1

    @pytest.mark.parametrize(
        "id",
        ["0", "1", "-1", "1.5", "1e3", "9007199254740993", "123456789012345678901234567890", "null"]
        + ['""', '"a"', '"a\\"b"', '"\\u00e9\\n"', '"' + "x" * 250 + '"'],
    )
    @pytest.mark.parametrize("members", [("jsonrpc", "id", "result"), ("result", "jsonrpc", "id"), ("jsonrpc", "result", "id")])
    @pytest.mark.parametrize("size", ["large", "small"])
    def test_hit_has_the_id_of_the_call(self, rpc, id, members, size):
        method, params = ("eth_getBlockByHash", BY_HASH) if size == "large" else ("eth_chainId", "[]")
        rpc.serve({"eth_getBlockByHash": LARGE, "eth_chainId": SMALL}, members=members)
        rpc(call(method, params, "77"))
        for accept in ("gzip", None):
            hit = rpc(call(method, params, id), accept=accept)
            assert b'"id":' + id.encode() in hit.decoded
            assert hit.decoded.endswith(b"}\n")
        assert rpc.node.count() == 1

    def test_call_is_a_hit_when_order_of_members_and_white_space_differ(self, rpc):
        rpc(call("eth_getLogs", '[{"fromBlock":"0x1","toBlock":"0x2"}]'))
        rpc(b'{ "params" : [ { "toBlock" : "0x2" , "fromBlock":"0x1" } ],\n"method":"eth_getLogs","id":5,"jsonrpc":"2.0" }')
        assert rpc.node.count() == 1

    def test_small_response_is_stored_uncompressed(self, rpc):
        for _ in range(3):
            response = rpc(call("eth_chainId"))
            assert (response.coding, response.decoded) == (None, b'{"jsonrpc":"2.0","id":1,"result":"0x10"}\n')
        assert rpc.node.count() == 1

    def test_access_log_shows_cache_status_method_and_mode(self, rpc, nginx):
        for path in ("/a/log", "/a/log", "/off/log"):
            rpc(call("eth_chainId"), path)
        lines = nginx.wait_for(lambda: _lines(nginx, "/log", 3), "the log")
        assert lines == [
            "/a/log MISS eth_chainId - too-small",
            "/a/log HIT eth_chainId - hit",
            "/off/log - - - too-small",
        ]

    def test_get_without_cache_headers_is_not_stored(self, rpc, nginx, origin):
        origin.answers([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"])
        for _ in range(2):
            assert nginx.get("/a/get").decoded == b"{}"
        assert len(origin.received("/a/get")) == 2


def _lines(nginx, part, count):
    lines = [line for line in (nginx.prefix / "cache.log").read_text().splitlines() if part in line]
    return lines if len(lines) >= count else None


class TestKeys:
    """Different calls never share a response."""

    def test_similar_params_have_different_keys(self, rpc):
        rpc.serve({"eth_getLogs": lambda params: json.dumps(json.dumps(params)).encode()})
        topics = ['[["0xa","0xb"]]', '["0xa","0xb"]', '[["0xa"],["0xb"]]', '["0xa,0xb"]', "[]", "[null]", '["null"]']
        seen = set()
        for topic in topics * 2:
            seen.add(result_of(rpc(call("eth_getLogs", f'[{{"fromBlock":"0x1","toBlock":"0x2","topics":{topic}}}]'))))
        assert len(seen) == len(topics)

    def test_responses_of_two_namespaces_are_kept_apart(self, rpc, origin, nginx):
        for path, chain in (("/a1", b'"0x1"'), ("/b1", b'"0xa"')):
            origin.answers(Node({"eth_chainId": chain}))
            assert result_of(rpc(call("eth_chainId"), path)) == chain.decode()[1:-1]
        for path, chain in (("/a1", "0x1"), ("/b1", "0xa")):
            assert result_of(rpc(call("eth_chainId"), path)) == chain

    def test_hosts_and_paths_have_different_keys_without_a_namespace(self, rpc, nginx):
        for host, path in (("one", "/default"), ("two", "/default"), ("one", "/default"), ("one", "/default/other")):
            with nginx.connect() as connection:
                response = connection.exchange(path, method="POST", host=host, headers=[JSON], body=call("eth_chainId"))
                assert result_of(response) == "0x10"
        assert rpc.node.count() == 3

    def test_invalid_call_is_forwarded(self, rpc):
        for body in (
            b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[],"extra":1}',
            b'{"jsonrpc":"1.0","id":1,"method":"eth_chainId","params":[]}',
            b'{"jsonrpc":"2.0","id":1,"id":2,"method":"eth_chainId","params":[]}',
            b'{"jsonrpc":"2.0","id":{},"method":"eth_chainId","params":[]}',
            b'{"jsonrpc":"2.0","method":"eth_chainId","params":[],"id":[1]}',
        ):
            before = rpc.node.count()
            for _ in range(2):
                rpc(body)
            assert rpc.node.count() == before + 2

    def test_notifications_are_forwarded(self, rpc, origin):
        rpc(call("eth_chainId"))
        requests = []
        origin.answers(lambda request: requests.append(1) or [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
        for _ in range(2):
            assert rpc(b'{"jsonrpc":"2.0","method":"eth_chainId","params":[]}').body == b""
        assert len(requests) == 2


class TestUncacheable:
    @pytest.mark.parametrize(
        "method, params, result",
        [
            ("eth_getTransactionByHash", f"[{HASH}]", b"null"),
            ("eth_chainId", "[]", None),
            ("eth_sendRawTransaction", '["0x00"]', HASH.encode()),
            ("eth_syncing", "[]", b"false"),
            ("eth_getBalance", '["0x00000000000000000000000000000000000000aa","pending"]', b'"0x1"'),
            ("engine_getPayloadV4", '["0x1"]', b"{}"),
            ("made_up", "[]", b"1"),
        ],
    )
    def test_response_is_not_stored_when_its_method_or_result_forbids_it(self, rpc, method, params, result):
        rpc.serve({method: result})
        for _ in range(2):
            rpc(call(method, params))
        assert rpc.node.count() == 2

    @pytest.mark.parametrize(
        "options",
        [
            {"status": 500},
            {"status": 429},
            {"headers": [("Set-Cookie", "a=b")]},
            {"headers": [("Cache-Control", "no-store")]},
            {"headers": [("Cache-Control", "max-age=10, private")]},
            {"headers": [("Cache-Control", "no-transform")]},
            {"headers": [("Vary", "*")]},
            {"type": "text/html"},
        ],
        ids=str,
    )
    def test_response_is_not_stored_when_its_head_forbids_it(self, rpc, options):
        rpc.serve({"eth_chainId": SMALL}, **options)
        for _ in range(2):
            rpc(call("eth_chainId"))
        assert rpc.node.count() == 2

    @pytest.mark.parametrize(
        "body",
        [
            b"<html>busy</html>",
            b'{"jsonrpc":"2.0","id":1,"result":',
            b'{"jsonrpc":"2.0","id":1,"result":1,"error":{}}',
            b'{"jsonrpc":"2.0","id":2,"result":1}',
            b'{"jsonrpc":"2.0","result":1}',
            b'{"jsonrpc":"2.0","id":1,"result":1}x',
        ],
    )
    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    def test_response_is_not_stored_when_its_body_is_not_a_valid_result(self, rpc, origin, body, framing):
        counter = []
        origin.answers(lambda request: counter.append(1) or answer(body, framing=framing))
        for _ in range(2):
            assert rpc(call("eth_chainId")).decoded == body
        assert len(counter) == 2

    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    def test_truncated_response_is_not_stored(self, rpc, origin, framing):
        body = b'{"jsonrpc":"2.0","id":1,"result":' + LARGE + b"}"
        counter = []
        origin.answers(lambda request: counter.append(1) or answer(body, framing=framing, cut_at=20000))
        for accept in ("gzip", None, "gzip", None):
            try:
                rpc(call("eth_getBlockByHash", BY_HASH), accept=accept)
            except Exception:  # noqa: BLE001, S110 - other tests check how it fails
                pass
        assert len(counter) >= 4

    def test_response_above_the_size_limit_is_not_stored(self, rpc):
        for accept in ("gzip", None) * 2:
            rpc(call("eth_getBlockByHash", BY_HASH), "/small", accept)
        assert rpc.node.count() == 4

    def test_request_above_the_size_limit_is_not_looked_up(self, rpc):
        body = call("eth_getLogs", '[{"fromBlock":"0x1","toBlock":"0x2","topics":["' + "0" * 1000 + '"]}]')
        for _ in range(2):
            rpc(body, "/small")
        assert rpc.node.count() == 2

    def test_request_with_another_type_or_a_coding_is_not_looked_up(self, rpc, nginx):
        for headers in ([("Content-Type", "text/plain")], [], [JSON, ("Content-Encoding", "identity")]):
            before = rpc.node.count()
            for _ in range(2):
                nginx.get("/a/types", method="POST", body=call("eth_blockNumber"), headers=headers)
            assert rpc.node.count() == before + 2


class TestLifetimes:
    def test_entry_expires_after_its_ttl(self, rpc):
        rpc(call("eth_blockNumber"), "/short")
        deadline = threading.Event()
        for _ in range(100):
            if rpc.node.count() > 1:
                break
            deadline.wait(0.05)
            rpc(call("eth_blockNumber"), "/short")
        assert rpc.node.count() == 2

    def test_class_with_ttl_zero_is_not_stored(self, rpc):
        for _ in range(2):
            rpc(call("eth_blockNumber"), "/never")
        assert rpc.node.count() == 2
        for _ in range(2):
            rpc(call("eth_chainId"), "/never")
        assert rpc.node.count() == 3


class TestCredentials:
    @pytest.mark.parametrize("header", [("Authorization", "Bearer x"), ("Cookie", "a=b")])
    def test_request_with_credentials_bypasses_the_cache_by_default(self, rpc, header):
        rpc(call("eth_chainId"))
        for _ in range(2):
            rpc(call("eth_chainId"), headers=[header])
        assert rpc.node.count() == 3

    def test_credentials_share_entries_when_they_are_ignored(self, rpc):
        for token in "ab":
            rpc(call("eth_chainId"), "/ignore", headers=[("Authorization", token)])
        assert rpc.node.count() == 1

    def test_credentials_have_entries_of_their_own_when_they_are_part_of_the_key(self, rpc):
        for token in "abab":
            rpc(call("eth_chainId"), "/key", headers=[("Authorization", token)])
        rpc(call("eth_chainId"), "/key")
        assert rpc.node.count() == 3

    def test_listed_header_is_part_of_the_key_and_others_bypass(self, rpc):
        for token in ["a", "b", "a", "b"]:
            rpc(call("eth_chainId"), "/named", headers=[("x-api-key", token)])
        rpc(call("eth_chainId"), "/named")
        assert rpc.node.count() == 3
        # headers that the configuration does not list bypass the cache
        for header in [("Authorization", "a"), ("Cookie", "a=b")] * 2:
            rpc(call("eth_chainId"), "/named", headers=[header, ("X-Api-Key", "a")])
        assert rpc.node.count() == 7

    def test_requests_are_coalesced_per_credential(self, rpc, nginx):
        """No client receives a response to another credential, not even in flight."""
        number = itertools.count(1)
        node = rpc.serve({"eth_gasPrice": lambda _: b'"0x%x"' % next(number)})
        gate = node.gates["eth_gasPrice"] = threading.Event()
        results = {}

        def one(client, token):
            answer = rpc(call("eth_gasPrice"), "/named", headers=[("X-Api-Key", token)])
            results[client] = result_of(answer)

        clients = [threading.Thread(target=one, args=(n, "abc"[n % 3])) for n in range(9)]
        for client in clients:
            client.start()
        wait_for_followers(nginx, 6)
        gate.set()
        for client in clients:
            client.join(GUARD_SECONDS)
        assert len(results) == 9 and node.count() == 3
        assert [len({results[n] for n in range(of, 9, 3)}) for of in range(3)] == [1, 1, 1]
        assert len(set(results.values())) == 3


class TestPredicates:
    def test_bypassed_request_replaces_the_entry(self, rpc, nginx):
        code = call("eth_getBlockByHash", BY_HASH)
        rpc.serve({"eth_getBlockByHash": b'"0x1"'})
        rpc(code, "/bypass")
        rpc.serve({"eth_getBlockByHash": b'"0x2"'})
        assert result_of(rpc(code, "/bypass")) == "0x1"
        assert result_of(rpc(code, "/bypass?bypass=1")) == "0x2"
        assert result_of(rpc(code, "/bypass")) == "0x2"
        assert rpc.node.count() == 1

    def test_response_is_not_stored_when_no_store_predicate_is_true(self, rpc):
        rpc(call("eth_chainId"), "/no-store?bypass=1")
        rpc(call("eth_chainId"), "/no-store")
        rpc(call("eth_chainId"), "/no-store?bypass=1")
        assert rpc.node.count() == 2


class TestAccessControl:
    """A hit is rejected where the request would be."""

    def test_hit_is_rejected_by_deny(self, rpc):
        rpc(call("eth_chainId"), "/")
        assert rpc(call("eth_chainId"), "/").header("Cache-Status").startswith("sszip; hit")
        assert rpc(call("eth_chainId"), "/denied").status == 403

    @pytest.mark.parametrize("status", [401, 403])
    def test_hit_is_rejected_by_auth_request(self, rpc, origin, status):
        rpc(call("eth_chainId"), "/")
        origin.answers([f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()], "/auth")
        assert rpc(call("eth_chainId"), "/guarded").status == status
        origin.answers([b"HTTP/1.1 204 Yes\r\n\r\n"], "/auth")
        assert rpc(call("eth_chainId"), "/guarded").header("Cache-Status").startswith("sszip; hit")


class TestCors:
    def test_hit_has_the_cors_and_eth_headers_of_the_response(self, rpc):
        rpc.serve({"eth_chainId": SMALL}, headers=[("Access-Control-Allow-Origin", "*"), ("Eth-X", "1"), ("X-Own", "1")])
        rpc(call("eth_chainId"))
        hit = rpc(call("eth_chainId"))
        assert rpc.node.count() == 1
        assert hit.header("Access-Control-Allow-Origin") == "*"
        assert hit.header("Eth-X") == "1"
        assert hit.all("X-Own") == []

    @pytest.mark.parametrize("sends_vary", [True, False])
    def test_origins_get_their_own_cors_header_with_or_without_vary(self, rpc, origin, sends_vary):
        def respond(request):
            own = request.header("Origin")
            headers = [("Access-Control-Allow-Origin", own)] + ([("Vary", "Origin")] if sends_vary else [])
            return Node({"eth_chainId": SMALL}, headers=headers)(request)

        counter = []
        origin.answers(lambda request: counter.append(1) or respond(request))
        for _ in range(3):
            for site in ("https://a", "https://b"):
                response = rpc(call("eth_chainId"), headers=[("Origin", site)])
                assert response.header("Access-Control-Allow-Origin") == site
        assert len(counter) <= 3  # the first response records the header that it depends on

    def test_vary_of_the_node_and_of_the_proxy_are_merged(self, rpc, nginx):
        rpc.serve({"eth_getBlockByHash": LARGE}, headers=[("Vary", "Origin")])
        for path in (None, "/vary"):
            for _ in range(3):
                arguments = [call("eth_getBlockByHash", BY_HASH)] + ([path] if path else [])
                response = rpc(*arguments)
                assert sorted(response.header("Vary").split(", ")) == ["Accept-Encoding", "Origin"]


class TestCoalescing:
    def test_coalesced_requests_reach_the_node_once(self, rpc, nginx):
        gate = rpc.node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []

        def run(number):
            answers.append((number, rpc(call("eth_getBlockByHash", BY_HASH, str(number)))))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 19)
        gate.set()
        for thread in threads:
            thread.join()
        assert rpc.node.count() == 1 and len(answers) == 20
        for number, response in answers:
            assert json.loads(response.decoded)["id"] == number

    def test_followers_get_the_response_when_the_client_of_the_leader_aborts(self, rpc, nginx, origin):
        body = call("eth_getBlockByHash", BY_HASH)
        gate = rpc.node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []
        with nginx.connect() as leader:
            leader.send(request_bytes(rpc.path, method="POST", headers=[JSON, ("Accept-Encoding", "gzip")], body=body))
            nginx.wait_for(lambda: rpc.node.count() >= 1, "the leader")
            threads = [threading.Thread(target=lambda: answers.append(rpc(body))) for _ in range(5)]
            for thread in threads:
                thread.start()
            wait_for_followers(nginx, 5)
            leader.reset()
        # the worker has processed the reset when it responds to a later request
        for _ in range(2):
            assert waiting_requests(nginx) == 5
        gate.set()
        for thread in threads:
            thread.join()
        assert [json.loads(a.decoded)["result"] for a in answers] == [json.loads(LARGE)] * 5
        assert rpc.node.count() == 1

    def test_followers_are_woken_when_the_response_is_not_cached(self, rpc, nginx):
        rpc.serve({"eth_getTransactionReceipt": b"null"})
        gate = rpc.node.gates["eth_getTransactionReceipt"] = threading.Event()
        answers = []
        body = call("eth_getTransactionReceipt", f"[{HASH}]")
        threads = [threading.Thread(target=lambda: answers.append(rpc(body))) for _ in range(6)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 5)
        gate.set()
        for thread in threads:
            thread.join()
        assert [result_of(a) for a in answers] == [None] * 6


class TestBatches:
    def batch(self, *calls):
        return b"[" + b",".join(calls) + b"]"

    def test_batch_is_a_hit_when_its_calls_were_stored_one_by_one(self, rpc):
        calls = [call("eth_getBlockByHash", BY_HASH, "1"), call("eth_chainId", "[]", '"x"')]
        for one in calls:
            rpc(one)
        assert rpc.node.count() == 2
        for accept in ("gzip", None):
            response = rpc(self.batch(*calls, calls[0]), accept=accept)
            answers = json.loads(response.decoded)
            assert [a["id"] for a in answers] == [1, "x", 1]
            assert response.length == len(response.body)
        assert rpc.node.count() == 2

    def test_calls_of_a_batch_are_stored_one_by_one(self, rpc):
        rpc(self.batch(call("eth_getBlockByHash", BY_HASH, "1"), call("eth_chainId", "[]", "2")))
        assert rpc.node.count() == 2
        assert result_of(rpc(call("eth_chainId", "[]", "9"))) == "0x10"
        rpc(call("eth_getBlockByHash", BY_HASH, '"y"'))
        assert rpc.node.count() == 2

    def test_results_of_calls_with_duplicate_ids_are_not_mixed(self, rpc):
        rpc.serve({"eth_chainId": b'"0x1"', "eth_syncing": b"false", "eth_blockNumber": b'"0x9"'})
        rpc(self.batch(call("eth_chainId", "[]", "1"), call("eth_blockNumber", "[]", "1"), call("eth_syncing", "[]", "1")))
        assert result_of(rpc(call("eth_chainId"))) == "0x1"
        assert result_of(rpc(call("eth_blockNumber"))) == "0x9"
        assert rpc.node.count() == 5


class TestMixedBatches:
    """The node receives the missing calls; the client receives all responses in its order."""

    CALLS = [
        call("eth_syncing", "[]", "1"),
        call("eth_getBlockByHash", BY_HASH, '"two"'),
        call("eth_blockNumber", "[]", "3"),
        call("eth_chainId", "[]", "4"),
    ]
    IDS = [1, "two", 3, 4]

    @pytest.fixture
    def rpc(self, rpc):
        rpc.serve(
            {"eth_getBlockByHash": LARGE, "eth_chainId": SMALL, "eth_syncing": b"false", "eth_blockNumber": b'"0x9"'}
        )
        for stored in (self.CALLS[1], self.CALLS[3]):
            rpc(stored)
        rpc.node.received_calls.clear()
        return rpc

    def batch(self, *calls):
        return b"[" + b",".join(calls or self.CALLS) + b"]"

    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_merged_batch_has_the_order_of_the_request(self, rpc, accept, framing):
        rpc.node.options["framing"] = framing
        response = rpc(self.batch(), accept=accept)
        answers = json.loads(response.decoded)
        assert [a["id"] for a in answers] == self.IDS
        assert [a["result"] for a in answers] == [False, json.loads(LARGE), "0x9", "0x10"]
        assert [c["method"] for c in rpc.node.received_calls] == ["eth_syncing", "eth_blockNumber"]
        assert response.coding == accept
        assert response.length == len(response.body)

    def test_uncacheable_calls_of_a_split_batch_are_fetched_each_time(self, rpc):
        rpc(self.batch())
        rpc(self.batch())
        assert [c["method"] for c in rpc.node.received_calls] == ["eth_syncing", "eth_blockNumber"] * 2

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_merged_batch_is_in_order_when_the_node_reverses_its_responses(self, rpc, accept):
        rpc.node.reverses = True
        answers = json.loads(rpc(self.batch(), accept=accept).decoded)
        assert [a["id"] for a in answers] == self.IDS

    def test_merged_batch_has_the_other_responses_when_the_node_omits_one(self, rpc, origin):
        origin.answers(answer(b'[{"jsonrpc":"2.0","id":3,"result":"0x9"}]'))
        answers = json.loads(rpc(self.batch()).decoded)
        assert [a["id"] for a in answers] == ["two", 3, 4]

    def test_merged_batch_ends_with_a_response_of_unknown_id(self, rpc, origin):
        origin.answers(answer(b'[{"jsonrpc":"2.0","id":null,"error":{"code":1}},{"jsonrpc":"2.0","id":1,"result":1}]'))
        answers = json.loads(rpc(self.batch()).decoded)
        assert [a["id"] for a in answers] == [1, "two", 4, None]

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_merged_batch_has_the_elements_of_the_node_unchanged_when_they_are_invalid(self, rpc, origin, accept):
        origin.answers(answer(b'[{"jsonrpc":"2.0","id":1,"result":1,"more":2},{"id":3}]\n'))
        answers = json.loads(rpc(self.batch(), accept=accept).decoded)
        assert [a["id"] for a in answers] == self.IDS
        # the element of the node unchanged, and one that is no response
        assert answers[0] == {"jsonrpc": "2.0", "id": 1, "result": 1, "more": 2}
        assert answers[2] == {"id": 3}

    @pytest.mark.parametrize("status", [200, 413, 429, 500])
    def test_error_for_a_whole_batch_is_sent_for_each_fetched_call(self, rpc, origin, status):
        error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"too many"}}'
        origin.answers(answer(error, status=status))
        response = rpc(self.batch())
        assert response.status == status
        answers = json.loads(response.decoded)
        assert [a["id"] for a in answers] == self.IDS
        for called, one in zip(self.IDS, answers, strict=True):
            if called in (1, 3):
                assert one["error"] == json.loads(error)["error"]
            else:
                assert "result" in one

    def test_merged_batch_has_an_error_for_each_call_that_was_truncated(self, rpc, origin):
        body = b'[{"jsonrpc":"2.0","id":1,"result":false},{"jsonrpc":"2.0","id":3,"result":"0x9"}]'
        origin.answers(answer(body, cut_at=60))
        response = rpc(self.batch())
        assert response.status == 200
        answers = json.loads(response.decoded)
        assert [one["id"] for one in answers] == self.IDS
        by_id = {json.dumps(one["id"]): one for one in answers}
        assert by_id["1"]["result"] is False
        assert by_id["3"]["error"]["code"] == -32603
        assert all("result" in by_id[json.dumps(id)] for id in self.IDS if id != 3)

    @pytest.mark.parametrize("coding", ["gzip", "br"])
    def test_compressed_batch_is_decoded_or_replaced_by_errors(self, rpc, origin, coding):
        body = b'[{"jsonrpc":"2.0","id":1,"result":false},{"jsonrpc":"2.0","id":3,"result":"0x9"}]'
        if coding == "gzip":
            origin.answers(answer(body, coding="gzip"))
            assert [a["id"] for a in json.loads(rpc(self.batch()).decoded)] == self.IDS
        else:
            # a location of its own: its batches are not split from then on
            for stored in (self.CALLS[1], self.CALLS[3]):
                rpc(stored, "/coded")
            origin.answers(answer(body, headers=[("Content-Encoding", "br")]))
            answers = json.loads(rpc(self.batch(), "/coded").decoded)
            assert [a["id"] for a in answers] == self.IDS
            assert [a.get("error", {}).get("code") for a in answers] == [-32603, None, -32603, None]

    @pytest.mark.parametrize("framing", ["length", "chunked"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_batch_above_the_buffer_limit_is_streamed_after_the_stored_responses(self, rpc, origin, framing, accept):
        rpc(self.CALLS[1], "/held"), rpc(self.CALLS[3], "/held")
        node_response = json.dumps([{"jsonrpc": "2.0", "id": id, "result": "x" * 100000} for id in (1, 3)]).encode()
        split = lambda body: [body[i : i + 7000] for i in range(0, len(body), 7000)]  # noqa: E731
        origin.answers(answer(b" \n" + node_response, framing=framing, split=split))
        response = rpc(self.batch(), "/held", accept)
        assert [a["id"] for a in json.loads(response.decoded)] == ["two", 4, 1, 3]

    def test_batch_with_duplicate_ids_is_forwarded(self, rpc):
        rpc(self.batch(self.CALLS[1], call("eth_syncing", "[]", '"two"')))
        assert rpc.node.count() == 2

    def test_notifications_are_forwarded(self, rpc):
        rpc(self.batch(self.CALLS[1], b'{"jsonrpc":"2.0","method":"eth_syncing","params":[]}'))
        assert rpc.node.count() == 2

    def test_next_upstream_gets_the_same_part_of_a_split_batch(self, rpc):
        for stored in (self.CALLS[1], self.CALLS[3]):
            rpc(stored, "/next")
        rpc.node.received_calls.clear()
        answers = json.loads(rpc(self.batch(), "/next").decoded)
        assert [a["id"] for a in answers] == self.IDS
        assert [c["method"] for c in rpc.node.received_calls] == ["eth_syncing", "eth_blockNumber"]

    def test_merged_batch_is_in_order_when_proxy_set_body_sends_the_whole_batch(self, rpc):
        for stored in (self.CALLS[1], self.CALLS[3]):
            rpc(stored, "/set-body")
        answers = json.loads(rpc(self.batch(), "/set-body").decoded)
        assert [a["id"] for a in answers] == self.IDS

    def test_batch_above_the_call_limit_is_forwarded(self, rpc):
        for stored in (self.CALLS[1], self.CALLS[3]):
            rpc(stored, "/few")
        rpc.node.received_calls.clear()
        rpc(self.batch(), "/few")
        assert rpc.node.count() == 4


class TestLargeIdentityResponses:
    """Entries that are stored compressed are decoded off the event loop."""

    RESULT = b'"0x' + bodies.json(600000).hex().encode() + b'"'

    @pytest.fixture
    def stored(self, rpc):
        rpc.serve({"eth_getBlockByHash": self.RESULT})
        rpc(call("eth_getBlockByHash", BY_HASH))
        return rpc

    def test_large_hit_in_identity_has_the_id_of_the_call(self, stored):
        for id in range(5):
            hit = stored(call("eth_getBlockByHash", BY_HASH, str(id)), accept=None)
            assert (hit.coding, hit.length) == (None, len(hit.body))
            assert json.loads(hit.body) == {"jsonrpc": "2.0", "id": id, "result": json.loads(self.RESULT)}
        assert stored.node.count() == 1

    def test_large_hits_in_identity_are_sent_concurrently(self, stored):
        answers = []
        body = call("eth_getBlockByHash", BY_HASH)
        threads = [threading.Thread(target=lambda: answers.append(stored(body, accept=None))) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [result_of(a) for a in answers] == [json.loads(self.RESULT)] * 10
        assert stored.node.count() == 1

    @pytest.mark.parametrize("missing", [0, 1])
    @pytest.mark.parametrize("at_once", [1, 8])
    def test_large_hits_in_identity_are_merged_into_a_batch(self, stored, missing, at_once):
        """Alone, and merged with a response of the node.

        An entry must have been read before it is merged: here by the first hit."""
        stored(call("eth_getBlockByHash", BY_HASH))
        stored.node.results["eth_syncing"] = b"false"
        calls = [call("eth_getBlockByHash", BY_HASH, str(id)) for id in (1, 2)]
        calls += [call("eth_syncing", id="3")] * missing
        answers = []

        def run():
            answers.append(stored(b"[" + b", ".join(calls) + b"]", accept=None))

        for _ in range(2):
            threads = [threading.Thread(target=run) for _ in range(at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        expected = [json.loads(self.RESULT)] * 2 + [False] * missing
        assert len(answers) == 2 * at_once
        for response in answers:
            assert (response.coding, response.length) == (None, len(response.body))
            assert [answer["result"] for answer in json.loads(response.body)] == expected
        assert stored.node.count("eth_getBlockByHash") == 1

    def test_large_entry_stays_readable_when_clients_abort(self, stored, nginx):
        for number in range(30):
            with nginx.connect() as connection:
                connection.send(
                    request_bytes(stored.path, method="POST", headers=[JSON], body=call("eth_getBlockByHash", BY_HASH))
                )
                connection.reset() if number % 2 else connection.close()
        assert result_of(stored(call("eth_getBlockByHash", BY_HASH), accept=None)) == json.loads(self.RESULT)
        assert stored.node.count() == 1

    @pytest.mark.parametrize("path", ["/no-threads"])
    def test_large_response_is_sent_and_stored_without_a_thread_pool(self, stored, path):
        for _ in range(3):
            assert result_of(stored(call("eth_getBlockByHash", BY_HASH), path, None)) == json.loads(self.RESULT)
        assert stored.node.count() == 2


def test_small_chunked_response_is_stored(rpc):
    rpc.serve({"eth_chainId": SMALL}, framing="chunked")
    for _ in range(3):
        assert result_of(rpc(call("eth_chainId"))) == "0x10"
    assert rpc.node.count() == 1


def test_request_with_no_store_is_forwarded_and_not_stored(rpc):
    for _ in range(2):
        rpc(call("eth_chainId"), headers=[("Cache-Control", "no-store")])
    assert rpc.node.count() == 2
    rpc(call("eth_chainId"))
    rpc(call("eth_chainId"), headers=[("Cache-Control", "no-store")])
    assert rpc.node.count() == 3


def test_hit_is_sent_in_identity_when_the_request_has_no_transform(rpc):
    rpc(call("eth_getBlockByHash", BY_HASH))
    hit = rpc(call("eth_getBlockByHash", BY_HASH), headers=[("Cache-Control", "no-transform")])
    assert (hit.coding, result_of(hit)) == (None, json.loads(LARGE))
    assert rpc.node.count() == 1

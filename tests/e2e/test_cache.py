"""Stored JSON-RPC answers: what is asked again is not asked of the node."""

import itertools
import json
import threading

import pytest

from harness import bodies
from harness.client import request_bytes
from harness.origin import answer
from harness.rpc import Node, call
from harness.watch import wait_for_followers, waiting_requests

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
def ask(nginx, origin):
    """Asks a node under a namespace of its own; `ask.node` is the node."""
    number = next(_places)

    def ask(body, path=f"/chosen?chain={number}", accept="gzip", headers=(), **request):
        return nginx.post(path, body, accept, headers, **request)

    def serve(results, **options):
        ask.node = Node(results, **options)
        origin.answers(ask.node)
        return ask.node

    ask.serve = serve
    ask.path = f"/chosen?chain={number}"
    serve({"eth_getBlockByHash": LARGE, "eth_chainId": SMALL, "eth_blockNumber": SMALL, "eth_getLogs": LARGE})
    return ask


def result_of(response):
    return json.loads(response.decoded)["result"]


class TestHits:
    @pytest.mark.parametrize("first", ["gzip", None])
    @pytest.mark.parametrize("second", ["gzip", None])
    def test_a_second_request_does_not_reach_the_node(self, ask, first, second):
        miss = ask(call("eth_getBlockByHash", BY_HASH, "1"), accept=first)
        hit = ask(call("eth_getBlockByHash", BY_HASH, "2"), accept=second)
        assert ask.node.count() == 1
        assert miss.decoded.replace(b'"id":1,', b'"id":2,') == hit.decoded
        assert hit.coding == ("gzip" if second else None)
        assert hit.length == len(hit.body)
        assert hit.header("Content-Type") == "application/json"
        assert (miss.header("Cache-Status"), hit.header("Cache-Status")) == (
            "sszip; fwd=miss",
            "sszip; hit; ttl=3600",
        ) or hit.header("Cache-Status") == "sszip; hit; ttl=3599"
        assert hit.header("Vary") == "Accept-Encoding"

    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_whatever_the_framing_is(self, ask, framing, accept):
        ask.serve({"eth_getBlockByHash": LARGE}, framing=framing)
        bodies = {ask(call("eth_getBlockByHash", BY_HASH), accept=accept).decoded for _ in range(4)}
        assert len(bodies) == 1 and ask.node.count() == 1

    def test_of_an_unbuffered_upstream(self, ask, nginx):
        answers = [
            nginx.post("/unbuffered", call("eth_getBlockByHash", BY_HASH)).decoded for _ in range(3)
        ]
        assert len(set(answers)) == 1 and ask.node.count() == 1

    @pytest.mark.parametrize(
        "id",
        ["0", "1", "-1", "1.5", "1e3", "9007199254740993", "123456789012345678901234567890", "null"]
        + ['""', '"a"', '"a\\"b"', '"\\u00e9\\n"', '"' + "x" * 250 + '"'],
    )
    @pytest.mark.parametrize("members", [("jsonrpc", "id", "result"), ("result", "jsonrpc", "id"), ("jsonrpc", "result", "id")])
    @pytest.mark.parametrize("size", ["large", "small"])
    def test_each_caller_gets_its_own_id(self, ask, id, members, size):
        method, params = ("eth_getBlockByHash", BY_HASH) if size == "large" else ("eth_chainId", "[]")
        ask.serve({"eth_getBlockByHash": LARGE, "eth_chainId": SMALL}, members=members)
        ask(call(method, params, "77"))
        for accept in ("gzip", None):
            hit = ask(call(method, params, id), accept=accept)
            assert b'"id":' + id.encode() in hit.decoded
            assert hit.decoded.endswith(b"}\n")
        assert ask.node.count() == 1

    def test_members_and_white_space_do_not_matter(self, ask):
        ask(call("eth_getLogs", '[{"fromBlock":"0x1","toBlock":"0x2"}]'))
        ask(b'{ "params" : [ { "toBlock" : "0x2" , "fromBlock":"0x1" } ],\n"method":"eth_getLogs","id":5,"jsonrpc":"2.0" }')
        assert ask.node.count() == 1

    def test_small_answers_are_kept_as_they_are(self, ask):
        for _ in range(3):
            response = ask(call("eth_chainId"))
            assert (response.coding, response.decoded) == (None, b'{"jsonrpc":"2.0","id":1,"result":"0x10"}\n')
        assert ask.node.count() == 1

    def test_the_log_tells(self, ask, nginx):
        for path in ("/a/log", "/a/log", "/off/log"):
            ask(call("eth_chainId"), path)
        lines = nginx.wait_for(lambda: _lines(nginx, "/log", 3), "the log")
        assert lines == [
            "/a/log MISS eth_chainId - too-small",
            "/a/log HIT eth_chainId - hit",
            "/off/log - - - too-small",
        ]

    def test_head_and_get_are_left_alone(self, ask, nginx, origin):
        origin.answers([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"])
        for _ in range(2):
            assert nginx.get("/a/get").decoded == b"{}"
        assert len(origin.received("/a/get")) == 2


def _lines(nginx, part, count):
    lines = [line for line in (nginx.prefix / "cache.log").read_text().splitlines() if part in line]
    return lines if len(lines) >= count else None


class TestKeys:
    """Distinct questions never share an answer."""

    def test_params_that_only_look_alike(self, ask):
        ask.serve({"eth_getLogs": lambda params: json.dumps(json.dumps(params)).encode()})
        topics = ['[["0xa","0xb"]]', '["0xa","0xb"]', '[["0xa"],["0xb"]]', '["0xa,0xb"]', "[]", "[null]", '["null"]']
        seen = set()
        for topic in topics * 2:
            seen.add(result_of(ask(call("eth_getLogs", f'[{{"fromBlock":"0x1","toBlock":"0x2","topics":{topic}}}]'))))
        assert len(seen) == len(topics)

    def test_two_chains_behind_one_cache(self, ask, origin, nginx):
        for path, chain in (("/a1", b'"0x1"'), ("/b1", b'"0xa"')):
            origin.answers(Node({"eth_chainId": chain}))
            assert result_of(ask(call("eth_chainId"), path)) == chain.decode()[1:-1]
        for path, chain in (("/a1", "0x1"), ("/b1", "0xa")):
            assert result_of(ask(call("eth_chainId"), path)) == chain

    def test_hosts_and_paths_are_apart_unless_named(self, ask, nginx):
        for host, path in (("one", "/default"), ("two", "/default"), ("one", "/default"), ("one", "/default/other")):
            with nginx.connect() as connection:
                response = connection.exchange(path, method="POST", host=host, headers=[JSON], body=call("eth_chainId"))
                assert result_of(response) == "0x10"
        assert ask.node.count() == 3

    def test_what_is_not_quite_a_call_goes_to_the_node(self, ask):
        for body in (
            b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[],"extra":1}',
            b'{"jsonrpc":"1.0","id":1,"method":"eth_chainId","params":[]}',
            b'{"jsonrpc":"2.0","id":1,"id":2,"method":"eth_chainId","params":[]}',
            b'{"jsonrpc":"2.0","id":{},"method":"eth_chainId","params":[]}',
            b'{"jsonrpc":"2.0","method":"eth_chainId","params":[],"id":[1]}',
        ):
            before = ask.node.count()
            for _ in range(2):
                ask(body)
            assert ask.node.count() == before + 2

    def test_notifications_go_to_the_node(self, ask, origin):
        ask(call("eth_chainId"))
        asked = []
        origin.answers(lambda request: asked.append(1) or [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
        for _ in range(2):
            assert ask(b'{"jsonrpc":"2.0","method":"eth_chainId","params":[]}').body == b""
        assert len(asked) == 2


class TestWhatIsNotStored:
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
    def test_by_call_or_answer(self, ask, method, params, result):
        ask.serve({method: result})
        for _ in range(2):
            ask(call(method, params))
        assert ask.node.count() == 2

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
    def test_by_head(self, ask, options):
        ask.serve({"eth_chainId": SMALL}, **options)
        for _ in range(2):
            ask(call("eth_chainId"))
        assert ask.node.count() == 2

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
    def test_by_body(self, ask, origin, body, framing):
        counter = []
        origin.answers(lambda request: counter.append(1) or answer(body, framing=framing))
        for _ in range(2):
            assert ask(call("eth_chainId")).decoded == body
        assert len(counter) == 2

    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    def test_a_body_that_was_cut(self, ask, origin, framing):
        body = b'{"jsonrpc":"2.0","id":1,"result":' + LARGE + b"}"
        counter = []
        origin.answers(lambda request: counter.append(1) or answer(body, framing=framing, cut_at=20000))
        for accept in ("gzip", None, "gzip", None):
            try:
                ask(call("eth_getBlockByHash", BY_HASH), accept=accept)
            except Exception:  # noqa: BLE001, S110 - how it fails is for other tests
                pass
        assert len(counter) >= 4

    def test_what_is_too_large(self, ask):
        for accept in ("gzip", None) * 2:
            ask(call("eth_getBlockByHash", BY_HASH), "/small", accept)
        assert ask.node.count() == 4

    def test_requests_that_are_too_large(self, ask):
        body = call("eth_getLogs", '[{"fromBlock":"0x1","toBlock":"0x2","topics":["' + "0" * 1000 + '"]}]')
        for _ in range(2):
            ask(body, "/small")
        assert ask.node.count() == 2

    def test_other_content_types_and_codings(self, ask, nginx):
        for headers in ([("Content-Type", "text/plain")], [], [JSON, ("Content-Encoding", "identity")]):
            before = ask.node.count()
            for _ in range(2):
                nginx.get("/a/types", method="POST", body=call("eth_blockNumber"), headers=headers)
            assert ask.node.count() == before + 2


class TestLifetimes:
    def test_an_answer_ends(self, ask):
        ask(call("eth_blockNumber"), "/short")
        deadline = threading.Event()
        for _ in range(100):
            if ask.node.count() > 1:
                break
            deadline.wait(0.05)
            ask(call("eth_blockNumber"), "/short")
        assert ask.node.count() == 2

    def test_zero_is_never(self, ask):
        for _ in range(2):
            ask(call("eth_blockNumber"), "/never")
        assert ask.node.count() == 2
        for _ in range(2):
            ask(call("eth_chainId"), "/never")
        assert ask.node.count() == 3


class TestCredentials:
    @pytest.mark.parametrize("header", [("Authorization", "Bearer x"), ("Cookie", "a=b")])
    def test_bypass(self, ask, header):
        ask(call("eth_chainId"))
        for _ in range(2):
            ask(call("eth_chainId"), headers=[header])
        assert ask.node.count() == 3

    def test_ignore(self, ask):
        for token in "ab":
            ask(call("eth_chainId"), "/ignore", headers=[("Authorization", token)])
        assert ask.node.count() == 1

    def test_key(self, ask):
        for token in "abab":
            ask(call("eth_chainId"), "/key", headers=[("Authorization", token)])
        ask(call("eth_chainId"), "/key")
        assert ask.node.count() == 3

    def test_a_field_that_is_named(self, ask):
        for token in ["a", "b", "a", "b"]:
            ask(call("eth_chainId"), "/named", headers=[("x-api-key", token)])
        ask(call("eth_chainId"), "/named")
        assert ask.node.count() == 3
        # nothing is said of these
        for header in [("Authorization", "a"), ("Cookie", "a=b")] * 2:
            ask(call("eth_chainId"), "/named", headers=[header, ("X-Api-Key", "a")])
        assert ask.node.count() == 7

    def test_followers_wait_for_their_own_leader(self, ask, nginx):
        """Nobody gets what another one has asked for, while it is on its way either."""
        number = itertools.count(1)
        node = ask.serve({"eth_gasPrice": lambda _: b'"0x%x"' % next(number)})
        gate = node.gates["eth_gasPrice"] = threading.Event()
        said = {}

        def one(client, token):
            answer = ask(call("eth_gasPrice"), "/named", headers=[("X-Api-Key", token)])
            said[client] = result_of(answer)

        clients = [threading.Thread(target=one, args=(n, "abc"[n % 3])) for n in range(9)]
        for client in clients:
            client.start()
        wait_for_followers(nginx, 6)
        gate.set()
        for client in clients:
            client.join(20)
        assert len(said) == 9 and node.count() == 3
        assert [len({said[n] for n in range(of, 9, 3)}) for of in range(3)] == [1, 1, 1]
        assert len(set(said.values())) == 3


class TestPredicates:
    def test_bypass_refreshes(self, ask, nginx):
        code = call("eth_getBlockByHash", BY_HASH)
        ask.serve({"eth_getBlockByHash": b'"0x1"'})
        ask(code, "/bypass")
        ask.serve({"eth_getBlockByHash": b'"0x2"'})
        assert result_of(ask(code, "/bypass")) == "0x1"
        assert result_of(ask(code, "/bypass?bypass=1")) == "0x2"
        assert result_of(ask(code, "/bypass")) == "0x2"
        assert ask.node.count() == 1

    def test_no_cache(self, ask):
        ask(call("eth_chainId"), "/no-store?bypass=1")
        ask(call("eth_chainId"), "/no-store")
        ask(call("eth_chainId"), "/no-store?bypass=1")
        assert ask.node.count() == 2


class TestAccessControl:
    """A hit is still refused where the request is."""

    def test_deny(self, ask):
        ask(call("eth_chainId"), "/")
        assert ask(call("eth_chainId"), "/").header("Cache-Status").startswith("sszip; hit")
        assert ask(call("eth_chainId"), "/denied").status == 403

    @pytest.mark.parametrize("status", [401, 403])
    def test_auth_request(self, ask, origin, status):
        ask(call("eth_chainId"), "/")
        origin.answers([f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()], "/auth")
        assert ask(call("eth_chainId"), "/guarded").status == status
        origin.answers([b"HTTP/1.1 204 Yes\r\n\r\n"], "/auth")
        assert ask(call("eth_chainId"), "/guarded").header("Cache-Status").startswith("sszip; hit")


class TestCors:
    def test_fields_are_carried(self, ask):
        ask.serve({"eth_chainId": SMALL}, headers=[("Access-Control-Allow-Origin", "*"), ("Eth-X", "1"), ("X-Own", "1")])
        ask(call("eth_chainId"))
        hit = ask(call("eth_chainId"))
        assert ask.node.count() == 1
        assert hit.header("Access-Control-Allow-Origin") == "*"
        assert hit.header("Eth-X") == "1"
        assert hit.all("X-Own") == []

    @pytest.mark.parametrize("says_so", [True, False])
    def test_origins_never_get_each_others_answer(self, ask, origin, says_so):
        def respond(request):
            own = request.header("Origin")
            headers = [("Access-Control-Allow-Origin", own)] + ([("Vary", "Origin")] if says_so else [])
            return Node({"eth_chainId": SMALL}, headers=headers)(request)

        counter = []
        origin.answers(lambda request: counter.append(1) or respond(request))
        for _ in range(3):
            for site in ("https://a", "https://b"):
                response = ask(call("eth_chainId"), headers=[("Origin", site)])
                assert response.header("Access-Control-Allow-Origin") == site
        assert len(counter) <= 3  # the first answer teaches what they depend on

    def test_vary_is_merged(self, ask, nginx):
        ask.serve({"eth_getBlockByHash": LARGE}, headers=[("Vary", "Origin")])
        for path in (None, "/vary"):
            for _ in range(3):
                arguments = [call("eth_getBlockByHash", BY_HASH)] + ([path] if path else [])
                response = ask(*arguments)
                assert sorted(response.header("Vary").split(", ")) == ["Accept-Encoding", "Origin"]


class TestCoalescing:
    def test_many_ask_once(self, ask, nginx):
        gate = ask.node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []

        def run(number):
            answers.append((number, ask(call("eth_getBlockByHash", BY_HASH, str(number)))))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 19)
        gate.set()
        for thread in threads:
            thread.join()
        assert ask.node.count() == 1 and len(answers) == 20
        for number, response in answers:
            assert json.loads(response.decoded)["id"] == number

    def test_a_leader_whose_client_goes_takes_nothing_from_the_others(self, ask, nginx, origin):
        body = call("eth_getBlockByHash", BY_HASH)
        gate = ask.node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []
        with nginx.connect() as leader:
            leader.send(request_bytes(ask.path, method="POST", headers=[JSON, ("Accept-Encoding", "gzip")], body=body))
            nginx.wait_for(lambda: ask.node.count() >= 1, "the leader")
            threads = [threading.Thread(target=lambda: answers.append(ask(body))) for _ in range(5)]
            for thread in threads:
                thread.start()
            wait_for_followers(nginx, 5)
            leader.reset()
        # the worker has seen it when it answers what came later
        for _ in range(2):
            assert waiting_requests(nginx) == 5
        gate.set()
        for thread in threads:
            thread.join()
        assert [json.loads(a.decoded)["result"] for a in answers] == [json.loads(LARGE)] * 5
        assert ask.node.count() == 1

    def test_an_answer_that_is_not_kept_frees_those_who_wait(self, ask, nginx):
        ask.serve({"eth_getTransactionReceipt": b"null"})
        gate = ask.node.gates["eth_getTransactionReceipt"] = threading.Event()
        answers = []
        body = call("eth_getTransactionReceipt", f"[{HASH}]")
        threads = [threading.Thread(target=lambda: answers.append(ask(body))) for _ in range(6)]
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

    def test_answers_that_came_one_by_one_make_a_batch(self, ask):
        calls = [call("eth_getBlockByHash", BY_HASH, "1"), call("eth_chainId", "[]", '"x"')]
        for one in calls:
            ask(one)
        assert ask.node.count() == 2
        for accept in ("gzip", None):
            response = ask(self.batch(*calls, calls[0]), accept=accept)
            answers = json.loads(response.decoded)
            assert [a["id"] for a in answers] == [1, "x", 1]
            assert response.length == len(response.body)
        assert ask.node.count() == 2

    def test_answers_that_came_in_a_batch_are_kept_one_by_one(self, ask):
        ask(self.batch(call("eth_getBlockByHash", BY_HASH, "1"), call("eth_chainId", "[]", "2")))
        assert ask.node.count() == 2
        assert result_of(ask(call("eth_chainId", "[]", "9"))) == "0x10"
        ask(call("eth_getBlockByHash", BY_HASH, '"y"'))
        assert ask.node.count() == 2

    def test_ids_that_are_there_twice_are_not_told_apart(self, ask):
        ask.serve({"eth_chainId": b'"0x1"', "eth_syncing": b"false", "eth_blockNumber": b'"0x9"'})
        ask(self.batch(call("eth_chainId", "[]", "1"), call("eth_blockNumber", "[]", "1"), call("eth_syncing", "[]", "1")))
        assert result_of(ask(call("eth_chainId"))) == "0x1"
        assert result_of(ask(call("eth_blockNumber"))) == "0x9"
        assert ask.node.count() == 5


class TestMixedBatches:
    """The node gets what is missing, the client gets all, in its order."""

    CALLS = [
        call("eth_syncing", "[]", "1"),
        call("eth_getBlockByHash", BY_HASH, '"two"'),
        call("eth_blockNumber", "[]", "3"),
        call("eth_chainId", "[]", "4"),
    ]
    IDS = [1, "two", 3, 4]

    @pytest.fixture
    def ask(self, ask):
        ask.serve(
            {"eth_getBlockByHash": LARGE, "eth_chainId": SMALL, "eth_syncing": b"false", "eth_blockNumber": b'"0x9"'}
        )
        for stored in (self.CALLS[1], self.CALLS[3]):
            ask(stored)
        ask.node.asked.clear()
        return ask

    def batch(self, *calls):
        return b"[" + b",".join(calls or self.CALLS) + b"]"

    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_order_is_kept(self, ask, accept, framing):
        ask.node.options["framing"] = framing
        response = ask(self.batch(), accept=accept)
        answers = json.loads(response.decoded)
        assert [a["id"] for a in answers] == self.IDS
        assert [a["result"] for a in answers] == [False, json.loads(LARGE), "0x9", "0x10"]
        assert [c["method"] for c in ask.node.asked] == ["eth_syncing", "eth_blockNumber"]
        assert response.coding == accept
        assert response.length == len(response.body)

    def test_what_was_missing_is_kept(self, ask):
        ask(self.batch())
        ask(self.batch())
        assert [c["method"] for c in ask.node.asked] == ["eth_syncing", "eth_blockNumber"] * 2

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_answers_in_another_order(self, ask, accept):
        ask.node.reverses = True
        answers = json.loads(ask(self.batch(), accept=accept).decoded)
        assert [a["id"] for a in answers] == self.IDS

    def test_an_answer_is_missing(self, ask, origin):
        origin.answers(answer(b'[{"jsonrpc":"2.0","id":3,"result":"0x9"}]'))
        answers = json.loads(ask(self.batch()).decoded)
        assert [a["id"] for a in answers] == ["two", 3, 4]

    def test_an_answer_that_nobody_asked_for(self, ask, origin):
        origin.answers(answer(b'[{"jsonrpc":"2.0","id":null,"error":{"code":1}},{"jsonrpc":"2.0","id":1,"result":1}]'))
        answers = json.loads(ask(self.batch()).decoded)
        assert [a["id"] for a in answers] == [1, "two", 4, None]

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_an_array_that_is_not_understood(self, ask, origin, accept):
        origin.answers(answer(b'[{"jsonrpc":"2.0","id":1,"result":1,"more":2},{"id":3}]\n'))
        answers = json.loads(ask(self.batch(), accept=accept).decoded)
        assert [a["id"] for a in answers] == self.IDS
        # the node's answer as it came, and an element that is none
        assert answers[0] == {"jsonrpc": "2.0", "id": 1, "result": 1, "more": 2}
        assert answers[2] == {"id": 3}

    @pytest.mark.parametrize("status", [200, 413, 429, 500])
    def test_one_error_for_the_whole_batch(self, ask, origin, status):
        error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"too many"}}'
        origin.answers(answer(error, status=status))
        response = ask(self.batch())
        assert response.status == status
        answers = json.loads(response.decoded)
        assert [a["id"] for a in answers] == self.IDS
        for called, one in zip(self.IDS, answers, strict=True):
            if called in (1, 3):
                assert one["error"] == json.loads(error)["error"]
            else:
                assert "result" in one

    def test_a_node_that_is_cut(self, ask, origin):
        body = b'[{"jsonrpc":"2.0","id":1,"result":false},{"jsonrpc":"2.0","id":3,"result":"0x9"}]'
        origin.answers(answer(body, cut_at=60))
        response = ask(self.batch())
        assert response.status == 200
        answers = json.loads(response.decoded)
        assert [one["id"] for one in answers] == self.IDS
        by_id = {json.dumps(one["id"]): one for one in answers}
        assert by_id["1"]["result"] is False
        assert by_id["3"]["error"]["code"] == -32603
        assert all("result" in by_id[json.dumps(id)] for id in self.IDS if id != 3)

    @pytest.mark.parametrize("coding", ["gzip", "br"])
    def test_a_node_that_codes_all_the_same(self, ask, origin, coding):
        body = b'[{"jsonrpc":"2.0","id":1,"result":false},{"jsonrpc":"2.0","id":3,"result":"0x9"}]'
        if coding == "gzip":
            origin.answers(answer(body, coding="gzip"))
            assert [a["id"] for a in json.loads(ask(self.batch()).decoded)] == self.IDS
        else:
            # a location of its own: its batches are not split from then on
            for stored in (self.CALLS[1], self.CALLS[3]):
                ask(stored, "/coded")
            origin.answers(answer(body, headers=[("Content-Encoding", "br")]))
            answers = json.loads(ask(self.batch(), "/coded").decoded)
            assert [a["id"] for a in answers] == self.IDS
            assert [a.get("error", {}).get("code") for a in answers] == [-32603, None, -32603, None]

    @pytest.mark.parametrize("framing", ["length", "chunked"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_an_answer_that_is_too_long_to_be_held(self, ask, origin, framing, accept):
        ask(self.CALLS[1], "/held"), ask(self.CALLS[3], "/held")
        asked = json.dumps([{"jsonrpc": "2.0", "id": id, "result": "x" * 100000} for id in (1, 3)]).encode()
        split = lambda body: [body[i : i + 7000] for i in range(0, len(body), 7000)]  # noqa: E731
        origin.answers(answer(b" \n" + asked, framing=framing, split=split))
        response = ask(self.batch(), "/held", accept)
        assert [a["id"] for a in json.loads(response.decoded)] == ["two", 4, 1, 3]

    def test_ids_that_are_there_twice_go_to_the_node(self, ask):
        ask(self.batch(self.CALLS[1], call("eth_syncing", "[]", '"two"')))
        assert ask.node.count() == 2

    def test_notifications_go_to_the_node(self, ask):
        ask(self.batch(self.CALLS[1], b'{"jsonrpc":"2.0","method":"eth_syncing","params":[]}'))
        assert ask.node.count() == 2

    def test_the_next_upstream_gets_the_same(self, ask):
        for stored in (self.CALLS[1], self.CALLS[3]):
            ask(stored, "/next")
        ask.node.asked.clear()
        answers = json.loads(ask(self.batch(), "/next").decoded)
        assert [a["id"] for a in answers] == self.IDS
        assert [c["method"] for c in ask.node.asked] == ["eth_syncing", "eth_blockNumber"]

    def test_a_node_that_is_asked_all_the_same(self, ask):
        for stored in (self.CALLS[1], self.CALLS[3]):
            ask(stored, "/set-body")
        answers = json.loads(ask(self.batch(), "/set-body").decoded)
        assert [a["id"] for a in answers] == self.IDS

    def test_batches_beyond_the_limit(self, ask):
        for stored in (self.CALLS[1], self.CALLS[3]):
            ask(stored, "/few")
        ask.node.asked.clear()
        ask(self.batch(), "/few")
        assert ask.node.count() == 4


class TestLargeAnswersInIdentity:
    """What is stored coded is decoded off the event loop."""

    RESULT = b'"0x' + bodies.json(600000).hex().encode() + b'"'

    @pytest.fixture
    def stored(self, ask):
        ask.serve({"eth_getBlockByHash": self.RESULT})
        ask(call("eth_getBlockByHash", BY_HASH))
        return ask

    def test_each_gets_its_own(self, stored):
        for id in range(5):
            hit = stored(call("eth_getBlockByHash", BY_HASH, str(id)), accept=None)
            assert (hit.coding, hit.length) == (None, len(hit.body))
            assert json.loads(hit.body) == {"jsonrpc": "2.0", "id": id, "result": json.loads(self.RESULT)}
        assert stored.node.count() == 1

    def test_many_at_once(self, stored):
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
    def test_in_a_batch(self, stored, missing, at_once):
        """Alone and together with what the node has to be asked for.

        What is to be put together with the node's answers must have been read:
        here by the first hit."""
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

    def test_clients_that_go_away(self, stored, nginx):
        for number in range(30):
            with nginx.connect() as connection:
                connection.send(
                    request_bytes(stored.path, method="POST", headers=[JSON], body=call("eth_getBlockByHash", BY_HASH))
                )
                connection.reset() if number % 2 else connection.close()
        assert result_of(stored(call("eth_getBlockByHash", BY_HASH), accept=None)) == json.loads(self.RESULT)
        assert stored.node.count() == 1

    @pytest.mark.parametrize("path", ["/no-threads"])
    def test_without_threads(self, stored, path):
        for _ in range(3):
            assert result_of(stored(call("eth_getBlockByHash", BY_HASH), path, None)) == json.loads(self.RESULT)
        assert stored.node.count() == 2


def test_small_answers_in_chunks_are_kept_too(ask):
    ask.serve({"eth_chainId": SMALL}, framing="chunked")
    for _ in range(3):
        assert result_of(ask(call("eth_chainId"))) == "0x10"
    assert ask.node.count() == 1


def test_a_client_that_wants_nothing_stored(ask):
    for _ in range(2):
        ask(call("eth_chainId"), headers=[("Cache-Control", "no-store")])
    assert ask.node.count() == 2
    ask(call("eth_chainId"))
    ask(call("eth_chainId"), headers=[("Cache-Control", "no-store")])
    assert ask.node.count() == 3


def test_no_transform_is_obeyed_by_hits(ask):
    ask(call("eth_getBlockByHash", BY_HASH))
    hit = ask(call("eth_getBlockByHash", BY_HASH), headers=[("Cache-Control", "no-transform")])
    assert (hit.coding, result_of(hit)) == (None, json.loads(LARGE))
    assert ask.node.count() == 1

"""Stored responses and other features of nginx: access control comes first, and a
redirected request gets the same response as without a cache."""

import base64
import json
import threading

import pytest

from harness.client import gunzip, request_bytes
from harness.guards import GUARD_SECONDS
from harness.http2 import Http2Client
from harness.origin import answer
from harness.rpc import Node, call
from harness.nginx_state import wait_for_followers

SMALL = b'"0x10"'
LARGE = b'"0x' + b"ab" * 20000 + b'"'
HASH = '"0x' + "ab" * 32 + '"'
BY_HASH = f"[{HASH},true]"
JSON = ("Content-Type", "application/json")
BASIC = ("Authorization", "Basic " + base64.b64encode(b"joe:secret").decode())

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
sszip_cache_valid tip 1h;
sszip_cache_valid unfinalized 1h;
# longer than any client of these tests waits: who is stuck fails its test
sszip_cache_lock_timeout 60s;
proxy_http_version 1.1;
limit_req_zone $uri zone=requests:1m rate=1r/m;
limit_conn_zone $uri zone=connections:1m;
upstream two { server 127.0.0.1:@port_closed@ max_fails=0; server @origin@ max_fails=0; }
upstream dead { server 127.0.0.1:@port_closed@ max_fails=0; }
server {
    listen 127.0.0.1:@port@;
    listen 127.0.0.1:@port_h2@ http2;
    location / { proxy_pass http://@origin@; }

    location /denied { deny all; proxy_pass http://@origin@; }
    location /basic { auth_basic x; auth_basic_user_file @prefix@/users; sszip_cache_credentials ignore; proxy_pass http://@origin@; }
    location /any { satisfy any; deny all; auth_request /auth; proxy_pass http://@origin@; }
    location /all { satisfy all; allow all; auth_request /auth; proxy_pass http://@origin@; }
    location /guarded { auth_request /auth; proxy_pass http://@origin@; }
    location = /auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_pass http://@origin@; }
    location /limited { limit_req zone=requests; limit_req_status 429; proxy_pass http://@origin@; }
    location /few { limit_conn connections 1; limit_conn_status 429; proxy_pass http://@origin@; }
    location /few-uncached { sszip_cache off; limit_conn connections 1; limit_conn_status 429; proxy_pass http://@origin@; }
    location /if { if ($arg_stop) { return 403; } proxy_pass http://@origin@; }
    location /except { limit_except GET { deny all; } proxy_pass http://@origin@; }
    location /exact-size { client_max_body_size 100; proxy_pass http://@origin@; }

    location /by-subrequest { auth_request /inner; proxy_pass http://@origin@; }
    location /inner { proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_pass http://@origin@; }
    location /mirrored { mirror /copy; proxy_pass http://@origin@; }
    location = /copy { internal; proxy_pass http://@origin@/copy; }
    location /page { sszip_cache_namespace page; ssi on; ssi_types *; proxy_pass http://@origin@; }
    location /framed { add_before_body /part; addition_types *; proxy_pass http://@origin@; }
    location /part { proxy_pass http://@origin@; }

    location /fallback { proxy_pass http://dead; error_page 502 = @node; }
    location /fallback-uncached { proxy_pass http://dead; error_page 502 = @plain; }
    location /intercepted { proxy_intercept_errors on; proxy_pass http://@origin@; error_page 500 502 503 = @node; }
    location @node { proxy_pass http://@origin@; }
    location @plain { sszip off; sszip_cache off; proxy_pass http://@origin@; }
    location @closed { deny all; proxy_pass http://@origin@; }
    location /tried { try_files /nothing @node; }
    location /tried-closed { try_files /nothing @closed; }
    location /rewritten { rewrite ^ /target last; }
    location /target { proxy_pass http://@origin@; }
    location /next { proxy_next_upstream error timeout; proxy_pass http://two; }
    location /tiny { client_body_buffer_size 16; proxy_pass http://@origin@; }
    location /unbuffered { proxy_request_buffering off; proxy_pass http://@origin@; }
    location = /sszip-status { sszip_status on; }
    location /posted { post_action /after; proxy_pass http://@origin@; }
    location = /after { internal; sszip_cache off; proxy_pass http://@origin@/after; }
}
"""
OPTIONS = {"files": {"users": b"joe:{PLAIN}secret\n"}}

CHAIN = call("eth_chainId")
BLOCK = call("eth_getBlockByHash", BY_HASH, "2")


def post(client, path, fields, body):
    """The decoded response to a POST over HTTP/2."""
    stream = client.h2.get_next_available_stream_id()
    head = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "localhost"), *fields]
    client.h2.send_headers(stream, head)
    client.h2.send_data(stream, body, end_stream=True)
    client.bodies[stream] = bytearray()
    client.flush()
    client.finish(stream)
    received = client.heads[stream]
    assert (received[":status"], int(received["content-length"])) == ("200", len(client.bodies[stream]))
    answer = bytes(client.bodies[stream])
    return gunzip(answer) if received.get("content-encoding") == "gzip" else answer


def is_hit(response):
    return (response.header("Cache-Status") or "").startswith("sszip; hit")


@pytest.fixture
def node(origin):
    node = Node({"eth_chainId": SMALL, "eth_getBlockByHash": LARGE, "eth_syncing": b"false", "eth_blockNumber": b'"0x9"'})
    origin.answers(node)
    return node


@pytest.fixture
def stored(nginx, node):
    """Responses that all locations of the namespace share."""
    for body in (CHAIN, BLOCK):
        nginx.post("/", body)
    assert is_hit(nginx.post("/", CHAIN)) and is_hit(nginx.post("/", BLOCK))
    node.received_calls.clear()
    return node


class TestRefusal:
    """A hit is rejected where a request would be."""

    def test_hit_is_rejected_by_deny(self, nginx, stored):
        assert nginx.post("/denied", CHAIN).status == 403

    def test_hit_is_rejected_by_limit_except(self, nginx, stored):
        assert nginx.post("/except", CHAIN).status == 403

    def test_hit_requires_the_password_of_auth_basic(self, nginx, stored):
        assert nginx.post("/basic", CHAIN).status == 401
        assert nginx.post("/basic", CHAIN, headers=[("Authorization", "Basic am9lOng=")]).status == 401
        for _ in range(2):
            response = nginx.post("/basic", CHAIN, headers=[BASIC])
        assert response.status == 200 and is_hit(response)

    @pytest.mark.parametrize("path, status", [("/any", 403), ("/any", 401), ("/all", 401), ("/guarded", 403)])
    def test_hit_requires_auth_request_with_any_satisfy(self, nginx, stored, origin, path, status):
        origin.answers([b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status], "/auth")
        assert nginx.post(path, CHAIN).status in (401, 403)
        origin.answers([b"HTTP/1.1 204 Yes\r\n\r\n"], "/auth")
        assert is_hit(nginx.post(path, CHAIN))
        assert stored.count() == 0

    def test_hits_are_limited_by_limit_req(self, nginx, stored):
        uri = "/limited"
        statuses = [nginx.post(uri, CHAIN).status for _ in range(3)]
        assert statuses == [200, 429, 429]

    def test_hit_is_rejected_when_limit_conn_is_reached(self, nginx, stored):
        gate = stored.gates["eth_syncing"] = threading.Event()
        with nginx.connect() as busy:
            busy.send(request_bytes("/few", method="POST", headers=[JSON], body=call("eth_syncing")))
            nginx.wait_for(lambda: stored.count("eth_syncing"), "the first")
            assert nginx.post("/few", CHAIN).status == 429
            gate.set()
            busy.read()

    def test_limit_conn_counts_requests_whose_client_has_aborted(self, nginx, node):
        """The call of such a request is still at the node: decision 144."""
        blocks = [call("eth_getBlockByHash", f'["0x{0x144000 + number:064x}",true]') for number in range(8)]
        gate = node.gates["eth_getBlockByHash"] = threading.Event()
        with nginx.connect() as leaving:
            leaving.send(request_bytes("/few", method="POST", headers=[JSON], body=blocks[0]))
            nginx.wait_for(lambda: node.count(), "the first")
        assert [nginx.post("/few", block).status for block in blocks[1:]] == [429] * 7
        assert node.count() == 1
        gate.set()
        nginx.wait_for(lambda: nginx.post("/few", blocks[1]).status == 200, "the slot")
        assert is_hit(nginx.post("/few", blocks[0]))

    def test_limit_conn_releases_uncached_requests_when_their_client_aborts(self, nginx, node):
        gate = node.gates["eth_getBlockByHash"] = threading.Event()
        with nginx.connect() as leaving:
            leaving.send(request_bytes("/few-uncached", method="POST", headers=[JSON], body=BLOCK))
            nginx.wait_for(lambda: node.count(), "the first")
        nginx.wait_for(lambda: nginx.post("/few-uncached", CHAIN).status == 200, "the slot")
        gate.set()

    def test_hit_is_rejected_by_return_in_if(self, nginx, stored):
        assert nginx.post("/if?stop=1", CHAIN).status == 403
        assert is_hit(nginx.post("/if?", CHAIN))

    def test_hit_is_rejected_when_the_request_exceeds_client_max_body_size(self, nginx, stored):
        assert is_hit(nginx.post("/exact-size", CHAIN))
        assert nginx.post("/exact-size", BLOCK).status == 413


class TestParts:
    """Subrequests neither receive nor create stored responses."""

    @pytest.mark.parametrize("status", [204, 403])
    def test_auth_request_to_a_cached_location_is_forwarded(self, nginx, stored, origin, status):
        origin.answers([b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status], "/inner")
        response = nginx.post("/by-subrequest", CHAIN)
        assert response.status == (200 if status == 204 else 403)
        assert len(origin.received("/inner")) == 1

    def test_mirrored_request_has_the_body_of_the_client(self, nginx, origin, node):
        body = call("eth_getBlockByHash", f'["0x{"cd" * 32}",true]')
        first = nginx.post("/mirrored", body)
        assert first.decoded == nginx.post("/mirrored", body).decoded
        nginx.wait_for(lambda: origin.received("/copy"), "the mirrored request")
        assert {request.body for request in origin.received("/copy")} == {body}

    def test_mirrored_batch_is_not_split(self, nginx, stored, origin):
        body = b"[" + CHAIN + b"," + call("eth_syncing", "[]", "9") + b"]"
        response = nginx.post("/mirrored", body)
        assert [a["id"] for a in json.loads(response.decoded)] == [1, 9]
        nginx.wait_for(lambda: origin.received("/copy"), "the mirrored request")
        assert [request.body for request in origin.received("/copy")] == [body]

    def test_response_with_an_ssi_include_is_not_stored(self, nginx, origin, node):
        page = b'{"jsonrpc":"2.0","id":1,"result":"<!--# include virtual="/part" -->"}'
        origin.answers(answer(page, type="text/html"), "/page")
        origin.answers(answer(b"0x77", type="text/html"), "/part")
        for _ in range(2):
            response = nginx.post("/page", CHAIN, accept=None)
            assert response.decoded == b'{"jsonrpc":"2.0","id":1,"result":"0x77"}'
        # and no other request gets that response
        origin.answers(node)
        assert json.loads(nginx.post("/", CHAIN).decoded)["result"] == "0x10"

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_add_before_body_is_sent_before_a_hit(self, nginx, stored, origin, accept):
        origin.answers(answer(b"front "), "/part")
        response = nginx.post("/framed", CHAIN, accept)
        assert response.decoded == b"front " + nginx.post("/", CHAIN, accept).decoded


class TestWaysOn:
    """A redirected request is looked up in the target location, does not wait for
    itself, and keeps its whole body."""

    BATCH = b"[" + CHAIN + b"," + call("eth_syncing", "[]", "7") + b"," + BLOCK + b"]"

    def post(self, nginx, path, body, **options):
        with nginx.connect(timeout=30) as connection:  # less than the lock timeout
            connection.send(request_bytes(path, method="POST", headers=[JSON], body=body))
            return connection.read("POST")

    @pytest.mark.parametrize("path", ["/fallback", "/fallback-uncached", "/tried", "/rewritten", "/next", "/intercepted"])
    def test_miss_gets_the_response_of_the_location_it_is_redirected_to(self, nginx, node, origin, path):
        if path == "/intercepted":
            broken = [b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"]
            origin.answers(lambda request: broken if len(origin.received(path)) == 1 else node(request), path)
        number = sum(path.encode())
        body = call("eth_getBlockByHash", f'["0x{number:064x}",true]', "5")
        for _ in range(2):
            response = self.post(nginx, path, body)
            assert (response.status, response.decoded) == (200, b'{"jsonrpc":"2.0","id":5,"result":%b}\n' % LARGE)

    @pytest.mark.parametrize("path", ["/fallback", "/fallback-uncached", "/tried", "/rewritten", "/next", "/intercepted", "/tiny", "/unbuffered"])
    def test_split_batch_is_merged_when_it_is_redirected(self, nginx, stored, origin, path):
        if path == "/intercepted":
            broken = [b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"]
            origin.answers(lambda request: broken if len(origin.received(path)) == 1 else stored(request), path)
        for _ in range(2):
            response = self.post(nginx, path, self.BATCH)
            assert response.status == 200
            answers = json.loads(response.decoded)
            assert [(a["id"], a["result"]) for a in answers] == [(1, "0x10"), (7, False), (2, json.loads(LARGE))]

    def test_hit_is_rejected_when_its_redirect_target_denies_it(self, nginx, stored):
        assert nginx.post("/tried-closed", CHAIN).status == 403

    def test_followers_get_the_response_when_the_leader_is_redirected(self, nginx, node):
        body = call("eth_getBlockByHash", f'["0x{"ef" * 32}",true]')
        gate = node.gates["eth_getBlockByHash"] = threading.Event()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.post(nginx, "/fallback", body))) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 4)
        gate.set()
        for thread in threads:
            thread.join()
        assert [a.status for a in answers] == [200] * 5
        assert {a.decoded for a in answers} == {b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % LARGE}

    def test_follower_runs_its_post_action_when_its_client_aborts(self, nginx, node, origin):
        """The request is redirected to another location when it is woken."""
        body = call("eth_getBlockByHash", f'["0x{"fe" * 32}",true]')
        gate = node.gates["eth_getBlockByHash"] = threading.Event()
        after = threading.Event()
        origin.answers(lambda request: after.wait(GUARD_SECONDS) and [b"HTTP/1.1 204 No\r\n\r\n"], "/after")
        answers = []
        leader = threading.Thread(target=lambda: answers.append(self.post(nginx, "/", body)))
        leader.start()
        nginx.wait_for(lambda: node.count(), "the leader")
        with nginx.connect() as waiting:
            waiting.send(request_bytes("/posted", method="POST", headers=[JSON], body=body))
            wait_for_followers(nginx, 1)
        nginx.wait_for(lambda: origin.received("/after"), "the action")
        gate.set()
        leader.join()
        after.set()
        assert answers[0].status == 200
        assert len(origin.received("/posted")) == 0


class TestBodies:
    def test_request_body_in_a_file_is_forwarded(self, nginx, stored):
        for _ in range(2):
            with nginx.connect() as connection:
                connection.send(request_bytes("/tiny", method="POST", headers=[JSON, ("Content-Length", str(len(BLOCK)))]))
                threading.Event().wait(0.05)
                connection.send(BLOCK)
                response = connection.read("POST")
            assert json.loads(response.decoded)["id"] == 2 and not is_hit(response)
        assert stored.count() == 2

    @pytest.mark.parametrize("size", [1, 7, 1000])
    def test_chunked_request_is_looked_up(self, nginx, stored, size):
        for body, hits in ((CHAIN, True), (BLOCK, True), (call("eth_syncing"), False)):
            pieces = [body[i : i + size] for i in range(0, len(body), size)]
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            with nginx.connect() as connection:
                head = request_bytes("/", method="POST", headers=[JSON, ("Transfer-Encoding", "chunked")])
                for part in (head, chunks[:9], chunks[9:]):
                    connection.send(part)
                    threading.Event().wait(0.01)
                response = connection.read("POST")
                assert is_hit(response) == hits and json.loads(response.decoded)["result"] is not None
                # the connection is kept
                assert is_hit(connection.exchange("/", method="POST", headers=[JSON], body=CHAIN))

    def test_chunked_batch_is_split(self, nginx, stored):
        body = TestWaysOn.BATCH
        with nginx.connect() as connection:
            connection.send(request_bytes("/", method="POST", headers=[JSON, ("Transfer-Encoding", "chunked")]))
            connection.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            assert [a["id"] for a in json.loads(connection.read("POST").decoded)] == [1, 7, 2]
        assert [c["method"] for c in stored.received_calls] == ["eth_syncing"]

    def test_request_with_expect_continue_is_a_hit(self, nginx, stored):
        with nginx.connect() as connection:
            head = request_bytes("/", method="POST", headers=[JSON, ("Expect", "100-continue"), ("Content-Length", str(len(CHAIN)))])
            connection.send(head)
            interim = connection.read_head()
            assert interim.status == 100
            connection.send(CHAIN)
            assert is_hit(connection.read("POST"))

    @pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT"])
    def test_request_other_than_post_is_forwarded(self, nginx, stored, origin, method):
        script = [b"HTTP/1.1 204 Fine\r\nAccess-Control-Allow-Origin: https://a\r\n\r\n"]
        origin.answers(script, "/")
        body = CHAIN if method in ("OPTIONS", "PUT") else None
        for _ in range(2):
            response = nginx.get("/", method=method, body=body, headers=[JSON, ("Origin", "https://a")])
            assert (response.status, response.header("Cache-Status")) == (204, None) or not is_hit(response)
        assert len(origin.received("/")) >= 2


class TestConnections:
    def test_connection_is_kept_for_many_hits(self, nginx, stored):
        with nginx.connect() as connection:
            for number in range(50):
                body = call(*(("eth_chainId", "[]") if number % 2 else ("eth_getBlockByHash", BY_HASH)), str(number))
                response = connection.exchange("/", method="POST", headers=[JSON, ("Accept-Encoding", "gzip")], body=body)
                assert is_hit(response) and json.loads(response.decoded)["id"] == number

    def test_pipelined_requests_are_answered_in_order(self, nginx, stored):
        """Hits, misses and other methods, all sent at once."""
        calls = []
        for number in range(40):
            method, params = [("eth_chainId", "[]"), ("eth_getBlockByHash", BY_HASH), ("eth_syncing", "[]")][number % 3]
            calls.append(call(method, params, str(number)))
        with nginx.connect() as connection:
            connection.send(b"".join(request_bytes("/", method="POST", headers=[JSON], body=body) for body in calls))
            for number in range(40):
                response = connection.read("POST")
                assert json.loads(response.decoded)["id"] == number
                assert is_hit(response) == (number % 3 != 2)

    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_calls_and_batches_are_hits_over_http2(self, nginx, stored, accept):
        with Http2Client(nginx.ports["port_h2"]) as client:
            for body, id in ((CHAIN, 1), (BLOCK, 2), (TestWaysOn.BATCH, None)):
                fields = [("content-type", "application/json")] + ([("accept-encoding", accept)] if accept else [])
                response = post(client, "/", fields, body)
                answers = json.loads(response)
                assert (answers["id"] if id else [a["id"] for a in answers]) == (id or [1, 7, 2])
        assert [c["method"] for c in stored.received_calls] == ["eth_syncing"]

    def test_slow_client_gets_a_large_batch_of_hits(self, nginx, stored):
        body = b"[" + b",".join(call("eth_getBlockByHash", BY_HASH, str(n)) for n in range(60)) + b"]"
        with nginx.connect(receive_buffer=4096) as connection:
            connection.send(request_bytes("/", method="POST", headers=[JSON], body=body))
            threading.Event().wait(0.2)
            response = connection.read("POST")
        assert is_hit(response)
        assert [a["id"] for a in json.loads(response.decoded)] == list(range(60))

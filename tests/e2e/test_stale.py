"""Stale responses: sent when the node fails, and while another request fetches a new
response."""

import collections
import itertools
import json
import threading

import pytest

from harness import bodies, client
from harness.nginx_state import wait_until_expired
from harness.origin import CLOSE, RESET, CloseWithoutResponse, WaitFor, answer
from harness.owner import owner_of, wait_until_linked
from harness.rpc import Node, call


WORDS = ["error", "timeout", "invalid_header", "updating"] + [
    f"http_{status}" for status in (403, 404, 429, 500, 502, 503, 504)
]

# every stored response has expired when it is requested again
CONFIG = """
log_format stale '$uri $sszip_cache_status $sszip_mode';
sszip on;
sszip_cache on;
sszip_cache_namespace $arg_chain;
sszip_cache_valid tip 1ms;
sszip_cache_valid immutable 1ms;
proxy_http_version 1.1;
map $http_down $node { default @origin@; 1 127.0.0.1:@port_closed@; }
upstream none { server unix:@prefix@/nobody.sock; }
map $http_down $group { default @origin@; 1 none; }
server {
    listen 127.0.0.1:@port@;
    access_log @prefix@/stale.log stale;
    location / { proxy_pass http://$node; }
    @purge@
    @words@
    location /off { sszip_cache_use_stale error off; proxy_pass http://$node; }
    location /all {
        sszip_cache_use_stale error timeout invalid_header updating http_500 http_502 http_503 http_504 http_403 http_404 http_429;
        proxy_pass http://$node;
        location /all/slow { proxy_pass http://@origin@; }
        location /all/unlocked { sszip_cache_lock off; proxy_pass http://@origin@; }
        location /all/group { proxy_pass http://$group; }
    }
    location /pages {
        sszip_cache_use_stale error timeout http_503;
        error_page 502 503 504 /page;
        proxy_pass http://$group;
        location /pages/intercepted { proxy_intercept_errors on; proxy_pass http://$node; }
        location /pages/tcp { proxy_pass http://$node; }
    }
    location = /page { sszip off; return 200 "the page"; }
}
"""
WITH_A_STORE = CONFIG = CONFIG.replace(
    "@words@",
    "\n    ".join(
        f"location /{w} {{ sszip_cache_use_stale {w}; proxy_pass http://$node;"
        # for a node that hangs: one that is only slow is waited for
        f" location /{w}/hangs {{ proxy_read_timeout 300ms; proxy_pass http://$node; }} }}"
        for w in WORDS
    ),
)

CONFIG = WITH_A_STORE.replace("@purge@", "")

HASH = '"0x' + "ab" * 32 + '"'
LARGE = b'"0x' + bodies.json(30000).hex().encode() + b'"'
DOWN = [("Down", "1")]
# nginx logs a missing socket as critical
NOBODY = r"connect\(\) to unix:\S+/nobody.sock failed"
_places = itertools.count()


def failing(status):
    return answer(b"{}", status=status, headers=[("Retry-After", "9"), ("Set-Cookie", "a=b"), ("X-Node", "1")])


# failures of the node, and the condition that covers each
FAILURES = {
    "closes": ([CLOSE], "error"),
    "resets": ([RESET], "error"),
    "breaks off in the head": ([b"HTTP/1.1 200 OK\r\nContent-Ty", CLOSE], "error"),
    "is slow": ([CloseWithoutResponse()], "timeout"),
    "is slow in the head": ([b"HTTP/1.1 200 OK\r\nContent-Ty", CloseWithoutResponse()], "timeout"),
    "talks nonsense": ([b"HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n", CloseWithoutResponse()], "invalid_header"),
    "has too long a head": ([b"HTTP/1.1 200 OK\r\nA: " + b"a" * 100_000, CloseWithoutResponse()], "invalid_header"),
    **{f"says {s}": (failing(s), f"http_{s}") for s in (403, 404, 429, 500, 502, 503, 504)},
}


class RpcClient:
    def __init__(self, nginx, origin):
        self.nginx = nginx
        self.origin = origin
        self.chain = f"chain{next(_places)}"
        self.sent_requests = collections.Counter()
        self.serve(b'"0x1"')

    def serve(self, result):
        self.node = Node({"eth_blockNumber": result, "eth_getBlockByHash": result})
        self.origin.answers(self.node)
        return self.node

    def fails(self, script):
        self.origin.answers(script)

    def __call__(self, path, id="1", method="eth_blockNumber", accept="gzip", headers=()):
        params = f"[{HASH},true]" if method == "eth_getBlockByHash" else "[]"
        return self.post(path, call(method, params, id), accept, headers)

    def post(self, path, body, accept="gzip", headers=()):
        fields = [("Content-Type", "application/json"), *headers]
        fields += [("Accept-Encoding", accept)] if accept else []
        wait_until_expired()
        self.sent_requests[path] += 1
        with self.nginx.connect() as connection:
            return connection.exchange(f"{path}?chain={self.chain}", method="POST", headers=fields, body=body)

    def settle(self, path):
        """Waits until all requests for a path and their subrequests have ended: nginx logs
        them then."""
        logged(self.nginx, path, self.sent_requests[path])


@pytest.fixture
def rpc(nginx, origin):
    return RpcClient(nginx, origin)


def result_of(response):
    return json.loads(response.decoded)["result"]


def logged(nginx, path, count):
    def look():
        lines = (nginx.prefix / "stale.log").read_text().splitlines()
        found = [line.split()[1] for line in lines if line.split()[0] == path]
        return found if len(found) >= count else None

    return nginx.wait_for(look, f"the log of {path}")


class TestWords:
    @pytest.mark.parametrize("word", WORDS)
    def test_condition_covers_its_own_failure_only(self, rpc, word):
        for name, (script, own) in FAILURES.items():
            rpc.serve(b'"0x1"')
            assert result_of(rpc(f"/{word}")) == "0x1"
            rpc.fails(script)
            response = rpc(f"/{word}/hangs" if own == "timeout" else f"/{word}", id="7")
            if own == word:
                assert (response.status, response.decoded) == (200, b'{"jsonrpc":"2.0","id":7,"result":"0x1"}\n'), name
            else:
                status = own.removeprefix("http_")
                status = int(status) if status.isdigit() else {"timeout": 504}.get(own, 502)
                assert response.status == status, name

    def test_stale_response_is_sent_when_the_connection_is_refused(self, rpc, nginx):
        nginx.expect(NOBODY)
        for path in ("/error", "/all/group"):
            rpc(path)
            assert result_of(rpc(path, headers=DOWN)) == "0x1"
        rpc("/timeout")
        assert rpc("/timeout", headers=DOWN).status == 502

    @pytest.mark.parametrize("path", ["/", "/off"])
    def test_error_is_sent_without_use_stale(self, rpc, path):
        rpc(path)
        rpc.fails([CLOSE])
        assert rpc(path).status == 502

    def test_error_is_sent_when_nothing_is_stored(self, rpc):
        rpc.fails([CLOSE])
        assert rpc("/all").status == 502
        rpc.fails(failing(503))
        response = rpc("/all")
        assert (response.status, response.header("Retry-After")) == (503, "9")


class TestStaleResponse:
    @pytest.mark.parametrize("accept", ["gzip", None])
    @pytest.mark.parametrize("failure", ["closes", "says 503"])
    def test_stale_response_has_no_header_of_the_failure(self, rpc, accept, failure):
        rpc.serve(LARGE)
        rpc("/all", method="eth_getBlockByHash")
        rpc.fails(FAILURES[failure][0])
        for id in ("5", '"x"'):
            response = rpc("/all", id, "eth_getBlockByHash", accept)
            assert response.decoded == b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (id.encode(), LARGE)
            assert response.coding == accept and response.length == len(response.body)
            assert response.header("Content-Type") == "application/json"
            for field in ("Retry-After", "Set-Cookie", "X-Node"):
                assert response.header(field) is None

    def test_cache_status_of_a_stale_response_has_the_upstream_status(self, rpc, nginx):
        path = f"/all/{rpc.chain}"
        rpc(path)
        rpc.fails([CLOSE])
        assert rpc(path).header("Cache-Status") == "sszip; fwd=stale"
        rpc.fails(failing(503))
        assert rpc(path).header("Cache-Status") == "sszip; fwd=stale; fwd-status=503"
        assert logged(nginx, path, 3) == ["MISS", "STALE", "STALE"]

    def test_connection_of_the_client_is_kept_after_a_stale_response(self, rpc, nginx):
        rpc("/all")
        rpc.fails([CLOSE])
        with nginx.connect() as connection:
            for id in (b"1", b"2", b"3"):
                wait_until_expired()
                body = call("eth_blockNumber", "[]", id.decode())
                response = connection.exchange(
                    f"/all?chain={rpc.chain}", method="POST", headers=[("Content-Type", "application/json")], body=body
                )
                assert response.decoded == b'{"jsonrpc":"2.0","id":%b,"result":"0x1"}\n' % id

    def test_response_of_the_node_replaces_a_stale_one(self, rpc):
        rpc("/all")
        rpc.serve(b'"0x2"')
        assert result_of(rpc("/all")) == "0x2"
        rpc.fails([CLOSE])
        assert result_of(rpc("/all")) == "0x2"
        # an error of JSON-RPC is a response
        rpc.serve(None)
        assert "error" in json.loads(rpc("/all").decoded)

    @pytest.mark.parametrize("path", ["/pages", "/pages/tcp"])
    def test_stale_response_precedes_error_pages(self, rpc, nginx, path):
        nginx.expect(NOBODY)
        assert rpc(path, headers=DOWN).decoded == b"the page"
        rpc(path)
        assert result_of(rpc(path, headers=DOWN)) == "0x1"
        rpc.fails([CLOSE])
        assert result_of(rpc(path)) == "0x1"
        # a failure that the conditions do not cover
        rpc.fails([b"HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n", CloseWithoutResponse()])
        assert rpc(path).decoded == b"the page"

    def test_stale_response_precedes_intercepted_errors(self, rpc):
        path = "/pages/intercepted"
        rpc(path)
        rpc.fails(failing(503))
        assert result_of(rpc(path)) == "0x1"
        rpc.fails(failing(502))
        assert rpc(path).decoded == b"the page"

    def test_batch_gets_no_stale_response(self, rpc):
        batch = b"[%b,%b]" % (call("eth_blockNumber"), call("eth_blockNumber", id="2"))
        rpc.post("/all", batch)
        rpc.fails([CLOSE])
        assert rpc.post("/all", batch).status == 502
        # but the responses of a batch are stored for its calls
        assert result_of(rpc("/all")) == "0x1"

    def test_stale_resource_is_sent_when_the_node_fails(self, nginx, origin):
        path = f"/all/resource{next(_places)}"

        def get(headers=()):
            with nginx.connect() as connection:
                return connection.exchange(path, headers=[("Accept-Encoding", "gzip"), *headers])

        body = bodies.generate("object:30000")
        origin.answers(answer(body, headers=[("Cache-Control", "max-age=1")]))
        first = get()
        tag = first.header("ETag")
        origin.answers([CLOSE])
        nginx.wait_for(lambda: get().header("Cache-Status") == "sszip; fwd=stale", "it to expire")
        response = get()
        assert (response.status, response.decoded) == (200, body)
        assert int(response.header("Age")) >= 1
        if tag:
            assert get([("If-None-Match", tag)]).status == 304


class TestUpdating:
    @pytest.mark.parametrize("path", ["/all/slow", "/all/unlocked"])
    def test_other_clients_get_the_stale_response_during_the_fetch(self, rpc, nginx, path):
        path = f"{path}/{rpc.chain}"
        rpc(path)
        node = rpc.serve(b'"0x2"')
        gate = node.gates["eth_blockNumber"] = threading.Event()
        answers = []
        leader = threading.Thread(target=lambda: answers.append(rpc(path)))
        leader.start()
        nginx.wait_for(node.count, "the leader")
        for id in range(5):
            response = rpc(path, str(id))
            assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":"0x1"}\n' % id
            assert response.header("Cache-Status").startswith("sszip; hit; ttl=")
        assert node.count() == 1
        gate.set()
        leader.join()
        assert result_of(answers[0]) == "0x2"
        assert result_of(rpc(path)) == "0x2" and node.count() == 2
        assert logged(nginx, path, 8) == ["MISS", *["UPDATING"] * 5, "MISS", "MISS"]

    def test_leader_gets_the_stale_response_when_its_fetch_fails(self, rpc, nginx, origin):
        rpc("/all/slow")
        gate = threading.Event()
        origin.answers([WaitFor(gate), CLOSE])
        answers = []
        before = len(origin.received())
        leader = threading.Thread(target=lambda: answers.append(rpc("/all/slow")))
        leader.start()
        nginx.wait_for(lambda: len(origin.received()) > before, "the leader")
        assert result_of(rpc("/all/slow")) == "0x1"
        gate.set()
        leader.join()
        assert result_of(answers[0]) == "0x1"

    def test_response_is_updated_when_the_client_of_the_leader_aborts(self, rpc, nginx):
        rpc("/all/slow")
        node = rpc.serve(b'"0x2"')
        gate = node.gates["eth_blockNumber"] = threading.Event()
        wait_until_expired()
        with nginx.connect() as leader:
            fields = [("Content-Type", "application/json")]
            leader.send(
                client.request_bytes(
                    f"/all/slow?chain={rpc.chain}", method="POST", headers=fields, body=call("eth_blockNumber")
                )
            )
            nginx.wait_for(node.count, "the leader")
            assert result_of(rpc("/all/slow")) == "0x1"
            leader.reset()
        gate.set()
        nginx.wait_for(lambda: result_of(rpc("/all/slow")) == "0x2", "the next to fetch it")


@pytest.fixture(scope="class")
def stored(start_nginx):
    nginx = start_nginx(
        "sszip_cache_path @prefix@/cache max_size=64m memory=32m;"
        + WITH_A_STORE.replace(
            "@purge@", "location = /purge { sszip_cache_purge on; }"
        )
    )
    wait_until_linked(nginx, owner_of(nginx))
    return nginx


class TestAnOwner:
    """With a store, only the process's memory has expired entries."""

    def test_stale_response_is_sent_when_there_is_a_store(self, stored, origin):
        rpc = RpcClient(stored, origin)
        rpc("/all")
        rpc.fails([CLOSE])
        assert result_of(rpc("/all")) == "0x1"

    def test_stale_response_is_not_sent_after_a_purge(self, stored, origin):
        rpc = RpcClient(stored, origin)
        rpc("/all/slow")
        gate = threading.Event()
        origin.answers([WaitFor(gate), CLOSE])
        before = len(origin.received())
        answers = []

        def lead():
            # the lease of the first request may not have been returned yet
            while len(origin.received()) == before:
                answers[:] = [rpc("/all/slow")]

        leader = threading.Thread(target=lead)
        leader.start()
        stored.wait_for(lambda: len(origin.received()) > before, "the leader")
        assert result_of(rpc("/all/slow")) == "0x1"
        assert client.fetch(stored.port, "/purge?everything", method="POST").status == 200
        gate.set()
        leader.join()
        assert answers[0].status == 502
        assert rpc("/all/slow").status == 502

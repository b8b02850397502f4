"""Features of Envoy's router: retries, redirects, hedging and mirrors, timeouts, local replies,
and tunnels."""

import concurrent.futures
import socket
import threading

import grpc
import pytest
import websockets.sync.client

from harness import bodies
from harness.client import Truncated, gunzip, request_bytes
from harness.envoy import address, cluster, pipe, route
from harness.guards import GUARD_SECONDS
from harness.http2 import Http2Client
from harness.nginx import free_port
from harness.nginx_state import wait_until_expired
from harness.origin import CLOSE, Origin, WaitFor, answer, chunked, head
from harness.rpc import Node, call
from harness.websocket_server import websocket_server
from tiers import times

HOSTS = ("native", "wasm")

BODY = bodies.json(30000)
CALL = call("eth_getBlockByHash", '["0x%s",true]' % ("ab" * 32))
OTHER = call("eth_getBlockByHash", '["0x%s",true]' % ("cd" * 32), "2")
NODE = {
    "eth_getBlockByHash": lambda params: b'{"hash":"%b","x":"%b"}' % (params[0].encode(), b"0" * 3000),
    "eth_blockNumber": b'"0x10"',
}  # fmt: skip
CACHED = {"cache": True}
STALE = {
    **CACHED,
    "cache_valid": ["tip", "1ms"],
    "cache_use_stale": ["error", "timeout", "http_503"],
}
# headers that a route adds
ADDED = {"x-served-by": "us", "access-control-allow-origin": "*"}
JSON = ("Content-Type", "application/json")
TRIES = {"num_retries": 2, "per_try_timeout": "1s"}


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    origin = Origin(tmp_path_factory.mktemp("second"))
    yield origin
    origin.close()


@pytest.fixture(autouse=True)
def forget(second):
    second.forget()
    yield
    assert not second.errors, second.errors


def adding(prefix, *names):
    """A route that adds headers to its responses."""
    adds = route(prefix, CACHED)
    adds["response_headers_to_add"] = [{"header": {"key": name, "value": ADDED[name]}} for name in names]
    return adds


@pytest.fixture(scope="module")
def envoy(start_envoy, second):
    gone = cluster("gone", address(free_port()))
    both = [{"name": name, "weight": 50} for name in ("node", "second")]
    weighted = route("/weighted", CACHED)
    weighted["route"] = {"weighted_clusters": {"clusters": both}}
    direct = route("/direct", CACHED)
    del direct["route"]
    direct["direct_response"] = {"status": 200, "body": {"inline_string": "x" * 4000}}
    routes = [
        route("/retry", CACHED, retry_policy={"retry_on": "5xx,reset,connect-failure", **TRIES}),
        route("/hedge", CACHED, retry_policy={"retry_on": "5xx", **TRIES}, hedge_policy={"hedge_on_per_try_timeout": True}),
        route("/mirror", CACHED, request_mirror_policies=[{"cluster": "second"}]),
        route("/moved", {**CACHED, "ssz": True}, internal_redirect_policy={
            "max_internal_redirects": 3, "redirect_response_codes": [302, 303, 307, 308]}),
        route("/elsewhere", {"enable": False}, internal_redirect_policy={
            "max_internal_redirects": 3, "redirect_response_codes": [302, 303, 307, 308]}),
        route("/timeout", CACHED, timeout="1s"),
        route("/stale/timeout", STALE, timeout="1s"),
        route("/stale", STALE),
        route("/gone", CACHED, "gone"),
        route("/eager", {"cache": True, "hold": "1m 60s"}),
        route("/at-once", {"hold": "0"}),
        weighted,
        direct,
        {"match": {"prefix": "/redirect"}, "redirect": {"path_redirect": "/else"}},
        adding("/adds/both", *ADDED),
        adding("/adds/origin", "access-control-allow-origin"),
        route("/", CACHED),
    ]  # fmt: skip
    return start_envoy(
        routes,
        workers=2,
        clusters=[cluster("second", pipe(second.path)), gone],
        # Clients that still send when they are answered must not be reset.
        http={"delayed_close_timeout": "1s"},
    )


@pytest.fixture(scope="module")
def forwarding_100(start_envoy):
    """An Envoy that forwards interim responses."""
    return start_envoy([route("/expects", CACHED), route("/hints")], http={"proxy_100_continue": True})


def cache_status(response):
    return response.header("Cache-Status") or ""


class TestTries:
    def test_response_of_the_last_retry_is_stored(self, envoy, origin):
        tries = [
            answer(b"busy", status=503),
            [CLOSE],
            answer(b'{"jsonrpc":"2.0","id":1,"result":{"hash":"0x%b"}}' % (b"ab" * 32)),
        ]
        left = list(tries)
        origin.answers(lambda request: left.pop(0))
        first = envoy.fetch("/retry", CALL)
        assert (first.status, len(origin.received())) == (200, 3)
        assert all(request.body == CALL for request in origin.received())
        assert "hit" in cache_status(envoy.fetch("/retry", CALL))
        assert len(origin.received()) == 3

    def test_retry_of_a_split_batch_sends_the_same_part(self, envoy, origin):
        """A retry sends the part that was sent before."""
        node = Node(NODE)
        origin.answers(node)
        first = call("eth_getBlockByHash", '["0x%s",true]' % ("12" * 32))
        assert envoy.fetch("/retry", first).status == 200
        left = [[CLOSE], answer(b"busy", status=503)]
        origin.answers(lambda request: left.pop(0) if left else node(request))
        response = envoy.fetch("/retry", b"[%b,%b]" % (first, OTHER))
        assert [request.body for request in origin.received()[1:]] == [b"[%b]" % OTHER] * 3
        assert b"12" * 32 in response.decoded and b"cd" * 32 in response.decoded

    def test_first_response_of_hedged_requests_is_used_and_stored(self, envoy, origin):
        """The first response is used; the other one is dropped."""
        slow = threading.Event()
        node = Node(NODE)
        left = [lambda request: [WaitFor(slow), *node(request)], node]
        origin.answers(lambda request: (left.pop(0) if left else node)(request))
        body = call("eth_getBlockByHash", '["0x%s",true]' % ("34" * 32))
        first = envoy.fetch("/hedge", body)
        slow.set()
        assert first.status == 200 and b"34" * 32 in first.decoded
        assert len(origin.received()) == 2
        assert "hit" in cache_status(envoy.fetch("/hedge", body))

    def test_mirror_gets_the_upstream_request(self, envoy, origin, second):
        origin.answers(Node(NODE))
        second.answers(answer(b"of no account", status=500))
        body = call("eth_getBlockByHash", '["0x%s",true]' % ("56" * 32))
        assert b"56" * 32 in envoy.fetch("/mirror", body).decoded
        assert "hit" in cache_status(envoy.fetch("/mirror", body))
        envoy.wait_for(second.received, "the mirror to receive a request")
        assert {request.body for request in second.received()} == {body}
        assert len(second.received()) == 1
        assert second.last().header("Accept-Encoding") == "identity"

    def test_weighted_clusters_have_separate_entries(self, envoy, origin, second):
        origin.answers(Node({"eth_getBlockByHash": b'{"hash":"0x%b","of":"one"}' % (b"ab" * 32)}))
        second.answers(Node({"eth_getBlockByHash": b'{"hash":"0x%b","of":"two"}' % (b"ab" * 32)}))
        bodies_ = {envoy.fetch("/weighted", CALL).decoded for _ in range(40)}
        assert len(bodies_) == 2
        assert len(origin.received()) + len(second.received()) == 2


class TestRedirects:
    """Envoy follows some redirects itself, and starts again with the upstream request."""

    def moves(self, origin, node, status=307, times=1):
        left = [f"http://localhost/moved/{number}" for number in range(times - 1)]
        left.append("http://localhost/elsewhere")

        def moved(request):
            if not left:
                return node(request) if callable(node) else node
            return answer(status=status, headers=[("Location", left.pop(0))])

        origin.answers(moved)

    @pytest.mark.parametrize("times", [1, 2])
    def test_split_batch_is_merged_after_internal_redirects(self, envoy, origin, times):
        node = Node(NODE)
        origin.answers(node)
        one = call("eth_getBlockByHash", '["0x%s",true]' % (f"{times}1" * 32))
        two = call("eth_getBlockByHash", '["0x%s",true]' % (f"{times}2" * 32), "2")
        assert envoy.fetch("/moved", one).status == 200
        self.moves(origin, node, times=times)
        response = envoy.fetch("/moved", b"[%b,%b]" % (one, two))
        assert response.status == 200
        assert [request.path for request in origin.received()][-1] == "/elsewhere"
        assert origin.last().body == b"[%b]" % two
        assert f"{times}1".encode() * 32 in response.decoded
        assert f"{times}2".encode() * 32 in response.decoded

    def test_response_is_compressed_after_an_internal_redirect(self, envoy, origin):
        self.moves(origin, answer(BODY), status=302)
        response = envoy.get("/moved")
        assert (response.status, response.coding) == (200, "gzip")
        assert gunzip(response.body) == BODY
        self.moves(origin, answer(BODY), status=302)
        assert envoy.get("/moved", accept=None).body == BODY

    def test_client_of_ssz_only_gets_no_json_after_an_internal_redirect(self, envoy, origin):
        nothing = answer(b'{"data":"no block"}')
        self.moves(origin, nothing, status=302)
        fields = [("Accept", "application/octet-stream")]
        response = envoy.get("/moved/eth/v2/beacon/blocks/head", headers=fields)
        # the same as without a redirect
        origin.answers(nothing)
        without = envoy.get("/moved/eth/v2/beacon/blocks/head", headers=fields)
        assert (response.status, response.decoded) == (without.status, without.decoded)

    def test_followers_get_the_response_after_an_internal_redirect(self, envoy, origin):
        """The leader continues, and followers receive its response."""
        node, go_on = Node(NODE), threading.Event()
        body = call("eth_getBlockByHash", '["0x%s",true]' % ("78" * 32))

        def moved(request):
            if request.path == "/elsewhere":
                return [WaitFor(go_on), *node(request)]
            return answer(status=307, headers=[("Location", "http://localhost/elsewhere")])

        origin.answers(moved)
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            answers = [pool.submit(envoy.fetch, "/moved", body) for _ in range(5)]
            envoy.wait_for(lambda: origin.received("/elsewhere"), "the redirect")
            envoy.wait_for(
                lambda: len(origin.received("/elsewhere")) + sum(envoy.stats("sszip.cache.waiting$").values()) == 5,
                "all to reach the node or wait",
            )
            go_on.set()
            assert all(b"78" * 32 in answer.result().decoded for answer in answers)
        assert len(origin.received("/elsewhere")) == 1

    def test_original_url_header_of_a_client_is_ignored(self, envoy, origin):
        origin.answers(answer(BODY))
        fields = [("X-Envoy-Original-Url", "http://elsewhere/")]
        for _ in range(2):
            assert gunzip(envoy.get("/moved", headers=fields).body) == BODY

    def test_redirect_that_envoy_does_not_follow_is_sent(self, envoy, origin):
        self.moves(origin, answer(BODY), status=301)
        assert envoy.get("/moved").status == 301


class TestOwnAnswers:
    def test_timeout_of_the_route_is_a_504_and_not_stored(self, envoy, origin):
        slow = threading.Event()
        origin.answers([WaitFor(slow, 10), CLOSE])
        response = envoy.fetch("/timeout", CALL)
        assert response.status == 504
        slow.set()
        origin.answers(Node(NODE))
        assert "fwd=miss" in cache_status(envoy.fetch("/timeout", CALL))

    @pytest.mark.native("what has expired is in the memory of a process")
    @pytest.mark.parametrize("fails", ["timeout", "503", "closed"])
    def test_stale_response_is_sent_instead_of_a_local_reply(self, envoy, origin, fails):
        path, body = "/stale/timeout", call("eth_blockNumber", id=f'"{fails}"')
        origin.answers(Node(NODE))
        assert envoy.fetch(path, body).status == 200
        wait_until_expired()
        slow = threading.Event()
        script = {
            "timeout": [WaitFor(slow, 10), CLOSE],
            "503": answer(b"busy", status=503),
            "closed": [CLOSE],
        }
        origin.answers(script[fails])
        response = envoy.fetch(path, body)
        slow.set()
        assert response.status == 200 and b'"0x10"' in response.decoded, response
        assert "fwd=stale" in cache_status(response)

    def test_unreachable_cluster_is_a_503(self, envoy):
        assert envoy.fetch("/gone", CALL).status == 503

    def test_direct_responses_and_redirects_are_sent(self, envoy):
        for _ in range(2):
            assert envoy.fetch("/direct", CALL).body == b"x" * 4000
            assert envoy.get("/redirect").status == 301


class TestOrder:
    def test_early_response_is_sent_before_the_request_ends(self, envoy, origin):
        """The rest of the request must not delay the response."""
        origin.early = True
        long = bodies.json(600_000)
        for path, framing in [
            ("/x", "length"),
            ("/x", "chunked"),
            ("/eager", "chunked"),
            ("/at-once", "chunked"),
        ] * times(2, 5):
            origin.answers(answer(long, framing=framing))
            fields = [("Content-Type", "application/octet-stream"), ("Transfer-Encoding", "chunked"),
                      ("Accept-Encoding", "gzip")]  # fmt: skip
            with envoy.connect() as connection:
                connection.send(request_bytes(path, method="POST", headers=fields))
                over = threading.Event()

                def sends(connection=connection, over=over):
                    try:
                        while not over.wait(0.0005):
                            connection.send(b"5\r\n01234\r\n")
                    except OSError:
                        pass  # the response has arrived

                sender = threading.Thread(target=sends)
                sender.start()
                try:
                    response = connection.read("POST")
                finally:
                    over.set()
                    sender.join(GUARD_SECONDS)
            assert (response.status, response.decoded) == (200, long)

    def test_request_with_trailers_is_looked_up(self, envoy, origin):
        """Trailers end a body that is looked up."""
        origin.answers(Node(NODE))
        body = call("eth_getBlockByHash", '["0x%s",true]' % ("9a" * 32))
        with Http2Client(envoy.port) as client:
            for _ in range(2):
                stream = client.h2.get_next_available_stream_id()
                fields = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "localhost"),
                          ("content-type", "application/json"), ("accept-encoding", "gzip")]  # fmt: skip
                client.bodies[stream] = bytearray()
                client.h2.send_headers(stream, fields)
                client.h2.send_data(stream, body[:50])
                client.flush()
                client.h2.send_data(stream, body[50:])
                client.h2.send_headers(stream, [("x-checksum", "1")], end_stream=True)
                client.flush()
                client.finish(stream)
                assert b"9a" * 32 in client.checked_body(stream)
                envoy.settle()
        assert {request.body for request in origin.received()} == {body}
        assert len(origin.received()) == 1

    @pytest.mark.parametrize("sender", ["envoy", "node"])
    def test_request_with_expect_continue_is_answered(self, envoy, forwarding_100, origin, sender):
        """Envoy sends 100 Continue itself, or forwards the node's."""
        if sender == "node":
            envoy = forwarding_100
        node = Node(NODE)
        body = call("eth_getBlockByHash", '["0x%s",true]' % ("ef" * 32))

        def hurries(connection, request, received):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while len(received) < len(body):
                received += connection.recv(1000)
            request.body = received
            for piece in node(request):
                connection.sendall(piece)

        origin.early = sender == "node"
        origin.answers([hurries] if origin.early else node)
        fields = [JSON, ("Expect", "100-continue"), ("Content-Length", str(len(body)))]
        with envoy.connect() as connection:
            connection.send(request_bytes("/expects", method="POST", headers=fields))
            assert connection.read_head().status == 100
            connection.send(body)
            response = connection.read("POST")
        assert response.status == 200 and b"ef" * 32 in response.body
        assert ("fwd=miss" if sender == "envoy" else "fwd=bypass") in cache_status(response)

    def test_early_hints_precede_a_compressed_response(self, forwarding_100, origin):
        """Envoy forwards no interim response unless `proxy_100_continue` is set."""
        origin.answers([head(103, [("Link", "</a>")]), *answer(BODY)])
        response = forwarding_100.get("/hints")
        assert response.status == 200 and gunzip(response.body) == BODY
        assert [(hint.status, hint.header("Link")) for hint in response.interim] == [(103, "</a>")]

    def test_ranges_conditions_and_head_are_forwarded(self, envoy, origin):
        origin.answers(
            answer(BODY[:100], status=206, headers=[("Content-Range", "bytes 0-99/30000")])
        )
        response = envoy.get("/", headers=[("Range", "bytes=0-99")])
        assert (response.status, response.body) == (206, BODY[:100])
        origin.answers(answer(status=304, framing="none", headers=[("ETag", '"a"')]))
        assert envoy.get("/", headers=[("If-None-Match", '"a"')]).status == 304
        origin.answers(answer(BODY, method="HEAD"))
        response = envoy.get("/", method="HEAD")
        assert (response.status, response.body, response.length) == (200, b"", None)

    def test_truncated_response_is_not_retried(self, envoy, origin):
        origin.answers(answer(BODY, framing="chunked", cut_at=20000))
        with pytest.raises(Truncated):
            envoy.get("/at-once")
        assert len(origin.received()) == 1


@pytest.fixture(scope="module")
def echo():
    """The ports of a WebSocket, an echo of bytes, and a gRPC service."""
    plain = socket.create_server(("127.0.0.1", 0))

    def echoes():
        while True:
            try:
                connection, _ = plain.accept()
            except OSError:
                return
            with connection:
                while piece := connection.recv(65536):
                    connection.sendall(piece)

    threading.Thread(target=echoes, daemon=True).start()
    raw = dict(request_deserializer=None, response_serializer=None)

    def unary(request, context):
        context.set_trailing_metadata(
            (("seen", dict(context.invocation_metadata()).get("word", "")),)
        )
        if request == b"fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such block")
        return request

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary, **raw),
        "Stream": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests, **raw),
    }
    rpc = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    rpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", handlers),))
    rpc_port = rpc.add_insecure_port("127.0.0.1:0")
    rpc.start()
    with websocket_server(max_size=None) as port:
        yield {"ws": port, "plain": plain.getsockname()[1], "grpc": rpc_port}
    plain.close()
    rpc.stop(None).wait(10)


@pytest.fixture(scope="module")
def tunnels(start_envoy, echo):
    connect = {"match": {"connect_matcher": {}}, "route": {"cluster": "plain", "upgrade_configs": [
        {"upgrade_type": "CONNECT", "connect_config": {}}]}}  # fmt: skip
    return start_envoy(
        [connect, route("/ws", None, "ws"), route("/", None, "grpc")],
        settings={"cache": True, "ssz": True, "types": ["*"], "min_length": 1},
        clusters=[
            cluster("ws", address(echo["ws"])),
            cluster("plain", address(echo["plain"])),
            cluster("grpc", address(echo["grpc"]), http2=True),
        ],
        http={"upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}],
              "http2_protocol_options": {"allow_connect": True}},
        hops="http2",
    )  # fmt: skip


class TestTunnels:
    @pytest.mark.parametrize("port", ["direct", "port"], ids=["HTTP/1.1", "HTTP/2"])
    def test_websocket_is_forwarded(self, tunnels, port):
        """Over HTTP/2 it is an extended CONNECT."""
        uri = f"ws://127.0.0.1:{getattr(tunnels, port)}/ws"
        with websockets.sync.client.connect(uri, max_size=None, proxy=None) as connection:
            for message in ("0x1", BODY.decode(), bodies.random(3000), "", "x" * 1000000):
                connection.send(message)
                assert connection.recv(30) == message

    def test_connect_tunnel_is_forwarded(self, tunnels):
        with socket.create_connection(("127.0.0.1", tunnels.direct)) as connection:
            connection.settimeout(GUARD_SECONDS)
            connection.sendall(
                b"CONNECT somewhere:443 HTTP/1.1\r\nHost: somewhere:443\r\nAccept-Encoding: gzip\r\n\r\n"
            )
            response_head = b""
            while b"\r\n\r\n" not in response_head:
                response_head += connection.recv(1000)
            assert (
                response_head.startswith(b"HTTP/1.1 200")
                and b"encoding" not in response_head.lower()
            )
            for piece in (b"{}", CALL, BODY):
                connection.sendall(piece)
                echo = b""
                while len(echo) < len(piece):
                    echo += connection.recv(65536)
                assert echo == piece

    @pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
    def test_grpc_unary_calls_are_forwarded_unchanged(self, tunnels, compression):
        with grpc.insecure_channel(f"127.0.0.1:{tunnels.direct}") as channel:
            for message in (b"", b"0x1", BODY, bodies.random(3000), bodies.json(1_000_000)):
                answer_, done = channel.unary_unary("/Echo/Unary").with_call(
                    message, timeout=30, compression=compression,
                    metadata=(("word", "kept"), ("accept-encoding", "gzip")),
                )  # fmt: skip
                assert answer_ == message
                assert ("seen", "kept") in done.trailing_metadata()
                assert not {"content-encoding", "vary"} & set(dict(done.initial_metadata()))
            with pytest.raises(grpc.RpcError) as failed:
                channel.unary_unary("/Echo/Unary")(b"fail", timeout=30)
            assert failed.value.code() == grpc.StatusCode.NOT_FOUND

    def test_grpc_stream_is_forwarded_in_both_directions(self, tunnels):
        """Each message is answered before the next one is sent."""
        answered = threading.Semaphore(1)
        messages = [b"%d" % number * 2000 for number in range(50)]

        def send():
            for message in messages:
                assert answered.acquire(timeout=30)
                yield message

        seen = []
        with grpc.insecure_channel(f"127.0.0.1:{tunnels.direct}") as channel:
            for message in channel.stream_stream("/Echo/Stream")(send(), timeout=60):
                seen.append(message)
                answered.release()
        assert seen == messages


def test_headers_that_a_route_adds_are_absent_in_hits_of_the_module(host, envoy, origin):
    """The router adds them, behind the filter, as docs/envoy.md describes. Envoy adds all of
    them to its local replies, such as a sandbox's hit. Stored headers are sent once."""
    origin.answers(Node(NODE))
    assert envoy.fetch("/adds/both", CALL).all("X-Served-By") == ["us"]
    hit = envoy.fetch("/adds/both", CALL)
    assert "hit" in cache_status(hit)
    assert hit.all("X-Served-By") == (["us"] if host == "wasm" else [])
    assert hit.all("Access-Control-Allow-Origin") == ["*"]


def test_stored_header_that_a_route_adds_is_sent_once(envoy, origin):
    """Envoy joins the values of this header in one line: a local reply has no further header."""
    origin.answers(Node(NODE))
    envoy.fetch("/adds/origin", CALL)
    hit = envoy.fetch("/adds/origin", CALL)
    assert "hit" in cache_status(hit)
    assert hit.all("Access-Control-Allow-Origin") == ["*"]


def test_chunked_request_in_pieces_is_looked_up(envoy, origin):
    origin.answers(Node(NODE))
    fields = [JSON, ("Transfer-Encoding", "chunked")]
    with envoy.connect() as connection:
        for _ in range(2):
            connection.send(request_bytes("/pieces", method="POST", headers=fields))
            for byte in chunked([CALL[at : at + 7] for at in range(0, len(CALL), 7)]):
                connection.send(byte)
            assert b"ab" * 32 in connection.read("POST").body
            envoy.settle()
    assert {request.body for request in origin.received()} == {CALL}
    assert len(origin.received()) == 1

"""WebSocket and gRPC pass unchanged, with sszip on for every type."""

import concurrent.futures
import socket
import threading

import grpc
import pytest
import websockets.sync.client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness import bodies
from harness.client import request_bytes
from harness.recorded_nodes import BODY, geth
from harness.origin import head
from harness.websocket_server import websocket_server

CONFIG = """
map $http_upgrade $connection_upgrade { default upgrade; '' close; }
server {
    listen 127.0.0.1:@port@;
    sszip on;
    sszip_types *;
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    location /ws { proxy_pass http://127.0.0.1:@port_ws@; }
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_grpc@ http2;
    sszip on;
    sszip_types *;
    location / { grpc_pass grpc://127.0.0.1:@port_grpc_node@; }
}
"""


@pytest.fixture(scope="module")
def websocket_node(nginx):
    def serve(connection):
        for message in connection:
            connection.send(message)
            if message == "last words":
                connection.socket.shutdown(socket.SHUT_RDWR)

    def refuse(connection, request):
        if "refused" in request.path:
            response = connection.respond(403, BODY.decode())
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = "application/json"
            return response
        return None

    with websocket_server(serve, nginx.ports["port_ws"], process_request=refuse, max_size=None):
        yield nginx


def socket_to(nginx, path="/ws", **options):
    uri = nginx.uri(path)
    options.setdefault("additional_headers", {"Accept-Encoding": "gzip"})
    connection = websockets.sync.client.connect(
        f"ws://127.0.0.1:{nginx.port}{uri}", max_size=None, proxy=None, **options
    )
    return uri, connection


class TestWebSocket:
    @pytest.mark.parametrize("compression", [None, "deflate"])
    def test_websocket_messages_are_forwarded_in_both_directions(self, websocket_node, compression):
        uri, connection = socket_to(websocket_node, compression=compression)
        with connection:
            for message in ("0x1", bodies.json(30000).decode(), bodies.random(3000), "", "x" * 1000000):
                connection.send(message)
                assert connection.recv(30) == message
        logged = websocket_node.logged(uri)
        assert (logged["status"], logged["mode"]) == (101, "upgrade")

    def test_upgrade_request_is_forwarded_unchanged(self, websocket_node, origin):
        """An upgrade request is not changed on its way to the node."""
        origin.answers(geth())
        websocket_node.get(
            "/",
            headers=[
                ("Upgrade", "websocket"),
                ("Connection", "Upgrade"),
                ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
                ("Sec-WebSocket-Version", "13"),
            ],
        )
        assert origin.last().header("Accept-Encoding") == "gzip"

    def test_concurrent_websockets_are_independent(self, websocket_node):
        def talk(number):
            _, connection = socket_to(websocket_node)
            with connection:
                for size in range(0, 20000, 1000):
                    message = f"{number}" * size
                    connection.send(message)
                    assert connection.recv(30) == message
            return True

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(talk, range(8)))

    def test_rejected_upgrade_is_an_ordinary_response(self, websocket_node):
        """The rejection is an ordinary response."""
        with pytest.raises(InvalidStatus) as refused:
            socket_to(websocket_node, "/ws-refused")
        assert refused.value.response.status_code == 403
        response = websocket_node.get("/ws-refused", headers=[("Connection", "close")])
        assert response.status in (400, 403, 426)

    def test_websocket_is_closed_when_the_node_closes_it(self, websocket_node):
        _, connection = socket_to(websocket_node)
        with connection:
            connection.send("last words")
            assert connection.recv(30) == "last words"
            with pytest.raises(ConnectionClosed):
                connection.recv(30)


class TestOtherUpgrades:
    def test_ignored_upgrade_offer_gets_a_compressed_response(self, nginx, origin):
        """curl and Java's client offer h2c on ordinary requests."""
        origin.answers(geth())
        response = nginx.get(
            "/", headers=[("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")]
        )
        assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)

    def test_bytes_after_101_are_forwarded_unchanged(self, nginx, origin):
        def tunnel(connection, request, received):
            while piece := received or connection.recv(100):
                received = b""
                connection.sendall(piece[::-1])

        origin.answers([head(101, [("Upgrade", "bytes"), ("Connection", "Upgrade"), ("Content-Type", "application/json")]), tunnel])
        uri = nginx.uri("/")
        with nginx.connect() as connection:
            connection.send(
                request_bytes(uri, headers=[("Upgrade", "bytes"), ("Connection", "Upgrade"), ("Accept-Encoding", "gzip")])
            )
            response = connection.read_head()
            assert (response.status, response.header("Content-Encoding"), response.header("Vary")) == (101, None, None)
            for word in (b"abc", b"{}" * 40, b"\0\xff"):
                connection.send(word)
                assert connection.take(len(word)) == word[::-1]
        assert nginx.logged(uri)["mode"] == "upgrade"


@pytest.fixture(scope="module")
def stub(nginx):
    """A client of an echo service behind nginx."""
    raw = dict(request_deserializer=None, response_serializer=None)

    def set_trailers(context):
        context.set_trailing_metadata((("seen", dict(context.invocation_metadata()).get("word", "")),))

    def unary(request, context):
        set_trailers(context)
        if request == b"fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such block")
        return request

    def stream(requests, context):
        set_trailers(context)
        yield from requests

    handlers = grpc.method_handlers_generic_handler(
        "Echo",
        {
            "Unary": grpc.unary_unary_rpc_method_handler(unary, **raw),
            "Stream": grpc.stream_stream_rpc_method_handler(stream, **raw),
        },
    )
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=sizes)
    server.add_generic_rpc_handlers((handlers,))
    assert server.add_insecure_port(f"127.0.0.1:{nginx.ports['port_grpc_node']}")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{nginx.ports['port_grpc']}", options=sizes) as channel:
        yield channel
    server.stop(None).wait(10)


class TestGrpc:
    @pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
    @pytest.mark.parametrize("message", [b"", b"0x1", bodies.json(30000), bodies.random(3000), bodies.json(1000000)], ids=len)
    def test_grpc_unary_call_is_forwarded_unchanged(self, stub, message, compression):
        answer_, call = stub.unary_unary("/Echo/Unary").with_call(
            message, timeout=30, compression=compression, metadata=(("word", "kept"), ("accept-encoding", "gzip"))
        )
        assert answer_ == message
        assert ("seen", "kept") in call.trailing_metadata()
        assert "content-encoding" not in dict(call.initial_metadata())
        assert "vary" not in dict(call.initial_metadata())

    def test_grpc_error_is_in_the_trailers(self, stub):
        with pytest.raises(grpc.RpcError) as failed:
            stub.unary_unary("/Echo/Unary")(b"fail", timeout=30)
        assert failed.value.code() == grpc.StatusCode.NOT_FOUND
        assert failed.value.details() == "no such block"

    def test_grpc_stream_is_forwarded_in_both_directions(self, stub):
        """Each message is answered before the next one is sent."""
        answered = threading.Semaphore(1)
        messages = [b"%d" % number * 2000 for number in range(50)]

        def send():
            for message in messages:
                assert answered.acquire(timeout=30)
                yield message

        seen = []
        for message in stub.stream_stream("/Echo/Stream")(send(), timeout=60, metadata=(("accept-encoding", "gzip"),)):
            seen.append(message)
            answered.release()
        assert seen == messages

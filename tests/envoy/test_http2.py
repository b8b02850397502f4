"""HTTP/2 clients and nodes."""

import itertools
import subprocess
import threading

import pytest

from harness.client import Truncated, gunzip
from harness.envoy import route
from harness.http2 import Http2Client
from harness.origin import CLOSE, WaitFor, answer, chunked, head, scattered
from harness.rpc import Node, call

HOSTS = ("native", "wasm")

BODY = b'{"result":"' + b"a" * 30000 + b'"}'
TEXT = b"text that is no JSON " * 500
PROTOCOL = [{"header": {"key": "sszip-upstream-protocol", "value": "%UPSTREAM_PROTOCOL%"}}]
BLOCK = '["0x%064x",true]'


def route_with_protocol_header(prefix, settings):
    return {**route(prefix, settings), "response_headers_to_add": PROTOCOL}


@pytest.fixture(scope="module")
def envoy(start_envoy):
    buffered = {"hold": "1m 60s", "types": ["application/json", "text/plain"]}
    routes = [
        route_with_protocol_header("/known", buffered),
        route("/unknown", buffered),
        route_with_protocol_header("/off", {"enable": False}),
        route("/at-once", {"hold": "0"}),
        route("/cache", {"cache": True}),
        route("/zstd-stream", {"zstd": True, "hold": "0"}),
        route("/zstd", {"zstd": True, "cache": True}),
        route("/"),
    ]
    return start_envoy(routes, hops="http2", workers=2)


class TestNodes:
    @pytest.mark.parametrize("path, framing", [("/known", "length"), ("/unknown", "chunked")])
    def test_text_without_a_length_is_buffered_when_the_protocol_is_known(self, envoy, origin, path, framing):
        """HTTP/2 marks the end; the filter knows it only if the route has the header."""
        origin.answers(answer(TEXT, type="text/plain", framing="chunked"))
        response = envoy.get(path)
        assert (response.coding, response.framing) == ("gzip", framing)
        assert gunzip(response.body) == TEXT
        assert response.all("sszip-upstream-protocol") == []

    def test_upstream_protocol_header_is_not_sent_to_clients_by_a_disabled_filter(self, envoy, origin):
        origin.answers(answer(TEXT, type="text/plain"))
        response = envoy.get("/off", None)
        assert response.body == TEXT
        assert response.all("sszip-upstream-protocol") == []

    @pytest.mark.wasm_thorough("the tests before show that a sandbox removes the header")
    def test_upstream_protocol_header_is_not_sent_to_clients(self, start_envoy, origin):
        """The header is set for a body delimited by close, too."""
        settings = {"hold": "1m 60s", "types": ["text/plain"]}
        envoy = start_envoy(
            [route_with_protocol_header("/off", {"enable": False}), route_with_protocol_header("/", settings)]
        )
        origin.answers(answer(TEXT, type="text/plain", framing="close"))
        response = envoy.get("/")
        assert response.framing == "chunked" and gunzip(response.body) == TEXT
        assert response.all("sszip-upstream-protocol") == []
        assert envoy.get("/off").all("sszip-upstream-protocol") == []

    def test_reset_of_the_node_is_not_the_end_of_a_body(self, envoy, origin):
        """It is no end while the head is buffered, nor in a stream."""
        half = TEXT[:5000]
        begun = [head(200, [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")])]
        origin.answers([*begun, *chunked([half], last=False), CLOSE])
        for path in ("/known", "/unknown"):
            assert envoy.get(path).status in (502, 503)
        json = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
        origin.answers([head(200, json), *chunked([BODY[:20000]], last=False), CLOSE])
        with pytest.raises(Truncated):
            envoy.get("/at-once")

    def test_body_is_complete_when_trailers_follow(self, envoy, origin):
        script = [head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
                  *chunked([BODY], last=False), b"0\r\nX-Checksum: 1\r\n\r\n"]  # fmt: skip
        origin.answers(script)
        for path in ("/known", "/unknown", "/at-once", "/"):
            with Http2Client(envoy.direct) as client:
                stream = client.fetch(path)
                client.finish(stream)
                assert client.checked_body(stream) == BODY


class TestClients:
    def test_concurrent_streams_get_their_own_responses(self, envoy, origin):
        origin.answers(
            Node({"eth_getBlockByHash": lambda params: b'"%b"' % params[0].encode() * 1})
        )
        with Http2Client(envoy.direct) as client:
            for _ in range(3):
                streams = {}
                for number in range(60):
                    body = call("eth_getBlockByHash", BLOCK % (number % 20), str(number))
                    streams[client.fetch("/cache", method="POST", body=body)] = number
                client.finish(*streams)
                for stream, number in streams.items():
                    decoded = client.checked_body(stream)
                    assert b'"id":%d,' % number in decoded
                    assert b"0x%064x" % (number % 20) in decoded

    def test_misses_hits_and_streams_are_in_zstd(self, envoy, origin):
        result = b'"%b"' % BODY.hex().encode()
        origin.answers(Node({"eth_getBlockByHash": result}, newline=b""))
        origin.answers(answer(BODY, framing="chunked", split=scattered(7)), "/zstd-stream")
        ids = itertools.count(1)
        with Http2Client(envoy.direct) as client:

            def is_hit():
                id = next(ids)
                body = call("eth_getBlockByHash", BLOCK % 700, str(id))
                single = client.fetch("/zstd", "gzip, br, zstd", method="POST", body=body)
                stream = client.fetch("/zstd-stream", "zstd")
                client.finish(single, stream)
                client.check_response(single, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result), "zstd")
                assert client.checked_body(stream) == BODY
                assert client.heads[stream]["content-encoding"] == "zstd"
                return "; hit" in client.heads[single].get("cache-status", "")

            assert not is_hit()
            envoy.wait_for(is_hit, "a hit")

    def test_closed_window_does_not_delay_other_streams(self, envoy, origin):
        """A response that exceeds its window waits, and other streams don't wait for it."""
        result = b'{"hash":"0x%064x","x":"' % 500 + bytes(range(97, 117)) * 20000 + b'"}'
        origin.answers(Node({"eth_getBlockByHash": result}))
        body = call("eth_getBlockByHash", BLOCK % 500)
        with Http2Client(envoy.direct, window=1000) as client:
            for _ in range(2):  # from the node, and from the cache
                slow = client.fetch("/cache", accept=None, method="POST", body=body)
                while slow not in client.heads:
                    client.step(acknowledge=False)
                quick = client.fetch("/cache", method="POST", body=call("eth_chainId"))
                while quick not in client.ended:
                    client.step(acknowledge=False)
                client.h2.increment_flow_control_window(1 << 20, slow)
                client.h2.increment_flow_control_window(1 << 20)
                client.flush()
                client.finish(slow)
                assert client.checked_body(slow).endswith(b'"result":' + result + b"}\n")

    def test_other_streams_are_complete_when_some_are_reset(self, envoy, origin):
        """Streams are reset before the node responds, while it does, and while the response
        is sent; the others are not affected."""
        go_on = threading.Event()
        origin.answers([head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]),
                        *chunked([BODY[:20000]], last=False), WaitFor(go_on), *chunked([BODY[20000:]])])  # fmt: skip
        with Http2Client(envoy.direct) as client:
            streams = [client.fetch("/at-once") for _ in range(20)]
            while not all(stream in client.heads for stream in streams[:10]):
                client.step()
            for stream in streams[::2]:
                client.reset(stream)
            client.answers_pings()
            go_on.set()
            client.finish(*streams[1::2])
            for stream in streams[1::2]:
                assert client.checked_body(stream) == BODY
        envoy.wait_for(lambda: envoy.active() == 0, "all streams to be gone")

    @pytest.mark.wasm_thorough("test_configs_envoy has TLS in front of a sandbox")
    def test_curl_reads_compressed_responses_over_tls(self, start_envoy, origin):
        envoy = start_envoy([route("/", {"cache": True})], tls=True)
        origin.answers(answer(BODY))
        for option, version in (("--http2", "2"), ("--http1.1", "1.1")):
            output = subprocess.run(
                ["curl", "-sk", option, "--compressed", "-w", "\n%{http_version} %{size_download}",
                 f"https://localhost:{envoy.port}/"],
                capture_output=True, check=True, timeout=30,
            ).stdout  # fmt: skip
            body, _, figures = output.rpartition(b"\n")
            assert body == BODY
            protocol, size = figures.decode().split()
            assert protocol == version and int(size) < len(BODY)

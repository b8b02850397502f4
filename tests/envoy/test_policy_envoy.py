"""What may be called, in Envoy: what its clients can do that no case of the table does."""

import gzip
import json
import threading

import pytest

from harness.client import Connection, request_bytes
from harness.envoy import route
from harness.http2 import Http2Client
from harness.origin import answer
from harness.rpc import Node, call

HOSTS = ("native", "wasm")
RULES = {"method": ["deny debug_* eth_sign"], "batch_max": "100 deny"}
JSON = ("Content-Type", "application/json")
BAD = call("debug_traceTransaction", '["0xab"]', "7")
GOOD = call("eth_chainId", id="8")
BATCH = b"[" + BAD + b"," + GOOD + b"]"
NOT_FOUND = {"code": -32601, "message": "the method does not exist/is not available"}
DENIED = {"jsonrpc": "2.0", "id": 7, "error": NOT_FOUND}
CHAIN = {"jsonrpc": "2.0", "id": 8, "result": "0x1"}


@pytest.fixture(scope="module")
def envoy(start_envoy):
    return start_envoy(
        [
            route("/cached", {**RULES, "cache": True}),
            route("/limited", {"method": "limit=2 trace_*"}),
            route("/bounded", {"max_answer": ["eth_getLogs 1m", "eth_call 1g"]}),
            route("/open", {"method": "allow *"}),
            route("/mixed", {"method": ["allow * debug_x", "deny debug_*"]}),
            route("/", RULES),
        ]
    )


@pytest.fixture(autouse=True)
def node(origin):
    node = Node({"eth_chainId": b'"0x1"', "trace_block": b"[]", "trace_call": b"[]"})
    origin.answers(node)
    return node


def called(origin):
    bodies = [json.loads(request.body) for request in origin.received()]
    return {one["method"] for body in bodies for one in (body if isinstance(body, list) else [body])}


TRACE = call("trace_block", '["0x1"]', "1")


def refused(id):
    error = {"code": -32005, "message": "too many calls of this method at a time"}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def one(host, id):
    return json.loads(ask(host, "/limited", call("trace_block", '["0x1"]', str(id))).decoded)

def ask(envoy, path, body):
    return envoy.ask(path, body)


def asking(host, path, body):
    """A client that may leave."""
    connection = Connection(host.port)
    connection.send(request_bytes(path, method="POST", headers=[JSON], body=body))
    return connection


@pytest.mark.parametrize("path", ["/", "/cached"])
class TestPlaces:
    def test_calls_and_batches(self, envoy, origin, path):
        assert json.loads(envoy.ask(path, BAD).decoded) == DENIED
        assert not origin.received()
        assert json.loads(envoy.ask(path, BATCH).decoded) == [DENIED, CHAIN]
        assert called(origin) <= {"eth_chainId"}

    def test_chunks(self, envoy, origin, path):
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BATCH) + b"0\r\n\r\n"
        headers = [JSON, ("Transfer-Encoding", "chunked")]
        with envoy.connect() as connection:
            connection.send(request_bytes(path, method="POST", headers=headers, body=chunks))
            assert json.loads(connection.read("POST").decoded) == [DENIED, CHAIN]
        assert called(origin) <= {"eth_chainId"}

    def test_an_expectation(self, envoy, origin, path):
        headers = [JSON, ("Expect", "100-continue"), ("Content-Length", str(len(BAD)))]
        with envoy.connect() as connection:
            connection.send(request_bytes(path, method="POST", headers=headers))
            assert b"100 Continue" in connection.socket.recv(100)
            connection.send(BAD)
            assert json.loads(connection.read("POST").decoded) == DENIED
        assert not origin.received()

    def test_codings(self, envoy, origin, path):
        for body, said in ((BAD, DENIED), (BATCH, [DENIED, CHAIN])):
            response = envoy.ask(path, gzip.compress(body), headers=[("Content-Encoding", "gzip")])
            assert json.loads(response.decoded) == said
        assert envoy.ask(path, BAD, headers=[("Content-Encoding", "br")]).status == 415
        assert called(origin) <= {"eth_chainId"}

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    def test_other_methods(self, envoy, origin, path, method):
        assert envoy.ask(path, BAD, method=method).status == 405
        assert not origin.received()

    def test_a_long_request(self, envoy, origin, path):
        """Longer than what Envoy keeps by itself, and than what is ever judged."""
        long = b'[%b,{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":["%b"]}]'
        for length in (3 << 20, 17 << 20):
            is_judged = length < 16 << 20
            try:
                response = envoy.ask(path, long % (BAD, b"a" * length))
            except (BrokenPipeError, ConnectionResetError):
                # an answer before the end of what is asked
                assert not is_judged
                continue
            assert response.status == (200 if is_judged else 413)
            if is_judged:
                assert json.loads(response.decoded) == [DENIED, {**CHAIN, "id": 1}]
        assert called(origin) <= {"eth_chainId"}

    def test_notifications(self, envoy, origin, path):
        response = envoy.ask(path, b'{"jsonrpc":"2.0","method":"debug_x"}')
        assert (response.status, response.body) == (200, b"")
        assert not origin.received()


def test_http2(envoy, origin):
    with Http2Client(envoy.port) as client:
        stream, batch = client.ask("/", body=BAD, method="POST"), client.ask("/", body=BATCH, method="POST")
        client.finish(stream, batch)
        assert json.loads(client.bodies[stream]) == DENIED
        assert json.loads(client.bodies[batch]) == [DENIED, CHAIN]
    assert called(origin) == {"eth_chainId"}


def test_rules_of_a_route(envoy, origin):
    envoy.ask("/open", BAD)
    envoy.ask("/mixed", call("debug_x"))
    assert called(origin) == {"debug_traceTransaction", "debug_x"}
    assert json.loads(envoy.ask("/mixed", BAD).decoded) == DENIED


def test_what_nothing_calls_goes_on(envoy, origin):
    origin.answers(answer(b"up"))
    assert envoy.ask("/health").body == b"up"

class TestLimits:
    """So many calls at a time."""

    def test_who_comes_beyond_is_told_so(self, envoy, node):
        gate = node.gates["trace_block"] = threading.Event()
        got = []
        clients = [threading.Thread(target=lambda n=n: got.append(one(envoy, n))) for n in (1, 2)]
        for client in clients:
            client.start()
        envoy.wait_for(lambda: node.count("trace_block") == 2, "both to be with the node")
        try:
            assert one(envoy, 3) == refused(3)
            # a batch has no other way
            batch = b"[%b,%b]" % (call("trace_call", id="4"), GOOD)
            assert json.loads(ask(envoy, "/limited", batch).decoded) == [refused(4), CHAIN]
            assert node.count("trace_call") == 0
        finally:
            gate.set()
            for client in clients:
                client.join(20)
        assert sorted(said["id"] for said in got if said.get("result") == []) == [1, 2]
        # there is room again
        envoy.wait_for(lambda: "result" in one(envoy, 5), "room")

    def test_a_client_that_goes_makes_room(self, envoy, node):
        gate = node.gates["trace_block"] = threading.Event()
        clients = []
        for _ in range(2):
            clients.append(asking(envoy, "/limited", TRACE))
        try:
            envoy.wait_for(lambda: node.count("trace_block") == 2, "both to be with the node")
            assert one(envoy, 3) == refused(3)
            for client in clients:
                client.close()
            assert json.loads(ask(envoy, "/limited", GOOD).decoded) == CHAIN
            free = call("trace_call", id="6")
            envoy.wait_for(lambda: "result" in json.loads(ask(envoy, "/limited", free).decoded), "room")
        finally:
            gate.set()


LOGS = call("eth_getLogs", '[{"fromBlock":"0x0"}]', "7")
TOO_LONG = {
    "jsonrpc": "2.0",
    "id": 7,
    "error": {"code": -32005, "message": "the answer is longer than may be sent"},
}


def of_length(length, id=7):
    return b'{"jsonrpc":"2.0","id":%d,"result":"%b"}' % (id, b"ab" * (length // 2))


@pytest.mark.parametrize("framing", ["length", "chunked"])
class TestLongAnswers:
    def test_one_that_is_longer_is_an_error(self, envoy, origin, framing):
        for length in (1_100_000, 20_000_000):
            origin.answers(answer(of_length(length), framing=framing))
            for accept in (None, "gzip"):
                got = envoy.ask("/bounded", LOGS, accept)
                assert (got.status, json.loads(got.decoded)) == (200, TOO_LONG)
        short = of_length(900_000)
        origin.answers(answer(short, framing=framing))
        for accept in (None, "gzip"):
            assert envoy.ask("/bounded", LOGS, accept).decoded == short

    def test_in_a_batch_it_is_that_one(self, envoy, origin, framing):
        batch = b"[%b,%b]" % (LOGS, call("eth_call", id="8"))
        answers = b"[%b,%b]" % (of_length(2_000_000), of_length(2_000_000, 8))
        origin.answers(answer(answers, framing=framing))
        got = json.loads(envoy.ask("/bounded", batch).decoded)
        assert got == [TOO_LONG, json.loads(of_length(2_000_000, 8))]

    def test_clients_that_leave(self, envoy, origin, framing):
        origin.answers(answer(of_length(1_100_000), framing=framing))
        for _ in range(20):
            asking(envoy, "/bounded", LOGS).close()
        assert json.loads(envoy.ask("/bounded", LOGS).decoded) == TOO_LONG

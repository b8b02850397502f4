"""The policy, tested with requests that no case of the table can express: a denied call never
reaches the node, however it is sent."""

import gzip
import json
import random
import re
import threading

import pytest

from harness.client import Connection, request_bytes
from harness.guards import GUARD_SECONDS
from harness.http2 import Http2Client
from harness.json_readers import method_members, received_methods
from harness.origin import answer
from harness.rpc import Node, call
from tiers import times

pytestmark = pytest.mark.carried("the core decides what is called")

RULES = {"method": ["deny debug_* eth_sign"], "batch_max": "100 deny"}
JSON = ("Content-Type", "application/json")
BAD = call("debug_traceTransaction", '["0xab"]', "7")
GOOD = call("eth_chainId", id="8")
BATCH = b"[" + BAD + b"," + GOOD + b"]"
NOT_FOUND = {"code": -32601, "message": "the method does not exist/is not available"}
DENIED = {"jsonrpc": "2.0", "id": 7, "error": NOT_FOUND}
CHAIN = {"jsonrpc": "2.0", "id": 8, "result": "0x1"}


PLACES = {
    "/cached": {**RULES, "cache": True},
    "/limited": {"method": ["limit=2 trace_*"]},
    "/bounded": {"max_answer": ["eth_getLogs 1m", "eth_call 1g"]},
    "/open": {"method": ["allow *"]},
    "/mixed": {"method": ["allow * debug_x", "deny debug_*"]},
    "/": RULES,
}


@pytest.fixture(scope="module")
def server(start_server):
    return start_server(PLACES)


@pytest.fixture(autouse=True)
def node(origin):
    node = Node({"eth_chainId": b'"0x1"', "trace_block": b"[]", "trace_call": b"[]"})
    origin.answers(node)
    return node


def is_denied(method):
    return isinstance(method, str) and re.match(r"\s*(debug_|eth_sign\s*$)", method, re.IGNORECASE)


TRACE = call("trace_block", '["0x1"]', "1")


def refused(id):
    error = {"code": -32005, "message": "too many calls of this method at a time"}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def one(server, id):
    return json.loads(server.fetch("/limited", call("trace_block", '["0x1"]', str(id))).decoded)

def open_request(server, path, body):
    """A connection whose client may abort."""
    connection = Connection(server.port)
    connection.send(request_bytes(path, method="POST", headers=[JSON], body=body))
    return connection


@pytest.mark.parametrize("path", ["/", "/cached"])
class TestPlaces:
    def test_denied_call_does_not_reach_the_node(self, server, origin, path):
        assert json.loads(server.fetch(path, BAD).decoded) == DENIED
        assert not origin.received()
        assert json.loads(server.fetch(path, BATCH).decoded) == [DENIED, CHAIN]
        assert set(received_methods(origin)) <= {"eth_chainId"}

    def test_denied_call_in_chunks_does_not_reach_the_node(self, server, origin, path):
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BATCH) + b"0\r\n\r\n"
        headers = [JSON, ("Transfer-Encoding", "chunked")]
        with server.connect() as connection:
            connection.send(request_bytes(path, method="POST", headers=headers, body=chunks))
            assert json.loads(connection.read("POST").decoded) == [DENIED, CHAIN]
        assert set(received_methods(origin)) <= {"eth_chainId"}

    def test_denied_call_with_expect_continue_does_not_reach_the_node(self, server, origin, path):
        headers = [JSON, ("Expect", "100-continue"), ("Content-Length", str(len(BAD)))]
        with server.connect() as connection:
            connection.send(request_bytes(path, method="POST", headers=headers))
            assert b"100 Continue" in connection.socket.recv(100)
            connection.send(BAD)
            assert json.loads(connection.read("POST").decoded) == DENIED
        assert not origin.received()

    def test_denied_call_in_a_coding_does_not_reach_the_node(self, server, origin, path):
        for body, expected in ((BAD, DENIED), (BATCH, [DENIED, CHAIN])):
            response = server.fetch(path, gzip.compress(body), headers=[("Content-Encoding", "gzip")])
            assert json.loads(response.decoded) == expected
        assert server.fetch(path, BAD, headers=[("Content-Encoding", "br")]).status == 415
        assert set(received_methods(origin)) <= {"eth_chainId"}

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    def test_request_other_than_post_with_a_body_is_rejected(self, server, origin, path, method):
        assert server.fetch(path, BAD, method=method).status == 405
        assert not origin.received()

    def test_long_request_is_evaluated_or_rejected(self, server, origin, path):
        """The body is longer than Envoy buffers by itself, or than the policy evaluates."""
        long = b'[%b,{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":["%b"]}]'
        for length in (3 << 20, 17 << 20):
            is_judged = length < 16 << 20
            try:
                response = server.fetch(path, long % (BAD, b"a" * length))
            except (BrokenPipeError, ConnectionResetError):
                # the response precedes the end of the request
                assert not is_judged
                continue
            assert response.status == (200 if is_judged else 413)
            if is_judged:
                assert json.loads(response.decoded) == [DENIED, {**CHAIN, "id": 1}]
        assert set(received_methods(origin)) <= {"eth_chainId"}

    def test_denied_notification_gets_an_empty_response(self, server, origin, path):
        note = b'{"jsonrpc":"2.0","method":"debug_x"}'
        for body in (note, b"[" + note + b"]"):
            response = server.fetch(path, body)
            assert (response.status, response.body, response.length) == (200, b"", 0)
        assert not origin.received()


@pytest.mark.hosts("native", "wasm")
def test_denied_call_over_http2_does_not_reach_the_node(server, origin):
    with Http2Client(server.port) as client:
        stream, batch = client.fetch("/", body=BAD, method="POST"), client.fetch("/", body=BATCH, method="POST")
        client.finish(stream, batch)
        assert json.loads(client.bodies[stream]) == DENIED
        assert json.loads(client.bodies[batch]) == [DENIED, CHAIN]
    assert set(received_methods(origin)) == {"eth_chainId"}


def test_route_with_rules_inherits_no_rules(server, origin):
    server.fetch("/open", BAD)
    server.fetch("/mixed", call("debug_x"))
    assert set(received_methods(origin)) == {"debug_traceTransaction", "debug_x"}
    assert json.loads(server.fetch("/mixed", BAD).decoded) == DENIED


def test_request_without_a_body_is_forwarded(server, origin):
    origin.answers(answer(b"up"))
    assert server.fetch("/health").body == b"up"

# docs/envoy-wasm.md: Envoy closes the sandbox's connection
@pytest.mark.hosts("nginx", "native")
def test_pipelined_calls_are_evaluated_one_by_one(server, origin):
    with server.connect() as connection:
        for body in (GOOD, BAD, BATCH, BAD, GOOD):
            connection.send(request_bytes("/", method="POST", headers=[JSON], body=body))
        got = [json.loads(connection.read("POST").decoded) for _ in range(5)]
    assert got == [CHAIN, DENIED, [DENIED, CHAIN], DENIED, CHAIN]
    assert set(received_methods(origin)) == {"eth_chainId"}


def made_up(chance):
    """A call whose parts are mixed up, with a changed byte now and then."""
    names = ["method"] * 4 + ["Method", "METHOD", r"m\u0065thod", "id", "params", "jsonrpc", "x"]
    values = ['"debug_x"', '"DEBUG_X"', r'"d\u0065bug_x"', '"eth_sign"', '"eth_chainId"', '"eth_x"', "1", "null", "[]"]

    def one():
        if chance.random() < 0.85:
            method = chance.choice(["debug_x", "eth_sign", "eth_chainId", "eth_x", "Eth_Sign", "debug_"])
            return call(method, id=chance.choice(["1", '"a"', "null", "2"])).decode()
        some = [f'"{chance.choice(names)}":{chance.choice(values)}' for _ in range(chance.randrange(5))]
        if chance.random() < 0.7:
            some.insert(0, '"jsonrpc":"2.0"')
        return "{" + ",".join(some) + "}"

    def some(depth):
        if chance.random() < (0.3, 0.95, 1)[depth]:
            return one()
        return "[" + chance.choice([",", ",", ", ", ",,"]).join(some(depth + 1) for _ in range(chance.randrange(4))) + "]"

    text = bytearray(chance.choice(["", "", " ", "\ufeff"]).encode() + some(0).encode())
    if chance.random() < 0.3 and text:
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text)


def test_random_bodies_that_pass_have_no_denied_method(server, origin):
    chance = random.Random(20)
    origin.answers(lambda request: answer(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}'))
    went_on, count = 0, times(300, 900)
    with server.connect() as connection:
        for _ in range(count):
            body = made_up(chance)
            headers = [chance.choice([JSON, ("Content-Type", "text/plain")])]
            connection.send(request_bytes(chance.choice(["/", "/cached"]), method="POST", headers=headers, body=body))
            response = connection.read("POST")
            assert response.status == 200, body
    for request in origin.received():
        assert not any(is_denied(method) for method in method_members(request.body)), request.body
        went_on += 1
    assert went_on > count // 12


class TestLimits:
    """The number of calls in flight is limited."""

    def test_call_beyond_the_concurrency_limit_is_rejected(self, server, node):
        gate = node.gates["trace_block"] = threading.Event()
        got = []
        clients = [threading.Thread(target=lambda n=n: got.append(one(server, n))) for n in (1, 2)]
        for client in clients:
            client.start()
        server.wait_for(lambda: node.count("trace_block") == 2, "both to be with the node")
        try:
            assert one(server, 3) == refused(3)
            # a batch has the same limit
            batch = b"[%b,%b]" % (call("trace_call", id="4"), GOOD)
            assert json.loads(server.fetch("/limited", batch).decoded) == [refused(4), CHAIN]
            assert node.count("trace_call") == 0
        finally:
            gate.set()
            for client in clients:
                client.join(GUARD_SECONDS)
        assert sorted(reply["id"] for reply in got if reply.get("result") == []) == [1, 2]
        # permits are released
        server.wait_for(lambda: "result" in one(server, 5), "room")

    def test_permit_is_released_when_the_client_aborts(self, server, node):
        gate = node.gates["trace_block"] = threading.Event()
        clients = []
        for _ in range(2):
            clients.append(open_request(server, "/limited", TRACE))
        try:
            server.wait_for(lambda: node.count("trace_block") == 2, "both to be with the node")
            assert one(server, 3) == refused(3)
            for client in clients:
                client.close()
            assert json.loads(server.fetch("/limited", GOOD).decoded) == CHAIN
            free = call("trace_call", id="6")
            server.wait_for(lambda: "result" in json.loads(server.fetch("/limited", free).decoded), "room")
        finally:
            gate.set()


LOGS = call("eth_getLogs", '[{"fromBlock":"0x0"}]', "7")
TOO_LONG = {
    "jsonrpc": "2.0",
    "id": 7,
    "error": {"code": -32005, "message": "the response is longer than the limit of its method"},
}


def result_of_length(length, id=7):
    return b'{"jsonrpc":"2.0","id":%d,"result":"%b"}' % (id, b"ab" * (length // 2))


@pytest.mark.parametrize("framing", ["length", "chunked"])
class TestLongAnswers:
    def test_longer_result_is_an_error(self, server, origin, framing):
        for length in (1_100_000, times(5, 20) * 1_000_000):
            origin.answers(answer(result_of_length(length), framing=framing))
            for accept in (None, "gzip"):
                got = server.fetch("/bounded", LOGS, accept)
                assert (got.status, json.loads(got.decoded)) == (200, TOO_LONG)
        short = result_of_length(900_000)
        origin.answers(answer(short, framing=framing))
        for accept in (None, "gzip"):
            assert server.fetch("/bounded", LOGS, accept).decoded == short

    def test_longer_result_of_a_batch_is_an_error_of_its_call(self, server, origin, framing):
        batch = b"[%b,%b]" % (LOGS, call("eth_call", id="8"))
        answers = b"[%b,%b]" % (result_of_length(2_000_000), result_of_length(2_000_000, 8))
        origin.answers(answer(answers, framing=framing))
        got = json.loads(server.fetch("/bounded", batch).decoded)
        assert got == [TOO_LONG, json.loads(result_of_length(2_000_000, 8))]

    def test_response_limit_is_enforced_after_clients_abort(self, server, origin, framing):
        origin.answers(answer(result_of_length(1_100_000), framing=framing))
        for _ in range(20):
            open_request(server, "/bounded", LOGS).close()
        assert json.loads(server.fetch("/bounded", LOGS).decoded) == TOO_LONG

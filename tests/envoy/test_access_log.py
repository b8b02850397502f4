"""Properties of a response and its request in access logs."""

import json
import threading

import pytest

from harness.client import request_bytes
from harness.envoy import Envoy, route
from harness.origin import answer
from harness.rpc import Node, call
from harness.sandbox import WasmEnvoy

BODY = b'{"a":"' + b"b" * 5000 + b'"}'


@pytest.fixture(scope="module")
def envoy(session_origin):
    follows = {"max_internal_redirects": 1, "redirect_response_codes": [307]}
    routes = [
        route("/off", {"enable": False, "cache": False}),
        route("/moved", internal_redirect_policy=follows),
        route("/"),
    ]
    envoy = Envoy(
        routes,
        origin=session_origin,
        settings={"cache": True, "cache_namespace": "mainnet", "ssz": True},
    )
    listener = envoy.configuration["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    log_format = manager["access_log"][0]["typed_config"]["log_format"]["json_format"]
    log_format |= {
        "all": "%DYNAMIC_METADATA(sszip)%",
        "accepts": "%REQ(ACCEPT-ENCODING)%",
        "accept": "%REQ(ACCEPT)%",
        "sent": "%BYTES_SENT%",
    }
    yield envoy.start()
    envoy.stop()


def logged(response):
    line = response.logged
    return line["all"] if isinstance(line["all"], dict) else json.loads(line["all"])


def test_log_has_mode_cache_status_and_reason(envoy, origin):
    origin.answers(answer(BODY))
    entry = logged(envoy.get("/x"))
    assert entry.pop("ratio") and len(entry.pop("cache_key")) == 64
    assert entry == {
        "mode": "oneshot",
        "coding": "gzip",
        "cache_status": "MISS",
        "cache_reason": "result",
    }
    assert logged(envoy.get("/off")) == {"mode": "off"}


def test_log_has_method_batch_size_and_hits(envoy, origin):
    origin.answers(Node({"eth_chainId": b'"0x1"', "eth_blockNumber": b'"0x2"'}))
    body = call("eth_chainId", "[]")
    assert logged(envoy.post("/c", body))["cache_status"] == "MISS"
    entry = logged(envoy.post("/c", body))
    assert (entry["mode"], entry["cache_status"], entry["rpc_method"]) == (
        "hit",
        "HIT",
        "eth_chainId",
    )
    batch = b"[" + body + b"," + call("eth_blockNumber", "[]", "2") + b"]"
    entry = logged(envoy.post("/c", batch))
    assert (entry["mode"], entry["batch_size"], entry["batch_hits"]) == (
        "merged",
        "2",
        "1",
    )


def test_log_variables_of_a_sandbox_are_unset_if_they_are_switched_off(session_origin, origin):
    origin.answers(answer(BODY))
    sandbox = WasmEnvoy([route("/")], origin=session_origin, owner=None, settings={"log_variables": False}).start()
    try:
        response = sandbox.get("/x")
        assert response.header("Content-Encoding") == "gzip"
        assert response.logged.get("mode") is None
    finally:
        sandbox.stop()


@pytest.mark.parametrize("accepts", ["gzip, br;q=0.5", "identity", None])
@pytest.mark.parametrize("path", ["/log", "/off"])
def test_log_has_the_accept_encoding_of_the_client(envoy, origin, accepts, path):
    """The node is sent Accept-Encoding: identity all the same."""
    origin.answers(answer(BODY, headers=[("Cache-Control", "max-age=60")]))
    first = envoy.get(path, accepts)
    assert first.logged["accepts"] == accepts
    sent = origin.requests[-1].header("Accept-Encoding")
    assert sent == (accepts if path == "/off" else "identity")


def test_log_has_the_accept_encoding_of_a_client_that_aborted(envoy, origin):
    """The client aborts before there is a response: the log has the values known by then."""
    go_on = threading.Event()
    node = Node({"eth_gasPrice": b'"0x1"'})
    node.gates["eth_gasPrice"] = go_on
    origin.answers(node)
    path = "/left"
    fields = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip, br;q=0.5")]
    with envoy.connect() as connection:
        connection.send(request_bytes(path, method="POST", headers=fields, body=call("eth_gasPrice")))
        envoy.wait_for(node.count, "the node to receive a request")
    line = envoy.wait_for(lambda: envoy.logged(path), "a line of the log")
    go_on.set()
    assert (line["status"], line["accepts"]) == (0, "gzip, br;q=0.5")
    assert (line["all"]["cache_status"], line["all"]["rpc_method"]) == ("MISS", "eth_gasPrice")


def test_log_has_the_accept_encoding_of_the_client_after_an_internal_redirect(envoy, origin):
    def moved(request):
        if request.path == "/moved":
            to = f"http://localhost/there?{request.target.partition('?')[2]}"
            return answer(b"", status=307, headers=[("Location", to)])
        return answer(BODY)

    origin.answers(moved)
    response = envoy.get("/moved", "gzip, br;q=0.5")
    assert (response.status, response.coding) == (200, "gzip")
    there = response.uri.replace("/moved", "/there")

    def line_of_the_answer():
        # the redirected request has a line, too
        line = envoy.logged(there)
        return line["status"] == 200 and line

    line = envoy.wait_for(line_of_the_answer, "the answer's line")
    assert (line["accepts"], line["mode"]) == ("gzip, br;q=0.5", "oneshot")
    assert origin.requests[-1].header("Accept-Encoding") == "identity"


def test_local_reply_has_response_code_details(envoy, origin):
    """The JSON of a long response is not buffered any more when it turns out to be invalid."""
    long = b'{"version":"electra","data":{"message":' + b" " * (5 << 20) + b"1}}"
    headers = [("Eth-Consensus-Version", "electra")]
    origin.answers(answer(long, headers=headers))
    response = envoy.get(
        "/eth/v2/beacon/blocks/head", headers=[("Accept", "application/octet-stream, */*;q=0.5")]
    )
    assert response.status == 502
    assert response.logged["details"] == "sszip_format"

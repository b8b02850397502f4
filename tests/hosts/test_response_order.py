"""Two requests for the same are in flight, and their responses arrive in the other order: the
response to the earlier one is not stored."""

import json
import threading

import pytest

from harness.origin import WaitFor, answer
from harness.rpc import call

BODY = call("eth_gasPrice")


@pytest.fixture(scope="module")
def server(start_server):
    # requests do not wait for one another
    places = {"cache": True, "cache_namespace": "all", "cache_lock": False, "cache_valid": "tip 1h"}
    return start_server({"/": places})


def result_of(response):
    return json.loads(response.decoded)["result"]


def test_response_to_an_earlier_request_does_not_replace_a_later_one(server, origin):
    is_released = threading.Event()
    received = []

    def node(request):
        received.append(request)
        if len(received) == 1:
            return [WaitFor(is_released), *answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}')]
        return answer(b'{"jsonrpc":"2.0","id":1,"result":"0x2"}')

    origin.answers(node)
    earlier = []
    client = threading.Thread(target=lambda: earlier.append(server.fetch("/", BODY)))
    client.start()
    try:
        server.wait_for(lambda: len(received) == 1, "the first request at the node")
        assert result_of(server.fetch("/", BODY)) == "0x2"
        server.wait_for(
            lambda: server.fetch("/", BODY).header("Cache-Status").startswith("sszip; hit"),
            "the second response to be stored",
        )
    finally:
        is_released.set()
        client.join()
    assert result_of(earlier[0]) == "0x1"
    for _ in range(20):
        response = server.fetch("/", BODY)
        assert response.header("Cache-Status").startswith("sszip; hit")
        assert result_of(response) == "0x2"

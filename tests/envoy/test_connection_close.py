"""Clients that close their connection after one response."""

from harness.client import Connection
from harness.envoy import empty, route
from harness.rpc import Node, call


def test_connection_of_a_hit_closes_as_that_of_a_local_reply(start_envoy, origin):
    """A hit is complete at once, and ends the connection. Envoy waits for the client to close
    it first, up to `delayed_close_timeout`, if the response is not a node's: once a filter has
    responded, the connection manager starts that wait (conn_manager_impl.cc: onData)."""
    origin.answers(Node({"eth_getBlockByHash": b'"%b"' % (b"0" * 5000)}))
    http = {"delayed_close_timeout": "0.3s"}
    envoy = start_envoy([empty("/empty"), route("/", {"cache": True})], http=http)
    block = call("eth_getBlockByHash", '["0x%064x",true]' % 1)
    fields = [("Content-Type", "application/json"), ("Connection", "close")]

    def send(path, body):
        """Whether Envoy waited for the client."""
        before = waits()
        with Connection(envoy.port) as connection:
            method = "POST" if body else "GET"
            response = connection.exchange(path, method=method, headers=fields, body=body)
            assert response.header("Connection") == "close"
            connection.ended()
        envoy.wait_for(lambda: open_ones() == 0, "the connection to be closed")
        return waits() > before

    def waits():
        return envoy.stats(r"^http\.test\.downstream_cx_delayed_close_timeout$").popitem()[1]

    def open_ones():
        return envoy.stats(r"^http\.test\.downstream_cx_active$").popitem()[1]

    assert not send("/", block)
    assert send("/empty", None)
    assert send("/", block)

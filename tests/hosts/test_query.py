"""QUERY (RFC 10008): the node receives a POST, and caches in front receive freshness and a tag."""

import json
import re

import pytest

from harness.http2 import Http2Client
from harness.origin import answer
from harness.rpc import call

pytestmark = pytest.mark.carried("the core decides; hosts replace the method of the upstream request")

CALL = call("eth_config")
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"next":null}}'
# without the option Envoy rejects a QUERY over HTTP/1
HTTP = {"http_protocol_options": {"accept_http_10": True, "allow_custom_methods": True}}
# a port of nginx for HTTP/2; Envoy has one for both versions
HTTP2 = """
server {
    listen 127.0.0.1:@port_h2@ http2;
    location / { sszip_cache on; sszip_query on; proxy_pass http://@origin@; }
}
"""


@pytest.fixture(scope="module")
def server(start_server):
    places = {
        "/cached": {"cache": True, "query": True},
        "/first": {"cache": True, "query": True},
        "/http2": {"cache": True, "query": True},
        "/uncached": {"query": True},
        "/policy": {"query": True, "method": ["allow eth_*"]},
        "/": {"cache": True},
    }
    return start_server(places, http=HTTP, more=HTTP2)


def query(server, path, body=CALL, **request):
    return server.fetch(path, body, method="QUERY", **request)


@pytest.mark.parametrize("path", ["/first", "/uncached", "/policy"])
def test_node_receives_a_query_as_a_post(server, origin, path):
    origin.answers(answer(RESULT))
    response = query(server, path, headers=[("If-None-Match", '"a"'), ("Range", "bytes=0-1")])
    assert (response.status, response.decoded) == (200, RESULT)
    assert response.header("Accept-Query") == "application/json"
    (request,) = origin.received()
    assert (request.method, request.body) == ("POST", CALL)
    assert not request.all("If-None-Match") and not request.all("Range")


def test_hit_has_freshness_and_a_tag_with_which_it_is_not_modified(server, origin):
    origin.answers(answer(RESULT))
    query(server, "/cached")
    origin.requests.clear()
    response = query(server, "/cached")
    assert "; hit" in response.header("Cache-Status") and not origin.received()
    lifetime = int(re.fullmatch(r"max-age=(\d+)", response.header("Cache-Control"))[1])
    age = int(response.header("Age"))
    assert 0 <= age <= lifetime <= 60
    tag = response.header("ETag")
    assert re.fullmatch(r'W/"[0-9a-f]{32}"', tag)
    assert "Accept-Encoding" in response.header("Vary")
    unchanged = query(server, "/cached", headers=[("If-None-Match", tag)])
    assert (unchanged.status, unchanged.body) == (304, b"")
    assert unchanged.header("ETag") == tag and unchanged.header("Cache-Control")


def test_query_that_changes_something_does_not_reach_the_node(server, origin):
    for path in ("/cached", "/uncached", "/policy"):
        response = query(server, path, call("eth_sendRawTransaction", '["0x02"]'))
        assert (response.status, response.header("Allow")) == (405, "POST")
        assert json.loads(response.decoded)["error"]["code"] == -32600
    assert not origin.received()


def test_query_over_http2_is_the_same_call(server, host, origin):
    origin.answers(answer(RESULT))
    port = server.ports["port_h2"] if host == "nginx" else server.port
    with Http2Client(port) as client:
        for _ in range(2):
            stream = client.fetch("/http2", method="QUERY", body=CALL)
            client.finish(stream)
            assert client.heads[stream][":status"] == "200"
            assert bytes(client.bodies[stream]) == RESULT
            assert client.heads[stream]["accept-query"] == "application/json"
        assert re.fullmatch(r"max-age=\d+", client.heads[stream]["cache-control"])
        body = call("eth_sendRawTransaction", '["0x02"]')
        stream = client.fetch("/http2", method="QUERY", body=body)
        client.finish(stream)
        head = client.heads[stream]
        assert (head[":status"], head["allow"]) == ("405", "POST")
    (request,) = origin.received()
    assert (request.method, request.body) == ("POST", CALL)


def test_query_is_forwarded_as_it_is_where_it_is_not_enabled(server, origin):
    origin.answers(answer(RESULT))
    assert query(server, "/").status == 200
    (request,) = origin.received()
    assert (request.method, request.body) == ("QUERY", CALL)

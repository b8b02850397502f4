"""The configuration of the README: load_module and `sszip on`, nothing else, in front of a
node that compresses whenever Accept-Encoding allows it."""

import pytest

from harness.recorded_nodes import BODY, geth, plain

CONFIG = """
sszip on;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location /off { sszip off; proxy_pass http://@origin@; }
    location /user/gzip { proxy_set_header Accept-Encoding gzip; proxy_pass http://@origin@; }
    location /user/nothing { proxy_set_header Accept-Encoding ""; proxy_pass http://@origin@; }
    location /user/client {
        proxy_set_header Accept-Encoding $http_accept_encoding;
        proxy_pass http://@origin@;
    }
    location /user/beside {
        proxy_set_header X-Client-Accept-Encoding $http_accept_encoding;
        proxy_set_header Host node;
        proxy_pass http://@origin@;
    }
    location /user/no-headers { proxy_pass_request_headers off; proxy_pass http://@origin@; }
    location /no-such-node { set $node nowhere.invalid; error_page 502 = @away; proxy_pass http://$node; }
    location /no-such-node-on { set $node nowhere.invalid; error_page 502 = @near; proxy_pass http://$node; }
    location @away { sszip off; proxy_pass http://@origin@; }
    location @near { proxy_set_header X-Client-Accept-Encoding $http_accept_encoding; proxy_pass http://@origin@; }
    location /pass { sszip_upstream_encoding pass; proxy_pass http://@origin@; }
}
"""


def test_gzip_client_gets_gzip_with_an_exact_length(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/")
    assert (response.status, response.coding, response.framing) == (200, "gzip", "length")
    assert response.decoded == BODY
    assert len(response.body) < len(BODY) / 3
    assert response.header("Vary") == "Accept-Encoding"
    assert response.mode == "oneshot"


def test_compression_ratio_is_logged(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/")
    assert float(response.logged["ratio"]) == pytest.approx(len(BODY) / len(response.body), abs=0.01)


def test_ratio_is_empty_when_the_response_is_not_compressed(nginx, origin):
    origin.answers(geth())
    assert nginx.post("/", accept=None).logged["ratio"] in ("", "-")


def test_client_without_gzip_gets_identity_with_a_length(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/", accept=None)
    assert (response.status, response.coding, response.framing) == (200, None, "length")
    assert response.body == BODY
    assert response.header("Vary") == "Accept-Encoding"


def test_node_gets_one_accept_encoding_of_identity(nginx, origin):
    origin.answers(geth())
    nginx.post("/", accept="gzip, deflate", headers=[("Accept-Encoding", "br")])
    assert origin.last().all("Accept-Encoding") == ["identity"]


def test_log_has_the_accept_encoding_of_the_client(nginx, origin):
    origin.answers(geth())
    assert nginx.post("/", accept="gzip, br;q=0.9").logged["accept_encoding"] == "gzip, br;q=0.9"


def test_request_and_response_are_unchanged_when_sszip_is_off(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/off", accept="gzip, br")
    assert origin.last().header("Accept-Encoding") == "gzip, br"
    assert (response.coding, response.framing) == ("gzip", "chunked")
    assert response.header("Vary") is None
    assert response.mode == "off"


def test_pass_forwards_accept_encoding_and_the_gzip_of_the_node(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/pass", accept="gzip, br")
    assert origin.last().header("Accept-Encoding") == "gzip, br"
    assert response.decoded == BODY
    assert response.mode == "encoded"


# Values that the operator sets with proxy_set_header have priority.


def test_operator_may_set_accept_encoding_gzip(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/gzip")
    assert origin.last().all("Accept-Encoding") == ["gzip"]
    assert response.decoded == BODY
    assert response.mode == "encoded"


def test_gzip_of_the_node_is_decoded_for_a_client_without_gzip(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/gzip", accept=None)
    assert (response.coding, response.framing, response.body) == (None, "length", BODY)
    assert response.mode == "inflate"


def test_operator_may_remove_accept_encoding(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/nothing")
    assert origin.last().all("Accept-Encoding") == []
    assert response.mode == "oneshot"


def test_operator_may_forward_the_accept_encoding_of_the_client(nginx, origin):
    origin.answers(plain())
    response = nginx.post("/user/client", accept="gzip, br")
    assert origin.last().all("Accept-Encoding") == ["gzip, br"]
    assert response.mode == "oneshot"


def test_http_accept_encoding_variable_has_the_value_of_the_client(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/beside", accept="gzip, br")
    assert origin.last().header("X-Client-Accept-Encoding") == "gzip, br"
    assert origin.last().all("Accept-Encoding") == ["identity"]
    assert origin.last().header("Host") == "node"
    assert response.mode == "oneshot"


def test_response_is_compressed_when_request_headers_are_not_passed(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/no-headers")
    assert origin.last().all("Accept-Encoding") in ([], ["identity"])
    assert response.mode == "oneshot"
    assert response.decoded == BODY


def test_error_page_location_gets_the_headers_of_the_client(nginx, origin):
    """The node's name is not resolved while its request is being made: the location of the
    error page starts from the client's request."""
    origin.answers(geth())
    response = nginx.post("/no-such-node", accept="gzip, br")
    assert origin.last().all("Accept-Encoding") == ["gzip, br"]
    assert (response.status, response.decoded, response.mode) == (200, BODY, "off")
    response = nginx.post("/no-such-node-on", accept="gzip, br")
    assert origin.last().all("Accept-Encoding") == ["identity"]
    assert origin.last().header("X-Client-Accept-Encoding") == "gzip, br"
    assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)
    for _ in range(2):
        response = nginx.post("/no-such-node", accept=None)
        assert origin.last().all("Accept-Encoding") == []
        assert (response.status, response.body) == (200, BODY)

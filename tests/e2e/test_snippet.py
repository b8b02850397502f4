"""The promise of the README: load_module and `sszip on`, nothing else, in
front of a node that gzips whenever it is asked."""

import pytest

from harness.nodes import BODY, geth, plain

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


def test_a_gzip_client_gets_gzip_with_an_exact_length(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/")
    assert (response.status, response.coding, response.framing) == (200, "gzip", "length")
    assert response.decoded == BODY
    assert len(response.body) < len(BODY) / 3
    assert response.header("Vary") == "Accept-Encoding"
    assert response.mode == "oneshot"


def test_the_ratio_is_logged(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/")
    assert float(response.logged["ratio"]) == pytest.approx(len(BODY) / len(response.body), abs=0.01)


def test_there_is_no_ratio_where_nothing_was_compressed(nginx, origin):
    origin.answers(geth())
    assert nginx.post("/", accept=None).logged["ratio"] in ("", "-")


def test_another_client_gets_identity_with_the_nodes_length(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/", accept=None)
    assert (response.status, response.coding, response.framing) == (200, None, "length")
    assert response.body == BODY
    assert response.header("Vary") == "Accept-Encoding"


def test_the_node_is_asked_for_identity_once(nginx, origin):
    origin.answers(geth())
    nginx.post("/", accept="gzip, deflate", headers=[("Accept-Encoding", "br")])
    assert origin.last().all("Accept-Encoding") == ["identity"]


def test_the_log_shows_what_the_client_said(nginx, origin):
    origin.answers(geth())
    assert nginx.post("/", accept="gzip, br;q=0.9").logged["accept_encoding"] == "gzip, br;q=0.9"


def test_off_leaves_the_conversation_alone(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/off", accept="gzip, br")
    assert origin.last().header("Accept-Encoding") == "gzip, br"
    assert (response.coding, response.framing) == ("gzip", "chunked")
    assert response.header("Vary") is None
    assert response.mode == "off"


def test_pass_forwards_and_the_nodes_gzip_goes_through(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/pass", accept="gzip, br")
    assert origin.last().header("Accept-Encoding") == "gzip, br"
    assert response.decoded == BODY
    assert response.mode == "encoded"


# What the operator wrote with proxy_set_header wins.


def test_the_operator_may_ask_the_node_for_gzip(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/gzip")
    assert origin.last().all("Accept-Encoding") == ["gzip"]
    assert response.decoded == BODY
    assert response.mode == "encoded"


def test_the_nodes_gzip_is_inflated_for_who_cannot_read_it(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/gzip", accept=None)
    assert (response.coding, response.framing, response.body) == (None, "length", BODY)
    assert response.mode == "inflate"


def test_the_operator_may_send_no_accept_encoding(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/nothing")
    assert origin.last().all("Accept-Encoding") == []
    assert response.mode == "oneshot"


def test_the_operator_may_forward_the_clients(nginx, origin):
    origin.answers(plain())
    response = nginx.post("/user/client", accept="gzip, br")
    assert origin.last().all("Accept-Encoding") == ["gzip, br"]
    assert response.mode == "oneshot"


def test_the_variable_holds_the_clients_original(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/beside", accept="gzip, br")
    assert origin.last().header("X-Client-Accept-Encoding") == "gzip, br"
    assert origin.last().all("Accept-Encoding") == ["identity"]
    assert origin.last().header("Host") == "node"
    assert response.mode == "oneshot"


def test_without_request_headers_the_node_has_nothing_to_gzip_for(nginx, origin):
    origin.answers(geth())
    response = nginx.post("/user/no-headers")
    assert origin.last().all("Accept-Encoding") in ([], ["identity"])
    assert response.mode == "oneshot"
    assert response.decoded == BODY


def test_an_error_page_sees_the_clients_request(nginx, origin):
    """The node's name is not found while its request is being made: the
    location that answers instead starts from what the client sent."""
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

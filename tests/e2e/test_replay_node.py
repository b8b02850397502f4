"""The replay node's sample of mainnet through the configuration of the README, with the
framings and codings of real nodes."""

import pytest

from harness.client import Connection
from harness.replay import ReplayNode, calls

pytestmark = pytest.mark.carried("many bodies in the same few ways")

CONFIG = """
sszip on;
server { listen 127.0.0.1:@port@; location / { proxy_pass http://@node@; } }
server {
    listen 127.0.0.1:@port_kept@;
    proxy_http_version 1.1;
    location / { proxy_pass http://@node@; }
}
"""
LARGE_ENOUGH = 1024


@pytest.fixture(scope="module", params=[[], ["--gzip"], ["--chunked", "*"], ["--gzip", "--piece", "1000"]], ids=" ".join)
def pair(request, start_nginx):
    replay = ReplayNode(*request.param)
    nginx = start_nginx(CONFIG.replace("@node@", replay.address))
    nginx.chunked = "--chunked" in request.param
    nginx.replay = replay
    yield nginx
    replay.stop()


def send(port, call, accept=None, options=None):
    """A response of a node; the header X-Replay has the node's options for it."""
    headers = [("Accept-Encoding", accept)] if accept else []
    if options:
        headers.append(("X-Replay", options))
    with Connection(port) as connection:
        return call.fetch(connection, headers)


@pytest.mark.parametrize("port", ["port", "port_kept"])
def test_recorded_responses_arrive_unchanged(pair, port):
    seen = 0
    for call in calls():
        expected = send(pair.replay.port, call)
        assert expected.status == 200
        for accept in ("gzip", None):
            response = send(pair.ports[port], call, accept)
            assert (response.status, response.decoded) == (200, expected.body)
            if not pair.chunked:
                assert response.framing == "length"
                coded = accept and len(expected.body) >= LARGE_ENOUGH
                assert response.coding == ("gzip" if coded else None)
        seen += 1
    assert seen > 10


@pytest.fixture(scope="module")
def faulty(start_nginx):
    replay = ReplayNode()
    nginx = start_nginx(CONFIG.replace("@node@", replay.address))
    nginx.replay = replay
    yield nginx
    replay.stop()


@pytest.fixture(scope="module")
def block():
    return next(call for call in calls() if call.method == "eth_getBlockByNumber")


def test_truncated_response_is_a_502(faulty, block):
    """The node closes the connection in the middle of a body."""
    for cut in (0, 1, 500, 1500):
        response = send(faulty.port, block, "gzip", f"cut={cut}")
        assert (response.status, response.coding) == (502, None)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_gzip_of_the_node_is_sent_in_the_coding_of_the_client(faulty, block, framing):
    expected = send(faulty.replay.port, block).body
    for accept in ("gzip", None):
        response = send(faulty.port, block, accept, f"gzip=always&framing={framing}")
        assert (response.status, response.decoded) == (200, expected)
        assert response.coding == accept


@pytest.mark.parametrize("framing", ["close", "close10"])
def test_body_delimited_by_close_arrives_unchanged(faulty, block, framing):
    expected = send(faulty.replay.port, block).body
    response = send(faulty.port, block, "gzip", f"framing={framing}")
    assert (response.status, response.decoded) == (200, expected)
    assert response.length is None or response.coding == "gzip"


@pytest.mark.parametrize("off", [-100, 100])
def test_wrong_content_length_truncates_the_body_or_is_a_502(faulty, block, off):
    """A short length truncates the body, a long one is never reached."""
    expected = send(faulty.replay.port, block).body
    response = send(faulty.port, block, "gzip", f"length_off={off}")
    if off < 0:
        assert (response.status, response.decoded) == (200, expected[:off])
    else:
        assert response.status == 502

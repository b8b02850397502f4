"""The replay node's sample of mainnet through the three-line snippet, in the
ways that nodes answer."""

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


def ask(port, call, accept=None, options=None):
    """The node takes options for one answer from the field X-Replay."""
    headers = [("Accept-Encoding", accept)] if accept else []
    if options:
        headers.append(("X-Replay", options))
    with Connection(port) as connection:
        return call.ask(connection, headers)


@pytest.mark.parametrize("port", ["port", "port_kept"])
def test_every_answer_of_the_sample(pair, port):
    seen = 0
    for call in calls():
        expected = ask(pair.replay.port, call)
        assert expected.status == 200
        for accept in ("gzip", None):
            response = ask(pair.ports[port], call, accept)
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


def test_a_cut_is_told(faulty, block):
    """The node's own fault: the connection ends in the middle of a body."""
    for cut in (0, 1, 500, 1500):
        response = ask(faulty.port, block, "gzip", f"cut={cut}")
        assert (response.status, response.coding) == (502, None)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_node_that_always_gzips(faulty, block, framing):
    expected = ask(faulty.replay.port, block).body
    for accept in ("gzip", None):
        response = ask(faulty.port, block, accept, f"gzip=always&framing={framing}")
        assert (response.status, response.decoded) == (200, expected)
        assert response.coding == accept


@pytest.mark.parametrize("framing", ["close", "close10"])
def test_a_node_that_delimits_by_close(faulty, block, framing):
    expected = ask(faulty.replay.port, block).body
    response = ask(faulty.port, block, "gzip", f"framing={framing}")
    assert (response.status, response.decoded) == (200, expected)
    assert response.length is None or response.coding == "gzip"


@pytest.mark.parametrize("off", [-100, 100])
def test_a_node_whose_length_is_wrong(faulty, block, off):
    """Too short a length cuts the body off, too long a one is never met."""
    expected = ask(faulty.replay.port, block).body
    response = ask(faulty.port, block, "gzip", f"length_off={off}")
    if off < 0:
        assert (response.status, response.decoded) == (200, expected[:off])
    else:
        assert response.status == 502

"""SSZ submissions of clients, to nodes that accept JSON only: values of the specifications;
the node's formats are detected and remembered, invalid values rejected before the node
sees them, and no submission is sent twice."""

import json
import time

import pytest

from harness.client import Connection, fetch, request_bytes
from harness.nginx_state import wait_until_stable
from harness.origin import RESET, answer
from harness.spec_vectors import values as specified_values


CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
sszip on;
sszip_ssz on;
sszip_ssz_preset minimal;
sszip_ssz_request always;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin_unix@; }
    location /status { sszip off; stub_status; }
}
server {
    listen 127.0.0.1:@port_cached@;
    sszip_cache on;
    client_body_buffer_size 1k;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_unbuffered@;
    proxy_request_buffering off;
    client_body_in_file_only clean;
    location /key/ { proxy_pass http://@origin@/; }
}
server {
    listen 127.0.0.1:@port_auto@;
    sszip_ssz_request auto;
    location / { proxy_pass http://@origin@; }
    location /other/ { proxy_pass http://@origin@/; }
}
server {
    listen 127.0.0.1:@port_small@;
    sszip_memory 64k;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_small_cached@;
    sszip_memory 64k;
    sszip_cache on;
    client_body_buffer_size 1k;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_several@;
    location / { proxy_pass http://several; }
}
upstream several {
    server @origin@ max_fails=0;
    server unix:/nowhere backup;
}
"""

# routes of the types; some exist from a fork on
ROUTES = {
    "SignedBeaconBlock": "/eth/v2/beacon/blocks",
    "SignedBlockContents": "/eth/v2/beacon/blocks",
    "SignedBlindedBeaconBlock": "/eth/v2/beacon/blinded_blocks",
    "SubmittedAttestations": "/eth/v2/beacon/pool/attestations",
    "SignedAggregateAndProofs": "/eth/v2/validator/aggregate_and_proofs",
    "SignedValidatorRegistrations": "/eth/v1/validator/register_validator",
    "PayloadAttestationMessages": "/eth/v1/beacon/pool/payload_attestations",
    "SignedExecutionPayloadBid": "/eth/v1/beacon/execution_payload_bids",
    "SignedExecutionPayloadEnvelope": "/eth/v1/beacon/execution_payload_envelopes",
    "SignedExecutionPayloadEnvelopeContents": "/eth/v1/beacon/execution_payload_envelopes",
    "ManySignedProposerPreferences": "/eth/v1/validator/proposer_preferences",
    "BuilderConfig": "/eth/v4/validator/blocks/7",
    "BuilderPreferencesEntries": "/eth/v1/validator/builder_preferences",
}
WITH_CONTENTS = ("deneb", "electra", "fulu")
REGISTRATIONS = "/eth/v1/validator/register_validator"
ONE = b"a" * 180
OCTETS = ("Content-Type", "application/octet-stream")


@pytest.fixture(scope="module")
def specified(cache_directory):
    found = specified_values(cache_directory, "specified_values.py", "minimal", *ROUTES)
    assert {value["type"] for value in found} == set(ROUTES)
    # the blocks of these forks come with their blobs
    return [v for v in found if (v["type"], v["fork"] in WITH_CONTENTS) != ("SignedBeaconBlock", True)]


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


def headers_of(value):
    headers = [OCTETS, ("Eth-Consensus-Version", value["fork"])]
    if "Envelope" in value["type"]:
        headers.append(("Eth-Blob-Data-Included", str(value["type"].endswith("Contents")).lower()))
    return headers


def chunked(body):
    pieces = [body[n : n + 700] for n in range(0, len(body), 700)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "port, prefix, framing",
    [("port", "", "length"), ("port_cached", "", "length"), ("port_unbuffered", "/key", "chunked")],
)
def test_submissions_of_every_route_and_fork_are_transcoded_to_json(nginx, origin, specified, port, prefix, framing):
    origin.answers(answer(b"", type=None))
    for value in specified:
        about = value["fork"], value["type"]
        origin.requests.clear()
        path, body, headers = ROUTES[value["type"]], bytes.fromhex(value["ssz"]), headers_of(value)
        if framing == "chunked":
            headers, body = [*headers, ("Transfer-Encoding", "chunked")], chunked(body)
        response = fetch(nginx.ports[port], f"{prefix}{path}?x=1", method="POST", headers=headers, body=body)
        assert response.status == 200, (about, response.body[:200])
        (request,) = origin.received(path)
        assert json.loads(request.body) == value["data"], about
        assert request.header("Content-Type") == "application/json", about
        assert request.header("Content-Length") == str(len(request.body)), about
        assert request.header("Transfer-Encoding") is None
        assert request.header("Eth-Consensus-Version") == value["fork"], about
        assert request.target.endswith("?x=1")
    assert len(specified) > 35


def test_node_gets_json_after_it_rejected_ssz_once(nginx, origin):
    """The node gets JSON on that route only."""

    def takes_json(request):
        refused = request.header("Content-Type") != "application/json"
        return answer(b'{"code":415,"message":"no"}', status=415) if refused else answer(b"", type=None)

    origin.answers(takes_json)
    port = nginx.ports["port_auto"]

    def post(path, version="bellatrix"):
        origin.requests.clear()
        headers = [OCTETS, ("Eth-Consensus-Version", version)]
        status = fetch(port, path, method="POST", headers=headers, body=ONE).status
        # never twice, whatever happens
        (request,) = origin.requests
        return status, request.header("Content-Type")

    workers = 5
    refused = [post(REGISTRATIONS)[0] for _ in range(60)].count(415)
    assert 1 <= refused <= workers
    assert post(REGISTRATIONS) == (200, "application/json")
    # another route, and another location with a node of its own
    preferences = "/eth/v1/validator/proposer_preferences"
    origin.requests.clear()
    headers = [OCTETS, ("Eth-Consensus-Version", "gloas")]
    assert fetch(port, preferences, method="POST", headers=headers, body=b"").status == 415
    assert post("/other" + REGISTRATIONS) == (415, "application/octet-stream")


def test_node_that_accepts_ssz_gets_ssz(nginx, origin):
    origin.answers(answer(b"", type=None))
    for _ in range(3):
        path = "/eth/v1/beacon/pool/proposer_preferences"
        headers = [OCTETS, ("Eth-Consensus-Version", "gloas")]
        assert fetch(nginx.ports["port_auto"], path, method="POST", headers=headers, body=ONE).status == 200
    assert [request.body for request in origin.received(path)] == [ONE] * 3


@pytest.mark.parametrize("port", ["port", "port_cached"])
def test_invalid_submission_is_rejected_before_it_reaches_the_node(nginx, origin, specified, port):
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    value = next(v for v in specified if (v["fork"], v["type"]) == ("electra", "SignedBlockContents"))
    ssz = bytes.fromhex(value["ssz"])
    for wrong in (ssz[:-1], ssz + b"\0", b"", ssz[:4] + b"\xff" * 4 + ssz[8:], b"{}"):
        request = {"method": "POST", "headers": headers_of(value), "body": wrong}
        response = fetch(nginx.ports[port], "/eth/v2/beacon/blocks", **request)
        assert (response.status, response.header("Content-Type")) == (400, "application/json")
        error = json.loads(response.body)
        assert error["code"] == 400 and error["message"].startswith("the body is not a valid SignedBlockContents: ")
        assert response.framing == "length"
    assert origin.requests == []


def test_large_submission_is_transcoded_on_a_thread(nginx, origin):
    """30,000 registrations, 5 MB; the connection is kept."""
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    body = ONE * 30_000
    with nginx.connect("port_cached") as connection:
        for _ in range(3):
            assert connection.exchange(REGISTRATIONS, method="POST", headers=[OCTETS], body=body).status == 200
        wrong = connection.exchange(REGISTRATIONS, method="POST", headers=[OCTETS], body=body + b"a")
        assert (wrong.status, json.loads(wrong.body)["code"]) == (400, 400)
    assert [len(json.loads(request.body)) for request in origin.received(REGISTRATIONS)] == [30_000] * 3


@pytest.mark.parametrize("port", ["port_small", "port_small_cached"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_submission_that_exceeds_the_memory_is_forwarded_unchanged(nginx, origin, port, framing):
    """The head has the length, or only the end shows it; with a lookup of its key, or without."""
    origin.answers(answer(b"", type=None))
    for body in (ONE * 10, ONE * 1000, ONE * 10):
        origin.requests.clear()
        headers = [OCTETS] if framing == "length" else [OCTETS, ("Transfer-Encoding", "chunked")]
        sent = body if framing == "length" else chunked(body)
        whole = request_bytes(REGISTRATIONS, method="POST", headers=headers, body=sent)
        with nginx.connect(port) as connection:
            # the body arrives after the head was evaluated
            connection.send(whole[: len(whole) - len(sent) + 100])
            time.sleep(0.02)
            connection.send(whole[len(whole) - len(sent) + 100 :])
            assert connection.read("POST").status == 200
        (request,) = origin.received(REGISTRATIONS)
        is_long = len(body) > 10_000
        assert (request.body == body) == is_long
        assert request.header("Content-Type") == ("application/octet-stream" if is_long else "application/json")


def test_submission_is_not_repeated_when_the_node_aborts(nginx, origin):
    origin.answers([RESET])
    origin.requests.clear()
    nginx.expect("prematurely closed|reset by peer|no live upstreams")
    response = fetch(nginx.ports["port_several"], REGISTRATIONS, method="POST", headers=[OCTETS], body=ONE)
    assert response.status == 502
    assert len(origin.received(REGISTRATIONS)) == 1


def test_incomplete_submission_does_not_reach_the_node(nginx, origin):
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    body = ONE * 10_000
    for port in ("port", "port_cached", "port_unbuffered"):
        for sent in (1, 1_000, len(body) - 1):
            path = "/key" + REGISTRATIONS if port == "port_unbuffered" else REGISTRATIONS
            with Connection(nginx.ports[port]) as connection:
                whole = request_bytes(path, method="POST", headers=[OCTETS], body=body)
                connection.send(whole[: len(whole) - len(body) + sent])
    wait_until_stable(nginx)
    assert fetch(nginx.ports["port"], REGISTRATIONS, method="POST", headers=[OCTETS], body=ONE).status == 200
    assert len(origin.requests) == 1


@pytest.mark.parametrize("reloads", [False, True], ids=["gone", "gone, and a reload"])
def test_submission_is_sent_whole_and_once_when_its_client_aborts(nginx, origin, reloads):
    """Each submission that reaches the node is complete, and sent once."""
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    whole = request_bytes(REGISTRATIONS, method="POST", headers=[OCTETS], body=ONE * 30_000)
    for _ in range(10):
        with Connection(nginx.ports["port_cached"]) as connection:
            connection.send(whole)
        if reloads:
            nginx.reload()
    response = fetch(nginx.ports["port_cached"], REGISTRATIONS, method="POST", headers=[OCTETS], body=ONE)
    assert response.status == 200
    wait_until_stable(nginx)
    lengths = [len(json.loads(request.body)) for request in origin.received(REGISTRATIONS)]
    assert lengths.count(1) == 1 and set(lengths) <= {1, 30_000} and len(lengths) <= 11

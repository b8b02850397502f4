"""The replay node's Beacon API behind sszip_ssz: a process of its own that has JSON
only, or SSZ only, injects the faults of real nodes, and reports the submissions that
it received."""

import itertools
import json
import urllib.request

import pytest

from harness.client import fetch
from harness.replay import ReplayNode, calls

OCTETS = ("Accept", "application/octet-stream")
EITHER = ("Accept", "application/octet-stream;q=1.0,application/json;q=0.9")
JSON = ("Accept", "application/json")
FULU = ("Eth-Consensus-Version", "fulu")

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
server { listen 127.0.0.1:@port@; location / { proxy_pass http://@node_json@; } }
server { listen 127.0.0.1:@port_ssz@; location / { proxy_pass http://@node_ssz@; } }
"""

HEAD = "/eth/v2/beacon/blocks/head"
CONSOLIDATIONS = "/eth/v1/beacon/states/head/pending_consolidations"
ATTESTATIONS = "/eth/v2/beacon/pool/attestations"


def attestation(number):
    """A SingleAttestation in both formats; it attests to no real block."""
    point = {"epoch": str(number), "root": f"0x{number:064x}"}
    data = {"slot": "7", "index": "0", "beacon_block_root": f"0x{5:064x}", "source": point, "target": point}
    value = {"committee_index": "1", "attester_index": "2", "data": data, "signature": f"0x{'0a' * 96}"}
    ends = number.to_bytes(8, "little") + number.to_bytes(32, "big")
    of_data = (7).to_bytes(8, "little") + bytes(8) + (5).to_bytes(32, "big") + ends + ends
    ssz = (1).to_bytes(8, "little") + (2).to_bytes(8, "little") + of_data + b"\x0a" * 96
    return [value], ssz


@pytest.fixture(scope="module")
def nodes(start_nginx):
    """Three replay nodes with the same sample, and nginx before the two with one format."""
    replays = {forms: ReplayNode("--beacon", forms) for forms in ("json", "ssz", "both")}
    config = CONFIG.replace("@node_json@", replays["json"].address)
    nginx = start_nginx(config.replace("@node_ssz@", replays["ssz"].address))
    nginx.replays = replays
    yield nginx
    for replay in replays.values():
        replay.stop()


def with_ssz(both):
    """Paths of the responses that exist as SSZ."""
    for call in calls():
        if call.method == "GET" and fetch(both.port, call.target, headers=[OCTETS]).status == 200:
            yield call.target


@pytest.mark.parametrize("options", ["framing=length", "framing=chunked&piece=5000", "gzip=always"])
def test_recorded_responses_are_transcoded_in_both_directions(nodes, options):
    both = nodes.replays["both"]
    replay_header = ("X-Replay", options)
    seen = 0
    for path, coding in zip(with_ssz(both), itertools.cycle([None, "gzip"])):
        ssz, as_json = (fetch(both.port, path, headers=[accept]) for accept in (OCTETS, JSON))
        coded = [("Accept-Encoding", coding)] if coding else []
        made = fetch(nodes.port, path, headers=[OCTETS, replay_header, *coded])
        assert made.header("Content-Type") == "application/octet-stream", path
        assert made.header("Eth-Consensus-Version") == "fulu", path
        assert made.decoded == ssz.body, path
        made = fetch(nodes.ports["port_ssz"], path, headers=[JSON, replay_header, *coded])
        assert made.header("Content-Type") == "application/json", path
        assert json.loads(made.decoded)["data"] == json.loads(as_json.body)["data"], path
        seen += 1
    assert seen == 10


# For each fault of a response: the status for a client that accepts SSZ only, and the
# format for a client that accepts both.
FAULTS = {
    "fork=off": (200, "ssz"),
    "version=off": (200, "ssz"),
    "fork=off&version=off": (406, "json"),
    "fork=off&version=last": (406, "json"),
    "fork=electra": (406, "json"),
    "version=electra": (406, "json"),
    "fork=unknown": (406, "json"),
    "fork=phase0&version=phase0": (406, "json"),
    "corrupt=100": (406, "json"),
    "truncate=300": (406, "json"),
    "refuse=404": (404, "error"),
    "refuse=503": (503, "error"),
    "error=502": (502, "error"),
    # JSON with another media type: for a client of SSZ only it is read by its first byte
    "type=text/html": (200, "mislabelled"),
}


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_response_is_transcoded_rejected_or_sent_unchanged(nodes, fault, framing):
    replay_header = ("X-Replay", f"{fault}&framing={framing}")
    direct = fetch(nodes.replays["json"].port, CONSOLIDATIONS, headers=[replay_header])
    only, both = FAULTS[fault]
    response = fetch(nodes.port, CONSOLIDATIONS, headers=[OCTETS, replay_header])
    assert response.status == only, response.body
    if both in ("ssz", "mislabelled"):
        assert response.header("Content-Type") == "application/octet-stream"
    elif only == 406:
        assert json.loads(response.body)["code"] == 406
    else:
        assert response.body == direct.body
    response = fetch(nodes.port, CONSOLIDATIONS, headers=[EITHER, replay_header])
    if both == "ssz":
        assert response.header("Content-Type") == "application/octet-stream"
    else:
        assert (response.status, response.body) == (direct.status, direct.body)
        assert response.header("Content-Type") == direct.header("Content-Type")


def test_response_is_transcoded_when_the_node_ignores_accept(nodes):
    """The node has both formats, and ignores Accept."""
    both, ssz = nodes.replays["both"], nodes.ports["port_ssz"]
    expected = fetch(both.port, HEAD, headers=[OCTETS]).body
    replay_header = ("X-Replay", "as=ssz")
    assert fetch(ssz, HEAD, headers=[OCTETS, replay_header]).body == expected
    made = json.loads(fetch(ssz, HEAD, headers=[JSON, replay_header]).body)
    assert made["data"] == json.loads(fetch(both.port, HEAD).body)["data"]
    # JSON labelled as SSZ is sent unchanged to a client that accepts SSZ: nothing shows
    # that it is JSON
    replay_header = ("X-Replay", "as=json&type=application/octet-stream")
    response = fetch(nodes.port, HEAD, headers=[JSON, replay_header])
    assert response.status == 406


@pytest.mark.parametrize("fault", ["cut=20000", "cut=20000&reset=on", "lost=on"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_response_is_502_when_the_node_aborts(nodes, fault, framing):
    nodes.expect("prematurely closed|reset by peer|the response ended")
    for accept in (OCTETS, EITHER):
        replay_header = ("X-Replay", f"{fault}&framing={framing}&piece=5000")
        response = fetch(nodes.port, HEAD, headers=[accept, replay_header])
        assert response.status == 502
        assert response.header("Content-Type") != "application/octet-stream"


def publishes(node, path=ATTESTATIONS):
    with urllib.request.urlopen(f"http://{node.address}/stats") as reply:
        counted = json.load(reply)["publishes"].get(path, {})
    return [counted.get(name, 0) for name in ("json", "ssz", "repeated", "refused")]


def publish(nodes, ssz, *headers, port="port"):
    fields = [("Content-Type", "application/octet-stream"), FULU, *headers]
    return fetch(nodes.ports.get(port, nodes.port), ATTESTATIONS, method="POST", headers=fields, body=ssz)


def test_submission_reaches_the_node_once_as_json(nodes):
    node = nodes.replays["json"]
    value, ssz = attestation(1)
    # the formats that the node accepts are detected once
    if publish(nodes, ssz).status == 415:
        assert publish(nodes, ssz).status == 200
    before = publishes(node)
    numbers = range(2, 12)
    for number in numbers:
        value, ssz = attestation(number)
        assert publish(nodes, ssz).status == 200
        with urllib.request.urlopen(f"http://{node.address}/published{ATTESTATIONS}") as reply:
            assert reply.headers["Content-Type"] == "application/json"
            assert reply.headers["Eth-Consensus-Version"] == "fulu"
            assert json.load(reply) == value
    taken = [after - was for after, was in zip(publishes(node), before, strict=True)]
    assert taken == [len(numbers), 0, 0, 0]


def test_submission_is_not_repeated_when_its_response_is_lost(nodes):
    node = nodes.replays["json"]
    nodes.expect("prematurely closed|reset by peer")
    _, ssz = attestation(100)
    publish(nodes, ssz)
    publish(nodes, ssz)
    for number, fault in enumerate(["lost=on", "lost=on&reset=on", "refuse=503", "error=502"], start=101):
        _, ssz = attestation(number)
        before = publishes(node)
        assert publish(nodes, ssz, ("X-Replay", fault)).status >= 500
        counted = [after - was for after, was in zip(publishes(node), before, strict=True)]
        assert counted == ([1, 0, 0, 0] if fault.startswith("lost") else [0, 0, 0, 1]), fault


def test_submission_is_sent_as_ssz_when_the_node_accepts_ssz(nodes):
    node = nodes.replays["ssz"]
    _, ssz = attestation(200)
    assert publish(nodes, ssz, port="port_ssz").status == 200
    assert publishes(node) == [0, 1, 0, 0]
    with urllib.request.urlopen(f"http://{node.address}/published{ATTESTATIONS}") as reply:
        assert reply.read() == ssz

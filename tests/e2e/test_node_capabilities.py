"""Probes of a route's node: the preset of its chain, and the digests of its forks in light
client updates. A node that reports nothing, or wrong values, must not delay requests."""

import functools
import json
import time

import pytest

from harness.origin import RESET, CloseWithoutResponse, answer, byte_chunks, head, scattered
from harness.replay import ReplayNode
from harness.spec_vectors import values as specified_values

OCTETS = ("Accept", "application/octet-stream")
EITHER = ("Accept", "application/octet-stream;q=1.0,application/json;q=0.9")
JSON = ("Accept", "application/json")

SPEC = "/eth/v1/config/spec"
GENESIS = "/eth/v1/beacon/genesis"
BLOCK = "/eth/v2/beacon/blocks/7"
UPDATES = "/eth/v1/beacon/light_client/updates"

# Wrong responses of a node to a probe for its constants.
FAULTS = {
    "absent": lambda _spec: answer(b'{"code":404,"message":"m"}', status=404),
    "garbage": lambda _spec: answer(b"<html>", type="text/html"),
    "no_constants": lambda _spec: answer(b'{"data":{}}'),
    "another_preset": lambda spec: answer(data_json({**spec, "PRESET_BASE": "medium"})),
    "contradiction": lambda spec: answer(data_json({**spec, "SLOTS_PER_EPOCH": "32"})),
    "cut": lambda spec: answer(data_json(spec), framing="chunked", cut_at=200),
    "short": lambda spec: answer(data_json(spec), cut_at=200),
    "long": lambda spec: answer(data_json({**spec, "PADDING": "a" * 500_000}), framing="chunked"),
    "bomb": lambda spec: answer(data_json({**spec, "PADDING": "a" * 9_000_000}), coding="gzip"),
    "deep": lambda _spec: answer(b'{"data":' + b"[" * 100_000, framing="chunked"),
    "redirect": lambda _spec: answer(status=302, headers=[("Location", "/elsewhere")]),
    "lost": lambda _spec: [RESET],
    "silent": lambda _spec: [CloseWithoutResponse()],
    "stuck": lambda _spec: [head(200, [("Content-Type", "application/json"), ("Content-Length", "900")]), CloseWithoutResponse()],
}

PLACES = {
    "probed": "location / { proxy_pass http://@origin@; }",
    "gzipped": "location / { proxy_pass http://@origin@; }",
    "unbuffered": "proxy_buffering off; location / { proxy_pass http://@origin_unix@; }",
    "cached": "sszip_cache on; location / { proxy_pass http://@origin@; }",
    "variable": "location / { set $node @origin@; proxy_pass http://$node; }",
    "below": "location / { proxy_pass http://@origin@; }",
    "prefixed": "location /gnosis/a-key/ { proxy_pass http://@origin@/; }",
    "rewritten": "location / { rewrite ^/chain(/.*)$ /deep$1 break; proxy_pass http://@origin@; }",
    "own_path": "location / { proxy_pass http://@origin@$request_uri; }",
    "given": "sszip_ssz_preset minimal; location / { proxy_pass http://@origin@; }",
    "posted": "sszip_ssz_request always; location / { proxy_pass http://@origin@; }",
    # the client's length is evaluated before the probe is sent
    "length": """sszip_ssz_request always; set $length $content_length;
        location / { proxy_set_header Content-Length $content_length; proxy_pass http://@origin@; }""",
    "updates": "location / { proxy_pass http://@origin@; }",
    "updates_given": "sszip_ssz_preset minimal; location / { proxy_pass http://@origin@; }",
    **{f"fault_{name}": "location / { proxy_pass http://@origin@; }" for name in FAULTS},
}

CONFIG = "proxy_http_version 1.1; sszip on; sszip_ssz on; sszip_cache_namespace probed;" + "".join(
    f"server {{ listen 127.0.0.1:@port{'' if name == 'probed' else '_' + name}@; {directives} }}\n"
    for name, directives in PLACES.items()
)


def data_json(data):
    return json.dumps({"data": data}).encode()


class Chain:
    """The node's constants, and an update of each epoch."""

    def __init__(self, lines):
        self.spec, self.genesis = lines[0]["spec"], lines[0]["genesis"]
        self.updates = lines[1:]

    @property
    def json(self):
        items = [{"version": update["version"], "data": update["data"]} for update in self.updates]
        return json.dumps(items).encode()

    @property
    def octets(self):
        return b"".join(bytes.fromhex(update["octets"]) for update in self.updates)


@pytest.fixture(scope="module")
def chain(cache_directory):
    found = Chain(specified_values(cache_directory, "updates.py", "minimal"))
    assert len(found.updates) == 9
    return found


@pytest.fixture(scope="module")
def blocks(cache_directory):
    """A block of each preset that is invalid in the other one."""

    def block(preset):
        found = specified_values(cache_directory, "specified_values.py", preset, "SignedBeaconBlock")
        return next(value for value in found if value["fork"] == "capella")

    return {preset: block(preset) for preset in ("minimal", "mainnet")}


def served(block):
    body = json.dumps({"version": block["fork"], "finalized": False, "data": block["data"]}).encode()
    return answer(body, headers=[("Eth-Consensus-Version", block["fork"])])


def port(name):
    return "port" if name == "probed" else f"port_{name}"


def get(nginx, place, path, *headers):
    return nginx.get(path, None, port=port(place), headers=headers)


def wait_for_ssz(nginx, send):
    """The first response in SSZ: the probe that the first request starts ends soon."""

    def ssz_response():
        response = send()
        assert response.status in (200, 406), response.body
        return response if response.header("Content-Type") == OCTETS[1] else None

    return nginx.wait_for(ssz_response, "an answer in SSZ")


@pytest.mark.parametrize(
    "place, path, probe_path",
    [
        ("probed", BLOCK, SPEC),
        ("unbuffered", BLOCK, SPEC),
        ("cached", BLOCK, SPEC),
        ("variable", BLOCK, SPEC),
        ("below", f"/a%20b//k/{BLOCK[1:]}?x=/eth/v1/y", f"/a%20b//k{SPEC}"),
        ("prefixed", f"/gnosis/a-key{BLOCK}", SPEC),
        ("rewritten", f"/chain{BLOCK}", f"/deep{SPEC}"),
    ],
)
def test_preset_is_probed_once_without_delaying_requests(nginx, origin, chain, blocks, place, path, probe_path):
    origin.answers(answer(data_json(chain.spec), split=scattered(place)), probe_path)
    origin.answers(lambda request: served(blocks["minimal"]) if "/blocks/7" in request.path else None)
    ssz = bytes.fromhex(blocks["minimal"]["ssz"])
    conditions = [("If-None-Match", '"x"'), ("Range", "bytes=0-1"), ("Accept-Encoding", "br")]
    first = get(nginx, place, path, OCTETS, *conditions)
    # no request waits for the probe
    assert (first.status, first.mode) == (406, "ssz-invalid")
    known = wait_for_ssz(nginx, lambda: get(nginx, place, path, OCTETS))
    assert known.body == ssz
    for _ in range(3):
        assert get(nginx, place, path, OCTETS).body == ssz
    (probe,) = origin.received(probe_path)
    assert probe.method == "GET"
    assert probe.body == b""
    assert probe.header("Accept") == "application/json"
    assert probe.header("Accept-Encoding") == "identity"
    for name in ("Content-Length", "Transfer-Encoding", "If-None-Match", "Range"):
        assert probe.header(name) is None, name
    # the node gets no other probe
    assert {request.path for request in origin.received()} <= {probe_path, origin.last().path}


def test_preset_is_read_from_a_compressed_response(nginx, origin, chain, blocks):
    # the timeout of a probe is a minute: a busy machine needs longer for a thousand pieces
    split = functools.partial(byte_chunks, edge=50)
    origin.answers(answer(data_json(chain.spec), coding="gzip", split=split, framing="chunked"), SPEC)
    origin.answers(served(blocks["minimal"]), BLOCK)
    known = wait_for_ssz(nginx, lambda: get(nginx, "gzipped", BLOCK, EITHER))
    assert known.body == bytes.fromhex(blocks["minimal"]["ssz"])


@pytest.mark.parametrize("fault", FAULTS)
def test_requests_are_not_delayed_when_a_probe_fails(nginx, origin, chain, blocks, fault):
    script = FAULTS[fault](chain.spec)
    origin.answers(script, SPEC)
    origin.answers(served(blocks["mainnet"]), BLOCK)
    ssz = bytes.fromhex(blocks["mainnet"]["ssz"])
    began = time.monotonic()
    with nginx.connect(port(f"fault_{fault}")) as connection:
        for _ in range(4):
            assert connection.exchange(BLOCK, headers=[OCTETS]).body == ssz
            assert get(nginx, f"fault_{fault}", BLOCK, OCTETS).body == ssz
    nginx.wait_for(lambda: origin.received(SPEC), "the probe")
    for step in script:
        if isinstance(step, CloseWithoutResponse):
            assert step.seen.wait(step.seconds), "it is still awaited"
    # repeated after five seconds, then ten
    assert len(origin.received(SPEC)) <= 1 + (time.monotonic() - began) / 5


def test_node_is_not_probed_when_the_preset_is_configured(nginx, origin, chain, blocks):
    origin.answers(served(blocks["minimal"]), BLOCK)
    for place in ("given", "own_path"):
        origin.requests.clear()
        response = get(nginx, place, BLOCK, OCTETS)
        # a path that is made of variables can't be another one
        assert (response.status == 200) == (place == "given")
        get(nginx, place, BLOCK, OCTETS)
        assert {request.path for request in origin.received()} == {BLOCK}


@pytest.mark.parametrize("place", ["posted", "length"])
def test_submission_starts_a_probe_and_is_accepted_before_its_result(nginx, origin, chain, cache_directory, place):
    """A value that is valid in every preset is accepted while the preset is unknown."""
    signed = specified_values(cache_directory, "specified_values.py", "minimal", "SignedBeaconBlock")
    block = next(value for value in signed if value["fork"] == "capella")
    origin.answers(answer(data_json(chain.spec)), SPEC)
    path = "/eth/v2/beacon/blocks"
    origin.answers(answer(b"", type=None), path)
    headers = [("Content-Type", OCTETS[1]), ("Eth-Consensus-Version", "capella")]
    post = {"method": "POST", "headers": headers, "port": port(place)}
    response = nginx.get(path, None, body=bytes.fromhex(block["ssz"]), **post)
    assert response.status == 200, response.body
    assert json.loads(origin.last(path).body) == block["data"]
    nginx.wait_for(lambda: origin.received(SPEC), "the probe")
    (probe,) = origin.received(SPEC)
    assert (probe.method, probe.body) == ("GET", b"")
    assert probe.header("Content-Length") is None
    assert probe.header("Content-Type") is None
    assert probe.header("Eth-Consensus-Version") is None
    refused = nginx.get(path, None, body=bytes.fromhex(block["ssz"])[:-1], **post)
    assert refused.status == 400
    assert len(origin.received(path)) == 1


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("coding", [None, "gzip"])
@pytest.mark.parametrize("place", ["updates", "updates_given"])
def test_light_client_updates_of_every_fork_are_transcoded(nginx, origin, chain, place, coding, framing):
    origin.answers(answer(data_json(chain.spec)), SPEC)
    origin.answers(answer(data_json(chain.genesis)), GENESIS)
    origin.answers(answer(chain.json, coding=coding, framing=framing, split=scattered(7)), UPDATES)
    target = f"{UPDATES}?start_period=0&count=9"
    known = wait_for_ssz(nginx, lambda: get(nginx, place, target, EITHER))
    assert known.body == chain.octets
    assert known.mode == "ssz"
    assert known.framing == "length"
    assert "Accept" in known.header("Vary").split(", ")
    response = nginx.get(target, "gzip", port=port(place), headers=[OCTETS])
    assert response.coding == "gzip"
    assert response.decoded == chain.octets
    assert get(nginx, place, target, JSON).decoded == chain.json
    # and in the other direction
    fields = {"type": OCTETS[1], "coding": coding, "framing": framing, "split": scattered(8)}
    origin.answers(answer(chain.octets, **fields), UPDATES)
    response = get(nginx, place, target, JSON)
    assert response.header("Content-Type") == "application/json"
    assert json.loads(response.decoded) == json.loads(chain.json)
    # an empty list stays empty
    origin.answers(answer(b"[]"), UPDATES)
    assert get(nginx, place, target, OCTETS).body == b""
    origin.answers(answer(b"", type=OCTETS[1]), UPDATES)
    assert json.loads(get(nginx, place, target, JSON).body) == []


def test_invalid_light_client_updates_are_rejected(nginx, origin, chain):
    origin.answers(answer(data_json(chain.spec)), SPEC)
    origin.answers(answer(data_json(chain.genesis)), GENESIS)
    origin.answers(answer(chain.json), UPDATES)
    wait_for_ssz(nginx, lambda: get(nginx, "updates", UPDATES, EITHER))
    items = json.loads(chain.json)
    late = json.loads(chain.json)
    late[3]["data"]["attested_header"]["beacon"]["slot"] = "0"
    for body, mode, why in [
        (json.dumps([items[0], {"data": items[1]["data"]}]), "ssz-version", "no fork is named"),
        (json.dumps([{**items[0], "version": "osaka"}]), "ssz-fork", "osaka"),
        (json.dumps([{**items[0], "version": "capella"}]), "ssz-invalid", "[0].data"),
        (json.dumps(late), "ssz-fork", "the fork deneb is not active at slot 0"),
        (json.dumps({"data": items}), "ssz-invalid", "not a JSON array"),
        (json.dumps(items)[:-1], "ssz-invalid", "not a JSON array"),
    ]:
        origin.answers(answer(body.encode()), UPDATES)
        response = get(nginx, "updates", UPDATES, OCTETS)
        assert (response.status, response.mode) == (406, mode), body[:100]
        assert why in json.loads(response.body)["message"]
        response = get(nginx, "updates", UPDATES, EITHER)
        assert (response.status, response.body, response.mode) == (200, body.encode(), mode)
    for octets, mode in [
        (chain.octets[:-1], "ssz-invalid"),
        (chain.octets[:8] + b"\0\0\0\0" + chain.octets[12:], "ssz-fork"),
    ]:
        origin.answers(answer(octets, type=OCTETS[1]), UPDATES)
        response = get(nginx, "updates", UPDATES, JSON)
        assert (response.status, response.mode) == (406, mode)


@pytest.fixture(scope="module")
def replayed(start_nginx, chain, tmp_path_factory):
    """A replay node with the probed routes and updates, and nginx in front of it."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {SPEC: data_json(chain.spec), GENESIS: data_json(chain.genesis), UPDATES: chain.json}
    arguments = ["--preset", "minimal"]
    for number, (path, body) in enumerate(pages.items()):
        file = folder / f"{number}.json"
        file.write_bytes(body)
        arguments += ["--page", f"{path}={file}"]
    node = ReplayNode(*arguments)
    nginx = start_nginx(
        "proxy_http_version 1.1; sszip on; sszip_ssz on;"
        f"server {{ listen 127.0.0.1:@port@; location / {{ proxy_pass http://{node.address}; }} }}"
    )
    yield nginx
    node.stop()


@pytest.mark.parametrize("options", ["framing=length", "framing=chunked&piece=5000", "gzip=always"])
def test_light_client_updates_of_a_replay_node_are_transcoded(replayed, chain, options):
    def send():
        return replayed.get(UPDATES, None, headers=[OCTETS, ("X-Replay", options)])

    assert wait_for_ssz(replayed, send).body == chain.octets


def test_fork_schedule_is_probed_again_after_a_reload(start_nginx, origin, chain):
    nginx = start_nginx(
        "proxy_http_version 1.1; sszip on; sszip_ssz on;"
        "server { listen 127.0.0.1:@port@; location / { proxy_pass http://@origin@; } }"
    )
    origin.answers(answer(data_json(chain.genesis)), GENESIS)
    origin.answers(answer(chain.json), UPDATES)

    def octets_with(schedule):
        origin.answers(answer(data_json({**chain.spec, "BLOB_SCHEDULE": schedule})), SPEC)
        nginx.reload()
        return wait_for_ssz(nginx, lambda: get(nginx, "probed", UPDATES, OCTETS)).body

    schedule = chain.spec["BLOB_SCHEDULE"]
    more = [{**entry, "MAX_BLOBS_PER_BLOCK": "21"} for entry in schedule]
    other = octets_with(more)
    assert other != chain.octets
    assert len(other) == len(chain.octets)
    assert octets_with(schedule) == chain.octets

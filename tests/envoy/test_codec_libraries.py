"""Envoy's own brotli, zstd and gzip, before this filter and behind it, with nodes that compress
by themselves: no body is compressed twice, and each client, of hits too, gets a coding that it
accepts."""

import functools
import itertools
import json
import threading

import pytest

from harness import brotli, zstd
from harness.client import gunzip
from harness.envoy import filter, route, typed
from harness.origin import WaitFor, answer, gzipped, head
from harness.rpc import Node, call
from tiers import by_tier

HOSTS = ("native", "wasm")

CODINGS = {"gzip": "Gzip", "br": "Brotli", "zstd": "Zstd"}
CODERS = {"gzip": gzipped, "br": brotli.compress, "zstd": zstd.compress}
DECODERS = {
    "gzip": gunzip,
    "br": functools.partial(brotli.decompress, most=1 << 20),
    "zstd": functools.partial(zstd.decompress, most=1 << 20),
}
VALUE = {"version": "electra", "execution_optimistic": False, "finalized": True}
VALUE = json.dumps(
    {**VALUE, "data": [{"source_index": "1", "target_index": "515"}] * 300}
).encode()
VALUE_SSZ = ((1).to_bytes(8, "little") + (515).to_bytes(8, "little")) * 300
OCTETS = "application/octet-stream"
FORMS = {"application/json": VALUE, OCTETS: VALUE_SSZ}
PATH = "/eth/v1/beacon/states/%d/pending_consolidations"
ENABLED = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}

# in the order in which requests pass them; sszip is between
BEFORE = [f"{kind}-{coding}" for kind in ("compressor", "decompressor") for coding in CODINGS]
BEHIND = [f"{name}-behind" for name in BEFORE]
CHAINS = {
    "none": (),
    **{name: (name,) for name in (*BEFORE, *BEHIND)},
    "all-compressors": BEFORE[:3],
    "all-compressors-behind": BEHIND[:3],
    "compressors-around": (BEFORE[1], BEHIND[2]),
    "all-decompressors-behind": BEHIND[3:],
    "decoded-behind-coded-before": (*BEFORE[:3], *BEHIND[3:]),
    "coded-behind-decoded-before": (*BEFORE[3:], *BEHIND[:3]),
}
# docs/envoy-wasm.md: a buffered body would wait for ever
NOT_IN_A_SANDBOX = {name for name, filters in CHAINS.items() if {*filters} & {*BEHIND[3:]}}
# Accept-Encoding of the clients.
ACCEPTS = [
    None,
    "identity",
    "gzip",
    "br",
    "zstd",
    "gzip, deflate, br, zstd",
    "br;q=1.0, gzip;q=0.5",
    "br, gzip;q=0",
    "gzip;q=0",
    "*;q=0, br",
    "identity;q=0, br",
    "identity;q=0, gzip",
    "identity;q=0, zstd, gzip;q=0",
    "*",
]
# The coding that the node sends; the last one is the coding that its request accepts.
SENT = by_tier(["gzip", "requested"], [None, "gzip", "br", "zstd", "requested"])
# Routes and framings: in `make test` each of them with one of the node's codings.
_KINDS = [("-cached", "length"), ("", "chunked"), ("-cached", "chunked"), ("", "length")]
KINDS = by_tier({"gzip": _KINDS[:2], "requested": _KINDS[2:]}, dict.fromkeys(SENT, _KINDS))
_numbers = itertools.count(1)


def coder(name):
    kind, coding, *_ = name.split("-")
    kind, library = kind.capitalize(), CODINGS[coding]
    library_config = {
        "name": coding,
        "typed_config": typed(f"compression.{library.lower()}.{kind.lower()}.v3.{library}"),
    }
    more = {}
    if kind == "Compressor":
        common = {"min_content_length": 30, "content_type": list(FORMS)}
        more["response_direction_config"] = {"common_config": common}
    one = filter(kind.lower(), kind, **{f"{kind.lower()}_library": library_config}, **more)
    return {**one, "name": name, "disabled": True}


@pytest.fixture(scope="module")
def envoy(host, start_envoy):
    routes = []
    for name, filters in CHAINS.items():
        if host == "wasm" and name in NOT_IN_A_SANDBOX:
            continue
        for cached in (True, False):
            settings = {"ssz": True, "ssz_preset": "mainnet", "min_length": 100, "cache": cached, "zstd": True}
            prefix = f"/{name}{'-cached' if cached else ''}/"
            found = route(prefix, settings, prefix_rewrite="/")
            found["typed_per_filter_config"].update({one: ENABLED for one in filters})
            routes.append(found)
    filters = [coder(name) for name in BEFORE]
    return start_envoy(routes, filters=filters, last=[coder(name) for name in BEHIND], workers=2)


def taken(accept):
    """The codings that a client accepts; RFC 9110, 12.5.3."""
    if accept is None:
        return {"identity"}  # any other is permitted, too, but not sent
    qualities = {}
    for one in accept.split(","):
        coding, _, quality = one.strip().partition(";q=")
        qualities[coding] = float(quality or 1)
    rest = qualities.get("*")
    codings = {coding for coding in CODINGS if qualities.get(coding, rest or 0) > 0}
    if qualities.get("identity", 1 if rest is None else rest) > 0:
        codings.add("identity")
    return codings


def node(coding, framing):
    """A node that sends that coding for any request, or the coding that its request accepts."""

    def script(request):
        sent = coding
        if coding == "requested":
            allowed = taken(request.header("Accept-Encoding"))
            sent = next((one for one in ("zstd", "br", "gzip") if one in allowed), None)
        body = CODERS[sent](VALUE) if sent else VALUE
        fields = [("Content-Type", "application/json"), ("Eth-Consensus-Version", "electra"),
                  ("Vary", "Accept-Encoding"), ("ETag", f'"{sent}"')]  # fmt: skip
        fields += [("Content-Encoding", sent)] if sent else []
        if framing == "length":
            return [head(200, [*fields, ("Content-Length", str(len(body)))]), body]
        fields.append(("Transfer-Encoding", "chunked"))
        return [head(200, fields), b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)]

    return script


def plain(response):
    """The decoded body of a response with one coding at most."""
    codings = response.all("Content-Encoding")
    assert len(codings) <= 1, codings
    if not codings:
        return response.body
    assert codings[0] in DECODERS, codings
    return DECODERS[codings[0]](response.body)


def is_hit(response):
    return "sszip; hit" in (response.header("Cache-Status") or "")


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("chain", [chain for chain in CHAINS if chain not in NOT_IN_A_SANDBOX])
def test_clients_get_an_accepted_coding_with_compressors_of_envoy(envoy, origin, chain, sent):
    assert_each_client_can_decode(envoy, origin, chain, sent)


@pytest.mark.native("no decompressor of Envoy's behind a sandbox")
@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("chain", sorted(NOT_IN_A_SANDBOX))
def test_clients_get_an_accepted_coding_with_a_decompressor_behind(envoy, origin, chain, sent):
    assert_each_client_can_decode(envoy, origin, chain, sent)


def accepts_of_chain(chain):
    """In `make test` one of three clients of each chain, others with the next one."""
    number = list(CHAINS).index(chain)
    return by_tier(ACCEPTS[number % 3 :: 3], ACCEPTS)


def assert_each_client_can_decode(envoy, origin, chain, sent):
    accepts = accepts_of_chain(chain)
    for cached, framing in KINDS[sent]:
        origin.answers(node(sent, framing))
        path = f"/{chain}{cached}{PATH % next(_numbers)}"
        for turn in range(2):
            with envoy.connect() as connection:
                for accept, (form, body) in itertools.product(accepts, FORMS.items()):
                    about = (cached, framing, turn, accept, form)
                    fields = [("Accept", form)]
                    fields += [("Accept-Encoding", accept)] if accept else []
                    response = connection.exchange(path, headers=fields)
                    judge(about, response, body, chain, sent, accept)


def judge(about, response, body, chain, sent, accept):
    about = (*about, response.status, response.headers)
    coding = response.coding or "identity"
    allowed = taken(accept)
    if response.status == 406:
        # no filter decodes the body, so that it can't be converted
        decodes = {"gzip", "zstd", *(name.split("-")[1] for name in CHAINS[chain] if name in BEHIND[3:])}
        assert about[4] == OCTETS and sent in CODINGS and sent not in decodes, about
        return
    assert response.status == 200, about
    assert plain(response) == body, about
    assert response.header("Content-Type") == about[4], about
    if coding not in allowed:
        # a node that ignores Accept-Encoding, and a body that no filter decodes
        is_its = coding == sent and not is_hit(response)
        assert is_its or coding == "identity", about
    if coding != "identity" or allowed != {"identity"}:
        vary = (response.header("Vary") or "").lower()
        assert vary.split(", ").count("accept-encoding") == 1, about


@pytest.mark.native("no decompressor of Envoy's behind a sandbox")
@pytest.mark.parametrize("chain", ["decompressor-gzip-behind", "decoded-behind-coded-before"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_long_response_is_right_with_a_decompressor_behind(envoy, origin, chain, framing):
    """It adds trailers to the last piece, which a waiting filter is not notified of."""
    value = json.dumps({"data": [{"index": str(n), "x": "ab" * 40} for n in range(5000)]}).encode()
    coded = gzipped(value)

    def node(request):
        """The last piece is short, and late."""
        go_on = threading.Event()
        threading.Timer(0.05, go_on.set).start()
        fields = [("Content-Encoding", "gzip"), ("Cache-Control", "max-age=60")]
        script = answer(coded, headers=fields, framing=framing, split=lambda it: [it[:-50], it[-50:]])
        return [*script[:2], WaitFor(go_on), *script[2:]]

    origin.answers(node)
    for cached in ("-cached", ""):
        path = f"/{chain}{cached}/long/{next(_numbers)}"
        for turn, accept in itertools.product(range(2), ("gzip", None)):
            response = envoy.fetch(path, None, accept)
            about = (cached, turn, accept, response.headers)
            assert plain(response) == value, about
            # a decompressor behind sees hits, too, and may decode them
            assert response.coding in (accept, None) if is_hit(response) else response.coding == accept, about
        assert is_hit(response) == bool(cached), about


def test_compressed_request_is_looked_up_after_a_decompressor(envoy, origin):
    """A decompressor before sszip has decoded the requests: they are looked up."""
    node = Node({"eth_getBlockByHash": b'"%b"' % (b"0" * 5000)})
    origin.answers(node)
    for turn in range(3):
        body = call("eth_getBlockByHash", '["0x%064x",true]' % 77, id=str(turn))
        fields = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
        with envoy.connect() as connection:
            response = connection.exchange(
                "/decompressor-gzip-cached/", method="POST", headers=fields, body=gzipped(body)
            )
        assert json.loads(response.body)["id"] == turn
        assert is_hit(response) == (turn > 0), response.headers
    assert node.count() == 1

"""SSZ of the Beacon API from a node that has JSON only, and JSON from one that has SSZ: values
of the specifications and of real nodes, without ever mixing the formats of a response."""

import collections
import itertools
import json
import os
import pathlib
import random
import subprocess
import threading

import pytest

from harness.client import fetch
from harness.guards import GUARD_SECONDS
from harness.nginx import resident
from harness.nginx_state import wait_until_expired
from harness.origin import CLOSE, RESET, answer, byte_chunks, gzipped, head, scattered
from harness.spec_vectors import values as specified_values
from harness.ssz_routes import ROUTES, enveloped, route
from tiers import IS_THOROUGH, by_tier, pairwise, times

TRANSPORTED = pytest.mark.carried("the core transcodes; the other tests have the ways in which nginx passes bodies to it")

CORPUS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "corpus" / "beacon"
SSZIP = os.environ.get("SSZIP_COMMAND", "build/bin/sszip")

OCTETS = ("Accept", "application/octet-stream")
EITHER = ("Accept", "application/octet-stream;q=1.0,application/json;q=0.9")
JSON = ("Accept", "application/json")
# in bytes; `make test` sends longer responses in some pieces, not in single bytes
LONG = 20_000

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_ssz on;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin_unix@; }
}
server {
    listen 127.0.0.1:@port_minimal@;
    sszip_ssz_preset minimal;
    location / { proxy_pass http://@origin_unix@; }
}
server {
    listen 127.0.0.1:@port_small@;
    sszip_ssz_hold 1k;
    sszip_memory 16m;
    location / { proxy_pass http://@origin_unix@; }
}
server {
    listen 127.0.0.1:@port_cached@;
    sszip_cache on;
    sszip_cache_namespace $arg_run;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_prefixed@;
    location /gnosis/a-key/ { proxy_pass http://@origin@/; }
    location ~ ^/other/(?<rest>.*)$ { proxy_pass http://@origin@/$rest$is_args$args; }
}
server {
    listen 127.0.0.1:@port_updated@;
    sszip_cache on;
    sszip_cache_namespace $arg_run;
    sszip_cache_valid unfinalized 1ms;
    sszip_cache_use_stale updating error;
    sszip_cache_background_update on;
    location / { proxy_pass http://@origin@; }
}
server {
    listen 127.0.0.1:@port_changed@;
    sszip_cache on;
    sszip_cache_namespace $arg_run;
    sub_filter_types application/json;
    sub_filter '"515"' '"516"';
    location / { proxy_pass http://@origin@; }
}
"""

BLOCKS = "/eth/v2/beacon/blocks/7"
CONSOLIDATIONS = "/eth/v1/beacon/states/9/pending_consolidations"
VALUE = b'{"version":"electra","execution_optimistic":false,"finalized":true,"data":[%s]}'
ONE = b'{"source_index":"1","target_index":"515"}'
ONE_SSZ = (1).to_bytes(8, "little") + (515).to_bytes(8, "little")
ELECTRA = [("Eth-Consensus-Version", "electra")]

_runs = itertools.count(1)


@pytest.fixture(scope="module")
def specified(cache_directory):
    """Values of each fork and type with a route, by the specifications."""
    found = specified_values(cache_directory, "specified_values.py", "minimal", *ROUTES)
    assert {value["type"] for value in found} == set(ROUTES)
    return found


@TRANSPORTED
@pytest.mark.parametrize(
    ("coding", "framing"),
    by_tier(
        [(None, "chunked"), ("gzip", "length")],
        [(None, "length"), (None, "chunked"), ("gzip", "length"), ("gzip", "chunked")],
    ),
)
def test_json_of_every_route_and_fork_is_transcoded_to_ssz(nginx, origin, specified, framing, coding):
    for number, value in enumerate(specified):
        body, headers = enveloped(value)
        split = scattered(number)
        script = answer(body, headers=headers, framing=framing, coding=coding, split=split)
        origin.answers(script, route(value))
        # the shortest are not compressed
        accept = "gzip" if number % 2 else None
        response = nginx.get(route(value), accept, port="port_minimal", headers=[OCTETS])
        about = value["fork"], value["type"]
        assert response.status == 200, (about, response.body[:200])
        assert response.decoded == bytes.fromhex(value["ssz"]), about
        assert response.header("Content-Type") == "application/octet-stream", about
        assert response.header("Eth-Consensus-Version") == value["fork"], about
        assert response.framing == "length", about
    assert len(specified) > 60


@TRANSPORTED
def test_version_is_read_from_the_body_when_no_header_has_it(nginx, origin, specified):
    for number, value in enumerate(specified):
        if value["type"] in ("SignedBlindedBeaconBlock", "BlockContents", "BlindedBeaconBlock"):
            continue
        body, _ = enveloped(value)
        path = route(value)
        is_split_into_bytes = IS_THOROUGH or len(body) < LONG
        origin.answers(answer(body, split=byte_chunks if is_split_into_bytes else scattered(number)), path)
        response = nginx.get(path, None, port="port_minimal", headers=[EITHER])
        about = value["fork"], value["type"]
        assert response.body == bytes.fromhex(value["ssz"]), about
        assert response.header("Eth-Consensus-Version") == value["fork"], about


@TRANSPORTED
@pytest.mark.parametrize("coding", [None, "gzip"])
def test_ssz_of_every_route_and_fork_is_transcoded_to_json(nginx, origin, specified, coding):
    for number, value in enumerate(specified):
        if value["type"] in ("BlockContents", "BlindedBeaconBlock"):
            continue
        body, headers = enveloped(value)
        path = route(value)
        octets = bytes.fromhex(value["ssz"])
        split = scattered(number)
        fields = {"type": "application/octet-stream", "headers": headers, "coding": coding, "split": split}
        origin.answers(answer(octets, framing="chunked" if number % 3 else "length", **fields), path)
        response = nginx.get(path, "gzip" if number % 2 else None, port="port_minimal", headers=[JSON])
        about = value["fork"], value["type"]
        assert response.status == 200, (about, response.body[:200])
        assert response.header("Content-Type") == "application/json", about
        # members that SSZ lacks are absent
        expected = {"version": value["fork"], "data": value["data"]}
        assert json.loads(response.decoded) == expected, about
        assert response.mode == "json", about


def sszip(command, type_, *options, data):
    done = subprocess.run([SSZIP, command, "--type", type_, *options], input=data, capture_output=True, check=True)
    return done.stdout


recorded = pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus beside the clone")


@recorded
@pytest.mark.parametrize(
    "name, path, type_",
    [
        ("block_capella_7109344.json", BLOCKS, "SignedBeaconBlock"),
        ("block_capella_7109430.json", BLOCKS, "SignedBeaconBlock"),
        ("bootstrap.json", ROUTES["LightClientBootstrap"], "LightClientBootstrap"),
        ("optimistic.json", ROUTES["LightClientOptimisticUpdate"], "LightClientOptimisticUpdate"),
    ],
)
@pytest.mark.parametrize("accept", [None, "gzip"])
def test_recorded_responses_are_transcoded_to_ssz(nginx, origin, name, path, type_, accept):
    """tests/ssz compares the roots of these values with those known to the chain."""
    body = (CORPUS / name).read_bytes()
    origin.answers(answer(body, split=scattered(7, most=40)), path)
    expected = sszip("json2ssz", type_, data=body)
    response = nginx.get(path, accept, headers=[EITHER])
    # mostly hashes: compression does not shorten it
    assert response.coding == (accept if type_ == "SignedBeaconBlock" else None)
    assert response.decoded == expected
    assert response.mode == "ssz"


@recorded
def test_state_is_transcoded_while_it_arrives(nginx, origin):
    """8 MB of JSON are transcoded with at most sszip_ssz_hold of them buffered."""
    ssz = (CORPUS / "sepolia_genesis_state_phase0.ssz").read_bytes()
    data = sszip("ssz2json", "BeaconState", "--fork", "phase0", data=ssz)
    body = b'{"version":"phase0","execution_optimistic":false,"finalized":true,"data":%b}' % data.strip()
    origin.answers(answer(body, headers=[("Eth-Consensus-Version", "phase0")], framing="chunked"))
    path = ROUTES["BeaconState"]
    for port, accept in itertools.product(["port", "port_small"], [None, "gzip"]):
        response = nginx.get(path, accept, port=port, headers=[OCTETS])
        assert response.coding == accept
        assert response.decoded == ssz


# Untranscodable responses: the mode, the node's response, and whether more than 1 kB of it
# precedes the fault.
WRONG = {
    "no version": ("ssz-version", b'{"data":[],"version":"electra"}', []),
    "another version": ("ssz-fork", b'{"version":"fulu","data":[]}', ELECTRA),
    "an unknown version": ("ssz-fork", b'{"data":[]}', [("Eth-Consensus-Version", "unknown")]),
    "a version before the type": ("ssz-fork", b'{"data":[]}', [("Eth-Consensus-Version", "phase0")]),
    "no number": ("ssz-invalid", VALUE % b'{"source_index":"x","target_index":"515"}', ELECTRA),
    "a number that is no string": ("ssz-invalid", VALUE % b'{"source_index":1,"target_index":"515"}', ELECTRA),
    "too large a number": ("ssz-invalid", VALUE % (b'{"source_index":"%d"}' % 2**64), ELECTRA),
    "a field that is missing": ("ssz-invalid", VALUE % b'{"source_index":"1"}', ELECTRA),
    "a field that is there twice": ("ssz-invalid", VALUE % b'{"source_index":"1","source_index":"1"}', ELECTRA),
    "null": ("ssz-invalid", b'{"data":null}', ELECTRA),
    "no data": ("ssz-invalid", b'{"version":"electra"}', ELECTRA),
    "no JSON": ("ssz-invalid", b"<html>", ELECTRA),
    "nothing": ("ssz-invalid", b"", ELECTRA),
    "an end that is missing": ("ssz-invalid", (VALUE % ONE)[:-1], ELECTRA),
    "more after the end": ("ssz-invalid", VALUE % ONE + b"{}", ELECTRA),
    "an error under 200": ("ssz-invalid", b'{"code":500,"message":"no"}', ELECTRA),
}
DIVISIONS = {"whole": lambda body: [body], "bytewise": byte_chunks}


@pytest.mark.parametrize("case, division, coding", pairwise(list(WRONG), list(DIVISIONS), [None, "gzip"]))
def test_untranscodable_response_is_sent_unchanged_or_a_406(nginx, origin, case, division, coding):
    mode, body, headers = WRONG[case]
    split = DIVISIONS[division]
    origin.answers(answer(body, headers=[*headers, ("ETag", '"a"')], split=split, coding=coding))

    response = nginx.get(CONSOLIDATIONS, None, headers=[EITHER])
    assert (response.status, response.body, response.coding) == (200, body, None)
    assert response.header("Content-Type") == "application/json"
    # a decoded body is other bytes
    assert response.header("ETag") in (['"a"'] if coding is None else ['"a"', 'W/"a"'])
    assert "Accept" in response.header("Vary").split(", ")
    assert response.mode == mode

    response = nginx.get(CONSOLIDATIONS, "gzip", headers=[OCTETS])
    assert response.status == 406
    assert response.header("Content-Type") == "application/json"
    assert response.header("ETag") is None and response.coding is None
    error = json.loads(response.body)
    assert error["code"] == 406 and error["message"].startswith("the response is not available as SSZ: ")
    assert response.mode == mode


@TRANSPORTED
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("accept", [EITHER, OCTETS], ids=["either", "ssz"])
def test_cache_status_has_the_reason_of_a_failed_transcoding(nginx, origin, case, accept):
    mode, body, headers = case
    origin.answers(answer(body, headers=headers))
    path = f"{CONSOLIDATIONS}?run={next(_runs)}"
    response = fetch(nginx.ports["port_cached"], path, headers=[accept])
    assert response.header("Cache-Status") == f"sszip; fwd=miss; detail={mode}"


def test_route_is_detected_below_a_prefix_that_proxy_pass_removes(nginx, origin):
    origin.answers(lambda request: answer(VALUE % ONE if request.target == CONSOLIDATIONS else b"{}", headers=ELECTRA))
    for prefix in ("/gnosis/a-key", "/other"):
        response = fetch(nginx.ports["port_prefixed"], prefix + CONSOLIDATIONS, headers=[OCTETS])
        assert (response.status, response.body) == (200, ONE_SSZ)


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_etag_of_a_transcoded_response_equals_its_hits(nginx, origin, coding):
    path = f"{CONSOLIDATIONS}?run={next(_runs)}"
    origin.answers(answer(VALUE % b",".join([ONE] * 1000), headers=[*ELECTRA, ("ETag", '"of-the-json"')]))
    port, accept = nginx.ports["port_cached"], [("Accept-Encoding", coding or "identity")]
    miss = fetch(port, path, headers=[*accept, EITHER])
    hit = fetch(port, path, headers=[*accept, EITHER])
    tag = miss.header("ETag")
    assert (miss.coding, hit.coding, miss.body) == (coding, coding, hit.body)
    assert "fwd=miss" in miss.header("Cache-Status") and "hit" in hit.header("Cache-Status")
    assert tag == hit.header("ETag") and tag.startswith('"' if coding is None else 'W/"')
    again = fetch(port, path, headers=[*accept, EITHER, ("If-None-Match", tag)])
    assert (again.status, again.body) == (304, b"")
    # JSON is another representation
    again = fetch(port, path, headers=[*accept, JSON, ("If-None-Match", tag)])
    assert again.status == 200 and again.header("Content-Type") == "application/json"


def test_untranscodable_response_longer_than_the_buffer_is_a_502(nginx, origin):
    body = VALUE % (b",".join([ONE] * 100) + b",{}")
    nginx.expect("not available in the requested format")
    for framing in ("length", "chunked"):
        origin.answers(answer(body, headers=ELECTRA, framing=framing, split=byte_chunks))
        response = nginx.get(CONSOLIDATIONS, None, port="port_small", headers=[EITHER])
        assert (response.status, response.mode) == (502, "ssz-invalid")
        response = nginx.get(CONSOLIDATIONS, None, port="port_small", headers=[OCTETS])
        assert (response.status, response.mode) == (406, "ssz-invalid")
        # and a client of JSON receives it
        assert nginx.get(CONSOLIDATIONS, None, port="port_small", headers=[JSON]).body == body
    assert "the response is not available in the requested format, and the original is longer than ssz_hold" in nginx.error_log()


def test_response_that_exceeds_the_memory_is_sent_unchanged_or_an_error(nginx, origin):
    """The limit is detected with the head if it has the length; else the response is a 502."""
    block = b'{"data":["' + b"0x" + b"a" * 262144 + b'"'
    body = block + (b',"0x' + b"b" * 262144 + b'"') * 400 + b"]}"
    path = "/eth/v1/beacon/blobs/1"
    origin.answers(answer(body), path)
    response = nginx.get(path, None, port="port_small", headers=[EITHER])
    assert (response.status, len(response.body), response.mode) == (200, len(body), "memory")
    response = nginx.get(path, None, port="port_small", headers=[OCTETS])
    assert (response.status, json.loads(response.body)["code"]) == (503, 503)
    origin.answers(answer(body, framing="chunked"), path)
    nginx.expect("not enough memory to buffer the response")
    response = nginx.get(path, None, port="port_small", headers=[EITHER])
    assert (response.status, response.mode) == (502, "memory")
    # and the memory is released
    origin.answers(answer(VALUE % ONE, headers=ELECTRA), CONSOLIDATIONS)
    assert nginx.get(CONSOLIDATIONS, None, port="port_small", headers=[OCTETS]).body == ONE_SSZ


@pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
@pytest.mark.parametrize("accept", [EITHER, OCTETS], ids=["either", "ssz only"])
def test_truncated_response_is_a_502(nginx, origin, end, accept):
    body = VALUE % b",".join([ONE] * 300)
    nginx.expect("the response ended before|prematurely closed|reset by peer")
    fields = [("Content-Type", "application/json"), *ELECTRA]
    for length, sent in (("Content-Length", str(len(body))), b"%b" % body[:9000]), (("Connection", "close"), body[:9000]):
        origin.answers([head(headers=[*fields, length]) + sent, end])
        response = nginx.get(CONSOLIDATIONS, None, headers=[accept])
        if length[0] == "Connection":
            # truncation is invisible: a Unix socket has no reset
            assert response.status == (406 if accept is OCTETS else 200)
            assert response.header("Content-Type") == "application/json"
        else:
            assert response.status == 502


def test_worker_stays_healthy_when_clients_abort(nginx, origin):
    body = VALUE % b",".join([ONE] * 100_000)
    origin.answers(answer(body, headers=ELECTRA, framing="chunked"))
    worker = nginx.workers()[0]
    for number in range(40):
        with nginx.connect() as connection:
            connection.send(f"GET {CONSOLIDATIONS}?{number} HTTP/1.1\r\nHost: x\r\n{': '.join(OCTETS)}\r\n\r\n".encode())
            if number % 2:
                connection.take(1)
            connection.reset()
    response = nginx.get(CONSOLIDATIONS, None, headers=[OCTETS])
    assert response.body == ONE_SSZ * 100_000
    assert resident(worker) < 400 << 10


def test_response_is_complete_when_nginx_reloads(nginx, origin):
    body = VALUE % b",".join([ONE] * 50_000)
    sent, go_on = threading.Event(), threading.Event()

    def slowly(_request):
        whole = answer(body, headers=ELECTRA)
        yield whole[0] + whole[1][:1_000_000]
        sent.set()
        go_on.wait(GUARD_SECONDS)
        yield whole[1][1_000_000:]

    origin.answers(slowly)
    got = []
    thread = threading.Thread(target=lambda: got.append(nginx.get(CONSOLIDATIONS, None, headers=[OCTETS])))
    thread.start()
    assert sent.wait(GUARD_SECONDS)
    nginx.reload()
    go_on.set()
    thread.join(GUARD_SECONDS)
    assert got[0].body == ONE_SSZ * 50_000


def forms():
    """All requests of clients: the headers, the media type, and the coding."""
    for accept, type_ in (
        (OCTETS, "application/octet-stream"),
        (EITHER, "application/octet-stream"),
        (JSON, "application/json"),
        (("Accept", "*/*"), "application/json"),
        (None, "application/json"),
    ):
        for coding in (None, "gzip"):
            yield accept, type_, coding


@pytest.mark.parametrize("port", ["port_cached", "port_updated"])
def test_formats_are_not_mixed_under_random_load(nginx, origin, port):
    """Cold, warm, expired and updated in the background; in random order, concurrently."""
    value = VALUE % b",".join([ONE] * 200)
    ssz = ONE_SSZ * 200
    # some responses of the node are no valid value
    spoilt = value.replace(b'"515"', b'"+15"', 1)
    request_numbers = itertools.count(1)

    def script(request):
        body = spoilt if next(request_numbers) % 7 == 0 else value
        vary = [("Vary", "Accept")] if "head" in request.path else []
        coded = gzipped(body) if "gzip" in request.path else body
        coding = [("Content-Encoding", "gzip")] if "gzip" in request.path else []
        fields = [("Content-Type", "application/json"), *ELECTRA, *vary, *coding, ("Content-Length", str(len(coded)))]
        return [head(headers=fields) + coded]

    origin.answers(script)
    chance = random.Random(5)
    work = [(name, *form) for name in ("9", "head", "0xgzip") for form in forms()] * times(5, 12)
    chance.shuffle(work)
    failures, met, lock = [], collections.Counter(), threading.Lock()
    run = next(_runs)

    def send():
        while True:
            with lock:
                if not work:
                    return
                name, accept, type_, coding = work.pop()
            path = f"/eth/v1/beacon/states/{name}/pending_consolidations?run={run}{port}"
            headers = [accept] if accept else []
            headers += [("Accept-Encoding", coding)] if coding else []
            response = fetch(nginx.ports[port], path, headers=headers)
            body = response.decoded
            got = response.header("Content-Type"), body, response.status
            allowed = {
                ("application/octet-stream", ssz, 200): type_ == "application/octet-stream",
                ("application/json", value, 200): type_ == "application/json",
                # not available as SSZ
                ("application/json", spoilt, 200): accept is not OCTETS,
            }
            refused = accept is OCTETS and response.status == 406 and b'"code":406' in body
            vary = response.header("Vary") or ""
            wrong = response.coding not in (None, coding)
            with lock:
                met[type_, response.status, coding, "hit" in (response.header("Cache-Status") or "")] += 1
                if wrong or not (allowed.get(got) or refused) or "Accept" not in vary.split(", "):
                    failures.append((path, headers, response))

    clients = [threading.Thread(target=send) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert not failures, failures[:3]
    for type_, coding in itertools.product(("application/octet-stream", "application/json"), (None, "gzip")):
        assert met[type_, 200, coding, True] > 0, met


def test_background_update_is_transcoded(nginx, origin):
    run = next(_runs)
    path = f"/eth/v1/beacon/states/0x{'ab' * 32}/pending_consolidations?run={run}"
    value = VALUE.replace(b"true", b"false")
    origin.answers(answer(value % ONE, headers=ELECTRA))
    port = nginx.ports["port_updated"]
    assert fetch(port, path, headers=[OCTETS]).body == ONE_SSZ
    origin.answers(answer(value % b"", headers=ELECTRA))

    def is_updated():
        wait_until_expired()
        response = fetch(port, path, headers=[OCTETS])
        assert response.body in (ONE_SSZ, b"")
        assert response.header("Content-Type") == "application/octet-stream"
        return response.body == b"" and "fwd=miss" not in response.header("Cache-Status")

    nginx.wait_for(is_updated, "the update to be given out")


def test_response_that_another_module_changes_is_transcoded_and_not_stored(nginx, origin):
    path = f"{CONSOLIDATIONS}?run={next(_runs)}"
    origin.answers(answer(VALUE % ONE, headers=ELECTRA))
    for _ in range(2):
        response = fetch(nginx.ports["port_changed"], path, headers=[OCTETS])
        assert response.body == ONE_SSZ.replace(b"\x03\x02", b"\x04\x02")
        assert "fwd=miss" in response.header("Cache-Status")


def test_response_to_head_has_the_headers_of_get(nginx, origin):
    origin.answers(lambda request: answer(VALUE % ONE, headers=ELECTRA, method=request.method))
    for accept in (OCTETS, EITHER, JSON):
        get = nginx.get(CONSOLIDATIONS, None, headers=[accept])
        of_head = nginx.head(CONSOLIDATIONS, None, headers=[accept])
        for name in ("Content-Type", "Vary", "Eth-Consensus-Version"):
            assert of_head.header(name) == get.header(name)
        assert of_head.length in (None, get.length)


FORMS = {"ssz": (OCTETS, "application/octet-stream"), "json": (JSON, "application/json")}


@pytest.mark.parametrize("requested, coding, when", pairwise(list(FORMS), [None, "gzip"], ["miss", "hit", "stale"]))
def test_ranges_conditions_and_heads_refer_to_the_requested_format(nginx, origin, requested, coding, when):
    """The other format is stored, too, and equally fresh."""
    accept, type_ = FORMS[requested]
    port = nginx.ports["port_updated" if when == "stale" else "port_cached"]
    path = f"{CONSOLIDATIONS}?run={next(_runs)}"
    value = VALUE.replace(b'"finalized":true', b'"finalized":false') % b",".join([ONE] * 1000)
    whole = ONE_SSZ * 1000 if type_ == "application/octet-stream" else value
    fields = [*ELECTRA, ("ETag", '"of-the-json"'), ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")]
    origin.answers(lambda request: answer(value, headers=fields, method=request.method))
    other = JSON if accept is OCTETS else OCTETS

    def send(*more, method="GET", form=accept):
        headers = [("Accept-Encoding", coding or "identity"), form, *more]
        return fetch(port, path, method=method, headers=headers)

    tags = {form: send(form=form).header("ETag") for form in (other, accept)} if when != "miss" else {}
    if when == "stale":
        wait_until_expired()
    for method in ("GET", "HEAD"):
        for more in ([], [("Range", "bytes=1-9")], [("If-None-Match", '"else"')], [("If-Range", '"of-the-json"')]):
            about = method, more
            response = send(*more, method=method)
            assert (response.status, response.header("Content-Type")) == (200, type_), about
            assert (response.decoded == whole) if method == "GET" else (response.body == b""), about
            assert response.coding == coding or method == "HEAD" and response.coding is None, about
            assert {"Accept", "Accept-Encoding"} <= set(response.header("Vary").split(", ")), about
            assert response.header("Eth-Consensus-Version") == "electra", about
            if type_ == "application/octet-stream":
                assert "of-the-json" not in (response.header("ETag") or ""), about
    for form, tag in tags.items():
        response = send(("If-None-Match", tag))
        assert response.status == (304 if form is accept else 200), form
        assert (response.body == b"") if form is accept else (response.decoded == whole), form

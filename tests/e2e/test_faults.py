"""sszip being broken costs speed, never an answer: a module built with the
core's feature `faults` panics, fails or is refused memory on demand."""

import json
import os
import pathlib
import threading

import pytest

from harness import bodies
from harness.client import Truncated, fetch, request_bytes
from harness.http2 import Http2Client
from harness.nodes import BODY, plain
from harness.origin import Until, answer, chunked

FAULTS = os.environ.get("SSZIP_MODULE_FAULTS", "")
GZIP = [("Accept-Encoding", "gzip")]
LARGE = bodies.json(700000)

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    location / { proxy_pass http://@origin@; }
    location /zipped { proxy_set_header Accept-Encoding gzip; proxy_pass http://@origin@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin@; }
    location /unbuffered { proxy_buffering off; proxy_pass http://@origin@; }
    location /window { sszip_hold 20k 60s; proxy_pass http://@origin@; }
    location /soon { sszip_hold 64k 1ms; proxy_read_timeout 60s; proxy_pass http://@origin@; }
    # exactly what holding 30000 bytes takes
    location /exact { sszip_hold 64k 60s; sszip_memory 60000; proxy_pass http://@origin@; }
    location /in-step { return 204; }
    location /eth/ {
        sszip_ssz on;
        sszip_ssz_request always;
        client_max_body_size 4m;
        proxy_pass http://@origin@;
    }
    location /engine/ {
        sszip_ssz on;
        sszip_ssz_witness rpc;
        proxy_pass http://@origin@;
    }
}
server {
    listen 127.0.0.1:@port_h2@ http2;
    proxy_http_version 1.1;
    sszip on;
    # however slowly its pieces come
    location / { sszip_hold 64k 60s; proxy_pass http://@origin@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin@; }
}
"""

# The fault and the modes that it may be logged as.
ALL = {
    "panic-head": {"failed"},
    "panic-body": {"failed"},
    "panic-compress": {"failed"},
    "fail-compress": {"failed"},
    "fail-alloc": {"memory", "failed"},
}


def test_the_module_with_faults_is_there():
    """Not a reason to skip: the Makefile builds it."""
    assert pathlib.Path(FAULTS).is_file(), "SSZIP_MODULE_FAULTS names no module"


@pytest.fixture(scope="module", params=ALL)
def broken(request, start_nginx):
    nginx = start_nginx(CONFIG, module=FAULTS, main=f"env SSZIP_FAULT={request.param};")
    nginx.expect("panicked")  # Rust's own line on stderr
    nginx.fault, nginx.modes = request.param, ALL[request.param]
    return nginx


@pytest.mark.parametrize("body", [BODY, LARGE], ids=len)
def test_the_answer_arrives_in_identity(broken, origin, body):
    origin.answers(plain(body, headers=[("ETag", '"a"'), ("X-Node", "n")]))
    response = broken.get("/")
    assert (response.status, response.coding, response.framing) == (200, None, "length")
    assert response.body == body
    assert response.header("X-Node") == "n"
    assert response.header("ETag") in ('"a"', 'W/"a"')
    assert response.mode in broken.modes


def test_on_a_kept_connection(broken, origin):
    origin.answers(plain(LARGE))
    with broken.connect() as connection:
        for _ in range(20):
            connection.send(request_bytes("/", headers=GZIP) + request_bytes("/in-step"))
            assert connection.read().decoded == LARGE
            assert connection.read().status == 204


def test_a_nodes_gzip_arrives(broken, origin):
    origin.answers(plain(coding="gzip"))
    assert broken.get("/zipped", accept=None).decoded == BODY
    assert broken.get("/zipped").decoded == BODY


def test_head_and_small_answers_arrive(broken, origin):
    origin.answers(plain(method="HEAD"))
    assert broken.head("/").status == 200
    origin.answers(plain(b'{"result":"0x1"}'))
    assert broken.get("/").body == b'{"result":"0x1"}'


CONSOLIDATIONS = "/eth/v1/beacon/states/9/pending_consolidations"
OCTETS = ("Accept", "application/octet-stream")
EITHER = ("Accept", "application/octet-stream;q=1.0,application/json;q=0.9")
VALUE = b'{"version":"electra","data":[%s]}' % b",".join([b'{"source_index":"1","target_index":"515"}'] * 100)
VALUE_SSZ = ((1).to_bytes(8, "little") + (515).to_bytes(8, "little")) * 100


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("accept", ["gzip", None])
def test_who_takes_ssz_only_gets_no_json(broken, origin, framing, accept):
    broken.expect("sszip: (the response|no memory)")
    origin.answers(answer(VALUE, headers=[("Eth-Consensus-Version", "electra")], framing=framing))
    workers = broken.workers()
    for _ in range(5):
        response = broken.get(CONSOLIDATIONS, accept, headers=[OCTETS])
        if response.status == 200:
            # only the coding has failed
            assert response.header("Content-Type") == "application/octet-stream"
            assert response.decoded == VALUE_SSZ and response.mode in ("ssz", "failed")
        else:
            assert response.status in (406, 502, 503) and response.mode in broken.modes
        response = broken.get(CONSOLIDATIONS, accept, headers=[EITHER])
        assert response.status == 200
        assert response.decoded in (VALUE, VALUE_SSZ)
    assert broken.workers() == workers


@pytest.fixture(scope="module")
def unjudged(start_nginx):
    nginx = start_nginx(CONFIG, module=FAULTS, main="env SSZIP_FAULT=panic-head;")
    nginx.expect("panicked")
    nginx.expect("sszip: the response was not judged, and is to be sent as SSZ only")
    return nginx


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [200, 404])
def test_what_is_not_judged_is_a_502_to_who_takes_ssz_only(unjudged, origin, method, status):
    origin.answers(answer(VALUE, status=status, method=method))
    ask = unjudged.head if method == "HEAD" else unjudged.get
    for _ in range(5):
        response = ask(CONSOLIDATIONS, headers=[OCTETS])
        assert (response.status, response.mode) == (502, "failed")
        assert response.header("Content-Type") == "text/html"
        for fields in ([EITHER], [("Accept", "application/json")], []):
            response = ask(CONSOLIDATIONS, headers=fields)
            assert (response.status, response.mode) == (status, "failed")
        # which is none that sszip makes SSZ of
        assert ask("/", headers=[OCTETS]).status == status
    assert "the response was not judged, and is to be sent as SSZ only" in unjudged.error_log()


def test_the_workers_live_on(broken, origin):
    origin.answers(plain())
    workers = broken.workers()
    for _ in range(50):
        assert broken.get("/").decoded == BODY
    assert broken.workers() == workers


STREAMS = ["/stream", "/unbuffered", "/window"]


@pytest.fixture(scope="module")
def streamless(start_nginx):
    nginx = start_nginx(CONFIG, module=FAULTS, main="env SSZIP_FAULT=panic-stream;")
    nginx.expect("panicked")
    return nginx


class TestStreams:
    """The head is out and says gzip: there is no way back to the node's
    bytes, and what the encoder leaves behind must not look whole."""

    @pytest.mark.parametrize("path", STREAMS)
    @pytest.mark.parametrize("body", [b"{}", BODY, LARGE], ids=len)
    @pytest.mark.parametrize("framing", ["chunked", "close"])
    def test_is_cut_visibly(self, streamless, origin, path, body, framing):
        if path == "/window" and body == b"{}":
            body = bodies.json(20481)  # the first one that opens it
        origin.answers(answer(body, framing=framing))
        with pytest.raises(Truncated):
            streamless.get(path)
        # and what needs no stream is right as ever, on the same worker
        origin.answers(plain())
        response = streamless.get("/")
        assert (response.mode, response.decoded) == ("oneshot", BODY)

    @pytest.mark.parametrize("path", [*STREAMS, "/soon"])
    def test_when_the_node_waits(self, streamless, origin, path):
        """Found out by a timer or by a flush. The upstream module ends the
        request when it learns of it, with the node's next bytes at latest."""
        go = threading.Event()
        head, *_ = answer(framing="chunked")
        origin.answers([head, *chunked([LARGE[:30000]], last=False), Until(go, 0.05), *chunked([LARGE[30000:]])])
        with pytest.raises(Truncated):
            streamless.get(path)

    def test_is_reset_on_http2(self, streamless, origin):
        origin.answers(lambda request: answer(BODY, framing="chunked"))
        with Http2Client(streamless.ports["port_h2"]) as client:
            streams = [client.ask(path) for path in ("/stream", "/", "/stream", "/")]
            client.finish(*streams)
            assert set(client.resets) == set(streams[::2])
            for stream in streams[1::2]:
                client.judge(stream, BODY)

    def test_the_worker_lives_on(self, streamless, origin):
        workers = streamless.workers()
        origin.answers(answer(BODY, framing="chunked"))
        for _ in range(50):
            with pytest.raises(Truncated):
                streamless.get("/stream")
        assert streamless.workers() == workers
        # what the streams had reserved is free again
        origin.answers(answer(BODY))
        response = streamless.get("/exact")
        assert (response.mode, response.decoded) == ("oneshot", BODY)


def test_without_a_fault_the_same_module_compresses(start_nginx, origin):
    """So the faults above are the reason for identity."""
    nginx = start_nginx(CONFIG, module=FAULTS)
    origin.answers(plain())
    assert nginx.get("/").mode == "oneshot"
    origin.answers(answer(BODY, framing="chunked"))
    for path in STREAMS:
        response = nginx.get(path)
        assert (response.mode, response.decoded) == ("stream", BODY)


@pytest.mark.parametrize("count", [1, 2000], ids=["at once", "on a thread"])
def test_what_is_submitted_as_ssz_arrives_as_that(broken, origin, count):
    """Or as JSON, where it is not that what fails."""
    path, body = "/eth/v1/validator/register_validator", b"a" * 180 * count
    headers = [("Content-Type", "application/octet-stream")]
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    assert fetch(broken.ports["port"], path, method="POST", headers=headers, body=body).status == 200
    (asked,) = origin.received(path)
    is_json = asked.header("Content-Type") == "application/json"
    assert is_json == (broken.fault not in ("panic-compress", "fail-alloc"))
    assert len(json.loads(asked.body)) == count if is_json else asked.body == body


# of paris, with no transactions: all that has a length of its own is zeros
PAYLOAD = b"\4\0\0\0" + bytes(436) + b"\xfc\1\0\0" + bytes(64) + b"\xfc\1\0\0"


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("coding", ["gzip", None])
def test_a_payload_gets_its_status_in_ssz_or_none(broken, origin, framing, coding):
    """Never JSON as SSZ, and the node is asked once at most."""
    broken.expect("sszip: (the response|no memory)")
    status = b'{"jsonrpc":"2.0","id":1,"result":{"status":"SYNCING"}}'

    def node(request):
        is_call = request.header("Content-Type") == "application/json"
        if is_call:
            assert json.loads(request.body)["method"] == "engine_newPayloadWithWitnessV1"
        return answer(status, framing=framing) if is_call else answer(b"no", status=404, type="text/plain")

    origin.answers(node)
    path = "/engine/v1/payloads/witness"
    headers = [("Content-Type", "application/octet-stream"), ("Eth-Execution-Version", "paris")]
    for _ in range(3):
        origin.requests.clear()
        response = broken.get(path, coding, method="POST", headers=headers, body=PAYLOAD)
        if response.status == 200:
            assert response.header("Content-Type") == "application/octet-stream"
            assert response.decoded == bytes.fromhex("08000000" + "11000000" + "02" + "09000000" * 2)
        elif response.status == 404:
            # as it came: it was not to be read
            assert broken.fault == "panic-compress" and origin.requests[0].body == PAYLOAD
        else:
            assert response.status in (502, 503)
            assert response.mode in broken.modes
        assert len(origin.requests) <= 1

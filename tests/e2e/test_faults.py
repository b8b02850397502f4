"""A fault in sszip costs speed, never a response: a module built with the core's feature
`faults` panics, fails or gets no memory on demand."""

import json
import os
import pathlib
import re
import threading

import pytest

from harness import bodies
from harness.client import Truncated, fetch, request_bytes
from harness.http2 import Http2Client
from harness.nginx import Nginx
from harness.recorded_nodes import BODY, plain
from harness.origin import WaitFor, answer, chunked

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

# The faults, and the modes that are logged for each.
ALL = {
    "panic-head": {"failed"},
    "panic-body": {"failed"},
    "panic-compress": {"failed"},
    "fail-compress": {"failed"},
    "fail-alloc": {"memory", "failed"},
}


def test_module_with_fault_injection_exists():
    """A missing module is no reason to skip: the Makefile builds it."""
    assert pathlib.Path(FAULTS).is_file(), "SSZIP_MODULE_FAULTS names no module"


def test_nginx_refuses_a_core_with_another_interface_than_its_header():
    """Each struct might have another layout: no function of the core may be called."""
    nginx = Nginx("", module=FAULTS, environment={"SSZIP_FAULT": "other-abi"})
    try:
        status, output = nginx.test()
    finally:
        nginx.stop()
    assert status == 1
    (complaint,) = [line for line in output.splitlines() if "[emerg]" in line]
    numbers = re.search(
        r"sszip: the core's library is of another build than sszip\.h "
        r"\(interface (\d+), the header has (\d+)\): build both from one source",
        complaint,
    )
    assert numbers, complaint
    assert int(numbers[1]) == int(numbers[2]) + 1


@pytest.fixture(scope="module", params=ALL)
def broken(request, start_nginx):
    nginx = start_nginx(CONFIG, module=FAULTS, main=f"env SSZIP_FAULT={request.param};")
    nginx.expect("panicked")  # a line that Rust itself writes to stderr
    nginx.fault, nginx.modes = request.param, ALL[request.param]
    return nginx


@pytest.mark.parametrize("body", [BODY, LARGE], ids=len)
def test_response_is_sent_in_identity_when_a_fault_is_injected(broken, origin, body):
    origin.answers(plain(body, headers=[("ETag", '"a"'), ("X-Node", "n")]))
    response = broken.get("/")
    assert (response.status, response.coding, response.framing) == (200, None, "length")
    assert response.body == body
    assert response.header("X-Node") == "n"
    assert response.header("ETag") in ('"a"', 'W/"a"')
    assert response.mode in broken.modes


def test_connection_is_kept_when_a_fault_is_injected(broken, origin):
    origin.answers(plain(LARGE))
    with broken.connect() as connection:
        for _ in range(20):
            connection.send(request_bytes("/", headers=GZIP) + request_bytes("/in-step"))
            assert connection.read().decoded == LARGE
            assert connection.read().status == 204


def test_gzip_of_the_node_is_readable_when_a_fault_is_injected(broken, origin):
    origin.answers(plain(coding="gzip"))
    assert broken.get("/zipped", accept=None).decoded == BODY
    assert broken.get("/zipped").decoded == BODY


def test_head_and_small_responses_are_sent_when_a_fault_is_injected(broken, origin):
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
def test_client_of_ssz_only_gets_no_json_when_a_fault_is_injected(broken, origin, framing, accept):
    broken.expect("sszip: (the response|the upstream response|not enough memory)")
    origin.answers(answer(VALUE, headers=[("Eth-Consensus-Version", "electra")], framing=framing))
    workers = broken.workers()
    for _ in range(5):
        response = broken.get(CONSOLIDATIONS, accept, headers=[OCTETS])
        if response.status == 200:
            # only compression has failed
            assert response.header("Content-Type") == "application/octet-stream"
            assert response.decoded == VALUE_SSZ and response.mode in ("ssz", "failed")
        else:
            assert response.status in (406, 502, 503) and response.mode in broken.modes
        response = broken.get(CONSOLIDATIONS, accept, headers=[EITHER])
        assert response.status == 200
        assert response.decoded in (VALUE, VALUE_SSZ)
    assert broken.workers() == workers


@pytest.fixture(scope="module")
def panicking(start_nginx):
    nginx = start_nginx(CONFIG, module=FAULTS, main="env SSZIP_FAULT=panic-head;")
    nginx.expect("panicked")
    nginx.expect("sszip: the response was not evaluated, and the client accepts SSZ only")
    return nginx


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [200, 404])
def test_response_is_a_502_for_a_client_of_ssz_only_when_its_head_is_not_evaluated(panicking, origin, method, status):
    origin.answers(answer(VALUE, status=status, method=method))
    send = panicking.head if method == "HEAD" else panicking.get
    for _ in range(5):
        response = send(CONSOLIDATIONS, headers=[OCTETS])
        assert (response.status, response.mode) == (502, "failed")
        assert response.header("Content-Type") == "text/html"
        for fields in ([EITHER], [("Accept", "application/json")], []):
            response = send(CONSOLIDATIONS, headers=fields)
            assert (response.status, response.mode) == (status, "failed")
        # a path for which sszip has no SSZ
        assert send("/", headers=[OCTETS]).status == status
    assert "the response was not evaluated, and the client accepts SSZ only" in panicking.error_log()


def test_workers_survive_injected_faults(broken, origin):
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
    """The head was sent with Content-Encoding: gzip, so that the node's bytes cannot be
    sent any more, and the encoder's output must not look complete."""

    @pytest.mark.parametrize("path", STREAMS)
    @pytest.mark.parametrize("body", [b"{}", BODY, LARGE], ids=len)
    @pytest.mark.parametrize("framing", ["chunked", "close"])
    def test_stream_is_visibly_truncated_when_the_encoder_panics(self, streamless, origin, path, body, framing):
        if path == "/window" and body == b"{}":
            body = bodies.json(20481)  # the shortest body that exceeds the window
        origin.answers(answer(body, framing=framing))
        with pytest.raises(Truncated):
            streamless.get(path)
        # a response without a stream is still right, on the same worker
        origin.answers(plain())
        response = streamless.get("/")
        assert (response.mode, response.decoded) == ("oneshot", BODY)

    @pytest.mark.parametrize("path", [*STREAMS, "/soon"])
    def test_stream_is_visibly_truncated_when_the_encoder_panics_while_the_node_pauses(self, streamless, origin, path):
        """The panic occurs in a timer or a flush. The upstream module ends the request when
        it is notified, at the node's next bytes at latest."""
        go = threading.Event()
        head, *_ = answer(framing="chunked")
        origin.answers([head, *chunked([LARGE[:30000]], last=False), WaitFor(go, 0.05), *chunked([LARGE[30000:]])])
        with pytest.raises(Truncated):
            streamless.get(path)

    def test_http2_stream_is_reset_when_the_encoder_panics(self, streamless, origin):
        origin.answers(lambda request: answer(BODY, framing="chunked"))
        with Http2Client(streamless.ports["port_h2"]) as client:
            streams = [client.fetch(path) for path in ("/stream", "/", "/stream", "/")]
            client.finish(*streams)
            assert set(client.resets) == set(streams[::2])
            for stream in streams[1::2]:
                client.check_response(stream, BODY)

    def test_worker_survives_and_frees_memory_when_encoders_panic(self, streamless, origin):
        workers = streamless.workers()
        origin.answers(answer(BODY, framing="chunked"))
        for _ in range(50):
            with pytest.raises(Truncated):
                streamless.get("/stream")
        assert streamless.workers() == workers
        # the streams' memory is free again
        origin.answers(answer(BODY))
        response = streamless.get("/exact")
        assert (response.mode, response.decoded) == ("oneshot", BODY)


def test_module_with_fault_injection_compresses_without_a_fault(start_nginx, origin):
    """The faults above are thus the reason for identity."""
    nginx = start_nginx(CONFIG, module=FAULTS)
    origin.answers(plain())
    assert nginx.get("/").mode == "oneshot"
    origin.answers(answer(BODY, framing="chunked"))
    for path in STREAMS:
        response = nginx.get(path)
        assert (response.mode, response.decoded) == ("stream", BODY)


@pytest.mark.parametrize("count", [1, 2000], ids=["at once", "on a thread"])
def test_ssz_submission_reaches_the_node_even_if_its_conversion_to_json_fails(broken, origin, count):
    """The node receives the unchanged SSZ if the fault is in the conversion, and JSON otherwise."""
    path, body = "/eth/v1/validator/register_validator", b"a" * 180 * count
    headers = [("Content-Type", "application/octet-stream")]
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    assert fetch(broken.ports["port"], path, method="POST", headers=headers, body=body).status == 200
    (request,) = origin.received(path)
    is_json = request.header("Content-Type") == "application/json"
    assert is_json == (broken.fault not in ("panic-compress", "fail-alloc"))
    assert len(json.loads(request.body)) == count if is_json else request.body == body


# an ExecutionPayload of paris without transactions: all fields of fixed length are zeros
PAYLOAD = b"\4\0\0\0" + bytes(436) + b"\xfc\1\0\0" + bytes(64) + b"\xfc\1\0\0"


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("coding", ["gzip", None])
def test_payload_gets_a_status_in_ssz_or_an_error_when_a_fault_is_injected(broken, origin, framing, coding):
    """Never JSON labelled as SSZ, and at most one request to the node."""
    broken.expect("sszip: (the response|the upstream response|not enough memory)")
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
            # forwarded unchanged: the body was not to be read
            assert broken.fault == "panic-compress" and origin.requests[0].body == PAYLOAD
        else:
            assert response.status in (502, 503)
            assert response.mode in broken.modes
        assert len(origin.requests) <= 1

"""Split batches whose node aborts, in realistic servers: TLS and HTTP/2, CORS by the proxy,
brotli. One call is stored, one denied, and the node aborts within the second one of the two
responses that it sends."""

import json
import socket
import ssl
import struct
import subprocess
import threading

from .client import request_bytes
from .origin import CLOSE, RESET, WaitFor, answer, gzipped

ORIGIN = "https://dapp.example"
STORED = {"jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByHash", "params": ["0x" + "ab" * 32, True]}
BATCH = [
    STORED,
    {"jsonrpc": "2.0", "id": 2, "method": "eth_x", "params": ["first"]},
    {"jsonrpc": "2.0", "id": 3, "method": "debug_x", "params": []},
    {"jsonrpc": "2.0", "id": "four", "method": "eth_x", "params": ["second"]},
]
LONG = "0" * 3000
RESULTS = {1: {"x": LONG}, 2: ["first", LONG], "four": ["second", LONG]}
CUTS = ["length", "chunked", "reset", "gzip"]
CLIENTS = [("br, gzip", "--http2"), ("gzip", "--http1.1"), ("identity", "--http2")]


def result(id):
    return {"jsonrpc": "2.0", "id": id, "result": RESULTS[id]}


def node(request):
    """A node that responds to every call."""
    calls = json.loads(request.body)
    answers = [result(call["id"]) for call in calls] if isinstance(calls, list) else result(calls["id"])
    return answer(json.dumps(answers).encode())


def truncated_batch(kind):
    """A batch response whose first element is complete, and whose second one is not."""
    body = json.dumps([result(2), result("four")]).encode()
    end = body.rindex(b"second") + 20
    if kind == "gzip":
        # truncated, as a complete HTTP message
        return answer(gzipped(body, level=0)[:end], headers=[("Content-Encoding", "gzip")])
    framing = "length" if kind == "reset" else kind
    steps = answer(body, cut_at=end, framing=framing)
    return [RESET if kind == "reset" and step is CLOSE else step for step in steps]


def curl(port, body, *options, coding="gzip", version="--http2"):
    """Status, headers (in lower case), and the body as JSON, decoded by curl."""
    command = ["curl", "-sSk", version, "--compressed", "-D", "-", "--max-time", "30", "--data-binary", "@-"]
    command += ["-H", f"Accept-Encoding: {coding}", "-H", "Content-Type: application/json", "-H", f"Origin: {ORIGIN}"]
    done = subprocess.run(
        [*command, *options, f"https://127.0.0.1:{port}/"], input=json.dumps(body).encode(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return int(lines[0].split()[1]), fields, content


def prime(host, port, origin):
    """Stores the call that the batch finds stored."""
    origin.answers(node)
    host.wait_for(lambda: "; hit" in curl(port, STORED)[1]["cache-status"], "a hit")
    origin.forget()


def check_response(got, status, *, whole=(), lost=(), coding="gzip"):
    """Asserts that each call has one response, complete or an error; `whole`: ids of the node's
    responses that must arrive; `lost`: ids of responses that may."""
    found, fields, content = got
    assert found == status, (found, fields, content[:300])
    assert fields["access-control-allow-origin"] == ORIGIN
    assert fields.get("content-encoding", "identity") in [one.strip() for one in coding.split(",")] + ["identity"]
    answers = json.loads(content)
    assert [one["id"] for one in answers] == [call["id"] for call in BATCH]
    for one in answers:
        if one["id"] in (1, *whole) or one["id"] in lost and "result" in one:
            assert one == result(one["id"])
        elif one["id"] == 3:
            assert one["error"]["code"] == -32601
        else:
            assert one["error"]["code"] == -32603, one


def allowed_losses(kind):
    """The arguments of `judge` for a truncated response: bytes before a reset may be lost."""
    return {"lost": [2]} if kind == "reset" else {"whole": [2]}


def is_complete(got):
    return got[0] == 200 and all("result" in one for one in json.loads(got[2]) if one["id"] != 3)


def paused_truncation(kind):
    """A response that pauses before its truncation, and the event that ends the pause."""
    event = threading.Event()
    head, body, *rest = truncated_batch(kind)
    return [head, body[:2000], WaitFor(event), body[2000:], *rest], event


def abort_clients(host, port, origin):
    """Clients reset their connections when the node has received the request."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    fields = [("Content-Type", "application/json")]
    request = request_bytes("/", method="POST", headers=fields, body=json.dumps(BATCH).encode())
    for _ in range(5):
        before = len(origin.received())
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as client:
            client.sendall(request)
            host.wait_for(lambda before=before: len(origin.received()) > before, "the node to receive a request")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def requested_ids(origin):
    """Ids of the calls that the node received, by request."""
    return [[call["id"] for call in json.loads(request.body)] for request in origin.received()]

"""sszip being broken costs speed, never an answer: a module built with the
core's feature `faults` panics, fails or is refused memory on demand."""

import os
import pathlib

import pytest

from harness import bodies
from harness.client import request_bytes
from harness.nodes import BODY, plain

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
    location /in-step { return 204; }
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
    nginx.modes = ALL[request.param]
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


def test_the_workers_live_on(broken, origin):
    origin.answers(plain())
    workers = broken.workers()
    for _ in range(50):
        assert broken.get("/").decoded == BODY
    assert broken.workers() == workers


def test_without_a_fault_the_same_module_compresses(start_nginx, origin):
    """So the faults above are the reason for identity."""
    nginx = start_nginx(CONFIG, module=FAULTS)
    origin.answers(plain())
    assert nginx.get("/").mode == "oneshot"

"""The time for which a worker waits for a lookup at the owner."""

import os
import signal
import threading

import pytest

from harness.owner import Owner, wait_until_linked
from harness.processes import stop
from harness.rpc import Node, call

pytestmark = pytest.mark.bare

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace all;
sszip_cache_owner unix:@socket@;
@line@
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
}
"""

BLOCK = call("eth_getBlockByHash", '["0x' + "ab" * 32 + '",true]')
RESULT = b'{"number":"0x1","extraData":"0x' + b"5" * 5000 + b'"}'


@pytest.fixture
def owner():
    owner = Owner(max_size="64m", memory="32m").start()
    yield owner
    owner.close()


# By default a lookup waits as long as a test takes, so that a busy machine makes no miss
# of a hit.
PATIENT = {"SSZIP_TIMES": "lookup_timeout=30s link_silence=60s"}


@pytest.mark.parametrize(
    "line, is_hit",
    [("sszip_cache_lookup_timeout 20ms;", False), ("# sszip_cache_lookup_timeout", True)],
    ids=["20ms", "30s"],
)
def test_lookup_in_a_stopped_owner_is_a_miss_after_the_timeout_only(start_nginx, origin, owner, line, is_hit):
    node = Node({"eth_getBlockByHash": RESULT})
    origin.answers(node)
    config = CONFIG.replace("@socket@", owner.socket)
    first = start_nginx(config.replace("@line@", "# sszip_cache_lookup_timeout"), environment=PATIENT)
    wait_until_linked(first, owner)
    first.post("/", BLOCK)
    first.wait_for(lambda: owner.status()["memory"]["entries"], "the owner to have it")

    # the hot tier of this nginx is empty
    second = start_nginx(config.replace("@line@", line), environment=PATIENT)
    wait_until_linked(second, owner)
    stop(owner.process.pid)
    # the owner continues later than a miss is due: a miss comes before, a hit after
    resumption = threading.Timer(0.25, os.kill, (owner.process.pid, signal.SIGCONT))
    if is_hit:
        resumption.start()
    try:
        answer = second.post("/", BLOCK)
    finally:
        resumption.cancel()
        os.kill(owner.process.pid, signal.SIGCONT)
    assert answer.decoded == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % RESULT
    status = answer.header("Cache-Status")
    assert status.startswith("sszip; hit") if is_hit else "fwd=miss" in status, status
    assert node.count() == 2 - is_hit


@pytest.mark.parametrize("order", [1, -1], ids=["after", "before"])
def test_lookup_timeout_may_precede_or_follow_the_store(start_nginx, order):
    lines = ["sszip_cache_path @prefix@/cache max_size=64m;", "sszip_cache_lookup_timeout 1s;"]
    config = CONFIG.replace("sszip_cache_owner unix:@socket@;", "").replace("@line@", "\n".join(lines[::order]))
    wait_until_linked(start_nginx(config))

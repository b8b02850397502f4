"""A store whose disk is slow when nginx stops: the cache manager leaves in time, and
does not destroy what its threads still write with."""

import signal

import pytest

from harness.owner import wait_until_linked
from harness.rpc import Node
from test_store_life import CONFIG, await_fills, by_hash, end

# longer than nginx's cache manager waits for its store to close
DELAY = 20_000


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGTERM], ids=["quit", "term"])
def test_the_cache_manager_leaves_a_slow_disk_behind(start_nginx, origin, preload, number):
    origin.answers(
        Node({"eth_getBlockByHash": lambda params: b'"%b"' % (params[0].encode() * 300)})
    )
    nginx = start_nginx(CONFIG, environment=preload.environment)
    wait_until_linked(nginx)
    bodies = [nginx.post("/", by_hash(block)).body for block in range(30)]
    await_fills(nginx, 30)
    with preload.slow_disk(nginx.manager(), DELAY):
        # checked for signals that it ended by, too
        end(nginx, number)
        assert preload["delayed"]
    nginx.check()
    # the store opens as after a crash
    nginx.start()
    assert [nginx.post("/", by_hash(block)).body for block in range(30)] == bodies

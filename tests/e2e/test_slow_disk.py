"""A store whose disk is slow when nginx stops: the cache manager leaves in time, and
does not destroy what its threads still write with."""

import os
import signal

import pytest

from harness.owner import wait_until_linked
from harness.rpc import Node
from test_store_life import CONFIG, await_fills, by_hash, end

# milliseconds: longer than `end` waits for nginx, and nginx's cache manager for its store
DELAY = 600_000


def quit_all(nginx):
    end(nginx, signal.SIGQUIT)


def terminate_all(nginx):
    # nginx's master kills after three seconds, and a busy machine may take one for what takes two
    nginx.expect("cache manager process .* exited on signal 9")
    end(nginx, signal.SIGTERM)


def terminate_manager(nginx):
    manager = nginx.manager()
    os.kill(manager, signal.SIGTERM)
    left = f"cache manager process {manager} exited "
    nginx.wait_for(lambda: left in nginx.error_log(), "the cache manager to leave")
    assert f"{left}with code 0" in nginx.error_log()
    # in its place there is another one, whose disk is fast
    wait_until_linked(nginx)
    end(nginx, signal.SIGQUIT)


@pytest.mark.parametrize("leave", [quit_all, terminate_all, terminate_manager])
def test_the_cache_manager_leaves_a_slow_disk_behind(start_nginx, origin, preload, leave):
    origin.answers(
        Node({"eth_getBlockByHash": lambda params: b'"%b"' % (params[0].encode() * 300)})
    )
    nginx = start_nginx(CONFIG, environment=preload.environment)
    wait_until_linked(nginx)
    bodies = [nginx.post("/", by_hash(block)).body for block in range(30)]
    await_fills(nginx, 30)
    with preload.slow_disk(nginx.manager(), DELAY):
        # checked for signals that it ended by, too
        leave(nginx)
        assert preload["delayed"]
    nginx.check()
    # the store opens as after a crash
    nginx.start()
    assert [nginx.post("/", by_hash(block)).body for block in range(30)] == bodies

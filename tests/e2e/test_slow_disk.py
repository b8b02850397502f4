"""A store whose disk is slow when nginx stops: the cache manager exits in time, and does not
destroy objects that its threads still use."""

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
    # nginx's master kills after three seconds, and a busy machine may need one for a step of two
    nginx.expect("cache manager process .* exited on signal 9")
    end(nginx, signal.SIGTERM)


def terminate_manager(nginx):
    manager = nginx.manager()
    os.kill(manager, signal.SIGTERM)
    left = f"cache manager process {manager} exited "
    nginx.wait_for(lambda: left in nginx.error_log(), "the cache manager to leave")
    assert f"{left}with code 0" in nginx.error_log()
    # its successor has a fast disk
    wait_until_linked(nginx)
    end(nginx, signal.SIGQUIT)


@pytest.mark.parametrize("leave", [quit_all, terminate_all, terminate_manager])
def test_cache_manager_exits_in_time_when_the_disk_is_slow(start_nginx, origin, preload, leave):
    origin.answers(
        Node({"eth_getBlockByHash": lambda params: b'"%b"' % (params[0].encode() * 300)})
    )
    nginx = start_nginx(CONFIG, environment=preload.environment)
    wait_until_linked(nginx)
    bodies = [nginx.post("/", by_hash(block)).body for block in range(30)]
    await_fills(nginx, 30)
    with preload.slow_disk(nginx.manager(), DELAY):
        # signals that ended a process are checked, too
        leave(nginx)
        assert preload["delayed"]
    nginx.check()
    # the store opens as after a crash
    nginx.start()
    assert [nginx.post("/", by_hash(block)).body for block in range(30)] == bodies

"""An owner that may open few files: connections leave half of them to its store."""

import os
import socket
import time

import pytest

from daemon import LIMIT, Answer, Client, Daemon


@pytest.fixture
def limited(tmp_path, request):
    daemon = Daemon(tmp_path, idle_timeout="60s")
    daemon.files = request.param
    yield daemon.start()
    daemon.stop()


def hold(owner, many):
    """Connections that have sent half of a request."""
    held = []
    for _ in range(many):
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(LIMIT)
        raw.connect(str(owner.socket))
        raw.sendall(b"GET /v1/sta")
        held.append(raw)
    return held


def wait_for_connections(ask, many):
    """Until so many are served."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if ask()["connections"] >= many:
            return
        time.sleep(0.01)
    raise TimeoutError(many)


@pytest.mark.parametrize("limited", [(256, 256)], indirect=True)
def test_connections_beyond_the_limit_of_files_leave_half_of_it_to_the_store(limited):
    client = Client(limited.socket)

    def ask():
        client.request("GET", "/v1/status")
        return Answer(client.getresponse()).json()

    ask()
    held = hold(limited, 400)
    wait_for_connections(ask, 128)
    assert ask()["connections"] == 128
    assert len(os.listdir(f"/proc/{limited.process.pid}/fd")) < 200
    for raw in held:
        raw.close()
    client.close()
    assert limited.get(1).status == 404


@pytest.mark.parametrize("limited", [(200, 4096)], indirect=True)
def test_soft_limit_of_files_is_raised_to_the_hard_one(limited):
    held = hold(limited, 1_000)
    wait_for_connections(limited.status, 1_000)
    for raw in held:
        raw.close()

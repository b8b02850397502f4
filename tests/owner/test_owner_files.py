"""An owner with a low limit of open files: connections leave half of them to its store."""

import os
import socket
import time

import pytest

from daemon import Answer, Client, Daemon
from harness.guards import GUARD_SECONDS


@pytest.fixture
def limited(tmp_path, request):
    daemon = Daemon(tmp_path, idle_timeout="60s")
    daemon.files = request.param
    yield daemon.start()
    daemon.stop()


def open_connections(owner, many):
    """Opens connections that have sent a part of a request."""
    sockets = []
    for _ in range(many):
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(GUARD_SECONDS)
        raw.connect(str(owner.socket))
        raw.sendall(b"GET /v1/sta")
        sockets.append(raw)
    return sockets


def wait_for_connections(query_status, many):
    """Waits until this number of connections is served."""
    end = time.monotonic() + GUARD_SECONDS
    while query_status()["connections"] < many:
        assert time.monotonic() < end, f"not {many} connections"
        time.sleep(0.01)


@pytest.mark.parametrize("limited", [(256, 256)], indirect=True)
def test_connections_beyond_the_limit_of_files_leave_half_of_it_to_the_store(limited):
    client = Client(limited.socket)

    def query_status():
        client.request("GET", "/v1/status")
        return Answer(client.getresponse()).json()

    query_status()
    sockets = open_connections(limited, 400)
    wait_for_connections(query_status, 128)
    assert query_status()["connections"] == 128
    assert len(os.listdir(f"/proc/{limited.process.pid}/fd")) < 200
    for raw in sockets:
        raw.close()
    client.close()
    assert limited.get(1).status == 404


@pytest.mark.parametrize("limited", [(200, 4096)], indirect=True)
def test_soft_limit_of_files_is_raised_to_the_hard_one(limited):
    sockets = open_connections(limited, 1_000)
    wait_for_connections(limited.status, 1_000)
    for raw in sockets:
        raw.close()

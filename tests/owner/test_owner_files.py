"""An owner that may open few files: connections leave half of them to its store."""

import socket

import pytest

from daemon import LIMIT, Daemon


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


@pytest.mark.parametrize("limited", [(256, 256)], indirect=True)
def test_connections_beyond_the_limit_of_files_leave_the_store_working(limited):
    before = hold(limited, 1)[0]
    held = hold(limited, 400)
    # who is connected is served, and the store can open what it needs
    before.sendall(b"tus HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in before.recv(65_536)
    for raw in held:
        raw.close()
    before.close()
    assert limited.put(1, b"kept").status in (200, 201, 204)
    assert limited.get(1).body == b"kept"
    assert "too many open files" not in limited.said().lower(), limited.said()


@pytest.mark.parametrize("limited", [(200, 4096)], indirect=True)
def test_soft_limit_of_files_is_raised_to_the_hard_one(limited):
    held = hold(limited, 1_000)
    assert limited.status()["connections"] >= 1_000
    for raw in held:
        raw.close()

"""An owner of another version is reported once, and requests are sent to the node until it is
replaced by one of this version."""

import contextlib
import socket
import threading

import pytest

from harness.origin import answer
from harness.owner import Owner
from harness.rpc import call

TEXT = "does not speak the protocol of this version"
REPLIES = {
    "older": b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    "newer": b"SZL\x7f",
}


@contextlib.contextmanager
def another_version(path, reply):
    """An owner that answers each connection with these bytes, and closes it."""
    is_stopped = threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(0.1)
    listener.bind(str(path))
    listener.listen(16)

    def serve():
        while not is_stopped.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(1)
                    connection.recv(65536)
                    connection.sendall(reply)

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield
    finally:
        is_stopped.set()
        server.join()
        listener.close()
        path.unlink()


@pytest.mark.hosts("nginx", "native")
@pytest.mark.parametrize("version", REPLIES)
def test_owner_of_another_version_is_reported_once(start_server, origin, version):
    owner = Owner(max_size="64m", memory="32m")
    times = {"SSZIP_TIMES": "owner_outage_grace=300ms"}
    count = [0]

    def node(request):
        count[0] += 1
        return answer(b'{"jsonrpc":"2.0","id":1,"result":"0x1"}')

    origin.answers(node)
    try:
        with another_version(owner.folder / "socket", REPLIES[version]):
            place = {"cache": True, "cache_namespace": "all"}
            settings = {"cache_owner": f"unix:{owner.socket}"}
            server = start_server({"/": place}, settings, environment=times)
            server.expect(TEXT)
            body = call("eth_chainId")

            def is_reported():
                assert server.fetch("/", body).status == 200
                return TEXT in server.error_log()

            server.wait_for(is_reported, "a line of the log")
            before = count[0]
            for _ in range(10):
                assert server.fetch("/", body).status == 200
            assert count[0] == before + 10
            assert server.error_log().count(TEXT) == 1
        owner.start()
        server.wait_for(
            lambda: server.fetch("/", body).header("Cache-Status").startswith("sszip; hit"), "a hit"
        )
    finally:
        owner.close()

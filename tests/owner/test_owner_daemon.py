"""The daemon: its socket, its limits and its command line."""

import json
import os
import pwd
import signal
import socket
import stat
import subprocess

from daemon import CACHED, NAMESPACE, Answer, Client, Daemon, key
from harness.guards import GUARD_SECONDS

SETTINGS = {"idle_timeout": "300ms", "max_entry": "1m"}


def connected(owner):
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(GUARD_SECONDS)
    raw.connect(str(owner.socket))
    return raw


def ends(raw):
    """Waits until the daemon closes the connection, and returns the bytes that it sent."""
    got = b""
    try:
        while more := raw.recv(65_536):
            got += more
    except ConnectionResetError:
        pass
    raw.close()
    return got


def test_socket_is_accessible_to_its_user_only(owner, start_daemon):
    mode = owner.socket.stat()
    assert stat.S_ISSOCK(mode.st_mode)
    assert stat.S_IMODE(mode.st_mode) == 0o600
    assert (mode.st_uid, mode.st_gid) == (os.geteuid(), os.getegid())
    assert stat.S_IMODE(owner.store.stat().st_mode) & 0o077 == 0
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        other = start_daemon(socket_user="nobody")
        mode = other.socket.stat()
        assert (mode.st_uid, mode.st_gid, stat.S_IMODE(mode.st_mode)) == (nobody.pw_uid, nobody.pw_gid, 0o600)


def test_incomplete_request_is_closed_after_the_idle_timeout(owner):
    for half in (b"", b"G", b"GET /v1/status HTTP/1.1\r\n", b"GET /v1/status HTTP/1.1\r\nhost: o\r\nx: "):
        raw = connected(owner)
        raw.sendall(half)
        ends(raw)
    assert owner.status()["connections"] <= 2


def test_incomplete_body_is_rejected_and_not_stored(owner):
    head = (
        f"PUT /v1/entries/{key(1)} HTTP/1.1\r\nhost: o\r\nsszip-generation: {owner.generation}\r\n"
        f"sszip-fresh: 60000\r\nsszip-class: tip\r\nsszip-namespace: {NAMESPACE}\r\ncontent-length: 100\r\n\r\n"
    ).encode()
    raw = connected(owner)
    raw.sendall(head + b"x" * 99)
    assert ends(raw).startswith(b"HTTP/1.1 408 ")
    # closed before the end of the body
    raw = connected(owner)
    raw.sendall(head + b"x" * 99)
    raw.close()
    # only the connection of this query is left
    owner.wait_for(lambda: owner.status()["connections"] == 1, "its connection to end")
    assert owner.get(1).status == 404


def test_malformed_requests_are_rejected(owner):
    for bytes_ in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET /v1/status HTTP/2.0\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nhost: o\r\nbad header\r\n\r\n",
        b"POST /v1/purges HTTP/1.1\r\nhost: o\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/purges HTTP/1.1\r\nhost: o\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
        b"POST /v1/purges HTTP/1.1\r\nhost: o\r\ntransfer-encoding: gzip\r\n\r\n",
    ):
        raw = connected(owner)
        raw.sendall(bytes_)
        answer = ends(raw)
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer
    assert owner.status()["connections"] <= 2


def test_too_long_heads_are_rejected(owner):
    raw = connected(owner)
    try:
        raw.sendall(b"GET /v1/status HTTP/1.1\r\nhost: o\r\nx: " + b"x" * 200_000 + b"\r\n\r\n")
    except OSError:
        pass
    assert b"431" in ends(raw)[:20]
    raw = connected(owner)
    raw.sendall(b"GET /v1/status HTTP/1.1\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(200)) + b"\r\n")
    assert b"431" in ends(raw)[:20]


def test_requests_on_300_connections_are_served(owner):
    clients = [Client(owner.socket) for _ in range(300)]
    for client in clients:
        client.request("GET", f"/v1/entries/{key(5)}")
    for client in clients:
        assert Answer(client.getresponse()).status == 404
        client.close()


def test_client_that_does_not_read_does_not_delay_others(start_daemon):
    # with the idle timeout of the other tests, a client that a busy machine delays is closed
    owner = start_daemon(max_entry="1m")
    owner.put(9, os.urandom(1 << 20))
    deaf = [connected(owner) for _ in range(20)]
    for raw in deaf:
        raw.sendall(f"GET /v1/entries/{key(9)} HTTP/1.1\r\nhost: o\r\n\r\n".encode() * 20)
    for _ in range(20):
        assert len(owner.get(9).body) == 1 << 20
    for raw in deaf:
        raw.close()


def test_stop_removes_the_socket(start_daemon):
    owner = start_daemon()
    owner.stop()
    assert not owner.socket.exists()
    assert owner.log_text().endswith("stopped\n")


def test_daemon_ignores_signals_that_do_not_stop_it(start_daemon):
    owner = start_daemon()
    for number in (signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT):
        owner.process.send_signal(number)
    assert owner.status()["pid"] == owner.process.pid


def run(*arguments):
    return subprocess.run([CACHED, *arguments], capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)


def test_command_line_checks_arguments_and_configuration(tmp_path):
    assert run("--version").stdout.startswith("sszip-cached ")
    assert "--check" in run("--help").stdout
    assert run("--nothing").returncode == 2
    daemon = Daemon(tmp_path)
    assert run("--check", daemon.config).returncode == 0
    assert not daemon.store.exists()
    daemon.config.write_text('socket = "/a"\npath = "/b"\nmemmory = "1m"\n')
    for arguments in (["--check", daemon.config], [daemon.config]):
        ran = run(*arguments)
        assert ran.returncode == 2
        assert f"{daemon.config}:3: unknown field `memmory`, expected one of" in ran.stderr
    assert run("--check", tmp_path / "none").returncode == 2


def test_status_option_prints_the_status_of_a_running_daemon(start_daemon):
    owner = start_daemon()
    ran = run("--status", owner.config)
    assert ran.returncode == 0 and json.loads(ran.stdout)["pid"] == owner.process.pid
    owner.stop()
    ran = run("--status", owner.config)
    assert ran.returncode == 1 and f"{owner.socket}: No such file" in ran.stderr
    assert run("--check", "--status", owner.config).returncode == 2


def test_daemon_exits_when_it_cannot_listen(tmp_path):
    daemon = Daemon(tmp_path, socket=str(tmp_path / "no" / "such" / "folder"))
    ran = run(daemon.config)
    assert ran.returncode == 1
    assert "No such file or directory" in ran.stderr

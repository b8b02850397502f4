"""`sszip status`, `top` and `purge` with a real server of each host and its owner."""

import contextlib
import json
import signal
import subprocess

import pytest

from harness.guards import GUARD_SECONDS
from harness.live_view import SSZIP, LiveView, run_sszip
from harness.owner import Owner, owner_of, wait_until_linked
from harness.rpc import Node, call

BODY = call("eth_chainId")


@pytest.fixture(scope="module")
def server(start_server, host):
    places = {"/purge": {"cache_purge": True}, "/": {"cache_namespace": "main"}}
    general = {"cache": True}
    if host != "wasm":
        # the sandbox has a daemon, and no status page
        places["/status"] = {"status": True}
        general["cache_path"] = "@prefix@/cache max_size=64m memory=32m"
    server = start_server(places, general)
    if host != "wasm":
        wait_until_linked(server)
    return server


@pytest.fixture
def node(server, origin):
    node = Node({"eth_chainId": b'"0x1"'})
    origin.answers(node)
    return node


@pytest.fixture
def status(server, host):
    """The URL of the status."""
    return f"http://127.0.0.1:{server.admin}/stats" if host == "wasm" else f"http://127.0.0.1:{server.port}/status"


@pytest.fixture
def view(status):
    """Starts live views, by default of the server's status."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            view = LiveView(*(arguments or ["status", status]), "--interval", "500ms")
            stack.callback(view.close)
            return view

        yield start


def owner(server):
    return getattr(server, "owner", None) or owner_of(server)


def request_count(status):
    """The requests that the command counts; none if there are no counters yet."""
    done = run_sszip("top", status, "--json", "--once", "--interval", "500ms")
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return {row["name"]: row["calls"] for row in rows}.get("eth_chainId", 0)


def test_reports_have_the_requests_of_the_server(server, node, status):
    assert server.fetch("/", BODY).status == 200
    before = server.wait_for(lambda: request_count(status), "the first request to be counted")
    for _ in range(5):
        assert server.fetch("/", BODY).status == 200
    server.wait_for(lambda: request_count(status) == before + 5, "the requests to be counted")
    done = run_sszip("status", status, "--interval", "500ms")
    assert done.returncode == 0, done.stderr
    assert "Requests/s" in done.stdout and "\neth_chainId " in done.stdout
    assert "\x1b" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "Hit ratio" in line)
    done = run_sszip("status", status, "--json")
    assert json.loads(done.stdout).keys() & {"requests", "stats"}


def test_owner_is_reported_over_its_socket(server, node):
    done = run_sszip("status", owner(server).socket, "--interval", "500ms")
    assert done.returncode == 0, done.stderr
    assert "Lookups/s" in done.stdout and "Store" in done.stdout
    json_report = run_sszip("status", f"unix:{owner(server).socket}", "--json")
    assert json.loads(json_report.stdout)["generation"] > 0


def test_purges_are_in_effect_when_the_command_ends(server, node):
    purge_url = f"http://127.0.0.1:{server.port}/purge"
    for arguments in (["--url", purge_url], ["--socket", owner(server).socket]):
        server.fetch("/", BODY)
        done = run_sszip("purge", "method=eth_chainId", *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("purged: generation ")
        before = node.count()
        assert server.fetch("/", BODY).status == 200
        assert node.count() == before + 1
    refused = run_sszip("purge", "everything", "--url", purge_url)
    assert refused.returncode == 2 and "--yes" in refused.stderr


# the terminal does not depend on the host
@pytest.mark.hosts("nginx")
@pytest.mark.parametrize("keys, code", [(b"q", 0), (b"\x1b", 0), (b"\x03", 130)])
def test_keys_end_the_live_view(server, node, view, keys, code):
    live = view()
    live.wait_for("Requests/s")
    live.press(b"2")
    live.wait_for("Calls/s")
    live.press(keys)
    assert live.end() == code


@pytest.mark.hosts("nginx")
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_end_the_live_view(server, node, view, number, code):
    live = view()
    live.wait_for("Requests/s")
    live.process.send_signal(number)
    assert live.end() == code


@pytest.mark.hosts("nginx")
def test_ignored_signal_does_not_end_a_command(server, node, status):
    command = ["nohup", SSZIP, "status", status, "--json", "--interval", "500ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert json.loads(process.stdout.readline())
            process.send_signal(signal.SIGHUP)
            for _ in range(2):
                assert json.loads(process.stdout.readline())
            process.terminate()
            assert process.wait(GUARD_SECONDS) == 143
        finally:
            process.kill()


@pytest.mark.hosts("nginx")
def test_live_view_outlasts_the_server(view):
    owner = Owner(max_size="64m", memory="32m").start()
    try:
        live = view("status", owner.socket)
        live.wait_for("Lookups/s")
        owner.kill()
        live.wait_for("RESPONSE")
        silent = len(live.output)
        owner.start()
        live.wait_for("every", since=silent)
        owner.kill()
        live.press(b"q")
        assert live.end() == 0
    finally:
        owner.close()


@pytest.mark.hosts("nginx")
def test_unreachable_server_does_not_change_the_terminal(view):
    live = view("status", "http://127.0.0.1:1/sszip")
    assert live.end() == 1
    assert b"cannot reach" in live.output and b"\x1b" not in live.output

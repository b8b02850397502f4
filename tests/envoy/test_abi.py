"""The module's side of Envoy's ABI, compared with the real binary."""

import pathlib
import re
import shutil
import socket
import subprocess
import threading

import pytest

from harness.envoy import ENVOY, MODULE, Envoy, cluster, pipe, route
from harness.guards import GUARD_SECONDS

# Hooks that Envoy requires of a filter.
HOOKS = {
    "program_init",
    *(
        f"http_filter_{name}"
        for name in """config_new config_destroy new destroy stream_complete scheduled request_headers
        request_body request_trailers response_headers response_body response_trailers http_callout_done
        http_stream_headers http_stream_data http_stream_trailers http_stream_complete http_stream_reset
        downstream_above_write_buffer_high_watermark downstream_below_write_buffer_low_watermark""".split()
    ),
}


def names(path, *options):
    output = subprocess.run(
        ["nm", "-D", *options, path], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"(\S+)$", output, re.MULTILINE))


def test_envoy_defines_every_function_that_the_module_calls():
    called = {name for name in names(MODULE, "--undefined-only") if name.startswith("envoy_")}
    assert len(called) > 20
    assert called <= names(shutil.which(ENVOY) or ENVOY, "--defined-only")


@pytest.mark.shipped("what tests run has the core's C ABI in every library")
def test_module_exports_hooks_only():
    """Other symbols could collide with symbols of another module, or of Envoy."""
    exported = names(MODULE, "--defined-only")
    assert {f"envoy_dynamic_module_on_{hook}" for hook in HOOKS} <= exported
    assert all(name.startswith("envoy_dynamic_module_on_") for name in exported), exported


class Node:
    """A node that sends its response in two pieces and a trailer, each when the test releases it."""

    def __init__(self, path):
        self.request = b""
        self.is_second_due = threading.Event()
        self.is_end_due = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(GUARD_SECONDS)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the test has ended
            return
        with connection:
            connection.settimeout(GUARD_SECONDS)
            while not self.request.endswith(b"0\r\n\r\n"):
                if not (piece := connection.recv(65536)):
                    return
                self.request += piece
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
            self.is_second_due.wait(GUARD_SECONDS)
            connection.sendall(b"3\r\ntwo\r\n")
            self.is_end_due.wait(GUARD_SECONDS)
            connection.sendall(b"0\r\ntrailer-of-node: sent\r\n\r\n")

    def stop(self):
        self.is_second_due.set()
        self.is_end_due.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(GUARD_SECONDS)
        self._listener.close()


def probed(path):
    """The cluster of the node at that path, which may send trailers."""
    found = cluster("probed", pipe(path))
    options = found["typed_extension_protocol_options"].values()
    for one in options:
        one["explicit_http_config"]["http_protocol_options"]["enable_trailers"] = True
    return found


@pytest.fixture
def probe(tmp_path):
    """Envoy with a module that is compiled from the same abi.rs, its node, and what it recorded."""
    node = Node(tmp_path / "node.sock")
    envoy = Envoy([route("/", cluster="probed")], clusters=[probed(tmp_path / "node.sock")])
    envoy.options += ["--component-log-level", "dynamic_modules:info"]
    envoy.environment["SSZIP_PROBE"] = str(tmp_path / "recorded")
    envoy.expect("probe logs error")
    source = pathlib.Path(__file__).with_name("probe.rs")
    library = envoy.prefix / "libsszip_envoy.so"
    # a link to the module of all tests
    library.unlink()
    command = ["rustc", "--edition", "2021", "--crate-type", "cdylib", "-C", "panic=abort", "-o", library, source]
    subprocess.run(command, check=True)

    def recorded(name):
        path = tmp_path / "recorded"
        lines = path.read_text().splitlines() if path.exists() else []
        return [value for key, _, value in (line.partition("=") for line in lines) if key == name]

    try:
        yield envoy.start(), node, recorded
    finally:
        node.stop()
        envoy.stop()


def test_running_envoy_has_the_layouts_and_values_of_abi_rs(probe):
    envoy, node, recorded = probe
    assert recorded("filter name") == ["sszip"]
    assert '"cache_get"' in recorded("filter config")[0]
    envoy.wait_for(lambda: recorded("callout without headers"), "the event of the configuration")
    assert recorded("event") == ["7"]
    assert recorded("callout to no cluster") == ["ClusterNotFound"]
    assert recorded("callout without headers") == ["MissingRequiredHeaders"]
    levels = re.findall(r"\[(\w+)\]\[dynamic_modules\].*probe logs (\w+)", envoy.error_log())
    assert levels == [("info", "info"), ("warning", "warn"), ("error", "error")]

    with socket.create_connection(("127.0.0.1", envoy.port), GUARD_SECONDS) as connection:
        head = b"POST /probe?a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        connection.sendall(head + b"5\r\nfirst\r\n")
        envoy.wait_for(lambda: recorded("request body"), "the first piece of the request")
        assert recorded("request path") == ["/probe?a"]
        assert recorded("protocol") == ["HTTP/1.1"]
        assert recorded("route")[0].startswith("/ ")
        assert recorded("port") == [str(envoy.port)]
        assert recorded("has connection") == ["true"]
        assert node.request == b""
        connection.sendall(b"6\r\nsecond\r\n0\r\n\r\n")
        envoy.wait_for(lambda: recorded("response body"), "the first piece of the response")
        node.is_second_due.set()
        envoy.wait_for(lambda: len(recorded("response body")) == 2, "the second piece of the response")
        node.is_end_due.set()
        with connection.makefile("rb") as stream:
            response = stream.read()
    assert recorded("request body")[0] == "+first"
    assert any(line.startswith("first+") for line in recorded("request body")[1:])
    assert b"firstsecond" in re.sub(rb"\r\n[0-9a-f]+\r\n", b"", node.request)
    assert recorded("response status") == ["200"]
    assert recorded("response body") == ["+one", "one+two"]
    assert recorded("response trailer") == ["sent"]
    assert recorded("response buffered") == ["one"]
    assert b"\r\nprobe: set\r\n" in response
    assert b"one" in response
    assert b"two" not in response

"""libsszip_owner.so in a host written in C, which opens it after a fork."""

import os
import pathlib
import re
import subprocess

import pytest

from daemon import Daemon
from harness.guards import GUARD_SECONDS

HERE = pathlib.Path(__file__).parent
INCLUDE = HERE.parents[1] / "cache-owner" / "include"
LIBRARY = pathlib.Path(os.environ.get("SSZIP_OWNER_LIBRARY", "build/nginx/libsszip_owner.so"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The host, built with AddressSanitizer."""
    program = tmp_path_factory.mktemp("host") / "library"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address"]
    subprocess.run(["gcc", *flags, f"-I{INCLUDE}", HERE / "library.c", "-o", program, "-ldl"], check=True)
    return program


class Hosted(Daemon):
    def __init__(self, folder, program):
        super().__init__(folder)
        self.program = program

    def spawn(self):
        self.process = subprocess.Popen(
            [self.program, LIBRARY.resolve(), self.socket, self.store],
            stdin=subprocess.PIPE,
            stdout=open(self.log, "ab"),
            stderr=subprocess.STDOUT,
        )
        return self

    def wait(self):
        def serves():
            assert self.process.poll() is None, self.log_text()
            return "0 serving on" in self.log_text()

        self.wait_for(serves, "the host to serve")

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(GUARD_SECONDS) == 0, self.log_text()


def test_host_runs_an_owner_and_a_second_one_takes_over(host, tmp_path):
    owner = Hosted(tmp_path, host)
    owner.start()
    assert owner.status()["pid"] != owner.process.pid
    owner.wait_for(lambda: "follows b" in owner.log_text(), "it to follow")
    assert "0 follows main at http://node\n" in owner.log_text()
    assert "0 follows b at unix:/s\n" in owner.log_text()
    assert owner.put(1, b"one").status == 201
    second = Hosted(tmp_path, host)
    second.log = tmp_path / "second"
    second.spawn()
    second.wait_for(lambda: "another owner has the store" in second.log_text(), "it to wait")
    owner.stop()
    second.wait()
    assert second.get(1).body == b"one"
    second.stop()
    assert not owner.socket.exists()


@pytest.mark.shipped("what tests run has the core's C ABI in every library")
def test_library_exports_only_its_c_abi():
    ran = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
    symbols = {line.split()[-1] for line in ran.stdout.splitlines()}
    header = (INCLUDE / "sszip_owner.h").read_text()
    calls = set(re.findall(r"^[\w *]*\b(sszip_owner_\w+)\(", header, re.M))
    assert {"sszip_owner_run", "sszip_owner_direct_lookup"} <= calls
    assert symbols == calls

"""replay-node under the control of a test, which changes its chain."""

import json
import os
import pathlib
import subprocess
import urllib.request

from harness.guards import GUARD_SECONDS

REPLAY_NODE = pathlib.Path(os.environ.get("SSZIP_REPLAY_NODE", "build/bin/replay-node"))


class Node:
    """One replay-node with a chain that runs until it is stopped."""

    def __init__(self, folder, *options):
        self.socket = pathlib.Path(folder) / "node.sock"
        listen = ["--listen", "127.0.0.1:0", "--listen", f"unix:{self.socket}"]
        self.process = subprocess.Popen(
            [REPLAY_NODE, "--chain", *listen, *options], stdout=subprocess.PIPE, text=True
        )
        self.address = None
        for _ in range(2):
            line = self.process.stdout.readline()
            address = line.strip().partition("listening on ")[2]
            if address.startswith("http://"):
                self.address = address.removeprefix("http://")
        assert self.address, line

    def url(self, scheme):
        return f"unix:{self.socket}" if scheme == "unix" else f"{scheme}://{self.address}"

    def change(self, *commands):
        """Applies all commands at once, and returns the state after them."""
        body = json.dumps(commands).encode()
        request = urllib.request.Request(f"http://{self.address}/chain", body, method="POST")
        with urllib.request.urlopen(request, timeout=GUARD_SECONDS) as answer:
            return json.load(answer)

    def chain(self):
        with urllib.request.urlopen(f"http://{self.address}/chain", timeout=GUARD_SECONDS) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(GUARD_SECONDS) == 0
        self.process.stdout.close()

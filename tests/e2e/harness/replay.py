"""The project's replay node (loadtest/replay-node) as an upstream."""

import json
import os
import pathlib
import subprocess
from dataclasses import dataclass

from . import client

from harness.guards import GUARD_SECONDS

BINARY = os.environ.get("SSZIP_REPLAY_NODE", "build/bin/replay-node")


class ReplayNode:
    def __init__(self, *arguments):
        if not pathlib.Path(BINARY).is_file():
            raise AssertionError(f"SSZIP_REPLAY_NODE: there is no {BINARY}")
        self._process = subprocess.Popen(
            [BINARY, "--listen", "127.0.0.1:0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline()
        self.address = line.strip().rpartition("/")[2]
        self.port = int(self.address.rpartition(":")[2])

    def stats(self):
        """The node's counters."""
        response = client.fetch(self.port, "/stats")
        assert response.status == 200, response.body
        return json.loads(response.body)

    def kill(self):
        """Ends it at once, with all requests in flight."""
        self._process.kill()
        self._process.wait(GUARD_SECONDS)

    def stop(self):
        self._process.terminate()
        self._process.wait(GUARD_SECONDS)
        self._process.stdout.close()


@dataclass
class Call:
    """A request for which the node has a response: JSON-RPC, or a resource (GET)."""

    method: str
    target: str
    body: bytes | None

    def fetch(self, connection, headers=()):
        headers = list(headers)
        if self.body is not None:
            headers.append(("Content-Type", "application/json"))
        method = "GET" if self.body is None else "POST"
        return connection.exchange(self.target, method=method, headers=headers, body=self.body)


def calls(*arguments):
    """All requests for which the node has a response."""
    done = subprocess.run(
        [BINARY, "--list", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    for number, line in enumerate(done.stdout.splitlines(), start=1):
        method, params, _size = line.split("\t")
        if method == "GET":
            yield Call(method, params, None)
        else:
            call = {"jsonrpc": "2.0", "id": number, "method": method, "params": json.loads(params)}
            yield Call(method, "/", json.dumps(call).encode())

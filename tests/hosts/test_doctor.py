"""`sszip doctor` with a real proxy and a real owner."""

import json
import os
import subprocess

import pytest

from harness.guards import GUARD_SECONDS
from harness.owner import Owner

COMMAND = os.environ.get("SSZIP_COMMAND", "build/bin/sszip")

# the proxy-wasm filter has no status page
pytestmark = pytest.mark.hosts("nginx", "native")


def examine(*arguments):
    command = [COMMAND, "doctor", "--json", "--nginx", "/no/nginx", *arguments]
    result = subprocess.run(command, capture_output=True, timeout=GUARD_SECONDS)
    assert result.returncode in (0, 3), result.stderr
    return {row["name"]: row for row in json.loads(result.stdout)}


def test_proxy_with_its_owner_has_no_problems_until_the_owner_ends(start_server):
    owner = Owner(max_size="64m", memory="32m").start()
    try:
        places = {"/status": {"status": True}, "/": {"cache": True, "cache_namespace": "main"}}
        server = start_server(places, {"cache_owner": f"unix:{owner.socket}"})
        url = f"http://127.0.0.1:{server.port}/status"
        server.expect("does not respond")
        server.wait_for(
            lambda: examine("--url", url)["owner"]["status"] == "ok", "the proxy to reach its owner"
        )
        rows = examine("--url", url, "--socket", owner.socket)
        for name in ("versions", "owner", "store", "clock"):
            assert rows[name]["status"] == "ok", rows
        # its user depends on the user of the tests
        assert rows["socket"]["status"] in ("ok", "fail"), rows
    finally:
        owner.close()
    server.wait_for(
        lambda: examine("--url", url)["owner"]["status"] == "fail", "the proxy to miss its owner"
    )
    assert examine("--url", url)["nginx"]["status"] == "skip"

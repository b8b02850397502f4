"""Third-party clients of the execution API fetch the logs of wide ranges: they receive the same logs
as from the node, and report the error of a range that is too wide."""

import json
import pathlib
import subprocess

import pytest

from harness.log_ranges import CONCURRENT, FINAL, HEAD, PIECE, LogStand, hex_ranges

pytestmark = [
    pytest.mark.hosts("nginx", "native"),
    pytest.mark.once("a client reads the same bytes behind each nginx"),
    pytest.mark.thorough("test_log_ranges compares the bytes in less time"),
]

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "clients" / "execution"
LIMIT = 190
SETTINGS = {"logs_split": f"{PIECE} concurrent={CONCURRENT}", "logs_max_range": str(LIMIT)}
FIRST = 20
# the first block that is in no complete piece of final blocks
REST = (FINAL + 1) // PIECE * PIECE
JOBS = [{"first": FIRST}, {"first": FIRST + 1, "last": FINAL - 3}, {"first": FIRST + PIECE, "last": HEAD}]
NARROW = {"first": 1, "last": 1}
CLIENTS = ["ethers", "ethers without batches", "viem", "web3.py"]


@pytest.fixture
def stand(host, origin):
    with LogStand(host, origin, settings=SETTINGS) as stand:
        yield stand


@pytest.fixture
def fetch_logs(cache_directory):
    """Runs jobs with a client; returns a line for each."""

    def run(name, port, jobs):
        folder = cache_directory / "execution-clients"
        if name == "web3.py":
            command = [cache_directory / "web3-venv" / "bin" / "python", SOURCES / "fetch_logs.py"]
        else:
            source = (SOURCES / "fetch_logs.js").read_text()
            command = ["node", "--input-type=module", "-e", source, name]
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{port}/"],
            input=json.dumps(jobs), capture_output=True, text=True, timeout=120, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(lines) == len(jobs), done.stderr
        return lines

    return run


def log_calls(stand):
    """The calls for logs that the node has received outside of the requests for pieces."""
    requests = stand.node.client_requests()
    calls = [one for request in requests for one in (request if isinstance(request, list) else [request])]
    return [one for one in calls if one["method"] == "eth_getLogs"]


@pytest.mark.parametrize("name", CLIENTS)
def test_client_receives_the_assembled_logs_of_a_wide_range(stand, fetch_logs, name):
    expected = fetch_logs(name, stand.chain.port, JOBS)
    assert all(line["logs"] for line in expected)
    # Envoy splits no call before a response to a request for the client's :authority
    fetch_logs(name, stand.server.port, [NARROW])
    # first from the node, then from the cache
    for _ in range(2):
        assert fetch_logs(name, stand.server.port, JOBS) == expected
    assert set(hex_ranges(FIRST, REST - 1)) <= set(stand.node.ranges())
    assert [call["params"][0]["toBlock"] for call in log_calls(stand)] == ["0x1"]


@pytest.mark.parametrize("name", CLIENTS)
def test_client_reports_the_error_of_a_range_that_is_too_wide(stand, fetch_logs, name):
    wide = {"first": 1, "last": HEAD}
    # ethers sends the second one in a batch
    for line in fetch_logs(name, stand.server.port, [wide, wide]):
        error = line["error"]
        assert error["code"] == -32602
        message = f"the block range from 1 to {HEAD} ({HEAD} blocks) is longer than the limit of {LIMIT}"
        assert message in error["message"]
    assert not any(b"eth_getLogs" in body for body in stand.node.bodies)

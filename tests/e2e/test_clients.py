"""Clients of the Beacon API that others wrote, in front of a node that has JSON
only: what they get and send as SSZ is what the specifications say."""

import json
import os
import pathlib
import subprocess

import pytest

from harness.origin import answer
from harness.specified import values as specified_values

TESTS = pathlib.Path(__file__).resolve().parents[1]
SOURCE = TESTS / "clients" / "lodestar" / "ask.js"

CONFIG = """
proxy_http_version 1.1;
client_max_body_size 64m;
sszip on;
sszip_ssz on;
sszip_ssz_request always;
sszip_cache on;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
}
"""

pytestmark = pytest.mark.once("what a client makes of SSZ is the same behind each nginx")

HASH = "0x" + "11" * 32

# Its route, the call and its arguments, and what it gives.
GETS = [
    ("/eth/v2/beacon/blocks/7", "beacon", "getBlockV2", {"blockId": 7}, "SignedBeaconBlock"),
    ("/eth/v2/debug/beacon/states/9", "debug", "getStateV2", {"stateId": 9}, "BeaconState"),
    (
        f"/eth/v1/beacon/light_client/bootstrap/{HASH}",
        "lightclient",
        "getLightClientBootstrap",
        {"blockRoot": HASH},
        "LightClientBootstrap",
    ),
    (
        "/eth/v1/beacon/light_client/finality_update",
        "lightclient",
        "getLightClientFinalityUpdate",
        {},
        "LightClientFinalityUpdate",
    ),
    (
        "/eth/v1/beacon/states/9/pending_consolidations",
        "beacon",
        "getPendingConsolidations",
        {"stateId": 9},
        "PendingConsolidations",
    ),
]
POSTS = [
    ("/eth/v2/beacon/blocks", "beacon", "publishBlockV2", "signedBlockContents", "SignedBlockContents"),
    (
        "/eth/v2/beacon/blinded_blocks",
        "beacon",
        "publishBlindedBlockV2",
        "signedBlindedBlock",
        "SignedBlindedBeaconBlock",
    ),
]
FORK = "electra"


@pytest.fixture(scope="module")
def specified(cache_directory):
    """By type, as JSON and SSZ."""
    names = {line[-1] for line in [*GETS, *POSTS]}
    found = specified_values(cache_directory, "answers.py", "--safe", "mainnet", *names)
    of_fork = {value["type"]: value for value in found if value["fork"] == FORK}
    assert set(of_fork) == names
    return of_fork


@pytest.fixture(scope="module")
def nginx(start_nginx):
    return start_nginx(CONFIG)


@pytest.fixture
def lodestar(nginx, cache_directory):
    def ask(jobs):
        url = f"http://127.0.0.1:{nginx.ports['port']}"
        command = ["node", "--input-type=module", "-e", SOURCE.read_text(), url, FORK]
        done = subprocess.run(
            command,
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=cache_directory / "lodestar-client",
            env={**os.environ, "LODESTAR_PRESET": "mainnet"},
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def test_lodestar_gets_values(nginx, origin, specified, lodestar):
    """From the node, and then from the cache."""
    jobs, expected = [], []
    for path, group, call, args, type_ in GETS:
        value = specified[type_]
        body = {"version": FORK, "execution_optimistic": False, "finalized": True, "data": value["data"]}
        script = answer(json.dumps(body).encode(), headers=[("Eth-Consensus-Version", FORK)])
        origin.answers(script, path)
        jobs.append({"group": group, "call": call, "args": args, "wire": "ssz", "type": type_})
        expected.append({"status": 200, "ok": True, "wire": "ssz", "version": FORK, "ssz": value["ssz"]})
    for _ in range(2):
        for job, got, wanted in zip(jobs, lodestar(jobs), expected, strict=True):
            assert got == wanted, (job, got.get("error"))


@pytest.mark.parametrize("wire", ["ssz", "json"])
def test_lodestar_publishes(nginx, origin, specified, lodestar, wire):
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    jobs = []
    for _, group, call, name, type_ in POSTS:
        value = {"name": name, "type": type_, "json": specified[type_]["data"]}
        jobs.append({"group": group, "call": call, "wire": wire, "value": value})
    for job, got in zip(jobs, lodestar(jobs), strict=True):
        assert got == {"status": 200, "ok": True}, (job["call"], got)
    for path, *_, type_ in POSTS:
        (asked,) = origin.received(path)
        assert asked.header("Content-Type") == "application/json"
        assert asked.header("Eth-Consensus-Version") == FORK
        # its own JSON has addresses as EIP-55 writes them
        assert json.loads(asked.body.lower()) == specified[type_]["data"]


def test_lodestar_is_told_what_went_wrong(nginx, origin, lodestar):
    origin.answers(answer(b'{"code":404,"message":"block not found"}', status=404))
    job = {"group": "beacon", "call": "getBlockV2", "args": {"blockId": 8}, "wire": "ssz"}
    (got,) = lodestar([job])
    assert (got["status"], got["ok"]) == (404, False) and "block not found" in got["error"]
    # a 200 that is no block
    origin.answers(answer(b'{"version":"electra","data":{}}', headers=[("Eth-Consensus-Version", FORK)]))
    (got,) = lodestar([{**job, "type": "SignedBeaconBlock"}])
    assert "error" in got

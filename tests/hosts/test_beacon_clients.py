"""Third-party clients of the Beacon API in front of a node that has JSON only: the SSZ
that they receive and send equals the specifications'."""

import json
import os
import pathlib
import subprocess

import pytest

from harness.origin import answer
from harness.spec_vectors import values as specified_values

TESTS = pathlib.Path(__file__).resolve().parents[1]
SOURCE = TESTS / "clients" / "lodestar" / "ask.js"
PYTHON_SOURCE = TESTS / "clients" / "python" / "send_requests.py"

SETTINGS = {"zstd": True, "ssz": True, "ssz_request": "always", "cache": True}

pytestmark = [
    pytest.mark.once("what a client makes of SSZ is the same behind each nginx"),
    pytest.mark.thorough("SSZ is compared with the specifications and Lodestar in `make ssz`"),
]

HASH = "0x" + "11" * 32

# Route, method and arguments of a Lodestar call, and the type of its result.
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

# Routes for the other clients: route, method of the Go client, and type of the result.
MORE_GETS = [
    ("/eth/v2/beacon/blocks/7", "block", "SignedBeaconBlock"),
    ("/eth/v2/debug/beacon/states/9", "state", "BeaconState"),
    ("/eth/v1/beacon/blob_sidecars/7", "blobs", "BlobSidecars"),
    ("/eth/v2/validator/aggregate_attestation", None, "Attestation"),
    ("/eth/v1/beacon/states/9/validator_balances", None, "ValidatorBalances"),
]
MORE_POSTS = [
    ("/eth/v2/beacon/blocks", "SignedBlockContents"),
    ("/eth/v2/beacon/blinded_blocks", "SignedBlindedBeaconBlock"),
    ("/eth/v2/beacon/pool/attestations", "SubmittedAttestations"),
    ("/eth/v2/validator/aggregate_and_proofs", "SignedAggregateAndProofs"),
]
# The newest fork that the client knows.
GO_FORK = "deneb"


@pytest.fixture(scope="module")
def values_by_fork(cache_directory):
    """Values by fork and type, as JSON and SSZ."""
    names = {line[-1] for line in [*GETS, *POSTS, *MORE_GETS, *MORE_POSTS]}
    found = specified_values(cache_directory, "specified_values.py", "--safe", f"--forks={GO_FORK},{FORK}", "mainnet", *names)
    return {(value["fork"], value["type"]): value for value in found}


@pytest.fixture(scope="module")
def specified(values_by_fork):
    """Values by type, as JSON and SSZ."""
    return {type_: value for (fork, type_), value in values_by_fork.items() if fork == FORK}


@pytest.fixture(scope="module")
def url(start_server):
    """The URL of the server in front of the node."""
    return f"http://127.0.0.1:{start_server({'/': {}}, SETTINGS).port}"


@pytest.fixture
def lodestar(url, cache_directory):
    def send(jobs):
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

    return send


def test_lodestar_decodes_values_of_the_node_and_of_the_cache(origin, specified, lodestar):
    """Values are fetched from the node, and then from the cache."""
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
def test_submissions_of_lodestar_reach_the_node_as_json(origin, specified, lodestar, wire):
    origin.answers(answer(b"", type=None))
    origin.requests.clear()
    jobs = []
    for _, group, call, name, type_ in POSTS:
        value = {"name": name, "type": type_, "json": specified[type_]["data"]}
        jobs.append({"group": group, "call": call, "wire": wire, "value": value})
    for job, got in zip(jobs, lodestar(jobs), strict=True):
        assert got == {"status": 200, "ok": True}, (job["call"], got)
    for path, *_, type_ in POSTS:
        (submission,) = origin.received(path)
        assert submission.header("Content-Type") == "application/json"
        assert submission.header("Eth-Consensus-Version") == FORK
        # Lodestar's JSON has addresses in the notation of EIP-55
        assert json.loads(submission.body.lower()) == specified[type_]["data"]


def test_lodestar_gets_the_error_of_the_node(origin, lodestar):
    origin.answers(answer(b'{"code":404,"message":"block not found"}', status=404))
    job = {"group": "beacon", "call": "getBlockV2", "args": {"blockId": 8}, "wire": "ssz"}
    (got,) = lodestar([job])
    assert (got["status"], got["ok"]) == (404, False) and "block not found" in got["error"]
    # a 200 without a block
    origin.answers(answer(b'{"version":"electra","data":{}}', headers=[("Eth-Consensus-Version", FORK)]))
    (got,) = lodestar([{**job, "type": "SignedBeaconBlock"}])
    assert "error" in got


def enveloped(value):
    body = {"version": value["fork"], "execution_optimistic": False, "finalized": True, "data": value["data"]}
    return answer(json.dumps(body).encode(), headers=[("Eth-Consensus-Version", value["fork"])])


def run(command, jobs):
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def python(url, cache_directory):
    return lambda jobs: run([cache_directory / "ssz-venv" / "bin" / "python", PYTHON_SOURCE, url, FORK], jobs)


def test_python_client_decodes_values_of_the_node_and_of_the_cache(origin, specified, python):
    """Values are fetched from the node, and then from the cache."""
    jobs, expected = [], []
    for path, _, type_ in MORE_GETS:
        origin.answers(enveloped(specified[type_]), path)
        jobs.append({"path": path, "type": type_})
        expected.append({"status": 200, "version": FORK, "ssz": specified[type_]["ssz"]})
    for _ in range(2):
        for job, got, wanted in zip(jobs, python(jobs), expected, strict=True):
            # a mostly random value does not become shorter
            coding = got.pop("coding")
            assert got == wanted, job
            assert coding in (None, "zstd")


@pytest.mark.parametrize("takes_ssz", [False, True])
def test_submissions_of_a_python_client_reach_the_node_as_json(origin, specified, python, takes_ssz):
    """The first attempt succeeds, whichever format the node accepts."""
    refused = answer(b'{"code":415,"message":"no SSZ here"}', status=415)
    accepts = answer(b"", type=None)

    def node(request):
        is_ssz = request.header("Content-Type") == "application/octet-stream"
        return refused if is_ssz and not takes_ssz else accepts

    origin.answers(node)
    origin.requests.clear()
    jobs = []
    for path, type_ in MORE_POSTS:
        value = specified[type_]
        jobs.append({"path": path, "type": type_, "ssz": value["ssz"], "json": value["data"]})
    assert python(jobs) == [{"status": 200, "tries": 1}] * len(jobs)
    for path, type_ in MORE_POSTS:
        (submission,) = origin.received(path)
        assert json.loads(submission.body) == specified[type_]["data"]


def test_python_client_gets_the_error_of_the_node(origin, specified, python):
    path, type_ = MORE_POSTS[0]
    value = {"path": path, "type": type_, "ssz": specified[type_]["ssz"], "json": specified[type_]["data"]}
    missing = "/eth/v2/beacon/blocks/404"
    origin.answers(answer(b'{"code":404,"message":"block not found"}', status=404), missing)
    got = python([{"path": missing, "type": "SignedBeaconBlock"}])
    assert got == [{"status": 404, "error": "block not found"}]
    origin.answers(answer(b'{"code":503,"message":"syncing"}', status=503), path)
    assert python([value]) == [{"status": 503, "tries": 1, "error": "syncing"}]


STATIC = {
    "/eth/v1/beacon/genesis": {
        "genesis_time": "1606824023",
        "genesis_validators_root": HASH,
        "genesis_fork_version": "0x00000000",
    },
    "/eth/v1/config/spec": {"CONFIG_NAME": "mainnet", "SLOTS_PER_EPOCH": "32", "SECONDS_PER_SLOT": "12"},
    "/eth/v1/config/deposit_contract": {"chain_id": "1", "address": "0x" + "22" * 20},
    "/eth/v1/config/fork_schedule": [
        {"previous_version": "0x00000000", "current_version": "0x00000000", "epoch": "0"}
    ],
    "/eth/v1/node/version": {"version": "Node/1.0"},
}


@pytest.fixture
def golang_client(url, origin, cache_directory):
    for path, data in STATIC.items():
        origin.answers(answer(json.dumps({"data": data}).encode()), path)
    return lambda jobs: run([cache_directory / "go-client", url], jobs)


def test_go_client_decodes_values_of_the_node_and_of_the_cache(origin, values_by_fork, golang_client):
    """Values are fetched from the node, and then from the cache."""
    jobs, expected = [], []
    for path, call, type_ in MORE_GETS:
        if call is None:
            continue
        # a path that other clients do not use
        path = path.rsplit("/", 1)[0] + "/11"
        value = values_by_fork[GO_FORK, type_]
        origin.answers(enveloped(value), path)
        jobs.append({"call": call, "id": "11"})
        decoded = {"ssz": value["ssz"]}
        expected.append(decoded if call == "blobs" else {"version": GO_FORK, **decoded})
    for _ in range(2):
        for job, got, wanted in zip(jobs, golang_client(jobs), expected, strict=True):
            assert got == wanted, (job, got.get("error"))


def test_go_client_publishes_and_gets_the_error_of_the_node(origin, values_by_fork, golang_client):
    value = values_by_fork[GO_FORK, "SignedBlockContents"]
    origin.answers(answer(b"", type=None), "/eth/v1/beacon/blocks")
    origin.requests.clear()
    missing = "/eth/v2/beacon/blocks/404"
    origin.answers(answer(b'{"code":404,"message":"block not found"}', status=404), missing)
    published, got = golang_client([{"call": "publish", "json": value["data"]}, {"call": "block", "id": "404"}])
    assert published == {}
    (submission,) = origin.received("/eth/v1/beacon/blocks")
    assert json.loads(submission.body.lower()) == value["data"]
    assert got["status"] == 404 and "block not found" in got["error"]

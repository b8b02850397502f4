"""Sends requests to a Beacon API with httpx and the specifications' own types:
send_requests.py URL FORK <JOBS. Each job results in a line, as in tests/clients/lodestar.

{"path", "type"} fetches a value: as SSZ, or as JSON if the response's head names that type.
{"path", "type", "json"} publishes a value as SSZ, and as JSON after a 415.
"""

import json
import pathlib
import sys

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "ssz"))

import specs  # noqa: E402

OCTETS, JSON = "application/octet-stream", "application/json"

url, fork = sys.argv[1:]
types = specs.types_of(fork, "mainnet")


def get(client, job):
    response = client.get(job["path"], headers={"Accept": f"{OCTETS};q=1.0,{JSON};q=0.9"})
    if response.status_code != 200:
        return {"status": response.status_code, "error": response.json()["message"]}
    media_type = response.headers["Content-Type"]
    assert media_type == OCTETS, media_type
    # strict: the bytes must equal the value's own encoding
    value = types[job["type"]].decode_bytes(response.content)
    assert value.encode_bytes() == response.content
    return {
        "status": 200,
        "version": response.headers.get("Eth-Consensus-Version"),
        "coding": response.headers.get("Content-Encoding"),
        "ssz": value.encode_bytes().hex(),
    }


def publish(client, job):
    headers = {"Eth-Consensus-Version": fork}
    octets = bytes.fromhex(job["ssz"])
    types[job["type"]].decode_bytes(octets)
    tried = 0
    for media_type, body in ((OCTETS, octets), (JSON, json.dumps(job["json"]).encode())):
        tried += 1
        response = client.post(job["path"], content=body, headers={**headers, "Content-Type": media_type})
        if response.status_code != 415:
            break
    result = {"status": response.status_code, "tries": tried}
    return result if response.is_success else {**result, "error": response.json()["message"]}


with httpx.Client(base_url=url, timeout=60) as client:
    for job in json.load(sys.stdin):
        print(json.dumps((publish if "json" in job else get)(client, job)))

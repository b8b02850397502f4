"""Random values of each type of gloas and heze with a route, by the specifications' own code, are
transcoded both ways."""

import json

import pytest

from harness.origin import answer
from harness.spec_vectors import values as specified_values
from harness.ssz_routes import ROUTES, enveloped, route

pytestmark = pytest.mark.carried("the core converts; hosts pass bodies to it")

OCTETS = ("Accept", "application/octet-stream")
JSON = ("Accept", "application/json")


@pytest.fixture(scope="module")
def server(start_server):
    # with a preset no host sends probes
    return start_server({"/": {}}, {"ssz": True, "ssz_preset": "minimal"})


@pytest.fixture(scope="module")
def specified(cache_directory):
    found = specified_values(
        cache_directory, "specified_values.py", "--forks=gloas,heze", "minimal", *ROUTES
    )
    assert {value["fork"] for value in found} == {"gloas", "heze"} and len(found) > 30
    return found


def test_json_of_gloas_and_heze_is_transcoded_to_ssz(server, origin, specified):
    for value in specified:
        body, headers = enveloped(value)
        origin.answers(answer(body, headers=headers), route(value))
        response = server.fetch(route(value), headers=[OCTETS])
        about = value["fork"], value["type"]
        assert response.status == 200, (about, response.body[:200])
        assert response.decoded == bytes.fromhex(value["ssz"]), about
        assert response.header("Content-Type") == "application/octet-stream", about
        assert response.header("Eth-Consensus-Version") == value["fork"], about


def test_ssz_of_gloas_and_heze_is_transcoded_to_json(server, origin, specified):
    for value in specified:
        # its JSON has members that SSZ lacks
        if value["type"] == "BlockContents":
            continue
        _, headers = enveloped(value)
        ssz = bytes.fromhex(value["ssz"])
        origin.answers(answer(ssz, type="application/octet-stream", headers=headers), route(value))
        response = server.fetch(route(value), headers=[JSON])
        about = value["fork"], value["type"]
        assert response.status == 200, (about, response.body[:200])
        assert response.header("Content-Type") == "application/json", about
        expected = {"version": value["fork"], "data": value["data"]}
        assert json.loads(response.decoded) == expected, about

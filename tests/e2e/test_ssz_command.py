"""Random values of each type of gloas and heze, by the specifications' own code, on the command
line: JSON, SSZ and roots."""

import json

import pytest

from harness.spec_vectors import values as specified_values
from test_ssz import sszip

pytestmark = pytest.mark.once("the command line, without nginx")


@pytest.fixture(scope="module")
def specified(cache_directory):
    """Values of all types."""
    found = specified_values(cache_directory, "specified_values.py", "--forks=gloas,heze", "minimal")
    assert len(found) > 100
    return found


def test_command_agrees_with_the_specifications_about_each_type(specified):
    for value in specified:
        about = value["fork"], value["type"]
        options = ["--fork", value["fork"], "--preset", "minimal"]
        ssz = bytes.fromhex(value["ssz"])
        text = json.dumps(value["data"]).encode()
        assert sszip("json2ssz", value["type"], *options, "--form", "value", data=text) == ssz, about
        assert json.loads(sszip("ssz2json", value["type"], *options, data=ssz)) == value["data"], about
        root = sszip("root", value["type"], *options, data=ssz)
        assert root.decode().strip() == value["root"], about

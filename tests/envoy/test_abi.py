"""The module's side of Envoy's ABI, against the real binary."""

import re
import shutil
import subprocess

import pytest

from harness.envoy import ENVOY, MODULE

# Without one of them Envoy does not load a filter.
HOOKS = {
    "program_init",
    *(
        f"http_filter_{name}"
        for name in """config_new config_destroy new destroy stream_complete scheduled request_headers
        request_body request_trailers response_headers response_body response_trailers http_callout_done
        http_stream_headers http_stream_data http_stream_trailers http_stream_complete http_stream_reset
        downstream_above_write_buffer_high_watermark downstream_below_write_buffer_low_watermark""".split()
    ),
}


def names(path, *options):
    said = subprocess.run(
        ["nm", "-D", *options, path], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"(\S+)$", said, re.MULTILINE))


def test_envoy_has_all_that_is_called():
    called = {name for name in names(MODULE, "--undefined-only") if name.startswith("envoy_")}
    assert len(called) > 20
    assert called <= names(shutil.which(ENVOY) or ENVOY, "--defined-only")


@pytest.mark.shipped("what tests run has the core's C ABI in every library")
def test_nothing_but_hooks_is_given():
    """Another module's symbols, or Envoy's own, would meet them."""
    given = names(MODULE, "--defined-only")
    assert {f"envoy_dynamic_module_on_{hook}" for hook in HOOKS} <= given
    assert all(name.startswith("envoy_dynamic_module_on_") for name in given), given

"""The module's side of Envoy's ABI, compared with the real binary."""

import re
import shutil
import subprocess

import pytest

from harness.envoy import ENVOY, MODULE

# Hooks that Envoy requires of a filter.
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
    output = subprocess.run(
        ["nm", "-D", *options, path], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"(\S+)$", output, re.MULTILINE))


def test_envoy_defines_every_function_that_the_module_calls():
    called = {name for name in names(MODULE, "--undefined-only") if name.startswith("envoy_")}
    assert len(called) > 20
    assert called <= names(shutil.which(ENVOY) or ENVOY, "--defined-only")


@pytest.mark.shipped("what tests run has the core's C ABI in every library")
def test_module_exports_hooks_only():
    """Other symbols could collide with symbols of another module, or of Envoy."""
    exported = names(MODULE, "--defined-only")
    assert {f"envoy_dynamic_module_on_{hook}" for hook in HOOKS} <= exported
    assert all(name.startswith("envoy_dynamic_module_on_") for name in exported), exported

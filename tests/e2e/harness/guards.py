"""How long a test waits for an event before it fails, and how long servers under test wait."""

import os
import pathlib
import time

from tiers import IS_SHIPPED

# It ends the test of a server that hangs. A busy machine stalls for tens of seconds.
GUARD_SECONDS = 120
FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.025

# Longer times than users have, which a busy machine exceeds; the tested sandbox is compiled with them.
PATIENT_TIMES = pathlib.Path(__file__).parents[2].joinpath("patient_times").read_text().strip()

# The send lease that users have, in tests that replace an owner or kill its clients: a new owner waits for no
# longer lease of the former one (`predecessor_lease`), and a purge waits until the lease of a killed client ends.
SHIPPED_LEASE = "memory_lease=1s"


def server_environment(environment):
    """The environment of a server under test, in which times that the test does not set are patient."""
    times = f"{environment.get('SSZIP_TIMES', '')} {PATIENT_TIMES}"
    return {**os.environ, **environment, "SSZIP_TIMES": times}


def lookup_settings():
    """Settings of a server whose times can't be set, because it is what users have: lookups may take long."""
    return {"cache_lookup_timeout": "1s"} if IS_SHIPPED else {}


def wait_until(condition, failure, seconds=GUARD_SECONDS):
    """Waits until `condition` returns a true value, and returns it; fails with the text that `failure` returns."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(failure())
        # what is waited for long gets the processor time of frequent queries
        time.sleep(min(FIRST_PAUSE + waited / 16, LONGEST_PAUSE))
    return value

"""How long a test waits for an event before it fails."""

import time

# It ends the test of a server that hangs. A busy machine stalls for tens of seconds.
GUARD_SECONDS = 120
FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.025


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

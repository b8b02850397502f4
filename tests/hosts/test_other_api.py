"""A namespace that follows one API, and receives requests of the other."""

import pytest

from harness import other_api
from harness.stands import WORKERS, stand_of_host
from harness.status import read_status

pytestmark = pytest.mark.once("the core decides, one library for every nginx")


CORE_DECIDES = pytest.mark.wasm_thorough("the core decides; the other API is followed by a sandbox's daemon, too")
FIRST, *OTHERS = other_api.FOLLOWED


@pytest.mark.parametrize("followed", [FIRST, *(pytest.param(api, marks=CORE_DECIDES) for api in OTHERS)])
def test_head_responses_of_the_other_api_are_not_stored(host, followed):
    with stand_of_host(host, interval="100ms", api=followed) as stand:

        def reasons():
            """The counts by reason."""
            if host == "nginx":
                return read_status(stand.nginx, "/sszip-status")["reasons"]
            found = stand.nginx.stats(r"cache\.reason\.")
            return {name.rpartition("cache.reason.")[2]: count for name, count in found.items()}

        # Envoy's module is one process with one log line
        other_api.check_response(stand, followed, reasons, workers=1 if host == "native" else WORKERS)

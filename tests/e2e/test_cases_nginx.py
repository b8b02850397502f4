"""The parity table on nginx: each exchange whole, byte by byte or divided at random (in
`make test-all` in each way), on a connection that stays usable."""

import pytest

from harness import cases, response_checks
from harness.response_checks import send_random_pieces, send_bytes, send_whole
from tiers import row_id, rows_with_divisions

pytestmark = pytest.mark.carried("the parity table: the core decides its rows")

CASES = cases.load("nginx")
DIVISIONS = [send_whole, send_bytes, send_random_pieces]

# One location for each set of directives of the table.
LOCATIONS = {}
for case in CASES:
    LOCATIONS.setdefault(tuple(sorted(case.config.items())), f"/config-{len(LOCATIONS)}/")


def directives(config):
    # The host measures the window's time; the table limits its bytes.
    config = {"enable": "on", "hold": "64k 60s", **dict(config)}
    enable = config.pop("enable")
    return "".join([f"sszip {enable}; ", *(f"sszip_{name} {value}; " for name, value in config.items())])


CONFIG = (
    "server { listen 127.0.0.1:@port@; proxy_http_version 1.1; location = /in-step { return 204; }\n"
    + "".join(
        f"location {path} {{ {directives(config)} proxy_pass http://@origin_unix@; }}\n"
        for config, path in LOCATIONS.items()
    )
    + "}"
)


@pytest.mark.parametrize("case, division", rows_with_divisions(CASES, DIVISIONS), ids=row_id)
def test_response_equals_the_row_for_every_division(nginx, origin, case, division):
    origin.answers(case.script(division(case)))
    response = response_checks.exchange(nginx, LOCATIONS[tuple(sorted(case.config.items()))], case)
    response_checks.check_response(case, response, origin)

"""A namespace follows one API, and is asked for answers of the other. On Envoy."""

import pytest

from harness import other_api
from test_heads_envoy import WORKERS, stand_of


def reasons_of(envoy):
    """Counters of reasons."""
    found = envoy.stats(r"cache\.reason\.")
    return {name.rpartition("cache.reason.")[2]: count for name, count in found.items()}


@pytest.mark.parametrize("followed", other_api.FOLLOWED)
@pytest.mark.parametrize("host", ["native", "wasm"])
def test_answers_at_the_head_of_the_other_api_are_not_stored(host, followed):
    with stand_of(host, interval="100ms", api=followed) as stand:
        other_api.judge(stand, followed, lambda: reasons_of(stand.nginx), workers=WORKERS if host == "wasm" else 1)

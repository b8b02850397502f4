"""The parts of tests that `make quick` and `make test` leave to `make test-all`.

SSZIP_TIER names the tier; without it (pytest by hand) everything runs."""

import os

IS_THOROUGH = os.environ.get("SSZIP_TIER", "all") == "all"
NEW_SEEDS = 2
# Whether the hosts come from `make build`, or are unknown, by hand: then everything runs.
IS_SHIPPED = os.environ.get("SSZIP_SHIPPED", "1") != ""


def seeds(few, many):
    """Seeds of a test at random: `few`, or, in `make test-all`, `many` and NEW_SEEDS new ones."""
    if not IS_THOROUGH:
        return list(range(few))
    base = int(os.environ.get("SSZIP_SEED", "0"))
    return [*range(many), *(range(base, base + NEW_SEEDS) if base >= many else ())]


def by_tier(few, many):
    """A test's parameters: `few` of them, or, in `make test-all`, `many`."""
    return many if IS_THOROUGH else few


def times(few, many):
    """Number of repetitions of a rare event."""
    return many if IS_THOROUGH else few

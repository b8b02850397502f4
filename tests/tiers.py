"""The parts of tests that `make quick` and `make test` leave to `make test-all`.

SSZIP_TIER names the tier; without it (pytest by hand) everything runs."""

import itertools
import os
import zlib

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


def rows_with_divisions(rows, divisions, first=0):
    """Pairs of a row, which has a name, and one of the divisions of its bodies, chosen by the name; in
    `make test-all` all pairs. Hosts with another `first` choose another division for the same row."""
    if IS_THOROUGH:
        return list(itertools.product(rows, divisions))
    return [(row, divisions[(_checksum(row) + first) % len(divisions)]) for row in rows]


def alternate(*factors):
    """All combinations of the values of several factors; in `make test` every other one, so that each
    value occurs."""
    return [values for at, values in _combinations(factors) if IS_THOROUGH or sum(at) % 2 == 0]


def pairwise(*factors):
    """All combinations of the values of several factors; in `make test` so few that each pair of
    values of two factors occurs."""
    combinations = _combinations(factors)
    if IS_THOROUGH:
        return [values for _, values in combinations]
    missing = {pair for at, _ in combinations for pair in _pairs(at)}
    chosen = []
    while missing:
        at, values = max(combinations, key=_count_of_pairs(missing))
        chosen.append(values)
        missing -= _pairs(at)
    return chosen


def _combinations(factors):
    """Pairs of the indices and the values of each combination."""
    indices = itertools.product(*(range(len(factor)) for factor in factors))
    return list(zip(indices, itertools.product(*factors), strict=True))


def _pairs(at):
    return set(itertools.combinations(enumerate(at), 2))


def _count_of_pairs(missing):
    return lambda combination: len(missing & _pairs(combination[0]))


def one_row_in(count, rows):
    """One of `count` rows, chosen by their names, or, in `make test-all`, all rows."""
    return rows if IS_THOROUGH else [row for row in rows if _checksum(row) % count == 0]


def row_id(value):
    """The part of a test's id that names a row, or a division: a function or a name."""
    return value if isinstance(value, str) else getattr(value, "name", None) or value.__name__


def _checksum(row):
    return zlib.crc32(row.name.encode())

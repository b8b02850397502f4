"""How many hits come from where, and what a request costs then.

Keys are asked for by Zipf's distribution. Of one that was asked for n times by the mean,
some request came before with a probability of 1 - exp(-n); a memory that has room for C
entries and lets go of what was not asked for longest has those asked for within a time t
for which the expected number of entries is C (Che's approximation). What was ever stored
and is not in the worker's memory comes of the owner's, or its store's.
"""

import math

BINS = 4_000


def bins(keys, skew):
    """Ranks in groups: how many, and the probability of one of them; as calls.lua draws."""
    edges = sorted({1, keys + 1, *(round((keys + 1) ** (n / BINS)) for n in range(BINS + 1))})
    if skew == 1:
        total = math.log(keys + 1)
        mass = [(math.log(b) - math.log(a)) / total for a, b in zip(edges, edges[1:], strict=False)]
    else:
        rest = 1 - skew
        total = (keys + 1) ** rest - 1
        mass = [(b**rest - a**rest) / total for a, b in zip(edges, edges[1:], strict=False)]
    return [
        (b - a, m / (b - a)) for a, b, m in zip(edges, edges[1:], mass, strict=False)
    ]


def seen(groups, requests):
    """The probability that a request is for a key that was asked for among so many."""
    return sum(many * p * -math.expm1(-p * requests) for many, p in groups)


def entries(groups, requests):
    """How many different keys so many requests are for."""
    return sum(many * -math.expm1(-p * requests) for many, p in groups)


def horizon(groups, room, requests):
    """Within so many requests a memory of that room has all that was asked for."""
    if entries(groups, requests) <= room:
        return requests
    low, high = 0.0, float(requests)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if entries(groups, middle) < room else (low, middle)
    return low


def shares(keys, skew, hot, memory, requests):
    """Of requests after so many: from the worker's memory, the owner's, its store, the
    node. `hot`, `memory`: for how many entries there is room; the store has room for all."""
    groups = bins(keys, skew)
    anywhere = seen(groups, requests)
    near = seen(groups, horizon(groups, hot, requests))
    # what the worker has the owner is not asked for: its memory has what was asked for
    # at all within its own horizon
    owner = max(near, seen(groups, horizon(groups, memory, requests)))
    return {
        "hot": near,
        "memory": max(0.0, min(owner, anywhere) - near),
        "store": max(0.0, anywhere - owner),
        "node": 1 - anywhere,
    }


def cost(shares, costs):
    """CPU microseconds of a mean request."""
    return sum(share * costs[place] for place, share in shares.items())

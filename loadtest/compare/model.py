"""A model of the origins of hits, and of the cost of a request.

Keys are requested by Zipf's distribution. For a key with n expected requests the probability
of an earlier request is 1 - exp(-n). A memory for C entries that evicts the least recently
used one contains the keys that were requested within a time t in which the expected number of
different entries is C (Che's approximation). An entry that was ever stored, and is not in the
worker's memory, is sent by the owner's memory or its store.
"""

import math

BINS = 4_000


def bins(keys, skew):
    """Returns groups of ranks: their size, and the probability of one rank, as calls.lua draws
    them."""
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
    """Returns the probability that a request is for a key of an earlier one among `requests`."""
    return sum(many * p * -math.expm1(-p * requests) for many, p in groups)


def entries(groups, requests):
    """Returns the expected number of different keys among `requests`."""
    return sum(many * -math.expm1(-p * requests) for many, p in groups)


def horizon(groups, room, requests):
    """Returns the number of most recent requests whose keys fit into a memory of `room`
    entries."""
    if entries(groups, requests) <= room:
        return requests
    low, high = 0.0, float(requests)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if entries(groups, middle) < room else (low, middle)
    return low


def shares(keys, skew, hot, memory, requests):
    """Returns the shares of requests, after `requests` of them, from the worker's memory, the
    owner's memory, its store, and the node. `hot` and `memory` are numbers of entries; the
    store holds all."""
    groups = bins(keys, skew)
    anywhere = seen(groups, requests)
    near = seen(groups, horizon(groups, hot, requests))
    # a hit in the worker's memory does not reach the owner, whose memory contains the keys that
    # were requested at all within its own horizon
    owner = max(near, seen(groups, horizon(groups, memory, requests)))
    return {
        "hot": near,
        "memory": max(0.0, min(owner, anywhere) - near),
        "store": max(0.0, anywhere - owner),
        "node": 1 - anywhere,
    }


def cost(shares, costs):
    """Returns the CPU time of a mean request in microseconds."""
    return sum(share * costs[place] for place, share in shares.items())

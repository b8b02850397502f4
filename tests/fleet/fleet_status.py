"""The member `fleet` of an owner's status, and of its reply to a purge."""


class FleetStatus:
    """Counters and states of a fleet, as one owner reports them."""

    def __init__(self, status):
        assert isinstance(status, dict), f"the owner has no fleet: {status!r}"
        self.json = status

    def __repr__(self):
        return repr(self.json)

    @property
    def is_used(self):
        """Whether lookups query the fleet: it is connected, the purges are known, and the breaker
        is closed."""
        return self.json["up"] and self.breakers[0] == "closed"

    @property
    def stores_values(self):
        """Whether stores are connected, and the server has not refused one just now."""
        return self.json["connected"]["stores"] and not self.json["stores_paused"]

    @property
    def breakers(self):
        """The states of the circuit breakers of lookups and of stores."""
        return self.json["breakers"]["lookups"], self.json["breakers"]["stores"]

    @property
    def hits(self):
        return self.json["lookups"]["hit"]

    def lookups(self, *results):
        """Number of lookups with these results; without results, of all."""
        lookups = self.json["lookups"]
        return sum(lookups[result] for result in results or lookups)

    def rejected(self, *reasons):
        """Number of values that were rejected for these reasons; without reasons, for any."""
        rejected = self.json["rejected"]
        return sum(rejected[reason] for reason in reasons or rejected)

    def not_servable(self, reason):
        return self.json["not_servable"][reason]

    def stores(self, result="done"):
        return self.json["stores"][result]

    @property
    def failed_stores(self):
        """Number of values that the server did not store."""
        stores = self.json["stores"]
        return sum(stores[result] for result in stores.keys() - {"done", "dropped", "too_long"})

    @property
    def fences(self):
        return self.json["stream"]["fences"]


def confirmations(purge):
    """The number of owners, of those that have confirmed a purge, and of those that did not; None each if the purge
    was not published in time, which happens on a busy machine if `purge_wait` is short."""
    return tuple(purge["fleet"].get(name) for name in ("owners", "confirmed", "silent"))


def assert_confirmed(purge, owners):
    """Checks that all owners have confirmed a purge."""
    assert confirmations(purge)[:2] == (owners, owners), purge

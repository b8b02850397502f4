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


def assert_confirmed(purge, owners):
    """Checks that all owners have confirmed a purge."""
    fleet = purge["fleet"]
    assert (fleet.get("owners"), fleet.get("confirmed")) == (owners, owners), fleet

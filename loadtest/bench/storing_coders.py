"""The rows of the store's suite."""

from dataclasses import replace

from caches import sszip_cache

# Where a hit comes from.
HOT, MEMORY, STORE = "the worker's memory", "the owner's memory", "RocksDB"
PLACES = [HOT, MEMORY, STORE]
# What workers and the owner may keep in memory, so that it comes from there.
TIERS = {HOT: ("256m", "256m"), MEMORY: ("1m", "256m"), STORE: ("1m", "1m")}


def stored(name, hot="128m", memory="256m", methods=(), more=""):
    """sszip with a store; what workers and the owner may keep in memory."""
    http = (
        f"sszip_cache_memory {hot}; "
        f"sszip_cache_path @PREFIX@/cache max_size=1g memory={memory};"
    )
    coder = sszip_cache(name, methods, http)
    return replace(coder, directives=f"{coder.directives} {more}")

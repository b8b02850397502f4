"""sszip with a store: the origins of its hits, and the memory that leads to each of them."""

from dataclasses import replace

from caches import sszip_cache

# Origins of a hit.
HOT, MEMORY, STORE = "the worker's memory", "the owner's memory", "RocksDB"
PLACES = [HOT, MEMORY, STORE]
# Memory of workers and of the owner, by origin of the hit.
TIERS = {HOT: ("256m", "256m"), MEMORY: ("1m", "256m"), STORE: ("1m", "1m")}


def stored(name, hot="128m", memory="256m", more=""):
    """Returns sszip with a store, with the memory of workers and of the owner."""
    http = (
        f"sszip_cache_memory {hot}; "
        f"sszip_cache_path @PREFIX@/cache max_size=1g memory={memory};"
    )
    coder = sszip_cache(name, http=http)
    return replace(coder, directives=f"{coder.directives} {more}")

"""Which files run at the same time.

Most of the suite's time is waiting: for processes to come and go, for times to
be over. What waits shares the machine with what loads it, and two files that
load it never meet as long as there is something else to do."""

from xdist.scheduler import LoadFileScheduling

# Files that wait for most of their time, the longest first.
WAITING = (
    "test_store_model",
    "test_store_life",
    "test_chain_model",
    "test_store",
    "test_chain",
    "test_background_update",
    "test_cache_aborts",
    "test_sequences_nginx",
    "test_chain_traps",
    "test_http_cache_envoy",
    "test_http_cache",
    "test_stale",
    "test_herd",
    "test_aborts",
    "test_payload_aborts",
    "test_cache_get",
    "test_proxy_cache",
    "test_store_operation",
    "test_slow_disk",
    "test_slow_disk_envoy",
    "test_heads_by_xds",
)


class Lanes(LoadFileScheduling):
    """The first worker has the files that load the machine, the others those
    that wait; who has none left helps the others."""

    def _assign_work_unit(self, node):
        waits = node is not self.nodes[0]
        self.workqueue.move_to_end(
            min(self.workqueue, key=lambda file: rank(file, waits)), last=False
        )
        super()._assign_work_unit(node)


def rank(file, waits):
    """The lower it is, the sooner a worker is to have the file."""
    name = file.rpartition("/")[2].removesuffix(".py")
    if name in WAITING:
        return (not waits, WAITING.index(name))
    return (waits, 0)

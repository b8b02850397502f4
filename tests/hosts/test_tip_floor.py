"""Heads never decrease: a block that a client has seen is at the head for its later requests,
in any worker, though the node is polled once a second."""

import pytest

from harness import tip_watch
from harness.stands import stand_of_host
from tiers import by_tier

pytestmark = pytest.mark.once("the core decides, one library for every nginx")


def test_client_never_reads_a_head_older_than_a_shown_block(host):
    with stand_of_host(host, "--seed", str(tip_watch.SEED), interval="1s") as stand:
        tip_watch.follow_growing_chain(stand)


@pytest.mark.parametrize("accept", by_tier(["gzip"], ["gzip", "identity"]))
def test_shown_block_of_any_kind_ends_older_entries_in_every_worker(host, accept):
    with stand_of_host(host, interval="1h") as stand:
        tip_watch.show_blocks_of_all_kinds(stand, accept)

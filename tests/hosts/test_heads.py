"""Heads never go back: what a client has seen of a block it finds at the head, at whichever
worker it asks next, though the node is polled once a second."""

import pytest

from harness import heads
from harness.stands import stand_of_host

pytestmark = pytest.mark.once("the core decides, one library for every nginx")


def test_client_never_reads_a_head_older_than_what_it_was_shown(host):
    with stand_of_host(host, "--seed", str(heads.SEED), interval="1s") as stand:
        heads.follow_growing_chain(stand)


@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_blocks_of_all_kinds_end_what_is_older_at_every_worker(host, accept):
    with stand_of_host(host, interval="1h") as stand:
        heads.show_blocks_of_all_kinds(stand, accept)

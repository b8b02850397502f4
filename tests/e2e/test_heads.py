"""Heads never go back: what a client has seen of a block it finds at the head, at whichever
worker it asks next, though the node is polled once a second. On nginx."""

import pytest

from harness import heads
from test_chain import Stand

pytestmark = [
    pytest.mark.once("the core decides, one library for every nginx"),
]


def test_client_never_reads_a_head_older_than_what_it_was_shown():
    with Stand("--seed", str(heads.SEED), head="http://%s interval=1s", workers=5) as stand:
        heads.follow_growing_chain(stand)


@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_blocks_of_all_kinds_end_what_is_older_at_every_worker(accept):
    with Stand(head="http://%s interval=1h", workers=5) as stand:
        heads.show_blocks_of_all_kinds(stand, accept)

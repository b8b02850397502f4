"""Heads never go back: what a client has seen of a block it finds at the head, at whichever
worker it asks next, though the node is polled once a second. On Envoy: the module, whose
workers are threads, and the proxy-wasm filter, whose workers are sandboxes that share no memory."""

import pytest

import test_chain
import test_chain_envoy
from harness import heads
from harness.chain import Chain
from harness.envoy import address, cluster
from harness.owner import Owner
from test_shared_wasm import wasm_of

WORKERS = 5


class Sandboxes(test_chain.Stand):
    """Sandboxes in front of a chain that their daemon follows."""

    def __init__(self, *arguments, interval, api):
        self.chain = Chain(*arguments)
        url = f"http://{self.chain.address}"
        follows = {"namespace": "main", "url": url, "interval": interval, "api": api}
        self.owner = Owner([follows], max_size="64m", memory="32m")
        node = cluster("node", address(self.chain.port))
        self.nginx = wasm_of(self.owner, workers=WORKERS, clusters=[node])

    def __enter__(self):
        try:
            self.owner.start()
            self.nginx.start()
            self.follows()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.nginx.stop()
        finally:
            self.owner.close()
            self.chain.stop()

    @property
    def store_owner(self):
        return self.owner


def stand_of(host, *arguments, interval, api="execution"):
    if host == "wasm":
        return Sandboxes(*arguments, interval=interval, api=api)
    head = f"http://%s interval={interval} api={api}"
    return test_chain_envoy.Stand(*arguments, head=head, workers=WORKERS)


@pytest.mark.parametrize("host", ["native", "wasm"])
def test_client_never_reads_a_head_older_than_what_it_was_shown(host):
    with stand_of(host, "--seed", str(heads.SEED), interval="1s") as stand:
        heads.follow_growing_chain(stand)


@pytest.mark.parametrize("accept", ["gzip", "identity"])
@pytest.mark.parametrize("host", ["native", "wasm"])
def test_blocks_of_all_kinds_end_what_is_older_at_every_worker(host, accept):
    with stand_of(host, interval="1h") as stand:
        heads.show_blocks_of_all_kinds(stand, accept)

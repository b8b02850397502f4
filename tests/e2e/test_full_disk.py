"""The store's disk is full for a while, under load on five workers: responses are right,
and are stored again without intervention when there is room."""

import hashlib
import re
import signal
import subprocess

import pytest

from harness.load import Load
from harness.owner import Client, wait_until_linked
from harness.rpc import Node
from test_store_life import by_hash, end
from tiers import by_tier

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @disk@/cache max_size=64m memory=1m;
sszip_cache_memory 1m;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@;
    location / { sszip_cache_namespace main; proxy_pass http://@origin@; }
}
"""

# the number of other blocks that are requested before a block is repeated
AGAIN = 300


def result(number):
    return b'"0x%b"' % hashlib.shake_256(b"%d" % number).hexdigest(20_000).encode()


@pytest.fixture
def disk(tmp_path):
    mounted = tmp_path / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=140m", "tmpfs", mounted], check=True)
    yield mounted
    subprocess.run(["umount", "-l", mounted], check=True)


def fill(file):
    """Fills the disk to its last block, with blocks freed since the last call."""
    with open(file, "ab", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 65_536)
        except OSError:
            pass


class Blocks:
    """The requests of clients: block after block, each repeated later."""

    def __len__(self):
        return 1 << 30

    def __getitem__(self, turn):
        number = max(0, turn // 2 - turn % 2 * AGAIN)
        answer = b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % result(number)
        return ("/", [("Content-Type", "application/json")], by_hash(number)), answer


@pytest.mark.parametrize("reloads", by_tier([True], [False, True]), ids=lambda reloads: "reloaded" if reloads else "")
def test_store_resumes_writes_when_the_disk_has_room_again(start_nginx, origin, disk, reloads):
    origin.answers(Node({"eth_getBlockByHash": lambda params: result(int(params[0], 16))}))
    nginx = start_nginx(CONFIG.replace("@disk@", str(disk)), workers=5)
    nginx.expect("disk writes stopped: the disk is full|disk writes resumed|cannot open the store in ")
    owner = Client(disk / "cache/owner.sock")
    wait_until_linked(nginx, owner)

    def stored():
        return owner.status()["stores"]["done"]

    def stores_more():
        before = stored()
        nginx.wait_for(lambda: stored() > before + 50, "entries to be stored")

    def logged():
        """Transitions in the log, in order."""
        return re.findall("disk writes (stopped: the disk is full|resumed)", nginx.error_log())

    def is_full(before):
        # joined tables leave room for a moment, and so writes may resume before the owner logs
        fill(disk / "filler")
        is_off = owner.status()["store"]["off"]
        return is_off and (reloads or (len(logged()) > before and logged()[-1] != "resumed"))

    def has_resumed():
        is_on = not owner.status()["store"]["off"]
        return is_on and (reloads or logged()[-1] == "resumed")

    with Load(nginx.port, Blocks(), clients=4) as load:
        for _ in range(2):
            stores_more()
            before = len(logged())
            nginx.wait_for(lambda before=before: is_full(before), "a full disk")
            pid = owner.pid()
            if reloads:
                nginx.reload()
            (disk / "filler").unlink()
            if reloads:
                nginx.wait_for(lambda pid=pid: owner.pid() not in (None, pid), "the next owner")
            nginx.wait_for(has_resumed, "the disk to be tried again")
            stores_more()
    assert not load.faults
    if not reloads:
        # one line for each transition, however many writes fail
        lines = logged()
        assert len(lines) >= 4
        assert all(("resumed" == line) == (number % 2 == 1) for number, line in enumerate(lines)), lines

    # a response that is requested again is stored, and is there after a restart
    first, before = 1 << 40, stored()

    def are_stored():
        for number in range(first, first + AGAIN):
            nginx.post("/", by_hash(number))
        return stored() > before + AGAIN // 2

    nginx.wait_for(are_stored, "the new ones to be stored", seconds=120)
    end(nginx, signal.SIGQUIT)
    nginx.start()
    wait_until_linked(nginx, owner)
    assert owner.status()["store"]["entries"] > 50
    hits = [nginx.post("/", by_hash(first + n)).header("cache-status") for n in range(AGAIN)]
    # the newest entries are in SST files, whichever FIFO compaction has dropped
    assert any(cache_status.startswith("sszip; hit") for cache_status in hits), hits

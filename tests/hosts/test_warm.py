"""`sszip warm` and `sszip inspect` with a real server of each host, in front of a chain that it follows."""

import json
import signal

import pytest

from harness.live_view import run_sszip
from harness.owner import wait_until_linked
from harness.rpc import call
from harness.stands import hit, stand_of_host

pytestmark = pytest.mark.once("the command line; the core and the owner decide")

METHOD = "eth_getBlockReceipts"
HEAD, FINAL = 200, 150


@pytest.fixture(scope="module")
def stand(host):
    chain = ("--chain-length", HEAD, "--chain-transactions", 2)
    with stand_of_host(host, *chain, interval="100ms") as stand:
        stand.chain.do({"finalize": FINAL})
        stand.wait_for_final(FINAL)
        yield stand


def receipts(block, id="1"):
    return call(METHOD, f'["0x{block:x}"]', id)


def run_json(stand, command, *arguments):
    url = f"http://127.0.0.1:{stand.nginx.port}/"
    done = run_sszip(command, *arguments, "--url", url, "--socket", stand.store_owner.socket, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def warm(stand, blocks):
    return run_json(stand, "warm", "--blocks", f"{blocks[0]}-{blocks[-1]}", "--method", METHOD)


def inspect(stand, body):
    return run_json(stand, "inspect", body.decode())


def final_blocks(skip):
    """Five final blocks; each test skips the blocks of other tests."""
    last = FINAL - skip
    return range(last - 4, last + 1)


def test_requests_of_clients_are_hits_after_the_command(stand):
    blocks = final_blocks(0)
    before = stand.chain.count(METHOD)
    summary = warm(stand, blocks)
    assert summary["requests"] == {"stored": 5, "cached": 0, "not_stored": 0, "failed": 0}
    assert summary["owner"] == {"on_disk": 5, "not_on_disk": 0}
    assert stand.chain.count(METHOD) == before + 5
    for block in blocks:
        for accept in ("identity", "gzip"):
            assert hit(stand.fetch(receipts(block, id='"a"'), accept))
    assert warm(stand, blocks)["requests"]["cached"] == 5
    assert stand.chain.count(METHOD) == before + 5


def test_entry_of_a_client_is_found_without_the_node(stand):
    blocks = final_blocks(30)
    stand.fetch(receipts(blocks[3]))
    stand.nginx.wait_for(lambda: inspect(stand, receipts(blocks[3]))["owner"], "the entry at the owner")
    before = stand.chain.count(METHOD)
    summary = warm(stand, blocks)
    assert summary["requests"] == {"stored": 4, "cached": 1, "not_stored": 0, "failed": 0}
    assert summary["owner"] == {"on_disk": 5, "not_on_disk": 0}
    assert stand.chain.count(METHOD) == before + 4


@pytest.mark.wasm_thorough("the owner restarts as with the module")
def test_entries_are_on_disk_after_the_command(stand, host):
    blocks = final_blocks(10)
    assert warm(stand, blocks)["owner"] == {"on_disk": 5, "not_on_disk": 0}
    before = stand.chain.count(METHOD)
    if host == "nginx":
        stand.nginx.reload()
    else:
        stand.nginx.end()
        if host == "wasm":
            stand.store_owner.kill(signal.SIGTERM)
            stand.store_owner.start()
        stand.nginx.start()
    if host != "wasm":
        wait_until_linked(stand.nginx)
    stand.follows()
    for block in blocks:
        body = receipts(block)
        stand.nginx.wait_for(lambda body=body: inspect(stand, body)["hit"], f"block {block} to be found")
    assert stand.chain.count(METHOD) == before


def test_reason_and_entry_of_a_request_are_reported(stand):
    (block, *_) = final_blocks(20)
    before = stand.chain.count(METHOD)
    report = inspect(stand, receipts(block))
    assert (report["hit"], report["reason"], report["owner"]) == (False, "miss", None)
    assert stand.chain.count(METHOD) == before
    stand.fetch(receipts(block))
    stand.nginx.wait_for(lambda: inspect(stand, receipts(block))["owner"], "the entry at the owner")
    report = inspect(stand, receipts(block))
    assert report["hit"] and report["owner"]["class"] == "immutable"
    assert report["owner"]["method"] == METHOD and report["owner"]["block"] == block
    by_key = run_sszip("inspect", report["key"], "--socket", stand.store_owner.socket)
    assert f"block {block}" in by_key.stdout and "class immutable" in by_key.stdout
    report = inspect(stand, call("eth_syncing"))
    assert (report["hit"], report["reason"], report["key"]) == (False, "rpc-method", None)

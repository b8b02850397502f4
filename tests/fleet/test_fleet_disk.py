"""Entries on the disk of a machine, which another owner than the present one has written."""

import signal

from machines import balance, receipts, share
from servers import PREFIX

from harness.client import fetch
from harness.stands import hit


def add_keyed_location(machine):
    """Adds a location to a machine's nginx whose keys have a header that identifies the caller."""
    path = machine.server.prefix / "nginx.conf"
    location = f"sszip_cache_credentials key Authorization; proxy_pass http://{machine.chain.address}/;"
    before = path.read_text()
    assert "location = /purge" in before
    path.write_text(before.replace("location = /purge", f"location = /keyed {{ {location} }}\nlocation = /purge"))


def fetch_keyed(machine, body):
    headers = [("Content-Type", "application/json"), ("Authorization", "Bearer of a caller")]
    response = fetch(machine.server.port, "/keyed", method="POST", headers=headers, body=body)
    assert response.status == 200, response.body
    return response


def count_entries(machine):
    return machine.owner.status()["memory"]["entries"]


def replace_processes(machine):
    """Starts another daemon over the disk, which the former one has completed at its end, and other
    workers, whose memory is empty."""
    machine.owner.kill(signal.SIGTERM)
    machine.owner.start()
    machine.server.reload()
    machine.wait_until_ready()
    machine.wait_until_used()


def test_entry_of_a_former_owner_is_shared_at_its_first_hit(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.new_machine(chain, world.settings(redis.url)), world.machine(chain, redis.url)
    add_keyed_location(a)
    a.start().wait_until_used()
    calls = [receipts(chain.final - n) for n in range(4)]
    keyed = balance(chain.final, 77)
    names = share(a, redis, *calls)
    entries = count_entries(a)
    fetch_keyed(a, keyed)
    # a worker sends an entry to the owner after the response
    a.wait_for(lambda: count_entries(a) > entries, "the entry to reach the owner")
    replace_processes(a)
    assert redis.execute("DEL", *names) == len(names)
    before = chain.count("eth_getBalance")
    assert hit(fetch_keyed(a, keyed)) and chain.count("eth_getBalance") == before
    assert a.requested(*calls) == 0
    a.wait_for(lambda: len(redis.value_names()) >= len(names), "the values")
    # offers have an order: the key of the first hit has a header of its caller
    assert redis.value_names() == set(names)
    hits_before = b.fleet.hits
    assert b.requested(*calls) == 0
    assert b.fleet.hits == hits_before + len(calls)


def test_entry_from_the_fleet_is_not_offered_by_a_later_owner(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    received = receipts(chain.final)
    names = share(a, redis, received)
    assert b.requested(received) == 0
    own = receipts(chain.final - 1)
    names += share(b, redis, own)
    replace_processes(b)
    assert redis.execute("DEL", *names) == 2
    assert b.requested(received, own) == 0
    # offers have an order
    b.wait_for(redis.value_names, "a value")
    assert redis.value_names() == {names[1]}


def test_copied_folder_of_a_store_gets_another_id_of_its_owner(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    original, copy = (machine.owner.folder / "store" / "fleet-owner" for machine in (a, b))
    copied = original.read_text()
    b.owner.kill(signal.SIGTERM)
    # the copy has the same owner as the original
    redis.execute("HDEL", f"{PREFIX}:owners", copy.read_text().strip())
    copy.write_text(copied)
    b.owner.start()
    b.wait_until_ready()
    b.wait_until_used()
    # each purge reads the table of owners
    b.wait_for(lambda: b.purge(method="eth_none") and copy.read_text() != copied, "another id")
    owners = {original.read_text().strip().encode(), copy.read_text().strip().encode()}
    b.wait_for(lambda: owners <= set(redis.execute("HGETALL", f"{PREFIX}:owners")[::2]), "both owners")
    assert original.read_text() == copied
    assert "is a copy" in b.owner.log() and "is a copy" not in a.owner.log()

"""Values that are damaged, copied, old, forged or too long are never served."""

import random

import pytest
from fleet_status import assert_confirmed
from machines import balance, receipts, secret_file, share

from harness.stands import VALID

from tiers import by_tier, times

# bytes of a value before its entry (shared-core/src/cache/fleet/value.rs)
HEADER = 152


@pytest.fixture(scope="module")
def trio(file_world):
    """Two machines with one node, and the redis-server between them."""
    redis = file_world.redis()
    chain = file_world.chain(final_blocks=60)
    return file_world.machine(chain, redis.url), file_world.machine(chain, redis.url), redis


@pytest.fixture(scope="module")
def accounts():
    """Numbers of accounts, each for one call."""
    return iter(range(1, 10**9))


def flipped(value, at, bit=0):
    changed = bytearray(value)
    changed[at] ^= 1 << bit
    return bytes(changed)


def damaged_values(value, seed=0):
    """Damaged copies of a value, by description."""
    dice = random.Random(seed)
    lengths = [0, 1, 3, 4, 8, 100, HEADER, len(value) // 2, len(value) - 32, len(value) - 1]
    yield from ((f"{length} bytes", value[:length]) for length in lengths)
    yield from ((f"{more} bytes more", value + bytes(more)) for more in (1, 32, 4096))
    header = range(HEADER) if times(0, 1) else range(0, HEADER, 7)
    others = (dice.randrange(HEADER, len(value)) for _ in range(times(20, 200)))
    tag = range(len(value) - 32, len(value), 5)
    for at in [*header, *others, *tag]:
        yield f"bit at {at}", flipped(value, at, dice.randrange(8))
    yield "older version", value[:3] + bytes([value[3] - 1]) + value[4:]
    yield "newer version", value[:3] + bytes([value[3] + 1]) + value[4:]
    yield "random bytes", dice.randbytes(len(value))
    yield "not a value", b"hello"


def assert_rejected(trio, bodies, names, values):
    """Replaces the values, and checks that none of them is served by the second machine."""
    _, b, redis = trio
    before = b.fleet.rejected()
    for name, value in zip(names, values, strict=True):
        redis.set_value(name, value)
    for body in bodies:
        assert b.requested(body) == 1, body
    assert b.fleet.rejected() == before + len(bodies)
    # the second machine replaces the values
    b.wait_for(lambda: all(redis.values()[name] != value for name, value in zip(names, values, strict=True)), "stores")


def test_damaged_values_are_rejected(trio, accounts):
    a, _, redis = trio
    (sample,) = share(a, redis, balance(a.chain.final, next(accounts)))
    kinds = list(damaged_values(redis.values()[sample]))
    bodies = [balance(a.chain.final, next(accounts)) for _ in kinds]
    names = share(a, redis, *bodies)
    values = redis.values()
    damaged = []
    for number, name in enumerate(names):
        _, value = list(damaged_values(values[name]))[number]
        assert value != values[name]
        damaged.append(value)
    assert_rejected(trio, bodies, names, damaged)


def test_damaged_long_value_is_rejected(trio):
    a, _, redis = trio
    bodies = [receipts(a.chain.final - n) for n in range(by_tier(6, 40))]
    names = share(a, redis, *bodies)
    values = redis.values()
    dice = random.Random(1)
    damaged = [flipped(values[name], dice.randrange(len(values[name])), dice.randrange(8)) for name in names]
    assert_rejected(trio, bodies, names, damaged)


def test_value_of_another_key_is_rejected(trio, accounts):
    a, b, redis = trio
    bodies = [balance(a.chain.final, next(accounts)) for _ in range(4)]
    names = share(a, redis, *bodies)
    values = redis.values()
    rejected_before = b.fleet.rejected("key")
    assert_rejected(trio, bodies, names, [values[name] for name in names[1:] + names[:1]])
    assert b.fleet.rejected("key") == rejected_before + len(bodies)


@pytest.mark.parametrize("forger", ["no key", "another key"])
def test_value_of_a_forger_without_the_key_is_rejected(world, tmp_path, forger):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    key = None if forger == "no key" else secret_file(tmp_path, "key", "a key of another fleet " * 4)
    forging = world.machine(chain, redis.url, key_file=key)
    body = balance(chain.final)
    (name,) = share(a, redis, body)
    # the forger rejects the value, and replaces it
    assert share(forging, redis, body) == [name]
    assert forging.fleet.rejected("tag") == 1
    forged = redis.values()[name]
    b.wait_until_used()
    assert_rejected((a, b, redis), [body], [name], [forged])
    assert b.fleet.rejected("tag") == 1


def test_values_of_both_keys_are_accepted_during_a_rotation(world, tmp_path):
    redis = world.redis()
    chain = world.chain()
    old, new = (secret_file(tmp_path, name, f"the {name} key of the fleet " * 4) for name in ("old", "new"))
    a = world.machine(chain, redis.url, key_file=f"{old},{new}")
    b = world.machine(chain, redis.url, key_file=f"{new},{old}")
    for writer, reader, body in [(a, b, receipts(chain.final)), (b, a, balance(chain.final))]:
        share(writer, redis, body)
        assert reader.requested(body) == 0
    assert_confirmed(a.purge(everything=True), owners=2)
    assert_confirmed(b.purge(everything=True), owners=2)


def test_values_without_a_key_file_are_shared_and_damaged_ones_rejected(world):
    redis = world.redis()
    chain = world.chain()
    a, b = (world.machine(chain, redis.url, key_file=None) for _ in range(2))
    bodies = [receipts(chain.final), balance(chain.final), receipts(chain.final - 1), balance(chain.final - 1)]
    names = share(a, redis, *bodies)
    assert b.requested(*bodies[:2]) == 0
    values = redis.values()
    damaged = [flipped(values[name], len(values[name]) // 2) for name in names[2:]]
    assert_rejected((a, b, redis), bodies[2:], names[2:], damaged)


def test_value_expires_with_its_entry_and_at_most_after_ttl(world):
    redis = world.redis()
    chain = world.chain()
    short = ["immutable 4s", *VALID[1:]]
    a, b = world.machine(chain, redis.url, ttl="1m"), world.machine(chain, redis.url, valid=short)
    (name,) = share(a, redis, balance(chain.final))
    assert 0 < redis.execute("PTTL", name) <= 66_000
    (name,) = share(b, redis, receipts(chain.final))
    assert 0 < redis.execute("PTTL", name) <= 4_000


def test_expired_value_is_rejected(world):
    """A server that restores an older state returns values whose time is over."""
    redis = world.redis()
    chain = world.chain()
    a = world.machine(chain, redis.url, valid=["immutable 4s", *VALID[1:]])
    b = world.machine(chain, redis.url)
    body = receipts(chain.final)
    (name,) = share(a, redis, body)
    value = redis.values()[name]
    redis.execute("DEL", name)
    a.wait_for(lambda: a.requested(body) == 1, "the entry to expire")
    a.wait_for(lambda: redis.values().get(name, value) != value, "the value of the next response")
    before = b.fleet.rejected("time")
    redis.execute("SET", name, value)
    assert b.requested(body) == 1
    assert b.fleet.rejected("time") == before + 1


@pytest.mark.parametrize("kind", ["list", "stream", "too long"])
def test_replies_of_another_type_or_length_are_misses(trio, accounts, kind):
    a, b, redis = trio
    bodies = [balance(a.chain.final, next(accounts)) for _ in range(3)]
    names = share(a, redis, *bodies)
    for name in names:
        if kind == "too long":
            redis.set_value(name, bytes(3 << 20))
            continue
        redis.execute("DEL", name)
        redis.execute(*{"list": ("RPUSH", name, "x"), "stream": ("XADD", name, "*", "x", "y")}[kind])
    for body in bodies:
        assert b.requested(body) == 1
    redis.execute("DEL", *names)
    b.wait_until_used()
    later = balance(a.chain.final, next(accounts))
    share(a, redis, later)
    assert b.requested(later) == 0


def test_entries_above_max_entry_are_not_shared(world):
    redis = world.redis()
    chain = world.chain("--chain-transactions", 400)
    a = world.machine(chain, redis.url, max_entry="4k")
    long = receipts(chain.final)
    before = a.fleet.stores("too_long")
    a.wait_for(lambda: a.fetch(long) and a.fleet.stores("too_long") > before, "an entry above max_entry")
    (name,) = share(a, redis, balance(chain.final))
    assert redis.value_names() == {name}

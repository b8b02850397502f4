"""Random values of each type: SSZ, JSON and roots equal the specs' and Lodestar's."""

import json

import pytest

import specs
import values
from process import ProcessError
from tiers import IS_THOROUGH, by_tier, times

# Forks whose states have the lengths of mainnet and gnosis: a state of a minimal preset has the
# same fields in a tenth of the time.
LONG_STATES = by_tier(["fulu", "heze"], specs.FORKS)


def types(names, *, take_turns=False, **forks):
    """Parameters: the named types of these forks of each preset. If they take turns, each type has
    one of the presets mainnet and minimal in `make test`, and the next one has the other; states
    have both."""
    cases = [
        (preset, fork, name)
        for preset in forks
        for fork in forks[preset]
        for name in names(fork)
        if preset == "minimal" or name != "BeaconState" or fork in LONG_STATES
    ]
    if take_turns and not IS_THOROUGH:
        cases = [case for case in cases if has_turn(*case)]
    return pytest.mark.parametrize(("preset", "fork", "name"), cases)


def has_turn(preset, fork, name):
    if name == "BeaconState":
        return True
    turn = (specs.FORKS.index(fork) + len(name)) % 2
    return {"mainnet": turn == 0, "minimal": turn == 1}.get(preset, True)


def all_of(fork):
    return specs.types_of(fork, "mainnet").keys()


def modes(fork):
    """How values are chosen, and whether each part of one is chosen differently; in `make test`,
    the forks of a type take turns."""
    first = specs.FORKS.index(fork)
    turn = [values.MODES[(first + n) % len(values.MODES)] for n in (0, 3)]
    return [(mode, False) for mode in by_tier(turn, values.MODES)] + times(1, 4) * [(values.MODES[0], True)]


def lodestars(fork):
    """Types that Lodestar has, too: tests/ssz/test_types.py checks the others."""
    return sorted(all_of(fork) - specs.NOT_IN_LODESTAR.keys())


def lower(value):
    """JSON with its hex in lower case: Lodestar writes addresses in the notation of EIP-55."""
    if isinstance(value, dict):
        return {name: lower(field) for name, field in value.items()}
    if isinstance(value, list):
        return [lower(element) for element in value]
    return value.lower() if isinstance(value, str) and value.startswith("0x") else value


@types(all_of, minimal=specs.FORKS)
def test_random_values_have_the_ssz_json_and_root_of_the_specs(preset, fork, name, walkers):
    ty = specs.types_of(fork, preset)[name]
    rng = values.source(fork, preset, name)
    for mode, chaos in modes(fork):
        value = values.value(rng, ty, mode, chaos)
        values.assert_all_agree(walkers, rng, value, fork=fork, preset=preset, type=name)


@types(lodestars, take_turns=True, mainnet=specs.FORKS, minimal=specs.FORKS, gnosis=["capella", "gloas", "heze"])
def test_random_values_have_the_ssz_json_and_root_of_lodestar(preset, fork, name, walkers, lodestar):
    ty = specs.types_of(fork, preset)[name]
    rng = values.source("lodestar", fork, preset, name)
    for chaos in (False, True) if preset == "minimal" else (False,):
        # Lodestar's gloas lists have limits that the specifications' progressive ones lack, and
        # its deposits are excluded there
        length = 1 if fork in ("gloas", "heze") else 3
        value = values.value(rng, ty, values.MODES[0], chaos, length, values.SAFE)
        for part in values.fields_of(value):
            if fork == "gloas" and type(part).__name__ == "BeaconBlockBody":
                part.deposits = type(part.deposits)()
        about = {"fork": fork, "preset": preset, "type": name}
        ssz, text, root = values.assert_all_agree(walkers, rng, value, **about)
        fork = specs.FORK_IN_LODESTAR.get((fork, name), fork)
        theirs = json.loads(lodestar(preset).request("all", ssz, fork=fork, type=name))
        assert theirs["root"] == root.hex()
        assert lower(theirs["json"]) == json.loads(text)
        assert theirs["again"]


def changed(rng, ssz):
    """SSZ that is mostly wrong."""
    at = rng.randrange(len(ssz) + 1)
    kind = rng.randrange(6)
    if kind == 0:
        return ssz[:at]
    if kind == 1:
        return ssz[:at] + rng.randbytes(rng.randrange(1, 9)) + ssz[at:]
    if kind == 2:
        return ssz + bytes(rng.randrange(1, 5))
    if kind == 3:  # an offset, perhaps
        at = min(at, 600) // 4 * 4
        number = int.from_bytes(ssz[at : at + 4], "little") + rng.choice([-4, -1, 1, 4])
        return ssz[:at] + (number % 2**32).to_bytes(4, "little") + ssz[at + 4 :]
    if kind == 4:
        return ssz[:at] + bytes([rng.randrange(256)]) + ssz[at + 1 :]
    return ssz[:at] + ssz[min(at + rng.randrange(1, 9), len(ssz)) :]


@pytest.mark.parametrize("fork", specs.FORKS)
def test_wrong_ssz_is_rejected_when_the_specs_reject_it(fork, walkers):
    refused = accepted = 0
    for name, ty in specs.types_of(fork, "minimal").items():
        rng = values.source("changed", fork, name)
        about = {"fork": fork, "preset": "minimal", "type": name}
        ssz = values.value(rng, ty, values.MODES[0], True, 3).encode_bytes()
        if len(ssz) > 50_000:
            continue
        for _ in range(times(8, 40)):
            wrong = changed(rng, ssz)
            try:
                value = ty.decode_bytes(wrong)
                # the specs read a first offset as a length, and may leave bytes out
                assert value.encode_bytes() == wrong
                # invalid text
                specs.json_of(value)
                root = bytes(value.hash_tree_root())
            except Exception:  # the specs have no class for this error
                refused += 1
                with pytest.raises(ProcessError):
                    walkers.request("check", wrong, **about)
                    pytest.fail(f"{name}: {wrong.hex()}")
            else:
                accepted += 1
                walkers.request("check", wrong, **about)
                assert walkers.request("root", wrong, **about) == root, name
    assert refused > times(60, 100) and accepted > times(60, 100)

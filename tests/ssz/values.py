"""Random values of the specs' types, and their expected SSZ, JSON and roots."""

import contextlib
import json
import random
import zlib

from eth_consensus_specs.debug import random_value
from eth_consensus_specs.debug.random_value import RandomizationMode, get_random_ssz_object

import specs
import ssz_classes
from ssz_classes import Boolean, Container, Vector

MODES = list(RandomizationMode)
# Largest integer that Lodestar represents exactly, as a JavaScript number.
SAFE = 2**53
# Length above which a vector has only a few values that are not zero.
DENSE = 300


def source(*about):
    """A random generator with a seed made of the arguments."""
    return random.Random(zlib.crc32(repr(about).encode()))


@contextlib.contextmanager
def patched(module, **others):
    saved = {name: getattr(module, name) for name in others}
    vars(module).update(others)
    try:
        yield
    finally:
        vars(module).update(saved)


def value(rng, ty, mode, chaos=False, list_length=5, number_limit=None):
    """A random value; its numbers are below the limit, if there is one."""

    def limited(value):
        if number_limit is None or isinstance(value, Boolean):
            return value
        return type(value)(int(value) % number_limit)

    random_basic, max_basic = random_value.get_random_basic_value, random_value.get_max_basic_value

    def random_object(rng, ty, max_bytes, max_list, mode, chaos):
        if issubclass(ty, specs.Url):
            length = 0 if mode == RandomizationMode.mode_zero else rng.randrange(60)
            return ty("".join(rng.choices('ab/:.é"\\😀', k=length)).encode())
        if not (issubclass(ty, Vector) and ssz_classes.length(ty) > DENSE):
            return get_random_ssz_object(rng, ty, max_bytes, max_list, mode, chaos)
        vector = ty()
        for at in sorted(rng.sample(range(len(vector)), 20)):
            vector[at] = random_object(rng, ssz_classes.element(ty), max_bytes, max_list, mode, chaos)
        return vector

    with patched(
        random_value,
        get_random_ssz_object=random_object,
        # as random, in a tenth of the time
        get_random_bytes_list=lambda rng, length: rng.randbytes(length),
        get_random_basic_value=lambda rng, ty: limited(random_basic(rng, ty)),
        get_max_basic_value=lambda ty: limited(max_basic(ty)),
    ):
        return random_object(rng, ty, 100, list_length, mode, chaos)


def fields_of(value):
    """All containers within a value, including itself."""
    if isinstance(value, Container):
        yield value
        for name in ssz_classes.fields(type(value)):
            yield from fields_of(getattr(value, name))


def assert_all_agree(walkers, rng, value, **about):
    """Asserts that the walkers and the specs agree; returns the SSZ, the JSON and the root."""
    ssz, root = value.encode_bytes(), bytes(value.hash_tree_root())
    about["piece"] = int(2 ** rng.uniform(0, 16))
    walkers.request("check", ssz, **about)
    assert walkers.request("root", ssz, **about) == root
    text = json.dumps(specs.json_of(value), separators=(",", ":"), ensure_ascii=False).encode()
    assert walkers.request("to_json", ssz, **about) == text
    assert walkers.request("to_ssz", text, **about) == ssz
    return ssz, text, root

"""The specs' own test cases of SSZ, ssz_generic, on tables made of their types."""

import functools
import importlib
import pkgutil
import random

import pytest

import specs
import ssz_classes
import values
from eth_consensus_specs.debug.random_value import get_random_ssz_object
from eth_consensus_specs.test.exceptions import SkippedTest
from eth_consensus_specs.test.phase0.ssz_generic import ssz_generic_cases
from eth_consensus_specs.test.phase0.ssz_generic.ssz_generic_cases import ssz_container
from process import ProcessError
from ssz_classes import CompatibleUnion, Container

FOLDER = ssz_generic_cases.__name__
MODULES = [
    found.name
    for found in pkgutil.iter_modules(ssz_generic_cases.__path__)
    if found.name != "ssz_test_case"
]


@pytest.fixture(autouse=True)
def shortened_lists():
    """Shortens lists: the original cases have lists of lists of 1500 values."""

    def shorter(rng, ty, max_bytes_length, max_list_length, mode, chaos):
        return get_random_ssz_object(rng, ty, 300, 30, mode, chaos)

    with values.patched(ssz_container, get_random_ssz_object=shorter):
        yield


@functools.cache
def table(ty):
    """A table with the type, and the type's name there."""
    lines, known = [], set()

    def add(ty):
        if ty in known:
            return
        known.add(ty)
        if issubclass(ty, Container):
            active = ssz_classes.active_fields(ty)
            base = "Container"
            if active is not None:
                base = f"ProgressiveContainer(active_fields={[int(bit) for bit in active]})"
            lines.append(f"class {ty.__name__}({base}):")
            fields = ssz_classes.fields(ty)
            lines.extend(f"    {name}: {specs.type_text(of)}" for name, of in fields.items())
            for of in fields.values():
                add(of)
        elif issubclass(ty, CompatibleUnion):
            for of in ssz_classes.options(ty).values():
                add(of)
        elif ssz_classes.has_elements(ty):
            add(ssz_classes.element(ty))

    add(ty)
    # fields follow their class
    lines.insert(0, f"Value = {specs.type_text(ty)}")
    return {"table": "\n".join(lines), "type": "Value"}


def cases(module, suite):
    """Name and function, which makes the value, or the type and wrong bytes."""

    def seeded(function, rng):
        if rng is None:
            return function
        return functools.partial(function, rng=random.Random(rng.randint(0, 2**32 - 1)))

    module = importlib.import_module(f"{FOLDER}.{module}")
    makers = {
        "valid_test_case": lambda function, rng=None: seeded(function, rng),
        "invalid_test_case": lambda ty, function, rng=None: (ty, seeded(function, rng)),
    }
    own = {name: maker for name, maker in makers.items() if hasattr(module, name)}
    # functions of containers make the values of progressive ones
    with values.patched(ssz_container, **makers), values.patched(module, **own):
        yield from getattr(module, f"{suite}_cases")()


@pytest.mark.parametrize("module", MODULES)
def test_valid_cases_have_the_json_and_root_of_the_specs(module, walkers):
    count = 0
    for _, make in cases(module, "valid"):
        value = make()
        rng = values.source(module, count)
        values.assert_all_agree(walkers, rng, value, **table(type(value)))
        count += 1
    assert count > 1


@pytest.mark.parametrize("module", MODULES)
def test_invalid_cases_are_rejected(module, walkers):
    count = 0
    for name, (ty, make) in cases(module, "invalid"):
        try:
            wrong = make()
        except SkippedTest:  # a change after which the specs find the value valid
            continue
        count += 1
        with pytest.raises(ProcessError):
            walkers.request("check", wrong, **table(ty))
            pytest.fail(f"{name}: {wrong.hex()}")
    assert count > 1

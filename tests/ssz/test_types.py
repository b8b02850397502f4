"""Each table has the specs' containers, field by field, and no other ones."""

import json

import pytest

import newer_layouts
import specs
import ssz_classes

# Types of the execution layer, which tests/ssz/test_execution.py tests.
EXECUTION = {
    "EngineWithdrawal",
    "ExecutionPayloadAmsterdam",
    "ExecutionPayloadCancun",
    "ExecutionPayloadEnvelopeAmsterdam",
    "ExecutionPayloadEnvelopeCancun",
    "ExecutionPayloadEnvelopeParis",
    "ExecutionPayloadEnvelopePrague",
    "ExecutionPayloadEnvelopeShanghai",
    "ExecutionPayloadParis",
    "ExecutionPayloadShanghai",
    "ExecutionWitness",
    "ForkchoiceUpdatedWithWitness",
    "NewPayloadWithWitness",
    "PayloadStatus",
    "PayloadStatusWithWitness",
    "PayloadStatusWithWitnessAndKeys",
}

forks_and_presets = pytest.mark.parametrize(
    ("fork", "preset"), [(fork, preset) for preset in specs.PRESETS for fork in specs.FORKS]
)


@forks_and_presets
def test_containers_equal_the_containers_of_the_specs(fork, preset, described):
    ours = described(fork, preset)
    theirs = specs.types_of(fork, preset)
    for name, ty in theirs.items():
        assert name in ours, f"{fork} has no {name}"
        if not specs.is_container(ty):
            assert ours[name] == {"is": specs.type_text(ty)}, name
            continue
        fields = ssz_classes.fields(ty).items()
        fields = [[field, field, specs.type_text(of)] for field, of in fields]
        assert ours[name] == {"fields": fields, "active": ssz_classes.active_fields(ty)}, name
    unknown = {name for name, definition in ours.items() if "fields" in definition}
    assert unknown - theirs.keys() == EXECUTION


@forks_and_presets
def test_type_aliases_equal_the_types_of_the_specs(fork, preset, described):
    spec = specs.module(fork, preset)
    for name, definition in described(fork, preset).items():
        theirs = getattr(spec, name, None)
        if "is" in definition and theirs is not None:
            assert definition["is"] == specs.type_text(theirs), name


@pytest.mark.parametrize("fork, name", [*newer_layouts.RENAMED, *newer_layouts.REMOVED])
def test_newer_layouts_are_not_in_the_pinned_specification(fork, name):
    specs.module(fork, "mainnet")
    renamed = newer_layouts.RENAMED.get((fork, name), {})
    removed = newer_layouts.REMOVED.get((fork, name), [])
    known = newer_layouts.pinned_fields[fork, name]
    assert {*renamed, *removed} <= set(known), "remove it from newer_layouts.py"


def test_excluded_containers_exist_in_the_specs():
    left_out = set()
    for fork in specs.FORKS:
        left_out |= vars(specs.module(fork, "mainnet")).keys()
    assert specs.NOT_IN_THE_API.keys() <= left_out


@pytest.mark.parametrize("preset", specs.PRESETS)
def test_types_exist_in_lodestar_except_the_listed_ones(preset, lodestar):
    """Lodestar confirms names that come from beacon-APIs, and not from the specs."""
    theirs = json.loads(lodestar(preset).request("names"))
    for fork in specs.FORKS:
        ours = set(specs.types_of(fork, preset))
        assert ours - set(theirs[fork]) == specs.NOT_IN_LODESTAR.keys() & ours, fork

"""Each table has the specs' containers, field by field, and no other ones."""

import json

import pytest

import specs

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
        fields = [[field, field, specs.type_text(of)] for field, of in ty.fields().items()]
        assert ours[name] == {"fields": fields, "active": specs.active_fields(ty)}, name
    unknown = {name for name, definition in ours.items() if "fields" in definition}
    assert unknown - theirs.keys() == EXECUTION


@forks_and_presets
def test_type_aliases_equal_the_types_of_the_specs(fork, preset, described):
    spec = specs.module(fork, preset)
    for name, definition in described(fork, preset).items():
        theirs = getattr(spec, name, None)
        if "is" in definition and theirs is not None:
            assert definition["is"] == specs.type_text(theirs), name


@pytest.mark.parametrize("fork, name", specs.RENAMED)
def test_renamed_fields_have_their_old_names_in_the_pinned_specification(fork, name):
    fields = getattr(specs.module(fork, "mainnet"), name).fields()
    assert specs.RENAMED[fork, name].keys() <= fields.keys(), "remove it from RENAMED"


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

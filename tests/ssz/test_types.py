"""Each table has the specs' containers, field by field, and no other ones."""

import difflib
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


def definition_of(ty):
    """A type of the specs, as the walkers describe theirs."""
    if not specs.is_container(ty):
        return {"is": specs.type_text(ty)}
    fields = ssz_classes.fields(ty).items()
    fields = [[field, field, specs.type_text(of)] for field, of in fields]
    return {"fields": fields, "active": ssz_classes.active_fields(ty)}


def lines(described_type):
    """A described type as lines; a failure shows the lines that differ."""
    if described_type is None:
        return ["absent"]
    if "is" in described_type:
        return [described_type["is"]]
    fields = [f'{name} "{in_json}": {of}' for name, in_json, of in described_type["fields"]]
    active = "".join(str(int(bit)) for bit in described_type["active"] or ())
    return [f"active fields {active}" if active else "Container", *fields]


def difference(name, ours, theirs):
    changed = [line for line in difflib.ndiff(lines(ours), lines(theirs)) if line[0] in "-+"]
    return "\n    ".join([f"{name} (- table, + specification)", *changed])


@forks_and_presets
def test_containers_equal_the_containers_of_the_specs(fork, preset, described):
    ours = described(fork, preset)
    theirs = {name: definition_of(ty) for name, ty in specs.types_of(fork, preset).items()}
    differences = [
        difference(name, ours.get(name), of) for name, of in theirs.items() if ours.get(name) != of
    ]
    if differences:
        pytest.fail("\n".join(differences), pytrace=False)
    unknown = {name for name, of in ours.items() if "fields" in of}
    assert unknown - theirs.keys() == EXECUTION


@forks_and_presets
def test_type_aliases_equal_the_types_of_the_specs(fork, preset, described):
    spec = specs.module(fork, preset)
    for name, definition in described(fork, preset).items():
        theirs = getattr(spec, name, None)
        if "is" in definition and theirs is not None and name not in specs.OTHER_IN_THE_SPECS:
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

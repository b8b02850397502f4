"""Layouts that are newer than the pinned specification, made from its own classes.

tests/ssz/lodestar/newer_types.js has those that are newer than Lodestar's. test_types.py fails if
the pinned specification has one of them itself: it is removed here then.
"""

import ssz_classes

# Fields with another name: consensus-specs #5513, in v1.7.0-alpha.14.
RENAMED = {("heze", "InclusionList"): {"inclusion_list_committee_root": "dependent_root"}}
# Fields that do not exist any more, and whose positions are inactive: EIP-8015, consensus-specs
# #5655, after v1.7.0-beta.1.
REMOVED = {
    ("heze", "BeaconBlockBody"): ["eth1_data", "deposits"],
    ("heze", "BeaconState"): [
        "eth1_data",
        "eth1_data_votes",
        "eth1_deposit_index",
        "deposit_requests_start_index",
    ],
}

# Names of the fields in the pinned specification, by fork and class.
pinned_fields = {}


def update(fork, spec):
    """Replaces classes in the module of a specification by their newer layouts."""
    for (changed_in, name), names in RENAMED.items():
        if changed_in == fork:
            old = known_class(fork, spec, name)
            fields = {names.get(field, field): of for field, of in ssz_classes.fields(old).items()}
            replace(spec, name, ssz_classes.changed_container(old, fields))
    for (changed_in, name), names in REMOVED.items():
        if changed_in == fork:
            old = known_class(fork, spec, name)
            replace(spec, name, without(old, names))


def known_class(fork, spec, name):
    """The class of a specification, whose fields are recorded."""
    found = vars(spec)[name]
    pinned_fields[fork, name] = list(ssz_classes.fields(found))
    return found


def without(ty, names):
    """The progressive container without some of its fields."""
    fields = ssz_classes.fields(ty)
    assert all(ssz_classes.active_fields(ty)), ty
    active = [name not in names for name in fields]
    remaining = {name: of for name, of in fields.items() if name not in names}
    return ssz_classes.container(ty.__name__, ssz_classes.progressive(active), **remaining)


def replace(spec, name, new):
    """Replaces a class of a specification, also in the containers that contain it."""
    old = vars(spec)[name]
    vars(spec)[name] = new
    for other in list(vars(spec)):
        ty = vars(spec)[other]
        if not ssz_classes.is_container(ty) or ty.__name__ != other:
            continue
        fields = ssz_classes.fields(ty)
        if old in fields.values():
            fields = {field: new if of is old else of for field, of in fields.items()}
            replace(spec, other, ssz_classes.changed_container(ty, fields))

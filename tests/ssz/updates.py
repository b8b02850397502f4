"""A chain with all of the forks, its nodes' constants, and light client updates of each epoch, made
by the specifications' own code for tests that run in another Python. The first line has the
constants, each other line an update.

updates.py PRESET
"""

import json
import sys

import faster  # noqa: F401
import specs
import values
from ssz_classes import ByteVector

preset = sys.argv[1]
spec = specs.module("heze", preset)
GENESIS_VALIDATORS_ROOT = bytes(range(32))
FORKS = specs.FORKS[1:]


def chain():
    """A fork with each epoch, and one epoch more with another limit of blobs."""
    epochs, changes = {}, {}
    for fork in FORKS:
        epoch = max(epochs, default=0) + 1
        epochs[epoch] = fork
        changes[f"{fork.upper()}_FORK_EPOCH"] = spec.Epoch(epoch)
        if fork == "fulu":
            epochs[epoch + 1] = fork
            # out of order
            schedule = [(epoch + 1, 15), (epoch, 12)]
    entries = [{"EPOCH": spec.Epoch(since), "MAX_BLOBS_PER_BLOCK": spec.Uint64(most)} for since, most in schedule]
    return spec.config._replace(BLOB_SCHEDULE=tuple(entries), **changes), epochs


def text(value):
    """A constant in the Beacon API's form."""
    if isinstance(value, (tuple, list)):
        return [{name: text(part) for name, part in entry.items()} for entry in value]
    return f"0x{bytes(value).hex()}" if isinstance(value, bytes | ByteVector) else str(value)


config, epochs = chain()
constants = {name: text(value) for name, value in config._asdict().items()}
constants["SLOTS_PER_EPOCH"] = str(spec.SLOTS_PER_EPOCH)
constants["SYNC_COMMITTEE_SIZE"] = str(spec.SYNC_COMMITTEE_SIZE)
genesis = {"genesis_validators_root": f"0x{GENESIS_VALIDATORS_ROOT.hex()}", "genesis_time": "1606824023"}
print(json.dumps({"spec": constants, "genesis": genesis}))

with values.patched(spec, config=config):
    for epoch, fork in sorted(epochs.items()):
        ty = specs.types_of(fork, preset)["LightClientUpdate"]
        value = values.value(values.source(fork, preset, epoch), ty, values.MODES[0])
        value.attested_header.beacon.slot = (epoch + 1) * spec.SLOTS_PER_EPOCH - 1
        digest = spec.compute_fork_digest(spec.Root(GENESIS_VALIDATORS_ROOT), spec.Epoch(epoch))
        ssz = bytes(digest) + value.encode_bytes()
        octets = len(ssz).to_bytes(8, "little") + ssz
        print(json.dumps({"version": fork, "data": specs.json_of(value), "octets": octets.hex()}))

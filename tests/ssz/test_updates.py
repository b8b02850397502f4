"""The command line's fork digests for mainnet's light client updates."""

import pathlib
import re

import specs

SOURCE = pathlib.Path(__file__).parents[2] / "cli/src/updates.rs"
GENESIS_VALIDATORS_ROOT = (
    "4b363db94e286120d76eb905340fdd4e54bfe9f06bf33ff6cf5ad27f511bfe95"
)


def test_fork_digests_of_mainnet_equal_the_digests_of_the_specs():
    table = re.findall(
        r"\(([\d_]+), Fork::(\w+), \[([0-9a-fx, ]+)\]\)", SOURCE.read_text()
    )
    ours = [
        (
            int(epoch.replace("_", "")),
            fork.lower(),
            bytes(int(byte, 16) for byte in digest.split(",")),
        )
        for epoch, fork, digest in table
    ]
    spec = specs.module("gloas", "mainnet")
    root = spec.Root(bytes.fromhex(GENESIS_VALIDATORS_ROOT))
    forks = [fork for fork in specs.FORKS if fork not in ("phase0", "gloas", "heze")]
    epochs = {
        getattr(spec.config, f"{fork.upper()}_FORK_EPOCH"): fork for fork in forks
    }
    epochs |= {int(entry["EPOCH"]): "fulu" for entry in spec.config.BLOB_SCHEDULE}
    theirs = [
        (
            int(epoch),
            epochs[epoch],
            bytes(spec.compute_fork_digest(root, spec.Epoch(epoch))),
        )
        for epoch in sorted(epochs)
    ]
    assert ours == theirs
    # gloas has no epoch yet
    assert spec.config.GLOAS_FORK_EPOCH == 2**64 - 1

"""Tests of scripts/claim-target: a checkout never runs what another one has compiled."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]


class ClaimTarget(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.target = self.root / "target"
        for name in ("first", "second"):
            scripts = self.root / name / "scripts"
            scripts.mkdir(parents=True)
            for script in ("claim-target", "lib.sh"):
                shutil.copy(SCRIPTS / script, scripts)

    def compile_crates(self):
        for folder in ("debug", "release", "wasm/wasm32-unknown-unknown/sandbox"):
            for crate in ("sszip-core-0123", "replay-node-4567", "serde-89ab"):
                (self.target / folder / ".fingerprint" / crate).mkdir(parents=True, exist_ok=True)

    def claim(self, checkout):
        subprocess.run(
            [self.root / checkout / "scripts/claim-target"],
            env={**os.environ, "CARGO_TARGET_DIR": str(self.target)},
            check=True,
            capture_output=True,
        )
        return sorted({path.name for path in self.target.glob("**/.fingerprint/*")})

    def test_crates_of_another_checkout_are_compiled_again(self):
        self.claim("first")
        self.compile_crates()
        self.assertEqual(self.claim("second"), ["serde-89ab"])

    def test_crates_of_the_same_checkout_stay(self):
        self.claim("first")
        self.compile_crates()
        self.assertEqual(
            self.claim("first"), ["replay-node-4567", "serde-89ab", "sszip-core-0123"]
        )

    def test_crates_of_an_unknown_checkout_are_compiled_again(self):
        self.compile_crates()
        self.assertEqual(self.claim("first"), ["serde-89ab"])


if __name__ == "__main__":
    unittest.main()

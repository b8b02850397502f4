"""The parity table has rows for every operation of tests/beacon/operations.tsv."""

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Operations(unittest.TestCase):
    def test_rows_are_made_from_the_table_of_operations(self):
        command = [sys.executable, ROOT / "scripts/beacon-operations", "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


if __name__ == "__main__":
    unittest.main()

"""The parity table has rows for every operation of tests/beacon/operations.tsv, and the table of
operations is updated from a specification without losing any."""

import importlib.machinery
import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/beacon-operations"


def load_script():
    loader = importlib.machinery.SourceFileLoader("beacon_operations", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Operations(unittest.TestCase):
    def test_rows_are_made_from_the_table_of_operations(self):
        command = [sys.executable, SCRIPT, "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_merged_table_keeps_removed_operations_and_drops_proposals_that_were_accepted(self):
        script = load_script()
        removed = script.REMOVED
        before = [
            "# Operations.\n",
            "GET\t/a\t-\tjson\tgetA\n",
            "GET\t/b\t-\tjson\tgetB\n",
            removed,
            "GET\t/c\t-\tjson\tgetC\n",
            "# Proposed.\n",
            "GET\t/d\t-\tjson\tgetD, #1\n",
            "GET\t/e\t-\tjson\tgetE, #2\n",
        ]
        specified = ["GET\t/a\t-\tjson+ssz\tgetA\n", "GET\t/d\t-\tjson+ssz\tgetD\n"]
        after = script.merge(specified, "".join(before)).splitlines(True)
        kept = [before[2], before[4], before[5], before[7]]
        self.assertEqual(after, [before[0], *specified, removed, *kept])


if __name__ == "__main__":
    unittest.main()

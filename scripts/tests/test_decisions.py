"""The decision records have their three lines, the index is current, and references lead to records."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/decisions"
FIRST = "docs/decisions/001-one-pool.md"
SECOND = "docs/decisions/002-two-pools.md"
INDEX = "docs/decisions/README.md"
# numbers of these pages are not references of this file
DECISION = "decision "


def record(number, status="accepted", day="2026-11-21", room="compression"):
    return f"# {number}: a title\nStatus: {status}\nDate: {day}\nRoom: {room}\n\n## Context\nText.\n"


def run(root, *arguments):
    """The status, and the lines of the output."""
    command = [sys.executable, str(SCRIPT), "--root", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).splitlines()


class ThisTree(unittest.TestCase):
    def test_decision_records_of_this_tree_have_no_faults(self):
        self.assertEqual(run(ROOT, "--check"), (0, []))


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        self.write(FIRST, record("001"))
        self.write(SECOND, record("002", "accepted; amends 001", room="Envoy Wasm"))
        self.write("docs/decisions/000-template.md", "# NNN: title\n")
        self.assertEqual(run(self.root), (0, []))

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        subprocess.run(["git", "add", "."], cwd=self.root, check=True)

    def assert_faults(self, *expected):
        status, lines = run(self.root, "--check")
        lines = [line for line in lines if "is stale" not in line]
        self.assertEqual((status, lines), (1, list(expected)))

    def test_index_lists_records_by_room(self):
        page = (self.root / INDEX).read_text()
        rows = [line for line in page.splitlines() if line.startswith(("## ", "| ["))]
        self.assertEqual(
            rows,
            [
                "## Compression",
                "| [001](001-one-pool.md) | a title | accepted | 2026-11-21 |",
                "## Envoy Wasm",
                "| [002](002-two-pools.md) | a title | accepted; amends 001 | 2026-11-21 |",
            ],
        )
        self.assertEqual(run(self.root, "--check"), (0, []))

    def test_stale_or_missing_index_is_a_fault(self):
        fault = f"{INDEX} is stale; run scripts/decisions"
        self.write(FIRST, record("001", day="2026-11-22"))
        self.assertEqual(run(self.root, "--check"), (1, [fault]))
        (self.root / INDEX).unlink()
        self.assertEqual(run(self.root, "--check"), (1, [fault]))

    def test_missing_line_is_a_fault(self):
        for name, text in (("Status", "accepted"), ("Date", "2026-11-21"), ("Room", "compression")):
            self.write(FIRST, record("001").replace(f"{name}: {text}\n", ""))
            status, lines = run(self.root, "--check")
            self.assertEqual(status, 1)
            self.assertIn(f'{FIRST}: no line "{name}: "', lines)

    def test_unknown_status_date_or_room_is_a_fault(self):
        for text, fault in (
            (record("001", status="maybe"), 'unknown status "maybe"'),
            (record("001", status="superseded"), 'unknown status "superseded"'),
            (record("001", day="2026-13-01"), '"2026-13-01" is not a date (YYYY-MM-DD)'),
            (record("001", room="kitchen"), 'unknown room "kitchen"'),
            (record("003"), 'the heading is not "# 001: title"'),
            (record("001").replace(":", ".", 1), 'the heading is not "# 001: title"'),
        ):
            self.write(FIRST, text)
            status, lines = run(self.root, "--check")
            self.assertEqual((status, f"{FIRST}: {fault}" in lines), (1, True), fault)

    def test_status_that_names_a_missing_record_is_a_fault(self):
        for status in ("superseded by 009", "accepted; amends 009"):
            self.write(FIRST, record("001", status=status))
            self.assert_faults(f"{FIRST}: its status names {DECISION}009, which does not exist")
        self.write(FIRST, record("001", status="superseded by 001"))
        self.assert_faults(f"{FIRST}: its status names {DECISION}001, which does not exist")

    def test_status_that_names_a_record_is_accepted(self):
        self.write(FIRST, record("001", status="superseded by 002"))
        run(self.root)
        self.assertEqual(run(self.root, "--check"), (0, []))

    def test_number_shared_by_two_records_is_a_fault(self):
        self.write("docs/decisions/001-other.md", record("001"))
        self.assert_faults("docs/decisions: two records have number 001")

    def test_reference_to_a_missing_record_is_a_fault(self):
        for name, text, line, number in (
            ("src/lib.rs", f"\n// See {DECISION}\n// 009.", 2, "009"),
            ("src/lib.rs", "// docs/decisions/" + "009", 1, "009"),
            ("CHANGELOG.md", "(docs/decisions/001 and" + " 009)", 1, "009"),
            ("docs/page.md", "[why](decisions/" + "009-other.md)", 1, "009"),
            ("Makefile", f"# D{DECISION[1:]}009", 1, "009"),
            (SECOND, record("002") + "[009](009-other.md)\n", 8, "009"),
        ):
            before = (self.root / name).read_text() if (self.root / name).exists() else None
            self.write(name, text)
            self.assert_faults(f"{name}:{line}: {DECISION}{number} does not exist")
            if before is None:
                (self.root / name).unlink()
                self.write("docs/decisions/000-template.md", "# NNN: title\n")
            else:
                self.write(name, before)

    def test_reference_to_a_record_is_no_fault(self):
        self.write("src/lib.rs", f"// docs/decisions/001 and 002, {DECISION}001; {DECISION[:-1]}s 404040.\n")
        self.assertEqual(run(self.root, "--check"), (0, []))


if __name__ == "__main__":
    unittest.main()

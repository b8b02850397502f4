"""Tests of `scripts/release --check`: tag, Cargo.toml and CHANGELOG.md name one version."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
CHANGELOG = "# Changelog\n\n## {}\n\n- A change.\n\n## 0.0.9\n\n- An older one.\n"


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts").mkdir()
        for script in ("release", "lib.sh"):
            shutil.copy(SCRIPTS / script, self.root / "scripts")
        self.write("Cargo.toml", '[workspace.package]\nversion = "0.1.0"\n')
        self.write("CHANGELOG.md", CHANGELOG.format("0.1.0"))
        self.git("init", "-q")
        self.commit()

    def write(self, name, text):
        (self.root / name).write_text(text)

    def git(self, *arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-q", "-m", "all")

    def check(self):
        """The exit status and the message."""
        done = subprocess.run(
            [self.root / "scripts/release", "--check"], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    def test_tagged_version_is_accepted(self):
        self.git("tag", "v0.1.0")
        self.assertEqual(self.check(), (0, ""))

    def test_heading_with_a_date_is_accepted(self):
        self.write("CHANGELOG.md", CHANGELOG.format("0.1.0 (2026-12-01)"))
        self.commit()
        self.git("tag", "v0.1.0")
        self.assertEqual(self.check(), (0, ""))

    def test_other_tag_is_rejected(self):
        self.git("tag", "v0.1.1")
        status, message = self.check()
        self.assertEqual(status, 1)
        self.assertIn("HEAD does not have the tag v0.1.0", message)

    def test_tag_of_an_older_commit_is_rejected(self):
        self.git("tag", "v0.1.0")
        self.write("README.md", "")
        self.commit()
        self.assertIn("HEAD does not have the tag v0.1.0", self.check()[1])

    def test_changelog_without_the_version_is_rejected(self):
        self.write("CHANGELOG.md", CHANGELOG.format("Unreleased"))
        self.commit()
        self.git("tag", "v0.1.0")
        status, message = self.check()
        self.assertEqual(status, 1)
        self.assertIn('CHANGELOG.md has no section "## 0.1.0"', message)

    def test_uncommitted_change_is_rejected(self):
        self.git("tag", "v0.1.0")
        self.write("README.md", "")
        self.assertIn("uncommitted changes", self.check()[1])


if __name__ == "__main__":
    unittest.main()

"""The table [fleet] of sszip-cached's configuration, as `--check` validates it."""

import subprocess

import pytest

from daemon import CACHED, Daemon
from harness.guards import GUARD_SECONDS

HEAD = {"namespace": "main", "url": "http://127.0.0.1:1"}
FILES = {
    "password": (0o600, b"secret\n"),
    "key": (0o640, b"k" * 32),
    "public": (0o644, b"secret" * 6),
}


@pytest.fixture
def check(tmp_path):
    """Validates a configuration with these lines in its table [fleet]; `@` is its folder, `%40` an @."""

    def check(lines, heads=(HEAD,)):
        daemon = Daemon(tmp_path, heads=heads)
        for name, (mode, contents) in FILES.items():
            (tmp_path / name).write_bytes(contents)
            (tmp_path / name).chmod(mode)
        text = daemon.config.read_text()
        table = "\n[fleet]\n" + lines.replace("@", str(tmp_path)).replace("%40", "@") + "\n"
        daemon.config.write_text(text + table)
        line = text.count("\n") + 2
        ran = subprocess.run([CACHED, "--check", daemon.config], capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)
        assert "secret" not in ran.stderr
        assert not daemon.store.exists()
        output = ran.stderr.replace(f"{daemon.config}:{line}: ", "LINE: ")
        return ran.returncode, output.replace("@", "%40").replace(str(tmp_path), "@")

    return check


@pytest.mark.parametrize(
    "lines, message",
    [
        ("", "LINE: missing field `url`"),
        ('url = "redis+clusters://a,b"', 'LINE: [fleet] has an invalid value "redis+clusters://a,b": it must be a URL that begins with "redis://", "rediss://", "redis+cluster://"'),
        ('url = "redis://me:secret%40a"', 'LINE: [fleet] has an invalid value "redis://...%40a": it must be without user and password'),
        ('url = "redis://a"\ntimeout = "2s"', 'LINE: [fleet] has an invalid value "timeout=2s": it must be a time with its unit'),
        ('url = "redis://a"\nca = "@/key"', 'LINE: [fleet] has an invalid value "ca=@/key": it must be used with a "rediss://" URL'),
        ('url = "rediss://a"\nca = "@/key"', 'LINE: [fleet] has an invalid CA file "@/key": it must contain complete certificates in PEM'),
        ('url = "redis://a"\npassword_file = "password"', 'LINE: [fleet] has an invalid value "password_file=password": it must be a file with an absolute path'),
        ('url = "redis://a"\npassword_file = "@/none"', 'LINE: [fleet] cannot read the password file "@/none" (2: No such file or directory)'),
        ('url = "redis://a"\npassword_file = "@/public"', 'LINE: [fleet] has a password file that other users can read: "@/public" (mode 0644); run chmod o-rwx on it'),
        ('url = "redis://a"\nkey_file = "@/public"', 'LINE: [fleet] has a key file that other users can read: "@/public"'),
        ('url = "redis://a"\nkey_file = "@/password"', 'LINE: [fleet] has an invalid key file "@/password": it must have 32 to 4096 bytes'),
        ('url = "redis://a"\ntimout = "2s"', "unknown field `timout`, expected one of `url`, `user`"),
        ('url = "redis://a"\n[fleet]\nurl = "redis://b"', "duplicate key"),
    ],
)
def test_invalid_fleet_is_rejected_with_its_line(check, lines, message):
    status, output = check(lines)
    assert status == 2 and message in output, output


def test_valid_fleet_is_accepted_without_a_connection(check):
    status, output = check('url = "redis://127.0.0.1:1"\npassword_file = "@/password"\nkey_file = "@/key"\nmax_entry = 65536\n')
    assert status == 0 and "the configuration is valid" in output, output
    assert "warning" not in output


def test_suspicious_fleet_is_warned_of(check):
    status, output = check('url = "redis://a"\npassword_file = "@/password"\n', heads=())
    assert status == 0 and "the configuration is valid" in output, output
    for text in (
        "warning: [fleet] sends its password to redis://a:6379 without encryption",
        "warning: [fleet] shares entries through redis://a:6379 without encryption and without a key",
        "warning: [fleet] shares no entries: there is no [[head]]; add one",
    ):
        assert text in output

"""Files that operators copy in addition to nginx's configurations: units, folders and
log rotation, each read by its program."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import tomllib

import pytest

from harness.copied_configs import CONFIGS
from harness.guards import GUARD_SECONDS
from harness.origin import answer
from harness.owner import SSZIP_CACHED, Client
from harness.seccomp import allowed, numbers, restrict_to

pytestmark = pytest.mark.once("neither nginx's version nor the module's C has a hand in it")

UNIT = (CONFIGS / "systemd/sszip-cached.service").read_text()
DROP_IN = CONFIGS / "systemd/nginx.service.d/sszip.conf"
ROTATION = (CONFIGS / "logrotate/sszip").read_text()


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def verify(unit):
    return run("systemd-analyze", "--man=no", "verify", unit)


def test_unit_of_the_daemon_is_valid_and_hardened(tmp_path):
    unit = tmp_path / "sszip-cached.service"
    text = UNIT.replace("/usr/local/sbin/sszip-cached", str(pathlib.Path(SSZIP_CACHED).absolute()))
    unit.write_text(text)
    assert verify(unit) == (0, "")
    # systemd reports an unknown directive
    unit.write_text(text.replace("ProtectHome=yes", "ProtectHomes=yes"))
    assert "ProtectHomes" in verify(unit)[1]
    unit.write_text(text)
    # exposure of at most 20 of 100; nginx's own unit has 96
    status, output = run("systemd-analyze", "--no-pager", "--offline=true", "--threshold=20", "security", unit)
    assert status == 0, output


def test_drop_in_hardens_the_unit_of_nginx(tmp_path):
    unit = tmp_path / "nginx.service"
    shutil.copy("/lib/systemd/system/nginx.service", unit)
    shutil.copytree(DROP_IN.parent, tmp_path / "nginx.service.d")
    assert verify(unit) == (0, "")
    before = len(run("systemd-analyze", "--no-pager", "--offline=true", "security", unit)[1].split("✗"))
    (tmp_path / "nginx.service.d/sszip.conf").unlink()
    assert len(run("systemd-analyze", "--no-pager", "--offline=true", "security", unit)[1].split("✗")) > before + 10


def test_daemon_runs_with_the_system_calls_of_its_unit(tmp_path):
    """The daemon runs with its own configuration, the folders that the unit creates, and no
    system call that the unit denies, from start to end, with a store and threads."""
    text = (CONFIGS / "cached.toml").read_text()
    settings = tomllib.loads(text)
    assert pathlib.Path(settings["socket"]).parent == pathlib.Path("/run", re.search(r"RuntimeDirectory=(\w+)", UNIT)[1])
    assert pathlib.Path(settings["path"]) == pathlib.Path("/var/cache", re.search(r"CacheDirectory=(\w+)", UNIT)[1])
    for published, own in ((settings["socket"], f"{tmp_path}/socket"), (settings["path"], f"{tmp_path}/store")):
        text = text.replace(f'"{published}"', f'"{own}"')
    (tmp_path / "cached.toml").write_text(text)
    (tmp_path / "store").mkdir()
    commands = [command.split()[1:] for command in re.findall(r"^ExecStart(?:Pre)?=(.+)$", UNIT, flags=re.M)]
    assert [command[-1] for command in commands] == ["/etc/sszip/cached.toml"] * 2
    check, start = ([SSZIP_CACHED, *command[:-1], f"{tmp_path}/cached.toml"] for command in commands)
    calls = numbers(allowed(UNIT))
    assert 200 < len(calls) < 400
    done = subprocess.run(check, preexec_fn=restrict_to(calls), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for turn in range(2):
        with open(tmp_path / "log", "wb") as log:
            daemon = subprocess.Popen(start, preexec_fn=restrict_to(calls), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        owner = Client(tmp_path / "socket")
        try:
            until = time.monotonic() + GUARD_SECONDS
            while not owner.answers():
                assert daemon.poll() is None and time.monotonic() < until, (daemon.poll(), (tmp_path / "log").read_text())
                time.sleep(0.01)
            if turn == 0:
                assert entry(owner, "PUT", b"body" * 30_000)[0] == 201
            assert entry(owner, "GET")[::2] == (200, b"body" * 30_000)
            if turn == 1:
                owner.purge(everything=True)
                assert entry(owner, "GET")[0] == 404
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)
        assert daemon.returncode == 0, (tmp_path / "log").read_text()
    # a denied system call ends the process with SIGSYS
    done = subprocess.run(check, preexec_fn=restrict_to(calls[:5]), capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGSYS


def entry(owner, method, body=None):
    """A large immutable entry, which is recompressed and written to disk."""
    fields = {
        "sszip-generation": str(owner.status()["generation"]),
        "sszip-fresh": "3600000",
        "sszip-class": "immutable",
        "sszip-namespace": "5a" * 16,
    }
    return owner.request(method, "/v1/entries/" + "ab" * 32, body, fields if body else {})


def test_tmpfiles_creates_writable_folders(tmp_path):
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", tmp_path / "etc")
    assert run("systemd-tmpfiles", "--create", f"--root={tmp_path}", CONFIGS / "systemd/tmpfiles.conf") == (0, "")
    made = {path: (tmp_path / path).stat() for path in ("var/log/sszip", "var/cache/nginx/sszip", "run/sszip-engine")}
    modes = {path: (oct(its.st_mode & 0o777), (tmp_path / path).owner()) for path, its in made.items()}
    assert modes == {
        "var/log/sszip": ("0o755", "root"),
        "var/cache/nginx/sszip": ("0o700", "www-data"),
        "run/sszip-engine": ("0o750", "root"),
    }
    # nginx's unit may write to the folders
    writable = re.search(r"ReadWritePaths=(.+)", DROP_IN.read_text())[1].split()
    assert all(any(f"/{path}".startswith(folder) for folder in writable) for path in made)


@pytest.fixture
def logging(start_nginx):
    """nginx with its log in the folder that logrotate rotates."""
    return start_nginx("""
        server {
            listen 127.0.0.1:@port@;
            location / { access_log @prefix@/log/access.log; proxy_pass http://@origin@; }
        }""", files={"log/made": b""})  # fmt: skip


def test_logrotate_rotates_the_access_log(logging, origin, tmp_path):
    origin.answers(answer(b"{}"))
    folder = logging.prefix / "log"
    os.chmod(folder, 0o755)
    text = ROTATION.replace("/var/log/sszip/", f"{folder}/").replace("/run/nginx.pid", f"{logging.prefix}/nginx.pid")
    # the user who runs the tests may not have these groups
    text = text.replace("create 0640 www-data adm", "create 0640 root root") if os.geteuid() == 0 else text.replace("create 0640 www-data adm", "create 0640")
    config = tmp_path / "logrotate.conf"
    config.write_text(text)
    os.chmod(config, 0o644)
    logrotate = shutil.which("logrotate") or "/usr/sbin/logrotate"
    # the published file, without a folder to rotate
    status, output = run(logrotate, "-d", "-s", tmp_path / "state", CONFIGS / "logrotate/sszip")
    assert status == 0 and "error" not in output.lower().replace("0 errors", ""), output
    assert "maxsize" not in output or "unknown" not in output

    def lines(name):
        path = folder / name
        return path.read_text().count("\n") if path.exists() else -1

    assert logging.get("/").status == 200
    logging.wait_for(lambda: lines("access.log") == 1, "the first line")
    status, output = run(logrotate, "-f", "-s", tmp_path / "state", config)
    assert status == 0 and "error" not in output, output

    def has_new_lines():
        logging.get("/")
        return lines("access.log") > 0

    logging.wait_for(has_new_lines, "a line in the new file")
    assert lines("access.log.1") >= 1
    status, output = run(logrotate, "-f", "-s", tmp_path / "state", config)
    assert status == 0 and (folder / "access.log.2.gz").exists(), output

"""A Debian in a folder, with its own processes and mounts and this machine's network.

Nothing of systemd runs in it: its helpers start nginx and the daemon."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import saved_logs
from harness.guards import GUARD_SECONDS

BASE = pathlib.Path(os.environ["SSZIP_PACKAGES_BASE"])
PACKAGES = pathlib.Path(os.environ["SSZIP_PACKAGES"])
MODULE = "libnginx-mod-http-sszip"
ALL = [MODULE, "sszip-envoy", "sszip-cached", "sszip"]

# Folders with logs and configurations of a test.
LOGS = ("etc/nginx", "etc/sszip", "var/log", "configs", "tmp")

# The first process of the Debian: it reaps what others leave, and all end with it.
INIT = """
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount --rbind /sys "$0/sys"
exec chroot "$0" /bin/bash -c 'echo ready; while sleep 60; do :; done'
"""
ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
}


def wait_for(subject, condition):
    """Waits until the condition is true; returns its value."""
    end = time.monotonic() + GUARD_SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, subject
        time.sleep(0.05)
    return value


def package_file(build, name):
    """The file of a package: of the builds `first`, `again` or `next`."""
    (file,) = (PACKAGES / build).glob(f"{name}_*.deb")
    return file


class DebianSystem:
    def __enter__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="system-", dir=BASE.parent))
        subprocess.run(["cp", "-a", "--reflink=auto", f"{BASE}/.", self.root], check=True)
        self.root.chmod(0o755)
        shutil.copytree(PACKAGES, self.root / "packages")
        options = ["--mount", "--pid", "--fork", "--kill-child"]
        self._holder = subprocess.Popen(
            ["unshare", *options, "bash", "-euc", INIT, self.root],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout.readline() == "ready\n"
        children = pathlib.Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        (init,) = children.read_text().split()
        self._init = int(init)
        self._enter = ["nsenter", "--target", init, "--mount", "--pid", "--root", "--wd", "--"]
        return self

    def __exit__(self, *_):
        os.kill(self._init, signal.SIGKILL)
        self._holder.wait(GUARD_SECONDS)
        self._holder.stdout.close()
        saved_logs.save(self.root, *LOGS)
        subprocess.run(["rm", "-rf", "--one-file-system", self.root], check=True)

    def run(self, *command, check=True):
        """Runs a command there; its result, with both outputs as text."""
        done = subprocess.run(
            [*self._enter, *command],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=5 * GUARD_SECONDS,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}"
        return done

    def start(self, *command, log):
        """Starts a command there that ends with the Debian, with its output in a file."""
        with open(self.root / log.lstrip("/"), "wb") as output:
            return subprocess.Popen(
                [*self._enter, *command],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def apt(self, *arguments):
        """apt-get without questions: what it prints."""
        return self.run("apt-get", "--yes", "--no-install-recommends", *arguments).stdout

    def install(self, build, *names, options=()):
        files = (f"/packages/{build}/{package_file(build, name).name}" for name in names)
        return self.apt("install", *options, *files)

    def path(self, name):
        """The path on this machine of a file there."""
        return self.root / name.lstrip("/")

    def read(self, name):
        return self.path(name).read_text()

    def write(self, name, text):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def files(self):
        """All files and folders there but those that apt, dpkg, and servers write."""
        listed = self.run("find", "/", "-xdev", "-printf", "%p %y\\n").stdout.splitlines()
        kept_by_others = re.compile(r"/(var/lib/(dpkg|apt|nginx)|var/cache/(apt|debconf)|var/log/(apt|dpkg|nginx)|run|tmp|packages)\b")
        return {line for line in listed if not kept_by_others.match(line)}

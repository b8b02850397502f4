"""Description of the machine and the versions of a measurement."""

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

from stack import BROTLI_MODULE, MODULE, NGINX, OHA, REPLAY_NODE, ROOT

PACKAGES = ["nginx", "libnginx-mod-http-brotli-filter", "wrk", "zlib1g", "libisal2", "libzstd1"]
VARIABLES = ["SSZIP_NGINX", "SSZIP_MODULE", "SSZIP_REPLAY_NODE"]


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return ""
    return (done.stdout + done.stderr).strip()


def commit(folder=ROOT):
    """Returns the commit of the repository that contains a folder, or "" without one."""
    found = output("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD")
    return found if re.fullmatch("[0-9a-f]{12}", found) else ""


def cpu_model():
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    return found.group(1) if found else platform.machine()


def locked_version(crate, lock=ROOT / "Cargo.lock"):
    text = lock.read_text() if lock.exists() else ""
    found = re.search(rf'name = "{crate}"\nversion = "([^"]+)"', text)
    return found.group(1) if found else "unknown"


def package(name):
    return output("dpkg-query", "-W", "-f=${Version}", name) or "not installed"


def web_versions():
    return {
        "nginx": output(NGINX, "-v").removeprefix("nginx version: "),
        "libdeflate-sys": locked_version("libdeflate-sys"),
        "oha": output(OHA, "--version").removeprefix("oha ") or "not installed",
        **{name: package(name) for name in PACKAGES},
    }


def describe(argv, versions=None):
    found = commit()
    dirty = found and output("git", "status", "--porcelain", "--untracked-files=no")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(
            [f"{v}={os.environ[v]}" for v in VARIABLES if v in os.environ]
            + ["loadtest/bench/run", *argv]
        ),
        "commit": found + (" with local changes" if dirty else ""),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "versions": (versions or web_versions)(),
    }


def missing_tools(suites):
    """Returns a line for each missing prerequisite of the suites, with the command that
    installs it."""
    absent = []
    web = suites - {"ssz"}
    for path, remedy, needed in (
        (Path(NGINX), "apt-get install nginx", web),
        (BROTLI_MODULE, "apt-get install libnginx-mod-http-brotli-filter", {"nginx"}),
        (MODULE, "make build", web),
        (MODULE.parent / "libsszip_owner.so", "make build", {"store"}),
        (REPLAY_NODE, "make build", web),
    ):
        if not suites.isdisjoint(needed) and not path.exists():
            absent.append(f"{path} is missing; run {remedy}")
    for tool, remedy, needed in (
        ("wrk", "apt-get install wrk", web),
        ("taskset", "apt-get install util-linux", suites),
        ("perf", "apt-get install linux-perf", web),
        ("cargo", "scripts/setup bench", suites),
    ):
        if needed and not output("sh", "-c", f"command -v {tool}"):
            absent.append(f"{tool} is missing; run {remedy}")
    if os.cpu_count() < 2:
        absent.append("the machine has one core, two are required: one for the worker, one for the load")
    return absent

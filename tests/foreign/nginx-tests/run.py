#!/usr/bin/env python3
"""nginx's own tests, on stock nginx and with sszip in every http block.

    run.py --suite FOLDER --module MODULE [--nginx NGINX] [FILE.t ...]

FOLDER is a clone of nginx-tests (https://github.com/nginx/nginx-tests) of about
the age of NGINX. Each file runs on stock nginx and in each of MODES. A test with
another outcome than on stock nginx is a difference; it is printed, and the status
is 1, if explained.toml has no reason for it. A difference that is gone when the
file is run again is printed only, as unsteady. An effect that nginx's own gzip has
on a test is no difference either: a compressed response has no ranges.
"""

import argparse
import functools
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPLAINED = HERE / "explained.toml"

SSZIP = "sszip on; sszip_types *; sszip_min_length 1;"


@dataclass(frozen=True)
class Mode:
    """Additions to every http block, and whether the client accepts gzip."""

    name: str
    http: str
    gzip: bool = False


GZIP = "gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; gzip_http_version 1.0;"
STOCK = [Mode("stock", ""), Mode("gzip on", GZIP)]
STOCK_GZIP = [Mode("stock, gzip", "", gzip=True), Mode("gzip on, gzip", GZIP, gzip=True)]
# Each mode with those whose outcomes it may have, stock nginx first.
MODES = {
    "on": (STOCK, Mode("on", SSZIP)),
    "cache": (STOCK, Mode("cache", SSZIP + " sszip_cache on;")),
    "gzip": (STOCK_GZIP, Mode("gzip", SSZIP, gzip=True)),
    "cache-gzip": (STOCK_GZIP, Mode("cache-gzip", SSZIP + " sszip_cache on;", gzip=True)),
}

# A file that takes longer hangs; the suite's own waits end after a minute.
TIMEOUT = 300
# A file may end before its first test: FCGI's ports stay in use for a minute ("Port limit exceeded").
ATTEMPTS = 3

PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*skip\b\s*(.*))?", re.I)
TEST = re.compile(r"^(not )?ok\b(?: (\d+))?(?: -)?\s*(.*)$")
DIRECTIVE = re.compile(r"\s#\s*(todo|skip)\b.*$", re.I)


@dataclass(frozen=True)
class Outcome:
    """One test of a file: its name and its result."""

    name: str
    state: str


def outcomes(tap):
    """The outcomes in TAP, by number. A planned test that is absent is missing.

    A test marked TODO may have either result; it is "todo".
    """
    found = {}
    planned = 0
    for line in tap.splitlines():
        if plan := PLAN.match(line):
            planned = int(plan[1])
            if plan[2] is not None:
                return {0: Outcome(plan[2], "skip")}
            continue
        if not (test := TEST.match(line)):
            continue
        number = int(test[2] or len(found) + 1)
        state = "not ok" if test[1] else "ok"
        name = test[3]
        # without a name the directive follows the number
        if directive := DIRECTIVE.search(" " + name):
            state = directive[1].lower()
            name = (" " + name)[: directive.start()].strip()
        found[number] = Outcome(name, state)
    for number in range(1, planned + 1):
        found.setdefault(number, Outcome("", "missing"))
    return found


def differences(references, got):
    """The tests whose outcome differs from every reference: {number: (name, before, now)}.

    A missing test in any reference but the first one, stock nginx, proves nothing: the
    file may set the same directives as the mode, and not start.
    """
    missing = Outcome("", "missing")
    different = {}
    for number in sorted(references[0].keys() | got.keys()):
        now = got.get(number, missing)
        before = [reference.get(number, missing) for reference in references]
        states = {before[0].state} | {other.state for other in before[1:]} - {"missing"}
        if now.state not in states and not {now.state, before[0].state} & {"todo"}:
            different[number] = (before[0].name or now.name, before[0].state, now.state)
    return different


class Explanations:
    """explained.toml: the expected differences, and their reasons."""

    def __init__(self, path):
        self.entries = tomllib.loads(path.read_text())["explained"]
        for entry in self.entries:
            if unknown := set(entry["modes"]) - MODES.keys():
                raise SystemExit(f"{path}: no mode {', '.join(sorted(unknown))}")

    def why(self, file, mode, name):
        """The reason why this difference does not matter, or None."""
        for entry in self.entries:
            if entry["file"] == file and mode in entry["modes"] and re.fullmatch(entry["test"], name):
                return entry["why"]
        return None


class Suite:
    """The suite's folder, and the way to run its files."""

    def __init__(self, folder, nginx, module, scratch):
        self.folder = folder
        self.nginx = nginx
        self.module = module
        self.scratch = scratch

    def wrapper(self):
        """An nginx without the modules of other packages, for the suite.

        The suite would load them all from nginx's folder, and nginx would not start.
        """
        path = self.scratch / "nginx"
        nginx = shlex.quote(str(self.nginx))
        path.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = -V ] || exec {nginx} "$@"\n'
            f"{nginx} -V 2>&1 | sed 's/ --with-[a-z0-9_]*=dynamic//g' >&2\n"
        )
        path.chmod(0o755)
        return path

    def check(self):
        """Ends the run if nginx doesn't start with the module: no test would report it."""
        configuration = self.scratch / "nginx.conf"
        configuration.write_text(
            f"load_module {self.module};\nerror_log stderr;\nevents {{}}\nhttp {{ {MODES['cache'][1].http} }}\n"
        )
        command = [self.nginx, "-t", "-p", self.scratch, "-c", configuration]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{self.nginx} does not start with {self.module}:\n{done.stderr}")

    def environment(self, mode):
        """The suite's settings for a mode."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TEST_NGINX", "PERL5"))}
        # by default the workers of root run as a user who may not read the suite's folders
        user = f"user {pwd.getpwuid(0).pw_name};\n" if os.geteuid() == 0 else ""
        load = f"load_module {self.module};\n" if "sszip" in mode.http else ""
        settings = {
            **inherited,
            "LC_ALL": "C",
            "TMPDIR": str(self.scratch),
            "TEST_NGINX_BINARY": str(self.scratch / "nginx"),
            "TEST_NGINX_GLOBALS": user + load,
            "TEST_NGINX_GLOBALS_HTTP": f"{mode.http}\n",
        }
        if mode.gzip:
            settings["PERL5OPT"] = f"-I{HERE / 'lib'} -I{self.folder / 'lib'} -MTakesGzip"
        return settings

    def run(self, file, mode):
        """The outcomes of a file in a mode; of several attempts if it ended before its first test."""
        for _ in range(ATTEMPTS):
            tap, has_ended = self.attempt(file, mode)
            found = outcomes(tap)
            if not has_ended or any(outcome.state != "missing" for outcome in found.values()):
                break
        return found

    def attempt(self, file, mode):
        """The TAP of a file in a mode, and whether it ended by itself."""
        process = subprocess.Popen(
            ["perl", file],
            cwd=self.folder,
            env=self.environment(mode),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # nginx and the suite's daemons end with it
            start_new_session=True,
        )
        has_ended = True
        try:
            tap, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            has_ended = False
            os.killpg(process.pid, signal.SIGKILL)
            tap, _ = process.communicate()
        return tap.decode(errors="replace"), has_ended

    def compare(self, file, names):
        """Runs a file in the modes named: its outcomes on stock nginx, its differences.

        Each is (mode, name, before, now, whether it was repeated).
        """
        run = functools.cache(lambda mode: self.run(file, mode))
        found = []
        for name in names:
            references, mode = MODES[name]
            got = self.run(file, mode)
            if not differences([run(references[0])], got):
                continue
            first = differences([run(reference) for reference in references], got)
            if first:
                again = differences([self.run(file, reference) for reference in references], self.run(file, mode))
                found += [(name, *difference, number in again) for number, difference in first.items()]
        return run(MODES[names[0]][0][0]), found


def arguments():
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", type=Path, required=True, help="the folder of nginx-tests")
    parser.add_argument("--nginx", type=Path, default=Path("/usr/sbin/nginx"))
    parser.add_argument("--module", type=Path, required=True, help="ngx_http_sszip_module.so, for that nginx")
    parser.add_argument("--explained", type=Path, default=EXPLAINED, help="the list of what is meant")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this; may be given again")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time (2)")
    parser.add_argument("--all", action="store_true", help="print what is explained, too")
    parser.add_argument("files", nargs="*", metavar="FILE.t", help="all, without any")
    options = parser.parse_args()
    if not (options.suite / "lib/Test/Nginx.pm").is_file():
        parser.error(f"no lib/Test/Nginx.pm in {options.suite}: it is no clone of https://github.com/nginx/nginx-tests")
    for path in (options.nginx, options.module):
        if not path.is_file():
            parser.error(f"no {path}")
    return options


def main():
    """Runs the suite, prints the differences, and returns the status."""
    options = arguments()
    names = options.mode or list(MODES)
    explanations = Explanations(options.explained)
    files = [Path(file).name for file in options.files] or sorted(path.name for path in options.suite.glob("*.t"))
    counts = dict.fromkeys(("files", "skipped", "tests", "explained", "unsteady", "unexplained"), 0)
    with tempfile.TemporaryDirectory(prefix="nginx-tests-") as scratch, ThreadPoolExecutor(options.jobs) as pool:
        suite = Suite(options.suite.resolve(), options.nginx.resolve(), options.module.resolve(), Path(scratch))
        suite.check()
        suite.wrapper()
        results = pool.map(lambda file: suite.compare(file, names), files)
        for file, (stock, found) in zip(files, results, strict=True):
            counts["files"] += 1
            if 0 in stock or not stock:
                counts["skipped"] += 1
            else:
                counts["tests"] += len(stock)
            for mode, name, was, now, steady in found:
                kind, remark = "unexplained", None
                if not steady:
                    kind, remark = "unsteady", "not so when it was run again"
                elif remark := explanations.why(file, mode, name):
                    kind = "explained"
                counts[kind] += 1
                if kind != "explained" or options.all:
                    line = f"{file}, {mode}: {name or 'no name'}: {was}, now {now}"
                    print(f"{line} ({remark})" if remark else line, flush=True)
    print(", ".join(f"{count} {label}" for label, count in counts.items()))
    if counts["files"] == counts["skipped"]:
        sys.exit("nothing has run")
    sys.exit(counts["unexplained"] > 0)


if __name__ == "__main__":
    main()

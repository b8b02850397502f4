"""The processes of nginx, by its masters' log lines.

/proc is avoided: reading a process there makes the kernel remember it, and a parent that reaps
such a process may spin for seconds."""

import contextlib
import os
import pathlib
import re
import select
import signal
import time

from harness.guards import GUARD_SECONDS

_LINE = re.compile(
    rb"\[\w+\] (?P<writer>\d+)#\d+: (?:"
    rb"start (?P<started>[a-z ]+) process (?P<new>\d+)"
    rb"|[a-z ]+ process (?P<ended>\d+) exited"
    rb"|(?P<leaves>gracefully shutting down))"
)


class Processes:
    """The children of each master that writes to an error log."""

    def __init__(self, log):
        self._log = log
        self._read = 0
        self._rest = b""
        self._children = {}
        self._leaving = set()

    def children_of(self, master, name, *, leaving=False):
        """Children with that name of a master, oldest first."""
        self._look()
        children = self._children.get(master, {})
        return [
            pid
            for pid, called in children.items()
            if called == name and (leaving or pid not in self._leaving)
        ]

    def _look(self):
        try:
            with open(self._log, "rb") as log:
                log.seek(self._read)
                new = log.read()
        except FileNotFoundError:
            return
        self._read += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in filter(None, map(_LINE.search, lines)):
            writer = int(line["writer"])
            children = self._children.setdefault(writer, {})
            if line["leaves"]:
                self._leaving.add(writer)
            elif line["ended"]:
                children.pop(int(line["ended"]), None)
            else:
                pid = int(line["new"])
                children[pid] = line["started"].decode()
                self._leaving.discard(pid)


def runs(pid):
    """Whether a process has not ended, reaped by its parent or not."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        ended, _, _ = select.select([process], [], [], 0)
        return not ended
    finally:
        os.close(process)


_CRASHES = {signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV}


def assert_not_crashed(name, returncode):
    """Checks that a process that has ended did not crash at its end."""
    assert -returncode not in _CRASHES, f"{name} ended with {returncode}"


def stop(pid):
    """Stops a process until it gets SIGCONT; returns when none of its threads runs.

    The kernel only records SIGSTOP: threads continue until the one that handles it is
    scheduled, which on a busy machine is after the next response."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + GUARD_SECONDS
    while not all(map(_is_stopped, pathlib.Path(f"/proc/{pid}/task").iterdir())):
        assert time.monotonic() < deadline, f"{pid} does not stop"
        time.sleep(0.001)


def kill_all(nginx):
    """Kills all processes of an nginx, as a crash of the machine does, except for unsynced writes."""
    master = nginx.master
    # so that the master starts no other process meanwhile
    stop(master)
    children = pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()
    victims = [master, *map(int, children)]
    for victim in filter(runs, victims):
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    nginx.process.wait(GUARD_SECONDS)
    nginx.wait_for(lambda: not any(map(runs, victims)), "all to be gone")
    (nginx.prefix / "nginx.pid").unlink()


def _is_stopped(thread):
    try:
        # the name may have blanks and parentheses
        return (thread / "stat").read_text().rpartition(") ")[2][0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True

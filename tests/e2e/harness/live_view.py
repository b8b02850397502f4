"""The command line, and its live view on a terminal of 80 columns."""

import os
import pty
import select
import subprocess
import termios
import time

from harness.guards import GUARD_SECONDS

SSZIP = os.environ.get("SSZIP_COMMAND", "build/bin/sszip")
ENTER, LEAVE, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def run_sszip(*arguments, **options):
    return subprocess.run(
        [SSZIP, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GUARD_SECONDS, **options
    )


class LiveView:
    """A command on a terminal of its own."""

    def __init__(self, *arguments):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, 80))
        self.before = termios.tcgetattr(self.slave)
        self.output = b""
        self.process = subprocess.Popen(
            # the tests may run under nohup, or in the background: a command inherits ignored signals
            ["env", "--default-signal=HUP,INT", SSZIP, *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def read(self, seconds):
        """Reads what the command has written; returns whether there was anything."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        self.output += os.read(self.master, 65_536)
        return True

    def wait_for(self, word, since=0):
        """Waits for a word without spaces in the output from a position on: cells that do not change are not
        written again."""
        deadline = time.monotonic() + GUARD_SECONDS
        while word.encode() not in self.output[since:]:
            self.read(0.1)
            assert time.monotonic() < deadline, (word, self.output)

    def press(self, keys):
        os.write(self.master, keys)

    def end(self):
        """The exit code, once the command has ended, and the terminal is as before."""
        deadline = time.monotonic() + GUARD_SECONDS
        while self.process.poll() is None:
            self.read(0.05)
            assert time.monotonic() < deadline, self.output
        while self.read(0):
            pass
        assert termios.tcgetattr(self.slave) == self.before
        if ENTER in self.output:
            last = self.output.rindex(ENTER)
            assert LEAVE in self.output[last:] and SHOW_CURSOR in self.output[last:], self.output
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

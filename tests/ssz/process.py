"""A process that answers questions: a line of JSON and bytes, both ways."""

import json
import subprocess


class Refused(Exception):
    """What it says instead of an answer."""


class Process:
    def __init__(self, arguments, **options):
        self.pipes = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )

    def ask(self, op, data=b"", **about):
        """The answer's bytes."""
        head = {"op": op, "length": len(data), **about}
        self.pipes.stdin.write(json.dumps(head).encode() + b"\n" + data)
        self.pipes.stdin.flush()
        line = self.pipes.stdout.readline()
        assert line, f"it ended, asked for {head}"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return self.pipes.stdout.read(answer["length"])

    def stop(self):
        """At the end of its input it ends."""
        self.pipes.stdin.close()
        self.pipes.stdout.close()
        assert self.pipes.wait(timeout=30) == 0

"""A process with requests and responses: a line of JSON and bytes, in both directions."""

import json
import subprocess


class ProcessError(Exception):
    """An error that the process returns instead of a response."""


class Process:
    def __init__(self, arguments, **options):
        self.pipes = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )

    def request(self, op, data=b"", **about):
        """The response's bytes."""
        head = {"op": op, "length": len(data), **about}
        self.pipes.stdin.write(json.dumps(head).encode() + b"\n" + data)
        self.pipes.stdin.flush()
        line = self.pipes.stdout.readline()
        assert line, f"it ended, asked for {head}"
        answer = json.loads(line)
        if "error" in answer:
            raise ProcessError(answer["error"])
        return self.pipes.stdout.read(answer["length"])

    def stop(self):
        """Closes the process's input, at whose end it exits."""
        self.pipes.stdin.close()
        self.pipes.stdout.close()
        assert self.pipes.wait(timeout=30) == 0

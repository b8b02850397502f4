"""A client of the Redis protocol, which shares no code with sszip."""

import socket

from harness.guards import GUARD_SECONDS


class ErrorReply(Exception):
    """An error of the server, such as `WRONGPASS`."""


class RespClient:
    """A connection that speaks RESP2."""

    def __init__(self, port, timeout=GUARD_SECONDS):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()
        self._socket.close()

    def execute(self, *words):
        """Sends a command, and returns its reply."""
        self._socket.sendall(self._encode(words))
        return self._reply()

    def execute_pipeline(self, commands):
        """Sends commands at once, and returns their replies; those with an error are None."""
        self._socket.sendall(b"".join(map(self._encode, commands)))
        replies = []
        for _ in commands:
            try:
                replies.append(self._reply())
            except ErrorReply:
                replies.append(None)
        return replies

    @staticmethod
    def _encode(words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        return b"*%d\r\n%b" % (len(words), b"".join(parts))

    def _reply(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the connection ended in a reply: {line!r}")
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise ErrorReply(text.decode())
        if kind == b"+":
            return text.decode()
        number = int(text)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"$":
            return self._file.read(number + 2)[:-2]
        assert kind == b"*", line
        return [self._reply() for _ in range(number)]

"""A node that speaks SCGI, the simplest of nginx's other upstreams."""

import socket
import threading


class ScgiNode:
    """Sends one body for every request; records the requests' variables."""

    def __init__(self, body):
        self.body = body
        self.requests = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                self.requests.append(_variables(stream))
                connection.sendall(
                    b"Status: 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(self.body), self.body)
                )


def _variables(stream):
    """The variables of a netstring of names and values, each ended by a zero byte."""
    length = b""
    while (digit := stream.read(1)) != b":":
        length += digit
    words = stream.read(int(length)).decode().split("\0")[:-1]
    return dict(zip(words[::2], words[1::2], strict=True))

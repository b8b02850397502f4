"""A body that is read while it arrives, decoded as far as possible."""

from .client import Malformed, Truncated, request_bytes, stream_decoder


class StreamReader:
    """One response on a connection, whose body is decoded as it arrives. Chunks are read as
    strictly as by the client; a length is honoured too."""

    def __init__(self, connection, response):
        self.connection = connection
        self.head = response
        self.body = bytearray()
        self.coded = 0
        self.trailers = []
        self.ended = False
        self._decoder = stream_decoder(response.coding)
        self._left = response.length
        self.chunked = response.header("Transfer-Encoding") == "chunked"

    def more(self):
        """The next piece; False at the end."""
        if self.ended:
            return False
        piece = self._chunk() if self.chunked else self._bytes()
        if not piece:
            self.ended = True
            if self._decoder and not self._decoder.eof:
                raise Truncated(f"the coding has no end after {self.coded} bytes")
            return False
        self.coded += len(piece)
        if self._decoder:
            if self._decoder.eof:
                raise Malformed("bytes after the end of the coding")
            piece = self._decoder.decompress(piece)
            if self._decoder.unused_data:
                raise Malformed("bytes after the end of the coding")
        self.body += piece
        return True

    def until(self, length):
        """Reads until `length` bytes are decoded: for bytes that the node has sent this must
        end while the node pauses."""
        while len(self.body) < length:
            if not self.more():
                raise Truncated(f"{len(self.body)} of {length} bytes decoded")
        return bytes(self.body[:length])

    def finish(self):
        while self.more():
            pass
        return bytes(self.body)

    def _chunk(self):
        size = int(self.connection._line().split(";")[0], 16)
        if size == 0:
            while line := self.connection._line():
                self.trailers.append(line)
            return b""
        piece = self.connection.take(size)
        if self.connection.take(2) != b"\r\n":
            raise Malformed("a chunk without CRLF")
        return piece

    def _bytes(self):
        connection = self.connection
        if self._left == 0 or (not connection.buffer and not connection._more()):
            if self._left:
                raise Truncated(f"{self._left} bytes are missing")
            return b""
        piece = connection.take(min(len(connection.buffer), self._left or len(connection.buffer)))
        if self._left is not None:
            self._left -= len(piece)
        return piece


def open_stream(connection, target, accept="gzip", **request):
    """Sends a request, and returns when the head has arrived."""
    headers = [("Accept-Encoding", accept)] if accept else []
    connection.send(request_bytes(target, headers=headers, **request))
    return StreamReader(connection, connection.read_head())

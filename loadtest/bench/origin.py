"""A node that streams: answers larger, or later, than a recorded one can be.

Runs as a process of its own, on the core of the load, with one argument: the
file whose bytes it repeats. It prints its port. The query says what to send:

    /paused?first=N&pause=SECONDS&bytes=N   one chunk, a pause, then the rest
    /large?bytes=N                          without a pause

Chunks are 16 KiB. It writes no faster than the proxy reads.
"""

import asyncio
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PIECE = 16 << 10
# What may wait in this process for one connection.
HIGH_WATER = 64 << 10
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def chunk(content):
    return b"%x\r\n%b\r\n" % (len(content), content)


class Origin:
    def __init__(self, pool):
        # The start again after the end: a piece may cross it.
        self.length = len(pool)
        self.pool = pool + pool[:PIECE]

    def pieces(self, start, end):
        while start < end:
            size = min(PIECE, end - start)
            at = start % self.length
            yield chunk(self.pool[at : at + size])
            start += size

    async def serve(self, reader, writer):
        writer.transport.set_write_buffer_limits(high=HIGH_WATER)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self.answer(head.split(b" ", 2)[1].decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, target, writer):
        query = {k: v[0] for k, v in parse_qs(urlsplit(target).query).items()}
        total, first = int(query["bytes"]), int(query.get("first", 0))
        writer.write(HEAD + b"".join(self.pieces(0, first)))
        await writer.drain()
        if first:
            await asyncio.sleep(float(query["pause"]))
        for piece in self.pieces(first, total):
            writer.write(piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def main():
    origin = Origin(Path(sys.argv[1]).read_bytes())
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

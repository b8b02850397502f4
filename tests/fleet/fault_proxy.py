"""A TCP proxy in front of a server, with faults that a test chooses while connections are open."""

import asyncio
import contextlib
import dataclasses
import socket
import struct
import threading

from harness.guards import GUARD_SECONDS
from harness.nginx import free_port

_PIECE = 65536


@dataclasses.dataclass(frozen=True)
class Fault:
    """A change of the replies that the proxy forwards; the default changes nothing."""

    # seconds before each piece of a reply
    delay: float = 0.0
    # number of bytes of replies on each connection after which no more are sent
    stall_after: int | None = None
    # bytes that replace the reply to each piece of requests, which is not forwarded
    reply: bytes | None = None
    # of this number of bytes the last one is inverted
    flip_distance: int = 0
    # a connection ends as soon as it was accepted: by an orderly end, or by a reset
    ends: str | None = None


NO_FAULT = Fault()


class _Link:
    """One connection of a client, and its connection to the server."""

    def __init__(self, reader, writer, fault):
        self.reader, self.writer = reader, writer
        self.server_writer = None
        self.room = fault.stall_after
        self.is_stalled = False
        # number of bytes of replies, and the time of the last one
        self.sent, self.due = 0, 0.0

    def apply(self, fault):
        if not self.is_stalled:
            self.room = fault.stall_after

    def end(self, with_reset):
        for writer in filter(None, (self.writer, self.server_writer)):
            if with_reset and writer is self.writer:
                # close() sends a reset instead of an orderly end
                linger = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if with_reset:
                writer.transport.abort()
            else:
                writer.close()


class FaultProxy:
    """Forwards connections to a port of this machine. Its event loop runs in a thread of its own.

    A connection that was stalled, or received other replies than the server's, stays so when the
    fault ends, as it would in a network that has lost its bytes: clients must connect again."""

    def __init__(self, server_port):
        self.port = free_port()
        self.connections = 0
        self._server_port = server_port
        self._fault = NO_FAULT
        self._links = set()
        self._listener = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._listen())

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def open_connections(self):
        """Number of connections that clients have not closed."""
        return len(self._links)

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD_SECONDS)

    # faults

    def forward(self):
        """Ends the fault, and accepts connections."""
        self._call(self._set_fault(NO_FAULT))
        self._call(self._listen())

    def delay(self, seconds):
        """Delays all replies."""
        self._call(self._set_fault(Fault(delay=seconds)))

    def stall(self, after=0):
        """Sends no more than `after` bytes of replies on each connection, which stays open."""
        self._call(self._set_fault(Fault(stall_after=after)))

    def replace_replies(self, reply):
        """Sends these bytes in place of replies."""
        self._call(self._set_fault(Fault(reply=reply)))

    def flip(self, distance):
        """Inverts one byte of replies in each `distance` bytes."""
        self._call(self._set_fault(Fault(flip_distance=distance)))

    def drop(self):
        """Ends all connections in order, and new ones as soon as they are accepted."""
        self._call(self._end_links(Fault(ends="close"), with_reset=False))

    def reset(self):
        """Resets all connections, and new ones as soon as they are accepted."""
        self._call(self._end_links(Fault(ends="reset"), with_reset=True))

    def refuse(self):
        """Resets all connections, and refuses new ones."""
        self._call(self._stop_listening())
        self._call(self._end_links(NO_FAULT, with_reset=True))

    def close(self):
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GUARD_SECONDS)
        assert not self._thread.is_alive()
        self._loop.close()

    # in the thread of the loop

    async def _listen(self):
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _stop_listening(self):
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _set_fault(self, fault):
        self._fault = fault
        for link in self._links:
            link.apply(fault)

    async def _end_links(self, fault, with_reset):
        await self._set_fault(fault)
        for link in list(self._links):
            link.end(with_reset)

    async def _serve(self, reader, writer):
        self.connections += 1
        link = _Link(reader, writer, self._fault)
        if self._fault.ends:
            link.end(with_reset=self._fault.ends == "reset")
            return
        self._links.add(link)
        try:
            server_reader, link.server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            pumps = [
                asyncio.ensure_future(self._pump_requests(link)),
                asyncio.ensure_future(self._pump_replies(link, server_reader)),
            ]
            _, open_pumps = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in open_pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            link.end(with_reset=True)
        finally:
            self._links.discard(link)
            link.end(with_reset=False)

    async def _pump_requests(self, link):
        while data := await link.reader.read(_PIECE):
            if self._fault.reply is not None:
                link.is_stalled = True
                link.writer.write(self._fault.reply)
                await link.writer.drain()
            elif not link.is_stalled:
                link.server_writer.write(data)
                await link.server_writer.drain()

    async def _pump_replies(self, link, server_reader):
        while data := await server_reader.read(_PIECE):
            if link.is_stalled:
                continue
            fault = self._fault
            if link.room is not None:
                data = data[: link.room]
                link.room -= len(data)
                link.is_stalled = link.room == 0
            if fault.flip_distance:
                data = bytearray(data)
                first = (-1 - link.sent) % fault.flip_distance
                for at in range(first, len(data), fault.flip_distance):
                    data[at] ^= 0xFF
            link.sent += len(data)
            now = self._loop.time()
            link.due = max(now + fault.delay, link.due)
            if link.due > now:
                # of the same time, callbacks run in any order
                link.due += 1e-6
                self._loop.call_at(link.due, self._write_later, link, bytes(data))
            elif data:
                link.writer.write(data)
                await link.writer.drain()

    @staticmethod
    def _write_later(link, data):
        if not link.writer.is_closing():
            link.writer.write(data)

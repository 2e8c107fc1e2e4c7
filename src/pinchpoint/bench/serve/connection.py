"""A connection that knows when bytes came to this machine, and what its own process took.

A load generator that waits for a CPU reads late. Linux notes when bytes arrive (``SO_TIMESTAMPNS``,
socket(7)): what is read late is not timed late. Elsewhere, and under TLS, the time is that of the
reading.
"""

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import Any, Protocol

from pinchpoint.frozen import dataclass
from pinchpoint.inside.quiet import queue_clock

Address = tuple[socket.AddressFamily, socket.SocketKind, int, Any]  # as socket(2) and connect(2)
READ_BYTES = 64 << 10  # one read of a socket seldom has more
STAMPED = sys.platform == "linux"
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; its message carries two longs, seconds and nanoseconds
_STAMP = struct.Struct("qq")
_LATEST_NS = 60_000_000_000  # a stamp further off is of a clock that was set


@dataclass(frozen=True)
class Bytes:
    """What one read gave; empty at the end."""

    data: bytes
    arrived_ns: int  # monotonic clock; of the last of them, where several came before the read


class Connection(Protocol):
    """One request's way to the server."""

    async def send(self, data: bytes) -> None:
        """All of it."""

    async def read(self) -> Bytes:
        """What is there, once something is."""

    def close(self) -> None:
        """At once."""


async def addresses(host: str, port: int) -> tuple[Address, ...]:
    """Of a host, to be asked once: it takes a thread, and so a wait for a CPU. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple((family, kind, protocol, place) for family, kind, protocol, _, place in found)


async def connect(known: Sequence[Address]) -> Connection:
    """To the first of these addresses that takes it. Raises OSError where none does."""
    loop = asyncio.get_running_loop()
    problem: OSError = OSError("no address")
    for family, kind, protocol, place in known:
        one = stamping(socket.socket(family, kind, protocol))
        try:
            await loop.sock_connect(one, place)
        except OSError as error:
            problem = error
            one.close()
        except BaseException:
            one.close()
            raise
        else:
            return Stamped(one)
    raise problem


async def connect_safely(host: str, port: int) -> Connection:
    """The same under TLS."""
    context = ssl.create_default_context()
    return _Stream(*await asyncio.open_connection(host, port, ssl=context))


def stamping(one: socket.socket) -> socket.socket:
    """It, not blocking, with ``SO_TIMESTAMPNS``; what it accepts has that too."""
    one.setblocking(False)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if STAMPED:  # else the time of reading is all there is
        one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return one


@dataclass(frozen=True)
class Stamped:
    """A plain socket that is ``stamping``."""

    socket: socket.socket

    async def send(self, data: bytes) -> None:
        """All of it."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self) -> Bytes:
        """What is there, once something is."""
        while True:
            try:
                data, notes, _, _ = self.socket.recvmsg(READ_BYTES, socket.CMSG_SPACE(_STAMP.size))
            except BlockingIOError:
                await _readable(self.socket)
                continue
            return Bytes(data, _arrival_ns(notes))

    def close(self) -> None:
        """At once."""
        self.socket.close()


@dataclass(frozen=True)
class _Stream:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> Bytes:
        return Bytes(await self.reader.read(READ_BYTES), perf_counter_ns())

    def close(self) -> None:
        self.writer.transport.abort()


async def _readable(one: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    loop.add_reader(one, _done, waiting)
    try:
        await waiting
    finally:
        loop.remove_reader(one)


def _done(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _arrival_ns(notes: list[tuple[int, int, bytes]]) -> int:
    """On the monotonic clock: now, less what has passed since the kernel's stamp."""
    now_ns, wall_ns = perf_counter_ns(), time_ns()
    for level, kind, content in notes:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, rest_ns = _STAMP.unpack(content[: _STAMP.size])
            age_ns = wall_ns - seconds * 1_000_000_000 - rest_ns
            return now_ns - age_ns if 0 <= age_ns < _LATEST_NS else now_ns
    return now_ns


def own_time() -> Callable[[], int]:
    """Nanoseconds so far in which this thread was at work, for whichever request, or waited for a
    CPU to be (the latter only where the system tells): all but waiting for others."""
    waited = queue_clock()
    return lambda: thread_time_ns() + (waited() or 0)

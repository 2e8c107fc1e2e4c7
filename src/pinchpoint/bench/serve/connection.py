"""A connection that knows when bytes came to this machine, and what its own process took.

A load generator that waits for a CPU sends and reads late. Linux notes when bytes leave
(``SO_TIMESTAMPING``) and arrive (``SO_TIMESTAMPNS``, socket(7)): what is read late is not timed
late. Elsewhere, and under TLS, the time is that of the call.
"""

import asyncio
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter_ns, thread_time_ns, time_ns
from typing import Any, Protocol

from pinchpoint.frozen import dataclass
from pinchpoint.inside.quiet import queue_clock

Address = tuple[socket.AddressFamily, socket.SocketKind, int, Any]  # as socket(2) and connect(2)
READ_BYTES = 64 << 10  # one read of a socket seldom has more
STAMPED = sys.platform == "linux"
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; its message carries two longs, seconds and nanoseconds
_STAMP = struct.Struct("qq")
_SO_TIMESTAMPING = 37  # asm-generic/socket.h; its message begins with the same two longs
# linux/net_tstamp.h: SOF_TIMESTAMPING_TX_SOFTWARE, _SOFTWARE and _OPT_TSONLY
_WHEN_IT_LEAVES = (1 << 1) | (1 << 4) | (1 << 11)
_NOTES_BYTES = 512  # of the error queue: three times, and which of them was asked for
_LATEST_NS = 60_000_000_000  # a stamp further off is of a clock that was set


@dataclass(frozen=True)
class Bytes:
    """What one read gave; empty at the end."""

    data: bytes
    arrived_ns: int  # monotonic clock; of the last of them, where several came before the read


class Connection(Protocol):
    """One request's way to the server."""

    async def send(self, data: bytes) -> int:
        """All of it; when the last of it left this machine, or was ours no more."""

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

    async def send(self, data: bytes) -> int:
        """All of it; when the last of it left this machine, by the kernel."""
        _ask_when_it_leaves(self.socket, _WHEN_IT_LEAVES)
        await asyncio.get_running_loop().sock_sendall(self.socket, data)
        sent_ns = perf_counter_ns()
        try:
            notes = self.socket.recvmsg(1, _NOTES_BYTES, socket.MSG_ERRQUEUE)[1]
        except (OSError, AttributeError):  # none yet, or not Linux
            return sent_ns
        finally:
            _ask_when_it_leaves(self.socket, 0)
        return min(_stamp_ns(notes, _SO_TIMESTAMPING), sent_ns)

    async def read(self) -> Bytes:
        """What is there, once something is."""
        while True:
            try:
                data, notes, _, _ = self.socket.recvmsg(READ_BYTES, socket.CMSG_SPACE(_STAMP.size))
            except BlockingIOError:
                await _readable(self.socket)
                continue
            return Bytes(data, _stamp_ns(notes, _SO_TIMESTAMPNS))

    def close(self) -> None:
        """At once."""
        self.socket.close()


@dataclass(frozen=True)
class _Stream:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> int:
        self.writer.write(data)
        await self.writer.drain()
        return perf_counter_ns()

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


def _ask_when_it_leaves(one: socket.socket, flags: int) -> None:
    with suppress(OSError):  # then the call's own time is all there is
        if STAMPED:
            one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, flags)


def _stamp_ns(notes: list[tuple[int, int, bytes]], wanted: int) -> int:
    """On the monotonic clock: now, less what has passed since the kernel's stamp."""
    now_ns, wall_ns = perf_counter_ns(), time_ns()
    for level, kind, content in notes:
        if (level, kind) == (socket.SOL_SOCKET, wanted):
            seconds, rest_ns = _STAMP.unpack(content[: _STAMP.size])
            age_ns = wall_ns - seconds * 1_000_000_000 - rest_ns
            return now_ns - age_ns if 0 <= age_ns < _LATEST_NS else now_ns
    return now_ns


def own_time() -> Callable[[], int]:
    """Nanoseconds so far in which this thread was at work, for whichever request, or waited for a
    CPU to be (the latter only where the system tells): all but waiting for others."""
    waited = queue_clock()
    return lambda: thread_time_ns() + (waited() or 0)

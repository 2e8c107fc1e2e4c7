"""Writes down what a program does, call after call, with a device that works through its streams.

>>> p = Program()
>>> for _ in p.steps(6):
...     p.kernel("gemm", 1_000)
...     p.sync()
>>> trace = p.trace()

Every step runs inside ``train.py(40): step``. Times are microseconds; rows nest as the ``with``
statements do. A launch takes LAUNCH_US of the host and its work begins START_US later, or when
the stream is free.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from builders import TraceBuilder
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind, Trace

US = 1_000
LAUNCH_US, START_US = 5, 2
_EDGE_NS = 100  # between the edges of a row and of what it encloses
_JSON = ("shapes", "dtypes", "strides", "values", "collective_args")


class Program:
    """The host's clock is ``at`` (ns); ``free`` tells when each stream has done its work."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        self.at = 0
        self.free: dict[int, int] = {}
        self.thread = 0

    def trace(self, **facts: Any) -> Trace:
        """The frozen trace."""
        return self.builder.trace(**facts)

    def steps(self, count: int, gap_us: float = 0) -> Iterator[int]:
        """Marked steps, one after the other, each in a function of the program."""
        for number in range(count):
            begin = self.at
            with (
                self.row(f"ProfilerStep#{number}", kind=HostKind.ANNOTATION),
                self.frame("train.py(40): step"),
            ):
                yield number
            self.builder.add(
                "steps",
                name=f"ProfilerStep#{number}",
                number=number,
                start_ns=begin,
                duration_ns=self.at - begin,
                thread=0,
            )
            self.busy(gap_us)

    @contextmanager
    def row(self, name: str, *, kind: HostKind = HostKind.OPERATOR, **more: Any) -> Iterator[None]:
        """A host row around what happens in the ``with`` statement."""
        begin = self.at
        self.at += _EDGE_NS
        yield
        self.at += _EDGE_NS
        texts = {k: json.dumps(v) if k in _JSON else v for k, v in more.items()}
        self.builder.op(name, begin, self.at - begin, kind=kind, thread=self.thread, **texts)

    def frame(self, name: str, **more: Any) -> Any:
        """A Python function: ``with p.frame("train.py(9): log"):``."""
        return self.row(name, kind=HostKind.PYTHON, **more)

    def busy(self, us: float) -> None:
        """The host works on, or rests."""
        self.at += round(us * US)

    def host(self, name: str, us: float, *, kind: HostKind = HostKind.PYTHON, **more: Any) -> None:
        """A row that takes ``us`` and in which nothing is recorded."""
        with self.row(name, kind=kind, **more):
            self.busy(us - 2 * _EDGE_NS / US)

    def call(self, name: str, kind: ApiKind, us: float) -> None:
        """A runtime call that takes ``us``."""
        self.builder.api(name, self.at, round(us * US), kind=kind, thread=self.thread)
        self.busy(us)

    def sync(self, name: str = "cudaStreamSynchronize", kind: ApiKind = ApiKind.SYNC_STREAM) -> int:
        """Wait until all streams are done; returns the nanoseconds of the call."""
        took = max(max(self.free.values(), default=0) - self.at, 0) + US
        self.builder.api(name, self.at, took, kind=kind, thread=self.thread)
        self.at += took
        return took

    def kernel(self, name: str, us: float, *, stream: int = 7, **more: Any) -> None:
        """Launch a kernel that takes ``us``."""
        texts = {k: json.dumps(v) if k in _JSON else v for k, v in more.items()}
        self.builder.launch(
            self.at,
            LAUNCH_US * US,
            name,
            self._queue(us, stream),
            round(us * US),
            thread=self.thread,
            stream=stream,
            **texts,
        )
        self.busy(LAUNCH_US)

    def collective(self, us: float, args: dict[str, Any] | None = None, **more: Any) -> None:
        """Launch a collective that takes ``us``; ``args`` as c10d spells them."""
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        more = {"kind": DeviceKind.COLLECTIVE, "collective": "allreduce"} | more
        self.kernel(more.pop("name", name), us, collective_args=args or {}, **more)

    def copy(
        self,
        size: int | None,
        us: float,
        source: MemoryKind,
        target: MemoryKind,
        *,
        stream: int = 7,
        waits: bool = False,
    ) -> None:
        """Start a copy that takes ``us``; ``waits``: the call returns when it is done."""
        runs_at = self._queue(us, stream)
        takes = self.free[stream] - self.at if waits else LAUNCH_US * US
        self.builder.copy(
            self.at,
            takes,
            f"Memcpy {source.name.title()} -> {target.name.title()}",
            runs_at,
            round(us * US),
            size=size,
            source=source,
            target=target,
            thread=self.thread,
            stream=stream,
        )
        self.at += takes

    def read(self, name: str = "aten::item") -> int:
        """``x.item()``: a copy of four bytes and the wait for it; returns the wait's length."""
        with self.row(name), self.row("aten::_local_scalar_dense"):
            self.copy(4, 1, MemoryKind.DEVICE, MemoryKind.PINNED)
            return self.sync()

    def _queue(self, us: float, stream: int) -> int:
        begin = max(self.free.get(stream, 0), self.at + (LAUNCH_US + START_US) * US)
        self.free[stream] = begin + round(us * US)
        return begin

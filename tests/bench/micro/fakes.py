"""A device that obeys the rules of a stream, in simulated time, and backends with known times."""

from contextlib import nullcontext
from dataclasses import dataclass, field

from pinchpoint.bench.micro.backends.base import Block
from pinchpoint.bench.micro.backends.events import Device


@dataclass
class FakeGpu:
    """Host and device clocks; a call costs the host ``issue_ns`` and the device ``work_ns``."""

    issue_ns: float = 5_000.0
    work_ns: float = 2_000.0
    synchronises: bool = False
    host_ns: float = 0.0
    device_free_ns: float = 0.0
    flushes: int = 0
    cold_extra_ns: float = 0.0
    flushed: bool = False

    def call(self):
        self.host_ns += self.issue_ns
        self._run(self.work_ns + (self.cold_extra_ns if self.flushed else 0))
        self.flushed = False
        if self.synchronises:
            self.wait()

    def _run(self, ns):
        self.device_free_ns = max(self.device_free_ns, self.host_ns) + ns
        return self.device_free_ns

    def wait(self):
        self.host_ns = max(self.host_ns, self.device_free_ns)

    def happened(self, event):
        self.host_ns += 100
        return event["at"] <= self.host_ns

    def flush(self):
        self.flushes += 1
        self.flushed = True
        self.host_ns += 1_000
        self._run(10_000)

    def device(self):
        return Device(
            new_event=lambda: {},
            record=lambda e: e.update(at=self._run(0)),
            happened=self.happened,
            between_ms=lambda a, b: (b["at"] - a["at"]) / 1e6,
            spin_ns=self._run,
            flush=self.flush,
            synchronize=self.wait,
        )


@dataclass
class FakeBackend:
    """Blocks of known length; ``call_ns`` may depend on how many calls were made."""

    call_ns: object = 1_000.0
    cold_ns: float = 1_000.0
    issue_each_ns: float = 500.0
    clocks: list = field(default_factory=list)
    name: str = "fake"
    device: str = "NVIDIA H100 80GB HBM3"
    clock: str = "CUDA events"
    asynchronous: bool = True
    resolution_ns: float = 500.0
    cache_bytes: int = 1 << 20
    made: int = 0
    sustained_ns: float | None = None
    order: list = field(default_factory=list)

    def finish(self, result):
        pass

    def _one(self):
        self.made += 1
        return self.call_ns(self.made) if callable(self.call_ns) else self.call_ns

    def block(self, call, calls, *, issue_ns):
        call()
        self.order.append("block")
        each = self._one()
        return Block(each * calls, self.issue_each_ns * calls, True)

    def isolated(self, call, count, *, cold, issue_ns):
        self.order.append("cold" if cold else "hot")
        return [
            Block(self.cold_ns if cold else self._one(), self.issue_each_ns, True)
            for _ in range(count)
        ]

    def sustained(self, call, calls, *, seconds):
        for _ in range(int(100 * seconds)):
            each = self._one() if self.sustained_ns is None else self.sustained_ns
            yield Block(each * calls, self.issue_each_ns * calls, True)

    def clock_state(self):
        return self.clocks.pop(0) if self.clocks else None

    def quiet(self):
        return nullcontext()

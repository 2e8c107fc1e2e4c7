"""Ranks of one job by hand: each computes, then all meet in an all-reduce, and the host waits."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from builders import TraceBuilder
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, Trace

US = 1_000
MS = 1_000_000
BEGIN = 1_700_000_000_000_000_000  # Unix time of the first step on the first rank's clock
LAUNCH = 10 * US  # from the launching call to the kernel


@dataclass(frozen=True)
class Job:
    """What happens, on the true clock. All but ``ranks`` and ``steps`` have usual values."""

    ranks: int = 2
    steps: int = 5
    work_ms: Callable[[int, int], float] = lambda rank, step: 10.0
    kernels: Callable[[int, int], int] = lambda rank, step: 4
    stall_ms: Callable[[int, int], float] = lambda rank, step: 0.0
    stall_name: str = "Python GC"
    stall_kind: HostKind = HostKind.ANNOTATION
    transfer_ms: float = 1.0
    calls: int = 1  # all-reduces a step, one after the other, with equal shares of the work
    bytes: int = 64 << 20
    shift_ns: Callable[[int], int] = lambda rank: 0
    drift: Callable[[int], float] = lambda rank: 0.0
    group_of: Callable[[int], tuple[int, ...]] | None = None
    first_number: int = 3
    arguments: bool = True
    sequence: bool = False
    markers: bool = True
    records: Callable[[int, int], bool] = lambda rank, step: True  # steps in each one's recording
    left_out: set[tuple[int, int, int]] = field(default_factory=set)  # rank, step, call
    device: str = "NVIDIA H100 80GB HBM3"
    collective: str = "allreduce"

    def traces(self) -> list[Trace]:
        """One trace a rank."""
        builders = [TraceBuilder() for _ in range(self.ranks)]
        begin = 0
        for step in range(self.steps):
            kept = [b if self.records(r, step) else TraceBuilder() for r, b in enumerate(builders)]
            begin = self._step(kept, step, begin)
        return [
            b.trace(rank=r, world_size=self.ranks, origin_ns=BEGIN) for r, b in enumerate(builders)
        ]

    def _step(self, builders: list[TraceBuilder], step: int, begin: int) -> int:
        at = [begin + round(self.stall_ms(r, step) * MS) for r in range(self.ranks)]
        host = list(at)
        for call in range(self.calls):
            for r, b in enumerate(builders):
                work = round(self.work_ms(r, step) * MS / self.calls)
                count = max(self.kernels(r, step) // self.calls, 1)
                start = max(at[r], host[r] + LAUNCH)
                for i in range(count):
                    self._launch(b, r, host[r], start + i * work // count, work // count, "gemm")
                    host[r] += 2 * US
                at[r] = start + work
            end = max(at) + round(self.transfer_ms * MS)
            for r, b in enumerate(builders):
                if (r, step, call) in self.left_out:
                    continue
                self._launch(
                    b, r, host[r], at[r], end - at[r], "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    kind=DeviceKind.COLLECTIVE, collective=self.collective, stream=20,
                    collective_args=self._arguments(r, step * self.calls + call),
                )  # fmt: skip
                host[r] += 2 * US
            at = [end] * self.ranks
        end = at[0] + 5 * US
        for r, b in enumerate(builders):
            b.api(
                "cudaStreamSynchronize",
                self._on_clock(r, host[r]),
                self._on_clock(r, end) - self._on_clock(r, host[r]),
                kind=ApiKind.SYNC_STREAM,
            )
            first, last = self._on_clock(r, begin), self._on_clock(r, end)
            if self.stall_ms(r, step):
                b.op(
                    self.stall_name, first, round(self.stall_ms(r, step) * MS), kind=self.stall_kind
                )
            if self.markers:
                b.step(self.first_number + step, first, last - first)
        return end

    def _launch(
        self, b: TraceBuilder, rank: int, at: int, start: int, takes: int, kernel: str, **more
    ) -> None:
        more.setdefault("grid", "[132, 1, 1]")
        first = self._on_clock(rank, start)
        b.launch(
            self._on_clock(rank, at),
            US,
            kernel,
            first,
            self._on_clock(rank, start + takes) - first,
            **more,
        )

    def _on_clock(self, rank: int, true_ns: int) -> int:
        return round(true_ns * (1 + self.drift(rank))) + self.shift_ns(rank) + 100 * MS

    def _arguments(self, rank: int, sequence: int) -> str | None:
        if not self.arguments:
            return None
        members = self.group_of(rank) if self.group_of else tuple(range(self.ranks))
        args = {
            "In msg nelems": self.bytes // 4,
            "Out msg nelems": self.bytes // 4,
            "Group size": len(members),
            "dtype": "Float",
            "Process Group Name": "-".join(map(str, members)),
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(members)),
        }
        return json.dumps(args | ({"Seq": sequence} if self.sequence else {}))

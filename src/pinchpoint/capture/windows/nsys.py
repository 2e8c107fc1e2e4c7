"""Ranges for Nsight: the steps that nsys records, and marks of steps and waits in any profile."""

import sys
import time
from typing import Any

from pinchpoint.capture.windows.recording import NOT_BEGUN, Recording


class NsysWindow:
    """One capture range. The file is written by nsys itself.

    ``nsys`` runs around the program with ``--capture-range=cudaProfilerApi``; operators and steps
    become NVTX ranges, so the timeline can be read by module and step.
    """

    def __init__(self) -> None:
        self._ranges: Any = None
        self._start_unix_ns = 0
        self.steps = -1

    def prime(self) -> None:
        """Nothing to pay in advance."""

    def open(self) -> None:
        """Nothing yet."""

    def step(self) -> None:
        """Begin at the first call; afterwards end one step's range and begin the next."""
        torch = sys.modules["torch"]
        self.steps += 1
        if self._start_unix_ns:
            torch.cuda.nvtx.range_pop()
        else:
            self._start(torch)
        torch.cuda.nvtx.range_push(f"ProfilerStep#{self.steps}")

    def may_end(self, *, step_ended: bool) -> bool:
        """At any time."""
        del step_ended
        return True

    def close(self, *, step_ended: bool = False) -> Recording:
        """Close the range; nsys writes its report when the program ends."""
        end_ns = time.time_ns()
        problem = None
        if self._start_unix_ns:
            torch = sys.modules["torch"]
            try:
                torch.cuda.nvtx.range_pop()
                self._ranges.__exit__(None, None, None)
                torch.cuda.synchronize()
                torch.cuda.cudart().cudaProfilerStop()
            except RuntimeError as error:
                problem = str(error).splitlines()[0]
        else:
            problem = NOT_BEGUN
        steps = max(self.steps + step_ended, 0)
        return Recording(None, problem, self._start_unix_ns or end_ns, end_ns, steps)

    def _start(self, torch: Any) -> None:
        torch.cuda.cudart().cudaProfilerStart()
        self._ranges = torch.autograd.profiler.emit_nvtx(record_shapes=False)
        self._ranges.__enter__()
        self._start_unix_ns = time.time_ns()


class NvtxRanges:
    """Pushes and pops ranges once CUDA is in use; does nothing before."""

    def __init__(self) -> None:
        self._open = False
        self._steps = 0

    def step(self) -> None:
        """A step ends and the next begins."""
        nvtx = self._nvtx()
        if nvtx is None:
            return
        if self._open:
            nvtx.range_pop()
        nvtx.range_push(f"step {self._steps}")
        self._open = True
        self._steps += 1

    def waited(self) -> None:
        """A batch has arrived: a mark, since the wait is already over."""
        nvtx = self._nvtx()
        if nvtx is not None:
            nvtx.mark("batch")

    @staticmethod
    def _nvtx() -> Any:
        torch = sys.modules.get("torch")
        return torch.cuda.nvtx if torch is not None and torch.cuda.is_initialized() else None

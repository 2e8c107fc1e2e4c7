"""NVTX ranges for steps and data waits, for whoever looks at the program with Nsight."""

import sys
from typing import Any


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

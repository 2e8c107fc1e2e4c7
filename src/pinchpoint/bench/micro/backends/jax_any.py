"""Work through JAX, on whatever device it uses.

JAX has no events. Dispatch is asynchronous, so calls are handed over back to back and waited for
once; the time of a block is what the host's clock shows between the first hand-over and the end of
the last result. For isolated calls it contains one dispatch, which the result says.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

from pinchpoint.bench.micro.backends.base import (
    Block,
    Call,
    ClockState,
    no_garbage_collection,
    one_block_after_another,
)

_FLUSH_BYTES = 256 << 20  # JAX does not tell the cache size; no cache today is larger


class JaxBackend:
    """``block_until_ready`` on what the function returned."""

    name = "jax"
    clock = "host clock to block_until_ready"
    asynchronous = True
    resolution_ns = 1_000.0  # of one dispatch and wait

    def __init__(self) -> None:
        import jax

        self._jax = jax
        first = jax.devices()[0]
        self.device = f"{first.platform} {getattr(first, 'device_kind', '')}".strip()
        self.cache_bytes: int | None = _FLUSH_BYTES
        self._flush_call: Any = None

    def finish(self, result: Any) -> None:
        """Wait for the result, and for everything that was handed over before it."""
        self._jax.block_until_ready(result)

    def block(self, call: Call, calls: int, *, issue_ns: float) -> Block:
        """Results are kept until the end, so that none is dropped before it is computed."""
        begin = perf_counter_ns()
        results = [call() for _ in range(calls)]
        issued = perf_counter_ns()
        self._jax.block_until_ready(results)
        return Block(perf_counter_ns() - begin, issued - begin)

    def isolated(self, call: Call, count: int, *, cold: bool, issue_ns: float) -> list[Block]:
        """Each call is waited for."""
        blocks = []
        for _ in range(count):
            if cold:
                self._flush()
            begin = perf_counter_ns()
            result = call()
            issued = perf_counter_ns()
            self._jax.block_until_ready(result)
            blocks.append(Block(perf_counter_ns() - begin, issued - begin))
        return blocks

    def sustained(self, call: Call, calls: int, *, seconds: float) -> Iterator[Block]:
        """Block after block."""
        return one_block_after_another(lambda: self.block(call, calls, issue_ns=0.0), seconds)

    def clock_state(self) -> ClockState | None:
        """Not known through JAX."""
        return None

    def quiet(self) -> AbstractContextManager[None]:
        """Garbage collection off."""
        return no_garbage_collection()

    def _flush(self) -> None:
        if self._flush_call is None:
            numpy = self._jax.numpy
            fill = self._jax.jit(lambda x: numpy.full((_FLUSH_BYTES // 4,), x, numpy.float32))
            self._flush_call = lambda: fill(0.0)
        self._jax.block_until_ready(self._flush_call())

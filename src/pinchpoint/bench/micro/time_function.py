"""``pp.time``: what one call of a function takes, and what a simpler timing would have missed."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from pinchpoint.bench.micro.backends import Backend, backend_named, backend_of, flat
from pinchpoint.bench.micro.mistakes import judged
from pinchpoint.bench.micro.sampling import sample_modes, sample_sustained, warm_up
from pinchpoint.bench.micro.timing import StoppingRule, Timing
from pinchpoint.frozen import dataclass
from pinchpoint.hardware.dtypes import format_of
from pinchpoint.hardware.specs import DeviceSpec, find_spec


@dataclass(frozen=True)
class CallWork:
    """What one call does at least; None where nobody counted."""

    flop: float | None
    moved_bytes: float | None


def time_function(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | None = None,
    name: str | None = None,
    rule: StoppingRule | None = None,
    flop: float | None = None,
    moved_bytes: float | None = None,
    cold: bool = True,
    **kwargs: Any,
) -> Timing:
    """Time ``fn(*args, **kwargs)``: batched, isolated hot and isolated cold.

    Warm-up goes on until calls are steady. On a GPU, events time the device while its queue is kept
    full; elsewhere the host's clock does. Sampling stops when the median is known to half a per
    cent, or after two seconds a mode (``rule``). With ``rule.sustained_seconds``
    there is also a figure for that long without a pause, which is what a device at its power limit
    gives. ``flop`` and ``moved_bytes`` of a call are counted for torch if not given, and results
    faster than the device can be are refused with a reason in ``invalid_reasons``.

    >>> x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    >>> print(pp.time(torch.mm, x, x))

    Raises UsageError for an unknown ``backend`` and MissingExtra if it is not there; what ``fn``
    raises goes through.
    """

    def call() -> Any:
        return fn(*args, **kwargs)

    begin = perf_counter_ns()
    result = call()
    first_ns = perf_counter_ns() - begin
    arrays = [*args, *kwargs.values()]
    place = backend_named(backend or backend_of([result, *arrays, *_closure(fn)]))
    begin = perf_counter_ns()
    place.finish(result)
    first_ns += perf_counter_ns() - begin
    work = CallWork(
        counted_flop(call) if flop is None else flop,
        least_bytes(arrays, result) if moved_bytes is None else moved_bytes,
    )
    timing = _measured(place, call, float(first_ns), rule or StoppingRule(), cold, work)
    spec = spec_of(timing.device)
    return judged(
        replace(timing, name=name or _name(fn)),
        peak_bytes_per_s=spec.memory_bytes_per_s if spec else None,
        peak_flop_per_s=highest_flop_per_s(spec, [result, *arrays]) if spec else None,
    )


def _measured(
    place: Backend,
    call: Callable[[], Any],
    first_ns: float,
    rule: StoppingRule,
    cold: bool,
    work: CallWork,
) -> Timing:
    warm = warm_up(place, call)
    before = _compilations()
    names = ("batched", "hot", "cold") if cold else ("batched", "hot")
    modes = sample_modes(place, call, warm, names, rule)
    batched = modes["batched"]
    sustained = sample_sustained(place, call, warm, rule) if rule.sustained_seconds else None
    return Timing(
        name="",
        backend=place.name,
        device=place.device,
        clock=place.clock,
        resolution_ns=place.resolution_ns,
        batched=batched,
        hot=modes["hot"],
        cold=modes.get("cold"),
        sustained=sustained,
        first_call_ns=first_ns,
        warmup_calls=warm.calls,
        warmup_s=warm.seconds,
        warmup_converged=warm.converged,
        compilations=_compilations() - before,
        host_bound=place.asynchronous and batched.issue_ns > batched.median_ns,
        flop=work.flop,
        moved_bytes=work.moved_bytes,
        unknown={} if cold else {"cold": "not asked for"},
    )


def _compilations() -> int:
    """Frames that torch's compiler has seen; a rise while timing means that it was timed."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def _closure(fn: Callable[..., Any]) -> list[Any]:
    """What a function holds: its cells, its bound object, the arguments of a partial."""
    held = [cell.cell_contents for cell in getattr(fn, "__closure__", None) or () if _filled(cell)]
    held += [getattr(fn, "__self__", None), *getattr(fn, "args", ()), fn]
    return held


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__)


time = time_function  # the public name, ``pp.time``


def least_bytes(arguments: Iterable[Any], result: Any) -> float | None:
    """Inputs read once and outputs written once, each storage counted once; None if no arrays.

    A lower bound of the traffic: what the function holds elsewhere (weights of a closure) is not
    seen.
    """
    sizes: dict[Any, int] = {}
    for value in flat([*arguments, result]):
        size = getattr(value, "nbytes", None)
        if isinstance(size, int) and hasattr(value, "shape"):
            sizes[_address(value)] = max(size, sizes.get(_address(value), 0))
    return float(sum(sizes.values())) if sizes else None


def _address(value: Any) -> Any:
    pointer = getattr(value, "data_ptr", None)
    return pointer() if callable(pointer) else id(value)


def counted_flop(call: Any) -> float | None:
    """FLOP of one call by torch's own counter (products, convolutions, attention); None if it
    counts nothing, or torch is not in use."""
    if sys.modules.get("torch") is None:
        return None
    try:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            call()
        return float(counter.get_total_flops()) or None
    except Exception:  # a compiled or custom call that the counter cannot enter has no count
        return None


def spec_of(device: str) -> DeviceSpec | None:
    """The data sheet, if the device is known."""
    return find_spec(device)


def highest_flop_per_s(spec: DeviceSpec, values: Iterable[Any]) -> float | None:
    """The peak for the types of these arrays; float32 may run as TF32, so the higher one."""
    types = {format_of(str(getattr(value, "dtype", ""))) for value in flat(values)}
    names = {known.peak for known in types if known is not None and known.peak is not None}
    if "fp32" in names:
        names.add("tf32")
    if "fp64" in names:
        names.add("fp64_matrix")
    peaks = [p for p in (spec.peak_flop_per_s(n) for n in names) if p is not None]
    return max(peaks, default=None)

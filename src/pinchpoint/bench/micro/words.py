"""A timing in a few lines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # timing itself prints by these words
    from pinchpoint.bench.micro.timing import Samples, Timing

_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def in_words(timing: "Timing") -> str:
    """For ``print``."""
    lines = [f"{timing.name} on {timing.device} ({timing.backend}, {timing.clock})"]
    lines += [_line(samples) for samples in timing.every_mode]
    if (rate := timing.flop_per_s()) is not None:
        lines.append(f"  {rate / 1e12:.3g} TFLOP/s")
    if (moved := timing.bytes_per_s()) is not None:
        lines.append(f"  {moved / 1e9:.3g} GB/s at least (inputs and outputs once)")
    lines += [f"  invalid: {reason}" for reason in timing.invalid_reasons]
    lines += [f"  {remark.id}: {remark.text}" for remark in timing.remarks]
    return "\n".join(lines)


def nanoseconds(ns: float) -> str:
    """With a unit that fits."""
    unit, scale = next((u for u in _UNITS if ns >= u[1]), _UNITS[-1])
    return f"{ns / scale:.4g} {unit}"


def _line(samples: "Samples") -> str:
    interval = samples.ci95_ns
    text = f"  {samples.mode:9} {nanoseconds(samples.median_ns):>10}"
    if interval:
        text += f"  (95 %: {nanoseconds(interval[0])} to {nanoseconds(interval[1])})"
    text += f"  {len(samples.call_ns)} samples"
    text += f" of {samples.calls} calls" if samples.calls > 1 else ""
    return text if samples.precise else f"{text}, precision not reached"

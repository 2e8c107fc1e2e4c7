"""What a recording has to say that has no step: a telemetry log, or a memory snapshot, alone."""

import numpy as np

from pinchpoint.analysis.run import (
    SampledRow,
    device_looks,
    sampled_metrics,
    sampled_sentences,
    tells_of_clocks,
)
from pinchpoint.diagnosis.evidence.named_time import profiled_alone
from pinchpoint.trace import Trace

MOST_SAMPLED, MOST_SAMPLED_DEVICES = 7, 2  # figures, devices in a sentence: a page has a table


def said_without_steps(trace: Trace) -> str:
    """The sentences; empty where operators or device work were recorded."""
    if trace.host_ops is not None or trace.device_ops is not None:
        return ""
    said = sampled_sentences(trace)
    if said:
        sentences = " ".join(f"{text[:1].upper()}{text[1:]}." for text in said)
        return f"{sentences} {_what_was_sampled(trace)}".strip()
    if not device_looks(trace):
        return _of_memory(trace) or profiled_alone(trace)
    worked = "The devices worked" if _tells_of_kernels(trace) else ""
    if tells_of_clocks(trace):
        held = "nothing held them down"
        first = (
            f"{worked}, and {held}."
            if worked
            else ("Nothing held the devices down; whether they worked was not sampled.")
        )
    else:
        held = "whether anything held them down was not sampled (no reasons of the clocks)."
        first = (
            f"{worked}; {held}"
            if worked
            else (
                "Neither whether the devices worked nor whether anything held them down was"
                " sampled."
            )
        )
    return f"{first} {_what_was_sampled(trace)}".strip()


def _what_was_sampled(trace: Trace) -> str:
    """Figures of the devices; all of them are in the table of telemetry."""
    rows = [row for row in sampled_metrics(trace) if row.device is not None]
    devices = {row.device for row in rows}
    if not rows or len(devices) > MOST_SAMPLED_DEVICES:
        return ""
    said = []
    for device in sorted(number for number in devices if number is not None):
        of = [_spread(row) for row in rows if row.device == device][:MOST_SAMPLED]
        said.append((f"device {device}: " if len(devices) > 1 else "") + ", ".join(of))
    return f"Sampled, median (least to most): {'; '.join(said)}."


def _spread(row: SampledRow) -> str:
    scale, unit = {
        "ratio": (100.0, "%"), "bytes": (2.0**-30, "GiB"), "bytes/s": (1e-9, "GB/s"),
    }.get(row.unit, (1.0, row.unit))  # fmt: skip
    middle, least, most = (f"{scale * v:.4g}" for v in (row.median, row.least, row.most))
    if row.least == row.most:
        return f"{row.label} {middle} {unit}".strip()
    return f"{row.label} {middle} {unit}".strip() + f" ({least} to {most})"


def _tells_of_kernels(trace: Trace) -> bool:
    counters = trace.counters
    if counters is None:
        return False
    return any(trace.names[n] in _OF_WORK for n in np.unique(counters["name"]).tolist())


_OF_WORK = ("any_kernel_ratio", "sm_active_ratio")


def _of_memory(trace: Trace) -> str:
    """What a memory snapshot alone has to say: how much each device held at its peak."""
    if trace.snapshot is None:
        return ""
    from pinchpoint.analysis.memory.history import histories
    from pinchpoint.analysis.memory.shortage import size
    from pinchpoint.analysis.memory.traced import HOST

    said = []
    for history in histories(trace):
        requested, reserved = (
            history.replay.peak(what).bytes for what in ("requested", "reserved")
        )
        of = "the host" if history.device == HOST else f"device {history.device}"
        if requested:
            said.append(f"{of} held {size(requested)} at the peak ({size(reserved)} reserved)")
    words = "; ".join(said)
    return f"{words[:1].upper()}{words[1:]}." if words else ""

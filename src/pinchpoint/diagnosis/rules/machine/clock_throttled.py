"""The device's clock is held down by heat, a lowered power limit, or a setting.

## What it looks for
Samples taken while the device worked in which the driver gives a reason for a lower clock: heat, a
hardware slowdown, the power supply's brake, a clock set by a person, or a power cap below the limit
that the device was built for. Slow kernels alone prove nothing about the clock: without samples
this is not checked.

## Why it matters
Matrix products, attention and everything else that computes take longer by the ratio of the
clocks. Work that waits for memory hardly notices.

## How to fix it
Heat: cooling, fewer devices side by side. Power: `nvidia-smi -pl` back to the default limit. A
setting: `nvidia-smi -rac` and `nvidia-smi -rgc`.

## When to ignore it
A device at its full power limit that is capped by it: dense work in low precision draws all the
power there is, and no setting gives more.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.run import Looks, device_looks, run_facts
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import TELEMETRY
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.monitor import reasons
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, whole

RULE = Rule(
    needs=("counters",),
    record=TELEMETRY,
    confirm="pinchpoint monitor  # while it runs: clock and reasons",
)

LEAST_HELD_RATIO = 0.2  # of the busy looks; less is a moment, not a state
LOWER_CLOCK_RATIO = 0.97  # clocks move by a step or two of 15 MHz all the time
LOWERED_LIMIT_RATIO = 0.97  # a power limit this far below the default was lowered by someone
FEWEST_LOOKS = 3  # with fewer, one odd look would be a third of the evidence or more
_COMPUTES = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)


def check(trace: Trace) -> Iterator[Found]:
    """Devices whose clock was held down while they worked."""
    devices = device_looks(trace)
    if not any("event_reasons" in looks.values for looks in devices.values()):
        raise NotChecked("nobody sampled why the clock is where it is")
    told = False
    for number, looks in devices.items():
        held = _held(trace, looks)
        highest = looks.most("sm_clock_max_mhz") or looks.most("sm_clock_mhz")
        clock = None if held is None else looks.median("sm_clock_mhz", held[1])
        if held is None or not highest or not clock or clock > LOWER_CLOCK_RATIO * highest:
            continue
        told = True
        yield _finding(trace, number, looks, held, clock / highest)
    if not told and any(_capped_at_unknown_limit(trace, looks) for looks in devices.values()):
        raise NotChecked(
            "power holds the clock down, and whether the limit was lowered does not show: the"
            " default limit was not sampled"
        )


def _capped_at_unknown_limit(trace: Trace, looks: Looks) -> bool:
    device = run_facts(trace).device
    if device is not None and device.power_limit_default_w is not None:
        return False
    busy = looks.busy & looks.where_known("event_reasons")
    mask = _reasons(looks, busy)
    capped = int((mask & reasons.POWER_CAP != 0).sum())
    return busy.sum() >= FEWEST_LOOKS and capped >= LEAST_HELD_RATIO * int(busy.sum())


def _reasons(looks: Looks, busy: NDArray[np.bool_]) -> Ints:
    """The bits of each of these looks; none of the others."""
    given = looks.values.get("event_reasons")
    return whole(np.zeros(len(busy)) if given is None else np.where(busy, given, 0))


def _held(trace: Trace, looks: Looks) -> tuple[int, NDArray[np.bool_]] | None:
    """The reason that holds the clock in most busy looks, and those looks."""
    busy = looks.busy & looks.where_known("event_reasons")
    if busy.sum() < FEWEST_LOOKS:
        return None
    mask = _reasons(looks, busy)
    bits = reasons.HOLDS_DOWN if _limit_lowered(trace, looks) else _not_the_full_limit()
    candidates = [bit for bit in reasons.WORDS if bit & bits]
    best = max(candidates, key=lambda bit: int((mask & bit != 0).sum()))
    at = busy & (mask & best != 0)
    return (best, at) if at.sum() >= LEAST_HELD_RATIO * busy.sum() else None


def _not_the_full_limit() -> int:
    return reasons.HOLDS_DOWN & ~reasons.POWER_CAP


def _limit_lowered(trace: Trace, looks: Looks) -> bool:
    device, limit = run_facts(trace).device, looks.median("power_limit_w")
    default = None if device is None else device.power_limit_default_w
    if default is None or limit is None:
        return False
    return limit < LOWERED_LIMIT_RATIO * default


def _finding(
    trace: Trace, number: int, looks: Looks, held: tuple[int, NDArray[np.bool_]], ratio: float
) -> Found:
    bit, at = held
    share = float(at.sum() / (looks.busy & looks.where_known("event_reasons")).sum())
    clock, highest = looks.median("sm_clock_mhz", at), looks.most("sm_clock_max_mhz")
    top = f" of {highest:.0f}" if highest else ""
    rows = _computing(trace)
    ops = trace.device_ops
    lasted = 0 if ops is None else int(ops["duration_ns"][rows].sum())
    cost = round(per_step(trace, lasted) * (1 - ratio)) if len(rows) else None
    return Found(
        summary=(
            f"Device {number} is {reasons.WORDS[bit]} {100 * share:.0f} % of the time it works:"
            f" its clock is {clock:.0f}{top} MHz"
        ),
        evidence=(
            Evidence("clock while held down", round(clock or 0), "MHz"),
            Evidence("share of busy samples", round(share, 3), "ratio", int(looks.time_ns[at][0])),
            *_reading(looks, at, "power", "power_w", "W"),
            *_reading(looks, at, "power limit", "power_limit_w", "W"),
            *_reading(looks, at, "temperature", "temperature_c", "°C"),
        ),
        cost_ns_per_step=cost,
        changes=(ScaleDeviceOps(rows, ratio),) if len(rows) else (),
        consequence=None if len(rows) else f"computing takes {1 / ratio:.2f} times as long",
        confidence="high" if bit != reasons.APPLICATION_CLOCKS else "medium",
        fix=_FIX.get(bit, "Find what lowers the clock: nvidia-smi -q -d PERFORMANCE"),
        hint="nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE",
    )


_FIX = {
    reasons.POWER_CAP: "Raise the power limit to the default: nvidia-smi -pl",
    reasons.APPLICATION_CLOCKS: "Reset the clocks that were set: nvidia-smi -rac; nvidia-smi -rgc",
    reasons.SYNC_BOOST: "Leave the group that shares one clock, or free its slowest device",
    reasons.POWER_BRAKE: "Check the power supply: it signals the device to slow down",
    reasons.SOFTWARE_THERMAL: "Cool the device: airflow, dust, room, neighbours",
    reasons.HARDWARE_THERMAL: "Cool the device: airflow, dust, room, neighbours",
    reasons.HARDWARE_SLOWDOWN: "Check cooling and power supply",
}


def _reading(
    looks: Looks, at: NDArray[np.bool_], what: str, name: str, unit: str
) -> tuple[Evidence, ...]:
    value = looks.median(name, at)
    return () if value is None else (Evidence(what, round(value, 1), unit),)


def _computing(trace: Trace) -> NDArray[np.intp]:
    """Device operations whose time goes with the clock."""
    if trace.device_ops is None or not len(trace.device_ops):
        return np.zeros(0, np.intp)
    computes = np.isin(category_of_device_ops(trace), [int(c) for c in _COMPUTES])
    return np.flatnonzero(computes & device_ops_in_steps(trace))

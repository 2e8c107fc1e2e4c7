"""Every launch waits for its kernel: CUDA_LAUNCH_BLOCKING is set.

## What it looks for
Launch calls that last until their kernel has ended, for nearly all kernels, so that no queue ever
builds. With a run folder also the variable itself, as the program had it. Calls that are slow for
themselves outlast short kernels too, so kernels have to fill a good part of them. Without the
variable the confidence is medium.

## Why it matters
The host can never run ahead: its own work and the device's add up instead of overlapping.

## How to fix it
Unset the variable. It belongs to debugging: it makes an error appear at the call that caused it.

## When to ignore it
While a device-side error is being hunted.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import ApiKind, DeviceKind, Trace
from pinchpoint.trace.arrays import Rows

RULE = Rule(
    needs=("api_calls", "device_ops"),
    record=Record("CPU and device activity", Need.CPU_AND_DEVICE),
)

VARIABLE = "CUDA_LAUNCH_BLOCKING"
# Of the launches; the variable makes all of them wait, and clocks blur a few.
NEARLY_ALL_RATIO = 0.9
FEWEST_LAUNCHES = 20  # with fewer, a share of nine tenths says little
WORKING_RATIO = 0.3  # of the calls' time, kernels run; a call that is slow for itself outlasts a
# short kernel too
CLOCKS_AGREE_NS = 2_000  # host and device clocks are aligned to a microsecond or so
ORDINARY_LAUNCH_NS = 6_000  # a launch that does not wait, on a host of today


def check(trace: Trace) -> Iterator[Found]:
    """Launches that wait."""
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None or calls is None:
        return
    rows = _launched(trace)
    if len(rows) < FEWEST_LAUNCHES:
        return
    call = ops["api_call"][rows]
    waits = calls.end_ns[call] >= ops.end_ns[rows] - CLOCKS_AGREE_NS
    setting = run_facts(trace).variables.get(VARIABLE)
    working = ops["duration_ns"][rows].sum() / max(int(calls["duration_ns"][call].sum()), 1)
    if waits.mean() < NEARLY_ALL_RATIO or (not setting and working < WORKING_RATIO):
        return
    call = np.unique(call[waits])
    start, end = calls["start_ns"][call] + ORDINARY_LAUNCH_NS, calls.end_ns[call]
    longer = end > start
    lost = int((end - start)[longer].sum())
    longest = int(call[np.argmax(calls["duration_ns"][call])])
    yield Found(
        summary=(
            f"{100 * waits.mean():.0f} % of the launches last until their kernel has ended"
            f"{'' if not setting else f' ({VARIABLE}={setting})'}: the host cannot run ahead"
        ),
        evidence=(
            Evidence("launches that wait", round(per_step(trace, len(call)), 1), "per step"),
            Evidence("time in them", round(per_step(trace, lost)), "ns per step"),
            Evidence(
                "longest",
                int(calls["duration_ns"][longest]),
                "ns",
                int(calls["start_ns"][longest]),
                trace.text(calls, "name", longest),
            ),
        ),
        cost_ns_per_step=round(per_step(trace, lost)),
        changes=(RemoveHostTime(start[longer], end[longer]),),
        confidence="high" if setting not in (None, "", "0") else "medium",
        fix=f"Unset {VARIABLE}",
        hint=f"env -u {VARIABLE} python train.py",
        confirm=f'pinchpoint bench ab -- "python train.py" "env -u {VARIABLE} python train.py"',
    )


def _launched(trace: Trace) -> Rows:
    """Kernels that a launch call of a judged step started one by one."""
    ops, calls = trace.device_ops, trace.api_calls
    assert ops is not None
    assert calls is not None
    known = ops.known("api_call") & (ops["kind"] == DeviceKind.KERNEL) & device_ops_in_steps(trace)
    rows: Rows = np.flatnonzero(known)
    single: Rows = rows[calls["kind"][ops["api_call"][rows]] == ApiKind.LAUNCH]
    return single

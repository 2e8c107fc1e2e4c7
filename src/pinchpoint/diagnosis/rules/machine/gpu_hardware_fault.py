"""The device's memory has errors that it could not correct, or needs service.

## What it looks for
Counts of uncorrected memory errors, rows that wait for a reset to be replaced, rows that could not
be replaced, and corrected errors that pile up during the run. Without samples of these counts this
is not checked.

## Why it matters
An uncorrected error ends the program or changes its numbers. Corrected errors in great numbers
announce one, and slow the memory down.

## How to fix it
Reset the device (or restart the machine) to let pending rows be replaced; have a device replaced
whose rows cannot be, or whose errors come back.

## When to ignore it
Never when numbers look wrong. A single old error that was dealt with is history.
"""

from collections.abc import Iterator

from pinchpoint.analysis.run import Looks, device_looks
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import TELEMETRY
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("counters",),
    record=TELEMETRY,
    confirm="pinchpoint monitor --once  # after the reset: no errors",
)

MANY_CORRECTED = 100  # during one run; healthy memory has none for weeks
_SAMPLED = ("ecc_uncorrected_count", "ecc_corrected_count", "remap_pending", "remap_failed")


def check(trace: Trace) -> Iterator[Found]:
    """Devices with faults."""
    devices = device_looks(trace)
    if not any(name in looks.values for looks in devices.values() for name in _SAMPLED):
        raise NotChecked("nobody sampled the device's error counters")
    for number, looks in devices.items():
        signs = _signs(looks)
        if not signs:
            continue
        words = ", ".join(f"{value} {what}" for what, value in signs.items())
        yield Found(
            summary=f"Device {number} has a hardware fault: {words}",
            evidence=tuple(Evidence(what, value, "count") for what, value in signs.items()),
            cost_ns_per_step=None,
            consequence="wrong numbers or a crash",
            fix="Reset the device; if errors come back, have it replaced",
            hint="nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg | grep -i xid",
        )


def _signs(looks: Looks) -> dict[str, int]:
    """What is wrong, in words, with the count."""
    uncorrected = looks.most("ecc_uncorrected_count") or 0
    corrected = looks.of("ecc_corrected_count")
    grown = int(corrected.max() - corrected.min()) if len(corrected) else 0
    found = {
        "uncorrected memory errors": int(uncorrected),
        "corrected memory errors in this run": grown if grown >= MANY_CORRECTED else 0,
        "rows that could not be replaced": int(looks.most("remap_failed") or 0),
        "rows that wait for a reset": int(looks.most("remap_pending") or 0),
    }
    return {what: count for what, count in found.items() if count}

"""The PCIe link runs below its width or generation while the device works.

## What it looks for
The best link state of all samples taken under load, against what device and slot can do. A link
that rests in a lower generation without load is normal and not looked at. Slow copies alone may
have other reasons: without samples this is not checked.

## Why it matters
Half the lanes, or one generation less, halve the rate of every copy between host and device.

## How to fix it
Reseat the card or riser, use another slot, update firmware, look for errors in `lspci -vv`. In a
virtual machine the host may have set it.

## When to ignore it
Where hardly anything is copied between host and device.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.run import Looks, device_looks
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import TELEMETRY
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("counters",), record=TELEMETRY, confirm="pinchpoint ceilings  # rate of pinned copies"
)

FEWEST_LOOKS = 3  # with fewer, one odd look would be a third of the evidence or more
_OVER_THE_LINK = (Category.COPY_H2D, Category.COPY_D2H)


def check(trace: Trace) -> Iterator[Found]:
    """Links that stay below what they could be."""
    devices = device_looks(trace)
    if not any("pcie_width_max" in looks.values for looks in devices.values()):
        raise NotChecked("nobody sampled the PCIe link and what it could be")
    for number, looks in devices.items():
        width, generation = _best(looks, "pcie_width"), _best(looks, "pcie_generation")
        ratio = _ratio(width) * 2.0 ** min(_difference(generation), 0)
        if ratio < 1:
            yield _finding(trace, number, width, generation, ratio)


def _best(looks: Looks, name: str) -> tuple[float, float] | None:
    """The best state under load, and the best there is."""
    busy = looks.busy & looks.where_known(name)
    best, top = looks.most(name, busy), looks.most(f"{name}_max")
    if best is None or top is None or busy.sum() < FEWEST_LOOKS:
        return None
    return best, top


def _ratio(width: tuple[float, float] | None) -> float:
    return 1.0 if width is None or not width[1] else min(width[0] / width[1], 1.0)


def _difference(generation: tuple[float, float] | None) -> float:
    return 0.0 if generation is None else generation[0] - generation[1]


def _finding(
    trace: Trace,
    number: int,
    width: tuple[float, float] | None,
    generation: tuple[float, float] | None,
    ratio: float,
) -> Found:
    rows = _copies(trace)
    ops = trace.device_ops
    lasted = 0 if ops is None else int(ops["duration_ns"][rows].sum())
    states = [
        f"{name} {state[0]:.0f} of {state[1]:.0f}"
        for name, state in (("lanes", width), ("generation", generation))
        if state is not None and state[0] < state[1]
    ]
    return Found(
        summary=f"The PCIe link of device {number} runs at {' and '.join(states)} under load",
        evidence=tuple(
            Evidence(what, round(state[0]), f"of {state[1]:.0f}")
            for what, state in (("lanes", width), ("generation", generation))
            if state is not None
        ),
        cost_ns_per_step=round(per_step(trace, lasted) * (1 - ratio)) if len(rows) else None,
        changes=(ScaleDeviceOps(rows, ratio),) if len(rows) else (),
        consequence=None
        if len(rows)
        else f"copies run at {100 * ratio:.0f} % of the possible rate",
        fix="Reseat the card, use another slot, or update firmware",
        hint="lspci -vv | grep -E 'LnkCap|LnkSta'  # capability against state",
    )


def _copies(trace: Trace) -> NDArray[np.intp]:
    if trace.device_ops is None or not len(trace.device_ops):
        return np.zeros(0, np.intp)
    copies = np.isin(category_of_device_ops(trace), [int(c) for c in _OVER_THE_LINK])
    return np.flatnonzero(copies & device_ops_in_steps(trace))

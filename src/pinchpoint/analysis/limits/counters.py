"""Profiled launches (ncu) joined with the kernels of a timeline (Kineto, nsys).

ncu runs each kernel alone, many times over, and keeps no time line; the other profilers keep the
time line and no counters. They meet by the kernel's name and launch sizes, in order: names are
brought to one spelling first, as ncu leaves out namespaces that others print.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.input_arguments import parsed
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import (
    DeviceKind,
    ExpertNote,
    ProfiledLaunch,
    Table,
    Trace,
    once_per_trace,
    table,
)
from pinchpoint.trace.trace import Size

# ------------------------------------------------------------------------------------------------
# Profiled launches with their hardware counters, in base units.
#
# ``kernel_counters`` holds one row a launch and metric, with units as written (``us``,
# ``Gbyte/s``). Here a launch has all its metrics, in ns, bytes, bytes/s and Hz.


# Of decimal units (SI), as ncu writes them.
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9,
    "second": 1e9,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """One profiled launch."""

    number: int  # order in the file
    name: str
    device: int
    metrics: Mapping[str, float]  # base units
    grid: Size | None = None
    block: Size | None = None
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    rules: tuple[ExpertNote, ...] = ()  # what NVIDIA's own rules said

    def get(self, *names: str) -> float | None:
        """The first of several metrics that was collected; names differ between versions."""
        for name in names:
            if (value := self.metrics.get(name)) is not None:
                return value
        return None


_UNTOLD = ProfiledLaunch("")


@once_per_trace
def kernel_launches(trace: Trace) -> tuple[KernelLaunch, ...]:
    """All profiled launches in order; () if the trace has no counters."""
    counters = trace.kernel_counters
    if counters is None or not len(counters):
        return ()
    about = dict(enumerate(trace.profiled_launches))
    said: dict[int, list[ExpertNote]] = {}
    for note in trace.expert_notes:
        said.setdefault(note.launch, []).append(note)
    unit_known = counters.known("unit")
    names = trace.names
    metrics: dict[int, dict[str, float]] = {}
    first: dict[int, int] = {}
    for row, (launch, metric, unit, value) in enumerate(
        zip(
            counters["launch"].tolist(),
            counters["metric"].tolist(),
            counters["unit"].tolist(),
            counters["value"].tolist(),
            strict=True,
        )
    ):
        first.setdefault(launch, row)
        scale = scale_of(names[unit]) if unit_known[row] else 1.0
        metrics.setdefault(launch, {})[names[metric]] = value * scale
    return tuple(
        KernelLaunch(
            launch,
            names[int(counters["name"][row])],
            int(counters["device"][row]) if counters.known("device")[row] else 0,
            MappingProxyType(metrics[launch]),
            about.get(launch, _UNTOLD).grid,
            about.get(launch, _UNTOLD).block,
            about.get(launch, _UNTOLD).texts,
            tuple(said.get(launch, ())),
        )
        for launch, row in sorted(first.items())
    )


def scale_of(unit: str) -> float:
    """What a value in a unit is multiplied by to be in the base unit: 1000 for ``us``.

    Understands the spellings of all versions: ``usecond``, ``Gbyte/s``, ``Ghz``,
    ``cycle/nsecond``, ``Kbyte/block``. An unknown unit is taken for a base unit.
    """
    over, _, under = unit.partition("/")
    if not under and over in _TIMES:
        return _TIMES[over]
    scale = _prefix(over)
    if under in _TIMES:
        scale *= 1e9 / _TIMES[under]  # per second
    elif under:
        scale /= _prefix(under)
    return scale


def _prefix(word: str) -> float:
    lower = word.lower()
    for base in ("byte", "hz", "sector", "inst"):
        if lower.endswith(base) and lower.removesuffix(base) in _PREFIXES:
            return _PREFIXES[lower.removesuffix(base)]
    return 1.0


# ------------------------------------------------------------------------------------------------
# Profiled launches (ncu) joined with the kernels of a timeline (Kineto, nsys).


NOT_PROFILED = -1  # no launch's number

_QUALIFIER = regex(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|\w+)::")
_CASTS = regex(r"\((?:int|bool|unsigned int|long|unsigned long|char)\)")
_RETURN = regex(r"^(?:void|int|bool|float|double) ")


def with_counters(timeline: Trace, profiled: Trace) -> Trace:
    """The timeline with the counters of another recording of the same program."""
    counters = profiled.kernel_counters
    if counters is None:
        return timeline
    names = list(timeline.names)
    position = {text: i for i, text in enumerate(names)}
    moved = []
    for text in profiled.names:
        if text not in position:
            position[text] = len(names)
            names.append(text)
        moved.append(position[text])
    return replace(
        timeline,
        names=tuple(names),
        kernel_counters=_renamed(counters, np.array(moved, np.int32)),
        profiled_launches=profiled.profiled_launches,
        expert_notes=profiled.expert_notes,
    )


def _renamed(counters: Table, moved: NDArray[np.int32]) -> Table:
    columns, missing = dict(counters.columns), dict(counters.missing)
    for column in ("name", "metric", "unit"):
        columns[column] = moved[columns[column]]
    return table("kernel_counters", columns, missing)


@once_per_trace
def launch_of_device_ops(trace: Trace) -> NDArray[np.int64]:
    """For each row of ``device_ops`` the number of the launch that profiles it, or NOT_PROFILED.

    The k-th kernel of a name and launch size goes with the k-th profiled launch of them; once
    these are used up (a step that repeats) it starts over. Without a launch of the same size the
    name alone decides.
    """
    ops = trace.device_ops
    if ops is None:
        return np.zeros(0, np.int64)
    answer = np.full(len(ops), NOT_PROFILED, np.int64)
    by_size: dict[tuple[object, ...], list[int]] = defaultdict(list)
    by_name: dict[str, list[int]] = defaultdict(list)
    for launch in kernel_launches(trace):
        name = comparable_name(launch.name)
        by_size[name, launch.grid, launch.block].append(launch.number)
        by_name[name].append(launch.number)
    if not by_name:
        return answer
    seen: dict[tuple[object, ...], int] = defaultdict(int)
    kinds = (DeviceKind.KERNEL, DeviceKind.COLLECTIVE)
    for row in np.flatnonzero(np.isin(ops["kind"], kinds)).tolist():
        name = comparable_name(trace.names[int(ops["name"][row])])
        if name not in by_name:
            continue
        key = (name, _size(trace, ops, "grid", row), _size(trace, ops, "block", row))
        candidates = by_size.get(key) or by_name[name]
        answer[row] = candidates[seen[key] % len(candidates)]
        seen[key] += 1
    return answer


def _size(trace: Trace, ops: Table, column: str, row: int) -> object:
    text = trace.text(ops, column, row)
    return None if text is None else parsed(text)


@lru_cache(maxsize=1 << 14)
def comparable_name(name: str) -> str:
    """A kernel's name without return type, namespaces, parameters, casts and spaces."""
    bare = _RETURN.sub("", _CASTS.sub("", name)).replace("(anonymous namespace)::", "")
    bare = _QUALIFIER.sub("", _without_parameters(bare))
    return re.sub(r"\s+", "", bare)


def _without_parameters(name: str) -> str:
    """Cut at the first parenthesis that is not inside template arguments."""
    depth = 0
    for i, sign in enumerate(name):
        if sign == "<":
            depth += 1
        elif sign == ">":
            depth -= 1
        elif sign == "(" and depth == 0:
            return name[:i]
    return name


def profiled_time_ns(trace: Trace, launch: KernelLaunch) -> int | None:
    """Time of the timeline's kernels that a launch stands for; None without a timeline."""
    if trace.device_ops is None:
        return None
    rows = launch_of_device_ops(trace) == launch.number
    return int(trace.device_ops["duration_ns"][rows].sum())

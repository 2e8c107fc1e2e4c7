"""Other ways to the result of an operator on a CPU, and what they take: ``other_ways.json``.

What an operator's bytes and FLOPs need says little where a CPU works on one number at a time: a
way that others have measured says what is possible. Times are those of one thread of a server of
2023 (Sapphire Rapids, torch 2.13 and NumPy 2.4), of arrays of 64 KiB to 10 MiB.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.lent_inputs import with_inputs
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, call_of
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows, distinct_rows

if TYPE_CHECKING:
    from pinchpoint.analysis.limits.on_cpu import CpuPiece

LEAST_ROW = 16  # numbers: a vector of 512 bits; of shorter rows nothing is won
# A call of less is mostly that of calling it, which the profiler takes a part of.
LEAST_CALL_NS = 50_000
MOSTLY_RATIO = 0.9  # of the time, in calls whose elements are known


class OtherWay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the table."""

    operators: tuple[str, ...]  # regular expressions, found in the operator's name
    example: str  # an operator that it is meant for
    around: tuple[str, ...] = ()  # what the program may have called in place of it
    elements_of: int = 0  # the input whose elements are counted
    rows: bool = False  # it moves whole rows: meant for inputs of rows of LEAST_ROW and more
    longest_row: int | None = None  # it was measured for rows of as many elements and fewer
    dtypes: tuple[str, ...] = ()  # of input 0; empty: any
    feature: str | None = None  # that the processor has to have, as the run says
    ns_per_element: float  # that the other way takes on one thread
    operator_ns_per_element: float  # that the operator took there
    only_where: str = ""  # a condition that no recording shows; empty: it holds everywhere
    why: str  # a clause
    instead: str  # an imperative

    def fits(self, operator: str) -> bool:
        """Whether an operator is meant."""
        return _any(self.operators, operator)

    def is_called_as(self, operator: str) -> bool:
        """Whether the program's own call leaves it the choice: what another operator does inside
        of itself, it does not choose."""
        return self.fits(operator) or _any(self.around, operator)

    def elements(self, call: OperatorCall) -> int | None:
        """How many elements the other way has to do for a call; None where that is not known."""
        shape = call.shape(self.elements_of)
        if shape is None or (self.dtypes and call.dtype(0) not in self.dtypes):
            return None
        if self.rows and (len(shape) < 2 or shape[-1] < LEAST_ROW):
            return None
        if self.longest_row is not None and shape[-1] > self.longest_row:
            return None
        return call.size(self.elements_of)


class _File(msgspec.Struct, frozen=True):
    other_way: tuple[OtherWay, ...]


_compiled = cache(regex)


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(_compiled(pattern).search(name) for pattern in patterns)


@cache
def other_ways() -> tuple[OtherWay, ...]:
    """All entries, in the order of the file."""
    return msgspec.json.decode(
        Path(__file__).with_suffix(".json").read_bytes(), type=_File
    ).other_way


@dataclass(frozen=True, eq=False)
class Beside:
    """An operator, or several that one entry is about, beside the other way."""

    way: OtherWay
    names: tuple[str, ...]
    rows: Rows  # of host_ops
    ns_per_step: int
    fastest_ns_per_step: int  # if each took as long as the fastest with the same inputs
    needs_ns_per_step: int  # by the other way
    ns_per_element: float  # in the fastest calls


def beside_other_ways(trace: Trace, pieces: tuple["CpuPiece", ...]) -> list[Beside]:
    """Operators of which another way is known, most time first; those whose elements are known."""
    found: list[Beside] = []
    features = run_facts(trace).cpu_features or ()
    for way in other_ways():
        done = {name for one in found for name in one.names}
        mine = [piece for piece in pieces if way.fits(piece.name) and piece.name not in done]
        if not mine or (way.feature is not None and way.feature not in features):
            continue
        if (one := _beside(trace, way, mine)) is not None:
            found.append(one)
    return sorted(found, key=lambda one: -one.ns_per_step)


def _beside(trace: Trace, way: OtherWay, pieces: list["CpuPiece"]) -> Beside | None:
    took = sum(piece.ns_per_step for piece in pieces)
    if took < LEAST_CALL_NS * sum(piece.calls for piece in pieces):
        return None
    operators = cpu_operators(trace)
    rows = np.concatenate([piece.rows for piece in pieces])
    rows = rows[~np.isin(rows, operators.parent[rows])]  # a call that hands on to one of its name
    rows = rows[_chosen(trace, way, rows)]
    if not len(rows) or operators.own_ns[rows].sum() < MOSTLY_RATIO * _own_ns(trace, pieces):
        return None
    (elements, which), own = _elements(trace, way, rows), operators.own_ns[rows]
    known = elements != NOT_KNOWN
    if own[known].sum() < MOSTLY_RATIO * own.sum():
        return None
    count = max(len(judged_steps(trace)), 1)
    a_step, fastest = elements[known].sum() / count, own.copy()
    for alike in np.unique(which[known]).tolist():
        fastest[which == alike] = own[which == alike].min()
    fastest_ns = fastest.sum() / count
    return Beside(
        way=way,
        names=tuple(piece.name for piece in pieces),
        rows=np.sort(rows),
        ns_per_step=took,
        fastest_ns_per_step=round(fastest_ns),
        needs_ns_per_step=round(a_step * way.ns_per_element * own.sum() / own[known].sum()),
        ns_per_element=float(fastest[known].sum() / count / max(a_step, 1)),
    )


def _own_ns(trace: Trace, pieces: list["CpuPiece"]) -> float:
    return float(sum(cpu_operators(trace).own_ns[piece.rows].sum() for piece in pieces))


def _chosen(trace: Trace, way: OtherWay, rows: Rows) -> Mask:
    """Whether the program called it, or what stands for it, itself."""
    host, operators = trace.host_ops, cpu_operators(trace)
    assert host is not None
    outermost = nearest(parents(host), operators.called)[rows]
    names = np.append(host["name"], -1)[outermost]
    meant = {
        at for at in np.unique(names).tolist() if at >= 0 and way.is_called_as(trace.names[at])
    }
    chosen: Mask = np.isin(names, list(meant))
    return chosen


def _elements(trace: Trace, way: OtherWay, rows: Rows) -> tuple[Floats, Rows]:
    """Of each call, NOT_KNOWN where that does not show; and a number for those with its inputs.

    What indexing reads does not show in its inputs: it is as many as the backward pass adds to a
    tensor of the same shape, if that is always as many.
    """
    shown = with_inputs(trace)
    host = shown.host_ops
    assert host is not None
    columns = [host["name"][rows].astype(np.int64)]
    columns += [host.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values")]
    distinct, which = distinct_rows(*columns)
    calls = [call_of(shown.names, *of) if of[1] != NOT_KNOWN else None for of in distinct.tolist()]
    counts = [None if call is None else way.elements(call) for call in calls]
    of_shape: dict[object, set[int]] = {}
    for call, count in zip(calls, counts, strict=True):
        if call is not None and count is not None:
            of_shape.setdefault(call.shape(0), set()).add(count)
    for at, call in enumerate(calls):
        alike = of_shape.get(call.shape(0), set()) if call is not None else set()
        if counts[at] is None and len(alike) == 1:
            (counts[at],) = alike
    each = np.array([NOT_KNOWN if count is None else count for count in counts], np.float64)
    return each[which], which

"""What the operator behind each device operation was given: shapes, types, values, strides.

A step repeats its calls, so everything is kept once for each distinct call; a device operation
knows which one it belongs to.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.attribution import launching_operators
from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.shapes import Shape, input_dtypes, input_shapes, parsed
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Mask, Rows
from pinchpoint.trace.distinct import distinct_rows

_GIVEN = ("name", "shapes", "dtypes", "values", "strides")


@dataclass(frozen=True)
class LaunchedCall:
    """A distinct call that launched device work; ``strides`` has one entry an input, or none."""

    call: OperatorCall
    strides: tuple[Shape | None, ...]

    def stride(self, i: int) -> Shape | None:
        """Strides of input ``i`` in elements; None where they were not recorded."""
        return self.strides[i] if i < len(self.strides) else None


@dataclass(frozen=True, eq=False)
class LaunchedCalls:
    """The distinct calls, and for each row of ``device_ops`` its call and its operator.

    ``which`` is ``len(calls)``, and ``operator`` is ``len(host_ops)``, where there is none.
    """

    calls: tuple[LaunchedCall, ...]
    which: Rows
    operator: Rows  # row of host_ops

    def where(self, test: Callable[[LaunchedCall], bool]) -> Mask:
        """Device operations whose call passes; the test is asked once for each distinct call."""
        passed = np.array([test(c) for c in self.calls] + [False], np.bool_)
        result: Mask = passed[self.which]
        return result

    def numbers(self, of: Callable[[LaunchedCall], float | None]) -> Floats:
        """A number for each device operation from its call; NaN where there is none."""
        values = [of(c) for c in self.calls]
        table = np.array([np.nan if v is None else v for v in values] + [np.nan], np.float64)
        result: Floats = table[self.which]
        return result


@once_per_trace
def launched_calls(trace: Trace) -> LaunchedCalls:
    """The calls behind all device operations; empty where the recording has no operators."""
    ops, host = trace.device_ops, trace.host_ops
    operator = launching_operators(trace).astype(np.intp)
    if ops is None or host is None or not len(host):
        return LaunchedCalls((), np.zeros(len(operator), np.intp), operator)
    rows = np.unique(operator[operator < len(host)])
    given = (host.filled(column, -1)[rows].astype(np.int64) for column in _GIVEN)
    distinct, member = distinct_rows(*given)
    which_of_row = np.full(len(host) + 1, len(distinct), np.intp)
    which_of_row[rows] = member
    texts = [[None if at < 0 else trace.names[at] for at in row] for row in distinct.tolist()]
    return LaunchedCalls(tuple(_call(*row) for row in texts), which_of_row[operator], operator)


def _call(
    name: str | None,
    shapes: str | None,
    dtypes: str | None,
    values: str | None,
    strides: str | None,
) -> LaunchedCall:
    scalars = (
        tuple(v if isinstance(v, str) else "" for v in (parsed(values) or ()) if values)
        if values
        else ()
    )
    call = OperatorCall(
        name or "",
        (input_shapes(shapes) if shapes else None) or (),
        (input_dtypes(dtypes) if dtypes else None) or (),
        scalars,
    )
    found = (input_shapes(strides) if strides else None) or ()
    return LaunchedCall(call, tuple(_flat(s) for s in found))


def _flat(entry: Shape | tuple[Shape, ...] | None) -> Shape | None:
    """Strides of one tensor; those of a list of tensors are left out."""
    if not entry or isinstance(entry[0], tuple):
        return None
    return entry

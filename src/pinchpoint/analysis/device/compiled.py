"""Which device operations are operations of compiled programs (XLA), and what those count."""

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Rows


@dataclass(frozen=True, eq=False)
class Counted:
    """For each row of ``device_ops`` its FLOPs and bytes as the compiler counts them; NaN: unknown.

    FLOPs are those of products and convolutions where they come from the program itself.
    """

    flops: Floats
    bytes: Floats


def compiled_rows(trace: Trace) -> Rows:
    """For each row of ``device_ops`` that of ``compiled_ops``, or -1: they begin together."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return np.full(0 if ops is None else len(ops), -1, np.intp)
    begun = zip(compiled["start_ns"].tolist(), compiled.filled("device", -1).tolist(), strict=True)
    at = {pair: row for row, pair in enumerate(begun)}
    pairs = zip(ops["start_ns"].tolist(), ops["device"].tolist(), strict=True)
    return np.array([at.get(pair, -1) for pair in pairs], np.intp)


@once_per_trace
def counted(trace: Trace) -> Counted:
    """An operation is a row of both tables: they begin together, on one device."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    nothing = np.full(0 if ops is None else len(ops), np.nan)
    if ops is None or compiled is None or not len(compiled):
        return Counted(nothing, nothing)
    row = compiled_rows(trace)

    def of(column: str) -> Floats:
        known = (row >= 0) & compiled.known(column)[row]
        return np.where(known, compiled.filled(column, 0)[row].astype(np.float64), np.nan)

    return Counted(of("flops"), of("bytes"))

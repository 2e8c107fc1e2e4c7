"""Products in a costly order by the shapes of a recording: what a run did not watch."""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.work.product_order import long_order
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import counted, duration


def by_shapes(trace: Trace) -> Iterator[Found]:
    """The products of a device that another order makes smaller, as one finding."""
    ops, found = trace.device_ops, long_order(trace)
    if ops is None or found is None:
        return
    mine = np.zeros(len(ops), np.bool_)
    mine[found.device_rows] = True
    work = device_work(trace, mine, "products that another order makes smaller")
    if work is None:
        return
    left = found.left_ratio[np.searchsorted(found.device_rows, work.rows)]
    took = ops["duration_ns"][work.rows]
    ratio = float((took * left).sum() / max(took.sum(), 1))
    size, made_of = (" × ".join(map(str, of)) for of in (found.largest, found.made_of))
    yield Found(
        summary=(
            f"{counted(work.count, 'product')} a step make matrices of up to {size} from one of"
            f" {made_of} by one like it, transposed, and multiply them down again:"
            f" {duration(work.ns_per_step)} of each recorded step, of which another order needs"
            f" {100 * ratio:.0f} %"
        ),
        evidence=(
            *work.evidence,
            Evidence("the largest matrix that need not be made", size, ""),
            Evidence("of these products' work, needed", round(ratio, 4), "ratio"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=tuple(
            ScaleDeviceOps(work.rows[left == of], of, flops_left=of, bytes_left=of)
            for of in np.unique(left).tolist()
        ),
        location=work.place,
        fix="Transpose the matrix first where it has more rows than columns: its short side",
        hint="x = g.mT if g.shape[-2] > g.shape[-1] else g  # and .mT of the result",
        confidence="medium",
    )

"""Lookups of rows that do not lie side by side: what they move, and what they would take."""

import numpy as np

from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.attainable import Attainable
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Rows
from pinchpoint.trace.names import rows_named

# A lookup of whole rows takes this long for each of them, however narrow: 4 M rows of 16 to 256
# bytes take 2.53 ms on an H200 (torch 2.11), which is more than their bytes need.
ROW_NS = 0.6
# Apart in bytes, so that two neighbours of one row share no piece of memory that is fetched.
PIECE_BYTES = 32

_LOOKUPS = ("aten::index", "aten::index_select", "aten::embedding")
# Threads of a block and elements of each thread: with the grid, how many elements it looks up.
_SIZE = regex(r"index_elementwise_kernel<(\d{1,9}), (\d{1,9})")


@dataclass(frozen=True, eq=False)
class Gathers:
    """Lookups by elementwise kernels in tables whose rows are spread over memory."""

    rows: Rows  # of device_ops
    moved_bytes: Floats  # read and written once
    dense_ns: Floats  # what each takes from a table whose rows lie side by side


def gathers_across(trace: Trace, well: Attainable) -> Gathers:
    """Those whose table has the elements of a row apart in memory, and a size that is known."""
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    wanted = calls.where(_spread) & rows_named(trace, ops, lambda n: bool(_SIZE.search(n)))
    rows = np.flatnonzero(wanted)
    looked_up = np.array([_elements(trace, row) for row in rows.tolist()], np.float64)
    known = ~np.isnan(looked_up)
    rows, looked_up = rows[known], looked_up[known]
    width = calls.numbers(lambda of: float(elements((of.call.shape(0) or (0, 1))[1:])))[rows]
    size = calls.numbers(lambda of: float(of.call.element_bytes(0)))[rows]
    moved = 2 * looked_up * size
    streaming = moved * (well.stream_ns(1.0) or 0.0)
    return Gathers(rows, moved, np.maximum(streaming, ROW_NS * looked_up / np.maximum(width, 1)))


def _spread(of: LaunchedCall) -> bool:
    shape, stride = of.call.shape(0), of.stride(0)
    if of.call.name not in _LOOKUPS or shape is None or stride is None or len(shape) < 2:
        return False
    across = stride[-1] * of.call.element_bytes(0) >= PIECE_BYTES
    return across and min(stride) == stride[0] and shape[-1] > 1


def _elements(trace: Trace, row: int) -> float:
    """How many elements a lookup's kernel handles, from its grid; not a number if unknown."""
    ops = trace.device_ops
    assert ops is not None
    size, blocks = (
        _SIZE.search(trace.text(ops, "name", row) or ""),
        blocks_of_device_ops(trace)[row],
    )
    if size is None or not blocks:
        return float("nan")
    return float(blocks) * int(size[1]) * int(size[2])

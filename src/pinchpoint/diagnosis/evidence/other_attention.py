"""What attention takes of the device where another backend computes it than the recorded one.

cuDNN's is the quickest that PyTorch has on Hopper, and the recorded steps may be early ones of a
cache that fills: what they took is the least, not what is left for sure.
"""

import numpy as np

from pinchpoint.analysis.costs.call import OperatorCall
from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.input_arguments import input_shapes
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.names import rows_named

CUDNN_ATTENTION = regex(r"aten::_?\w*cudnn_attention\w*")
# "up to 75 % speed-up over FlashAttentionV2" on an H100: pytorch.org/blog/pytorch2-5, of long
# sequences; of one query a row both wait for the same bytes.
MOST_SLOWER_RATIO = 1.75
_LENGTH, _DIMENSIONS = 2, 4  # of [batch, heads, length, width]


def at_most(trace: Trace, named: Trace, rows: Rows) -> ScaleDeviceOps | None:
    """The kernels of cuDNN's attention as slow as others' may be, and at the mean of the lengths
    that its cache has room for, where it fills; None without such kernels.

    ``rows`` are calls of it in ``named``, the recording that has shapes of inputs.
    """
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None:
        return None
    mine = within(
        parents(host),
        rows_named(trace, host, lambda name: CUDNN_ATTENTION.fullmatch(name) is not None),
    )
    known = device_ops_in_steps(trace) & ops.known("host_op")
    kernels = np.flatnonzero(known)[mine[ops["host_op"][known]]]
    if not len(kernels):
        return None
    return ScaleDeviceOps(kernels, MOST_SLOWER_RATIO * _longer_ratio(named, rows))


def _longer_ratio(named: Trace, rows: Rows) -> float:
    """The mean length between now and the end of the cache against today's; 1 where none fills.

    A cache fills where one query after the other meets more keys than the one before, in a buffer
    whose heads lie farther apart than these keys reach.
    """
    host = named.host_ops
    assert host is not None
    in_order = rows[np.argsort(host["start_ns"][rows], kind="stable")].tolist()
    caches = [_cache(named, host, row) for row in in_order]
    known = [one for one in caches if one is not None]
    if len(known) < max(len(caches), 2):
        return 1.0
    lengths, rooms = (np.array(column) for column in zip(*known, strict=True))
    grows = (np.diff(lengths) >= 0).all() and lengths[-1] > lengths[0]
    if not grows or len(set(rooms.tolist())) != 1 or rooms[0] <= lengths[-1]:
        return 1.0
    return float((lengths[-1] + rooms[0]) / 2 / lengths.mean())


def _cache(named: Trace, host: Table, row: int) -> tuple[int, int] | None:
    """How many keys one query meets in a call, and for how many there is room; None otherwise."""
    shapes, strides = (
        OperatorCall("", input_shapes(named.text(host, of, row) or "") or ())
        for of in ("shapes", "strides")
    )
    query, key, apart = shapes.shape(0), shapes.shape(1), strides.shape(1)
    if query is None or key is None or apart is None:
        return None
    if {len(query), len(key), len(apart)} != {_DIMENSIONS} or query[_LENGTH] != 1:
        return None
    return (key[_LENGTH], apart[1] // apart[_LENGTH]) if apart[_LENGTH] else None

"""For how long operations run on a device beside which nothing is computed."""

from pinchpoint.trace import DeviceKind, Table
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Mask


def alone_ns(ops: Table, rows: Mask, device: int) -> int:
    """Time of these rows of ``device_ops`` on a device in which it runs no kernel besides."""
    here = ops["device"] == device
    mine, computes = here & rows, here & ~rows & (ops["kind"] == DeviceKind.KERNEL)
    spans = iv.flatten(ops["start_ns"][mine], ops.end_ns[mine])
    busy = iv.flatten(ops["start_ns"][computes], ops.end_ns[computes])
    hidden = iv.covered_before(busy, spans.end) - iv.covered_before(busy, spans.start)
    return spans.total - int(hidden.sum())

"""Samples of GPU metrics, taken with ``--gpu-metrics-devices``."""

import numpy as np

from pinchpoint.importers.nsys.database import Database
from pinchpoint.trace import Names, Table, table
from pinchpoint.trace.distinct import distinct_rows

_SANE_NS = 2**61


def read_counters(database: Database, names: Names, origin: int) -> Table | None:
    """GPU metric samples; None if none were taken. The names keep their unit, as nsys has them."""
    found = database.integers(
        "GPU_METRICS", ("timestamp", "rawTimestamp", "typeId", "metricId", "value")
    )
    time = found.get("timestamp", found.get("rawTimestamp"))
    if time is None or not {"typeId", "metricId", "value"} <= set(found):
        return None
    known = {
        (type_id, metric_id): str(name)
        for type_id, metric_id, name in database.rows(
            "TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName")
        )
    }
    distinct, which = distinct_rows(found["typeId"].values, found["metricId"].values)
    texts = [known.get((t, m), f"GPU metric {m}") for t, m in distinct.tolist()]
    name = np.array(names.ids_of(texts), np.int32).reshape(-1)[which]
    keep = ~time.missing & ~found["value"].missing & (np.abs(time.values) < _SANE_NS)
    order = np.flatnonzero(keep)
    order = order[np.argsort(time.values[order], kind="stable")]
    return table(
        "counters",
        {
            "time_ns": time.values[order] - origin,
            "name": name[order],
            "value": found["value"].values[order].astype(np.float64),
            "device": found["typeId"].values[order] & 0xFF,
        },
    )

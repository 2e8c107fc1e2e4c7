"""Which of the program's functions do little else than a given kind of work.

A fix often takes a whole function away (log less often, sample on the device), not only the one
call in it that a rule recognises.
"""

import numpy as np

from pinchpoint.analysis.ancestry import nearest, parents
from pinchpoint.analysis.frames import Owner, frame_of, owners
from pinchpoint.trace import Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Mask
from pinchpoint.trace.named import rows_named

MOSTLY_RATIO = 0.6  # a function that spends this much of its time on a work does that work
_NUMERIC_PACKAGES = ("numpy/", "pandas/", "PIL/", "matplotlib/", "scipy/", "sklearn/")
_NUMERIC_BUILT_INS = (" of numpy.", " of ImagingEncoder")
_TO_HOST = ("cpu of Tensor", "numpy of Tensor", "tolist of Tensor", "aten::_to_copy", "aten::copy_")


def functions_doing(trace: Trace, work: Mask, helping: Mask, least_ratio: float) -> Mask:
    """The program's functions that spend ``least_ratio`` of their time on ``work``, and
    MOSTLY_RATIO on it and what is ``helping`` it; masks over ``host_ops``.

    Work counts for the innermost function of the program around it.
    """
    host = trace.host_ops
    if host is None or not work.any():
        return np.zeros(0 if host is None else len(host), np.bool_)
    user = owners(trace) == Owner.USER
    result: Mask = user & (_share(host, user, work | helping) >= MOSTLY_RATIO)
    result &= _share(host, user, work) >= least_ratio
    return result


def _share(host: Table, user: Mask, wanted: Mask) -> Floats:
    """Time in outermost wanted rows, as a share of the innermost function around them."""
    none, chain = len(host), parents(host)
    above = np.append(nearest(chain, wanted), none)[chain]
    rows = np.flatnonzero(wanted & (above == none))
    spent = np.zeros(none + 1)
    np.add.at(spent, nearest(chain, user)[rows], host["duration_ns"][rows])
    result: Floats = spent[:-1] / np.maximum(host["duration_ns"], 1)
    return result


@once_per_trace
def numeric_on_host(trace: Trace) -> Mask:
    """Rows of ``host_ops`` in which numeric packages compute on the CPU."""
    if trace.host_ops is None:
        return np.zeros(0, np.bool_)
    return rows_named(trace, trace.host_ops, _is_numeric)


def _is_numeric(name: str) -> bool:
    frame = frame_of(name)
    in_package = frame is not None and frame.file.startswith(_NUMERIC_PACKAGES)
    return in_package or any(built_in in name for built_in in _NUMERIC_BUILT_INS)


@once_per_trace
def copies_to_host(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that by their name may copy tensors to the host."""
    if trace.host_ops is None:
        return np.zeros(0, np.bool_)
    return rows_named(trace, trace.host_ops, lambda name: any(to in name for to in _TO_HOST))

"""Means and medians over the values that are known; nan where none is."""

import numpy as np

from pinchpoint.trace.arrays import Floats


def median_of_ranks(values: Floats) -> Floats:
    """Median of each column of a matrix (ranks, steps)."""
    out = np.full(values.shape[1:], np.nan)
    some = (~np.isnan(values)).any(axis=0)
    if some.any():
        out[some] = np.nanmedian(values[:, some], axis=0)
    return out


def mean_of_ranks(values: Floats) -> Floats:
    """Mean of each column."""
    out = np.full(values.shape[1:], np.nan)
    some = (~np.isnan(values)).any(axis=0)
    if some.any():
        out[some] = np.nanmean(values[:, some], axis=0)
    return out


def mean_of_steps(values: Floats) -> Floats:
    """Mean of each row."""
    return mean_of_ranks(values.T)


def mean(values: Floats) -> float:
    """Mean of everything that is known; 0 where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def lower_median_of_ranks(values: Floats) -> Floats:
    """The value of each column that half of the known ones, rounded up, do not exceed."""
    ordered = np.sort(values, axis=0)  # nan comes last
    count = (~np.isnan(values)).sum(axis=0)
    middle = np.maximum(count - 1, 0) // 2
    out: Floats = np.take_along_axis(ordered, middle[None, :], axis=0)[0]
    return out

"""Whether a recording is one rank of a job, and how much of its step lies between ranks.

One rank's recording shows that it waits, not for whom; and a rank for which all others wait looks
busy and healthy. Only all ranks together tell.
"""

import numpy as np

from pinchpoint.analysis.accounting import Breakdown
from pinchpoint.analysis.collective_arguments import collective_arguments
from pinchpoint.analysis.ranks.facts import BETWEEN_RANKS
from pinchpoint.trace import Trace, once_per_trace


@once_per_trace
def one_of_many(trace: Trace) -> int | None:
    """Ranks of the job, or of its largest process group where that is all that is known.

    None for a program without other ranks, as far as the recording says.
    """
    ranks = max(trace.world_size or 0, _largest_group(trace))
    return ranks if ranks > 1 else None


def between_ranks_ratio(parts: Breakdown) -> float:
    """Share of the step in collectives that nothing hides, be it waiting or transfer."""
    between = sum(parts.of_part(part) for part in BETWEEN_RANKS)
    return between / parts.typical_ns if parts.typical_ns else 0.0


def _largest_group(trace: Trace) -> int:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return 0
    rows = np.flatnonzero(ops.known("collective_args"))
    pairs = set(
        zip(
            ops.filled("collective", -1)[rows].tolist(),
            ops.filled("collective_args", -1)[rows].tolist(),
            strict=True,
        )
    )
    known = collective_arguments(trace)
    return max((known[pair].group_size or 0 for pair in pairs), default=0)

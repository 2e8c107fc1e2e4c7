"""The step of a job whose ranks' meetings cannot be replayed: without devices, it is not known what
hosts did between two of them.

Each step is as long as the longest own time of any rank, as far as that explains the step: who is
waited for decides, and the transfers stay.
"""

import numpy as np

from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.ranks.what_if import Own


def longest_gain_ns(job: Job, before: Own, after: Own) -> int:
    """What the mean step wins by other own times; never more than the step without recording."""
    known = job.facts.usable
    longest = [
        float(np.mean(np.nanmax(np.fmax(own.ns, own.host_ns)[known], axis=0)))
        for own in (before, after)
    ]
    if not longest[0]:
        return 0
    return round(max(longest[0] - longest[1], 0.0) * min(job.base_ns / longest[0], 1.0))

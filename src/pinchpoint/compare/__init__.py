"""What changed between two profiles or two benchmarks, by how much, and is it noise.

Pure functions of what was read; the changes of two profiles add up to the change of the step.
"""

from pinchpoint.compare.profiles import compare_profiles
from pinchpoint.compare.results import compare_results

__all__ = ["compare_profiles", "compare_results"]

"""Many ranks of one job: files to records (the map), records to one document (the reduce).

This is the layer that may both read files and run rules, so the engines live here, beside the
document they fill; ``analysis.ranks`` stays pure.
"""

from pinchpoint.report.ranks.document import RanksReport
from pinchpoint.report.ranks.run import OnRay, diagnose_ranks, merge_parts, write_shard

__all__ = ["OnRay", "RanksReport", "diagnose_ranks", "merge_parts", "write_shard"]

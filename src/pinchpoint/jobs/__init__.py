"""Many ranks of one job: files to records in many processes, records to one document.

The engines (a pool of processes, any Executor, Ray), the part files of shards and what is kept as
Parquet. How a job is judged is in ``analysis.ranks``, its document in ``report.documents.ranks``.
"""

from pinchpoint.jobs.run import OnRay, diagnose_ranks, merge_parts, write_shard

__all__ = ["OnRay", "diagnose_ranks", "merge_parts", "write_shard"]

"""Many ranks of one job: files to records in many processes, records to one document.

The engines (a pool of processes, any Executor, Ray), the part files of shards and what is kept as
Parquet. The document about a job is ``report.documents.ranks``, how it is judged in ``analysis.ranks``.
"""

from pinchpoint.jobs.run import OnRay, diagnose_ranks, merge_parts, write_shard

__all__ = ["OnRay", "diagnose_ranks", "merge_parts", "write_shard"]

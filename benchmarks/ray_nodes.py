"""`pinchpoint ranks --engine ray` over a thousand files on several nodes, one of which fails.

    python benchmarks/ray_nodes.py [--ranks 1000] [--nodes 3]

The nodes are processes of Ray on this machine (``ray.cluster_utils.Cluster``), with one core each.
Once a fifth of the files is read, a node is killed and another one joins. Printed: seconds, what
the driver's memory grew by while records came in, whether the answer is that of one machine, and
how much was read twice.
"""

import argparse
import gc
import json
import tempfile
import time
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

from make_ranks import write
from pinchpoint.jobs import OnRay, diagnose_ranks
from pinchpoint.report.documents.ranks import encode_ranks


def measure(ranks: int, nodes: int) -> dict[str, object]:
    """One job, read by all nodes."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as scratch:
        job = Path(scratch, "job")
        write(job, ranks, steps=4, layers=2)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        workers = [cluster.add_node(num_cpus=1) for _ in range(nodes - 1)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        seen: list[int] = []
        failed: list[int] = []

        def progress(done: int, total: int) -> None:
            gc.collect()
            seen.append(psutil.Process().memory_info().rss)
            if done == total // 5 and workers:
                cluster.remove_node(workers.pop(), allow_graceful=False)
                cluster.add_node(num_cpus=1)
                failed.append(done)

        began = time.monotonic()
        try:
            there = diagnose_ranks([job], OnRay(cluster.address), progress)
        finally:
            wall = time.monotonic() - began
            ray.shutdown()
            cluster.shutdown()
        here = diagnose_ranks([job])
        return {
            "ranks": ranks,
            "nodes": nodes,
            "node failed after files": failed,
            "wall_s": round(wall, 1),
            "driver_grew_bytes_a_rank": round((seen[-1] - seen[len(seen) // 10]) / (0.9 * ranks)),
            "same answer as one machine": encode_ranks(there) == encode_ranks(here),
            "unreadable": len(there.job.unreadable),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(measure(options.ranks, options.nodes), indent=1))


if __name__ == "__main__":
    main()

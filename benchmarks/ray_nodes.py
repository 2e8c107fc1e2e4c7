"""`pinchpoint ranks --engine ray` over a thousand files on several nodes, one of which fails.

    python benchmarks/ray_nodes.py [--ranks 1000] [--nodes 3]

The nodes are processes of Ray on this machine (``ray.cluster_utils.Cluster``), with one core each.
Once a fifth of the files is read, a node is killed and another one joins. Printed: seconds until
the cluster is there, of reading and of the reduce, what replacing the node took of it, CPU time and
memory of the processes that read, what the driver's memory grew by while records came in, whether
the answer is that of one machine, and how long that took.
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

# The driver looks through all its objects for its memory: 40 ms and more with Ray imported, as long
# as one file takes to read. After each file, the measurement took half of this machine.
LOOKS = 20


def measure(ranks: int, nodes: int) -> dict[str, object]:
    """One job, read by all nodes."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as scratch:
        job = Path(scratch, "job")
        write(job, ranks, steps=4, layers=2)
        starting = time.monotonic()
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        workers = [cluster.add_node(num_cpus=1) for _ in range(nodes - 1)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        seen: list[int] = []
        failed: list[int] = []
        replaced_s: list[float] = []
        read_at: list[float] = []
        reading: list[tuple[float, int]] = []

        def progress(done: int, total: int) -> None:
            if done % max(total // LOOKS, 1) == 0:
                gc.collect()
                seen.append(psutil.Process().memory_info().rss)
            if done == total // 5 and workers:
                lost = time.monotonic()
                cluster.remove_node(workers.pop(), allow_graceful=False)
                cluster.add_node(num_cpus=1)
                failed.append(done)
                replaced_s.append(time.monotonic() - lost)
            if done == total:
                read_at.append(time.monotonic())
                reading.extend(_readers())

        began = time.monotonic()
        try:
            there = diagnose_ranks([job], OnRay(cluster.address), progress)
        finally:
            ended = time.monotonic()
            ray.shutdown()
            cluster.shutdown()
        alone = time.monotonic()
        here = diagnose_ranks([job])
        read_s = read_at[-1] - began - sum(replaced_s)
        return {
            "ranks": ranks,
            "nodes": nodes,
            "node failed after files": failed,
            "cluster_s": round(began - starting, 1),
            "wall_s": round(ended - began, 1),
            "read_s": round(read_s, 1),
            "read_ms_a_rank": round(1000 * read_s / ranks, 1),
            "node_replaced_s": round(sum(replaced_s), 1),
            "reduce_s": round(ended - read_at[-1], 1),
            "readers_cpu_s": round(sum(cpu_s for cpu_s, _ in reading), 1),
            "largest_reader_bytes": max(rss for _, rss in reading),
            "driver_grew_bytes_a_rank": round((seen[-1] - seen[1]) / (0.9 * ranks)),
            "same answer as one machine": encode_ranks(there) == encode_ranks(here),
            "one_machine_s": round(time.monotonic() - alone, 1),
            "unreadable": len(there.job.unreadable),
        }


def _readers() -> list[tuple[float, int]]:
    """CPU time and memory of Ray's processes that run tasks; the killed node's are gone."""
    found = []
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith(("ray::IDLE", "ray::read_rank")):
            times = process.cpu_times()
            found.append((times.user + times.system, process.memory_info().rss))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(measure(options.ranks, options.nodes), indent=1))


if __name__ == "__main__":
    main()

"""Which files can be read."""

from pinchpoint.cli.output import show
from pinchpoint.importers import formats

FILES = {
    "kineto": ".json .json.gz .trace        torch.profiler, Kineto, jax.profiler (.trace.json.gz)",
    "PyTorch memory snapshot": ".pickle .pickle.gz           torch.cuda.memory._dump_snapshot",
    "ncu": ".ncu-rep .csv .txt           Nsight Compute: reports, CSV pages, printed tables",
    "nsys": ".sqlite .nsys-rep            Nsight Systems (.nsys-rep needs nsys on this machine)",
    "nsys stats CSV": ".csv                         nsys stats --format csv",
    "bench folder": "a folder with session.json   pinchpoint bench run --profile",
    "run folder": "a folder with run.json       pinchpoint run",
    "DCGM exporter text": ".prom .txt                   scrapes of the DCGM exporter",
    "nvidia-smi dmon": ".log .txt                    nvidia-smi dmon",
    "pinchpoint telemetry": ".csv                         pinchpoint run, pinchpoint monitor --log",
    "nvidia-smi CSV": ".csv                         nvidia-smi --query-gpu=... --format=csv",
    "xplane": ".xplane.pb .xplane.pb.gz     JAX and XLA",
}
"""Usual names of the files, and what writes them; a file is known by its content."""


def command() -> int:
    """List the formats that Pinchpoint reads: name, usual file names, what writes them."""
    width = max(map(len, formats()))
    show("".join(f"{name:{width}}  {FILES.get(name, '')}".rstrip() + "\n" for name in formats()))
    return 0

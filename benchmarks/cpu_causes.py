"""Causes of programs on CPUs, planted: what ``diagnose`` says, and what the fix gives.

    python benchmarks/cpu_causes.py [CAUSE ...]

Each cause runs twice in processes of its own, slow and fixed: timed without the profiler, then
recorded over five steps. Prints the first finding of the slow recording, the share of the step
that it predicts to be left with its range, the share that is measured (CPU time, which neighbours
change least), and what is said of the fixed one, which should be nothing. Needs torch.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CAUSES = {
    "float64": "cpu-float64",
    "samples": "cpu-operator-loop",
    "rows": "cpu-operator-loop",
    "chain": "cpu-operator-loop",
    "optimizer": "cpu-unfused-optimizer",
    "copies": "cpu-copies",
    "orders": "cpu-strided-operands",
    "loader": "dataloader-starved",
}
TIMED, RECORDED = 7, 5


def main(wanted: list[str]) -> None:
    """Print the table."""
    from pinchpoint.importers import load
    from pinchpoint.report import diagnose

    print(
        "| planted | first finding | left, predicted | left, measured | of the fixed one | load |"
    )
    print("|---|---|---:|---:|---|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for cause in wanted or CAUSES:
            files = {v: Path(folder, f"{cause}.{v}.json") for v in ("slow", "fixed")}
            cpu_s = {v: _run(cause, v, file) for v, file in files.items()}
            slow, fixed = (diagnose(load(files[v])) for v in ("slow", "fixed"))
            first = next(iter(slow.findings), None)
            left = "-"
            if first is not None and first.predicted_step_ns and slow.steps.typical_ns:
                low, high = first.predicted_range_ns or (first.predicted_step_ns,) * 2
                shares = (ns / slow.steps.typical_ns for ns in (first.predicted_step_ns, low, high))
                left = "{:.2f} ({:.2f} to {:.2f})".format(*shares)
            said = ", ".join(f.id for f in fixed.findings) or "nothing"
            print(
                f"| {cause} ({CAUSES[cause]}) | {first.id if first else 'nothing'} | {left} | "
                f"{cpu_s['fixed'] / cpu_s['slow']:.2f} | {said} | {os.getloadavg()[0]:.0f} |",
                flush=True,
            )


def _run(cause: str, variant: str, file: Path) -> float:
    words = [sys.executable, __file__, "--program", cause, variant, str(file)]
    # Threads that turn in place while others have the cores would count as work.
    waits = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=waits)
    return float(done.stdout.split()[-1])


def program(cause: str, slow: bool, file: str) -> None:
    """One variant: prints the median CPU time of a step, and writes the recording."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    torch.set_num_threads(2)
    step = _step(cause, slow)
    for _ in range(3):
        step()
    took = []
    for _ in range(TIMED):
        begin = time.process_time()
        step()
        took.append(time.process_time() - begin)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=RECORDED, repeat=1),
        record_shapes=True,
        with_stack=True,
    ) as recorded:
        for _ in range(RECORDED + 1):
            step()
            recorded.step()
    recorded.export_chrome_trace(file)
    print(sorted(took)[TIMED // 2])


def _step(cause: str, slow: bool) -> Callable[[], None]:
    import torch
    from torch import nn
    from torch.nn import functional

    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.Linear(512, 10))
    x, y = torch.randn(128, 512), torch.randint(0, 10, (128,))
    if cause == "optimizer":
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(60)))
        x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    if cause == "float64" and slow:
        model, x = model.double(), x.double()
    tensors = torch.randn(512, 128, 512), *torch.randn(2, 2048, 2048)
    fused = not (cause == "optimizer" and slow)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=fused)
    batches = iter(torch.utils.data.DataLoader(_Samples(slow), batch_size=64))

    def train(inputs: "torch.Tensor", targets: "torch.Tensor" = y) -> None:
        optimizer.zero_grad(set_to_none=True)
        if cause == "samples" and slow:
            parts = [
                functional.cross_entropy(model(inputs[i : i + 1]), targets[i : i + 1])
                for i in range(len(inputs))
            ]
            loss = torch.stack(parts).mean()
        else:
            loss = functional.cross_entropy(model(inputs).float(), targets)
        loss.backward()
        optimizer.step()

    def step() -> None:
        if cause == "rows":
            train(
                _normal_rows(x) if slow else (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
            )
        elif cause == "chain":
            train(_chain(x[:32]) if slow else x[:32] * 1.5, y[:32])
        elif cause in ("copies", "orders"):
            train(_laid_out(cause, slow, tensors))
        elif cause == "loader":
            train(*next(batches))
        else:
            train(x)

    return step


def _laid_out(cause: str, slow: bool, tensors: "tuple[torch.Tensor, ...]") -> "torch.Tensor":
    """Rows of a large tensor that is copied first, or of a product of others in two orders."""
    large, one, other = tensors
    if cause == "copies":
        moved = large.transpose(0, 1)
        return (moved.contiguous() if slow else moved)[:, 3]
    return (one * (other.t() if slow else other))[:128, :512]


def _normal_rows(x: "torch.Tensor") -> "torch.Tensor":
    import torch

    return torch.stack([(row - row.mean()) / row.std() for row in x])


def _chain(x: "torch.Tensor") -> "torch.Tensor":
    for _ in range(400):
        x = x * 1.001 + 0.001
    return x


class _Samples:
    """Random rows; slow ones are prepared by a loop in Python."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, at: int) -> "tuple[torch.Tensor, int]":
        import torch

        if self.slow:
            sum(i * 0.5 for i in range(4000))
        return torch.randn(512, generator=torch.Generator().manual_seed(at)), at % 10


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        program(sys.argv[2], sys.argv[3] == "slow", sys.argv[4])
    else:
        main(sys.argv[1:])

"""A program is started in the training loop.

## What it looks for
Calls inside the steps that start a program: `subprocess.run`, `os.system`, `os.popen`. What
compilers start (`torch.compile`, Triton) is their own matter: see `recompiles`. So are the workers
of a loader (`worker-respawn`). Without Python stacks no start shows.

## Why it matters
Starting a program copies the page tables of a large process and waits for the program to end;
`nvidia-smi` alone takes a tenth of a second. Meanwhile nothing is launched.

## How to fix it
Read what the program would tell in the process itself (`torch.cuda.utilization()`, `pynvml`), or
in a thread, or every some hundred steps.

## When to ignore it
Where the program is started once an epoch.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans, how_often, named
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, periodic=True, removes_host_work=True)

_SYSTEM = "<built-in function system>"
_COMPILERS = ("torch/_inductor/", "torch/_dynamo/", "triton/")


def check(trace: Trace) -> Iterator[Found]:
    """Processes started inside the steps."""
    spans = host_spans(trace, _starts(trace), "starting programs")
    if spans is None:
        return
    yield Found(
        summary=(
            f"A program is started {how_often(trace, spans)}{spans.where},"
            f" for {duration(spans.ns_per_step)} of the mean recorded step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, 0.0),),
        location=spans.place,
        fix="Read the same figures in the process, or start the program outside the loop",
        hint="torch.cuda.utilization()  # instead of subprocess.run(['nvidia-smi', …])",
    )


def _starts(trace: Trace) -> Mask:
    """Host rows in which a program is started by whom no compiler called."""
    host = trace.host_ops
    starts = named(trace, _starts_a_program)
    if host is None or not starts.any():
        return starts
    compilers = named(trace, lambda name: any(part in name for part in _COMPILERS))
    inside = within(parents(host), compilers)[:-1]
    return starts & ~inside


def _starts_a_program(name: str) -> bool:
    """``subprocess.py(506): run`` of the standard library, and ``os.system``."""
    path, _, function = name.rpartition(": ")
    file = path.partition("(")[0].rpartition("/")[2]
    return name == _SYSTEM or (file == "subprocess.py" and function in ("run", "call", "__init__"))

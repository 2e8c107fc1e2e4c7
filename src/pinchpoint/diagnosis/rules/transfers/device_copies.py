"""Large tensors are copied from one place in the device's memory to another in every step.

## What it looks for
Copies within one device's memory, of 8 MiB or more each, that change neither type nor layout (the
copy engine's, and those of the driver's own kernels inside graphs: `copy_` and `clone` of tensors
that lie alike, and what XLA copies to leave an argument as it was). They compute nothing: the same
values lie somewhere else afterwards. Buffers of a CUDA graph that are filled before each replay and
cloned after it, state that is handed on by value, arrays that a compiled function of JAX changes
without having been given them, and caches that are copied to grow by one entry are the usual cases.
Where a recording does not say how much is copied, copies of 50 µs or more count. Whether both
copies are needed, because one is changed while the other is read later, is not recorded. It yields
to every other finding that explains the same time.

## Why it matters
A copy reads and writes everything: a large cache that is copied in and out costs more than what
reads it.

## How to fix it
Let the one that makes the values write where they are read: bind large tensors of a graph once,
change them in place, swap two buffers instead of copying one over the other, allocate a cache at
its full size. In JAX, donate the arrays that a function takes and gives back changed
(`jax.jit(store, donate_argnums=0)`): XLA then changes them in place.

## When to ignore it
Where both copies are needed: a snapshot, or a tensor that is changed while its old values are
read.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.steps.compiled_calls import called_function
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import compiled_place, device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=CPU_AND_DEVICE,
    residual=True,
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench ab -- "python train.py" "python train_in_place.py"',
)

LARGE_COPY_BYTES = 8 << 20  # takes 6 µs on an H100, read and written; less is a matter of latency
LONG_COPY_NS = 50_000  # at a tenth of an H100's rate, 8 MiB take as long; small ones 1 to 5 µs
MOST_NAMED = 3  # arguments: a tree of thousands is one argument by its first leaves
EACH_STEP_RATIO = 0.5  # of one a step: what comes more rarely is a snapshot, and wanted


def check(trace: Trace) -> Iterator[Found]:
    """Large copies within the device."""
    ops = trace.device_ops
    if ops is None:
        return
    work = device_work(trace, _within(ops), "copies within the device")
    if work is None or work.count < EACH_STEP_RATIO:
        return
    moved = _moved(trace, ops, work.rows)
    function = called_function(trace, work.rows)
    place = compiled_place(trace, work.rows) or work.place
    arguments = _arguments(trace, work.rows)
    where = f" in {place}" if place else ""
    compiled = f", for the compiled function {function}" if function else ""
    yield Found(
        summary=(
            f"{work.count:.3g} copies a step move {moved.words} from one place in the"
            f" device's memory to another{where}{compiled}: {duration(work.ns_per_step)}"
            " of each recorded step"
            + (f"; they keep its argument {arguments[0]} as it was" if arguments else "")
        ),
        evidence=(
            *moved.evidence,
            *work.evidence,
            *(Evidence("copied argument", name, "words") for name in arguments),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(work.rows),),
        location=place,
        fix=_donate(function, arguments)
        if function
        else "Write the values where they are read, instead of copying them there",
        hint="static_cache = cache  # bound once: a graph reads and writes it in place",
        confidence="medium",
    )


def _donate(function: str, arguments: Sequence[str]) -> str:
    if arguments:
        names = ", ".join(dict.fromkeys(_NAME.split(one)[0] for one in arguments))
        return (
            f"Donate {names} to {function} (donate_argnums of jax.jit), which gives back what it"
            " changed: XLA then changes it in place"
        )
    return (
        f"Donate the arrays that {function} takes and gives back changed (donate_argnums of"
        " jax.jit): XLA then changes them in place"
    )


_NAME = regex(r"[\[.]")  # of an argument, before the path to the leaf: buffer['next_obs']


def _arguments(trace: Trace, rows: Rows) -> tuple[str, ...]:
    """Arguments of compiled functions that these operations copy, most time first."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None:
        return ()
    row = compiled_rows(trace)[rows]
    name = np.where(row >= 0, compiled.filled("argument", -1)[row], -1)
    took = np.bincount(name[name >= 0], ops["duration_ns"][rows][name >= 0])
    most = np.argsort(-took, kind="stable")[:MOST_NAMED].tolist()
    return tuple(trace.names[number] for number in most if took[number])


@dataclass(frozen=True)
class _Moved:
    words: str
    evidence: tuple[Evidence, ...]


def _moved(trace: Trace, ops: Table, rows: Rows) -> _Moved:
    if not ops.known("bytes")[rows].all():
        return _Moved("arrays", ())
    sizes, counts = np.unique(ops["bytes"][rows], return_counts=True)
    usual = int(sizes[(sizes * counts).argmax()])
    moved = per_step(trace, int(ops["bytes"][rows].sum()))
    evidence = (
        Evidence("copied within the device", round(moved), "bytes per step"),
        Evidence("bytes of a copy, as most are moved", usual, "bytes"),
        Evidence("copies of that size", round(per_step(trace, int(counts.max())), 1), "per step"),
    )
    return _Moved(f"{moved / 1e9:.3g} GB", evidence)


def _within(ops: Table) -> Mask:
    inside = ops["kind"] == DeviceKind.COPY
    for end in ("from_memory", "to_memory"):
        inside = inside & (ops.filled(end, 0) == MemoryKind.DEVICE)
    large = np.where(
        ops.known("bytes"),
        ops.filled("bytes", 0) >= LARGE_COPY_BYTES,
        ops["duration_ns"] >= LONG_COPY_NS,
    )
    found: Mask = inside & large
    return found

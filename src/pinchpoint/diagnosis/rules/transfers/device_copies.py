"""Large tensors are copied from one place in the device's memory to another in every step.

## What it looks for
Copies within one device's memory, of 8 MiB or more each, that change neither type nor layout (the
copy engine's, and those of the driver's own kernels inside graphs: `copy_` and `clone` of tensors
that lie alike, and what XLA copies to leave an argument as it was). They compute nothing: the same
values lie somewhere else afterwards. Buffers of a CUDA graph that are filled before each replay and
cloned after it, state that is handed on by value, arrays that a compiled function of JAX changes
without having been given them, what a compiled loop carries and reads after it has changed it, and
caches that are copied to grow by one entry are the usual cases. Smaller copies count where all
together are a tenth of the step. Where neither the recording nor the compiled program says how much
is copied, copies of 50 µs or more are large. Whether both
copies are needed, because one is changed while the other is read later, is not recorded. It yields
to every other finding that explains the same time.

## Why it matters
A copy reads and writes everything: a large cache that is copied in and out costs more than what
reads it.

## How to fix it
Let the one that makes the values write where they are read: bind large tensors of a graph once,
change them in place, swap two buffers instead of copying one over the other, allocate a cache at
its full size. In JAX, donate the arrays that a function takes and gives back changed
(`jax.jit(store, donate_argnums=0)`): XLA then changes them in place. Where they were donated, or a
loop carries them, read what is needed of the old values before they are changed: whatever reads
them afterwards reads a copy.

## When to ignore it
Where both copies are needed: a snapshot, or a tensor that is changed while its old values are
read.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.steps.compiled_calls import called_function
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.device_work import compiled_place, device_work
from pinchpoint.diagnosis.evidence.donating import donate
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=CPU_AND_DEVICE,
    residual=True,
    fix_known=True,
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench ab -- "python train.py" "python train_in_place.py"',
)

LARGE_COPY_BYTES = 8 << 20  # takes 6 µs on an H100, read and written; less is a matter of latency
LONG_COPY_NS = 50_000  # at a tenth of an H100's rate, 8 MiB take as long; small ones 1 to 5 µs
MOST_NAMED = 3  # arguments: a tree of thousands is one argument by its first leaves
MUCH_RATIO = 0.1  # of the step, for copies of any size: a judgement of what nobody overlooks
EACH_STEP_RATIO = 0.5  # of one a step: what comes more rarely is a snapshot, and wanted


def check(trace: Trace) -> Iterator[Found]:
    """Large copies within the device."""
    ops = trace.device_ops
    if ops is None:
        return
    work = device_work(trace, _within(trace, ops), "copies within the device")
    if work is None or work.count < EACH_STEP_RATIO:
        return
    moved = _moved(trace, ops, work.rows)
    function = called_function(trace, work.rows)
    place = compiled_place(trace, work.rows) or work.place
    kept = _kept(trace, work.rows)
    arguments = kept.arguments
    where = f" in {place}" if place else ""
    if place and not place.function:  # a line alone, of a compiled program
        where = f" at {place.short}"
    compiled = f", for the compiled function {function}" if function else ""
    yield Found(
        summary=(
            f"{work.count:.3g} copies a step move {moved.words} from one place in the"
            f" device's memory to another{where}{compiled}: {duration(work.ns_per_step)}"
            " of each recorded step" + kept.words
        ),
        evidence=(
            *moved.evidence,
            *work.evidence,
            *(Evidence("copied argument", name, "words") for name in arguments),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(work.rows),),
        location=place,
        fix=kept.fix or (donate(function, arguments) if function else _IN_PLACE),
        hint=_HINT if not function else None,
        confidence="medium",
    )


_IN_PLACE = "Write the values where they are read, instead of copying them there"
_HINT = "static_cache = cache  # bound once: a graph reads and writes it in place"


@dataclass(frozen=True)
class _Kept:
    """Why compiled programs make these copies, as far as they tell."""

    arguments: tuple[str, ...] = ()  # that are copied, most time first
    words: str = ""
    fix: str = ""  # where donating is none


def _kept(trace: Trace, rows: Rows) -> _Kept:
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return _Kept()
    row = compiled_rows(trace)[rows]
    took = np.where(row >= 0, ops["duration_ns"][rows], 0)
    argument, loop = compiled.filled("argument", -1)[row], compiled.filled("loop", -1)[row]
    is_donated = compiled.filled("donated", False)[row]
    given = (argument >= 0) & is_donated
    ways = ((argument >= 0) & ~is_donated, given, (loop >= 0) & (argument < 0))
    spent = [int(took[way].sum()) for way in ways]
    if not any(spent):
        return _Kept()
    most = int(np.argmax(spent))
    if most < 2:
        names = _most(trace, argument[ways[most]], took[ways[most]])
        if most == 0:
            return _Kept(names, f"; they keep its argument {names[0]} as it was")
        fix = f"Read what is needed of {names[0]} before it is changed, or of what it becomes"
        return _Kept(
            names, f"; its argument {names[0]} was given to be changed, and is read after", fix
        )
    (at, *_) = _most(trace, loop[ways[most]], took[ways[most]])
    return _Kept(
        (),
        f"; the loop at {at} copies what it carries in its turns",
        f"In the loop at {at}, read what is needed of what it carries before that is changed, or of"
        " what it becomes: XLA copies what is read as it was afterwards",
    )


def _most(trace: Trace, names: Rows, took: Rows) -> tuple[str, ...]:
    """The names that most time is of, most first."""
    sums = np.bincount(names, took)
    most = np.argsort(-sums, kind="stable")[:MOST_NAMED].tolist()
    return tuple(trace.names[number] for number in most if sums[number])


@dataclass(frozen=True)
class _Moved:
    words: str
    evidence: tuple[Evidence, ...]


def _moved(trace: Trace, ops: Table, rows: Rows) -> _Moved:
    bytes_, known = _bytes(trace, ops)
    if not known[rows].all():
        return _Moved("arrays", ())
    sizes, counts = np.unique(bytes_[rows], return_counts=True)
    usual = int(sizes[(sizes * counts).argmax()])
    moved = per_step(trace, int(bytes_[rows].sum()))
    evidence = (
        Evidence("copied within the device", round(moved), "bytes per step"),
        Evidence("bytes of a copy, as most are moved", usual, "bytes"),
        Evidence("copies of that size", round(per_step(trace, int(counts.max())), 1), "per step"),
    )
    return _Moved(f"{moved / 1e9:.3g} GB", evidence)


def _bytes(trace: Trace, ops: Table) -> tuple[Ints, Mask]:
    """What each operation copies, and where that is known.

    A copy by the driver's kernel says nothing; its compiled program counts it read and written.
    """
    sizes, known = ops.filled("bytes", 0), ops.known("bytes")
    compiled = trace.compiled_ops
    if compiled is None or not len(compiled):
        return sizes, known
    row = compiled_rows(trace)
    counted = (row >= 0) & compiled.known("bytes")[row] & ~known
    return np.where(counted, compiled.filled("bytes", 0)[row] // 2, sizes), known | counted


def _within(trace: Trace, ops: Table) -> Mask:
    inside = ops["kind"] == DeviceKind.COPY
    for end in ("from_memory", "to_memory"):
        inside = inside & (ops.filled(end, 0) == MemoryKind.DEVICE)
    bytes_, known = _bytes(trace, ops)
    large = np.where(known, bytes_ >= LARGE_COPY_BYTES, ops["duration_ns"] >= LONG_COPY_NS)
    found: Mask = inside & large
    in_steps = device_ops_in_steps(trace) & inside
    spent, of_large = (
        per_step(trace, int(ops["duration_ns"][in_steps & some].sum())) for some in (inside, found)
    )
    much = (steps(trace).typical_ns or 0) * MUCH_RATIO
    are_many = of_large < spent / 2  # else the large ones tell all
    return inside if are_many and 0 < much <= spent else found

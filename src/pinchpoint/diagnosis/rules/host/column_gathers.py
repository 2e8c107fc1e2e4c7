"""Rows are taken by their numbers from an array that lies in memory column by column.

## What it looks for
Looks of the whole run that find the program at `table[rows]`, `take` or `iloc`, with the shape and
strides of that array, which `pinchpoint run` reads there: neighbours along the axis of which rows
are taken lie side by side, and the elements of one row, 32 of them or more, 64 bytes or more apart,
in an array that no core's own cache holds. Numbers as indices alone are meant: a slice of such an
array is read column by column.

## Why it matters
Memory comes in lines of 64 bytes. A row of such an array needs a line for each of its elements, one
that lies row by row 16 elements of 32 bits a line. On one core 1,024 rows of 244 floats took
0.19 ms from rows and 11 from columns, 8,192 rows of 32 floats 0.66 and 9.0 (NumPy 2, tables of 60
and 130 megabytes). `DataFrame.to_numpy()` gives such an array, as a frame keeps its columns; so do
a transposed view, and files in Fortran's order.

## How to fix it
Copy the array once, before the loop: `np.ascontiguousarray(table)`, `tensor.contiguous()`. A frame
of which rows are taken in a loop: its array, copied so.

## When to ignore it
Where columns of the same array are what most of the program reads, and two copies do not fit.
"""

import math
from collections.abc import Iterator, Sequence

from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.memory.shortage import size
from pinchpoint.diagnosis.evidence.thread_of_steps import thread_of_steps
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, MATERIAL_STEP_RATIO, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_samples import Operand, SampledThread, Spent

RULE = Rule(
    needs=("host_ops",),
    record=Record("the whole run: pinchpoint run python train.py"),
    parent="host-hotspot",
    removes_host_work=True,
)

LINE_BYTES = 64  # what memory is moved by, on x86-64 and most ARM servers
FEWEST_ACROSS = 32  # elements of a row: with 16 and fewer, columns took twice as long at most
LARGE_BYTES = 4 << 20  # cores of servers have a cache of 1 to 2 MiB of their own
FEWEST_LOOKS = 10  # of fewer, the share of a line is not known within a third
LEAST_RUN_RATIO = 0.05  # of a run that was not recorded: less is within what two runs differ by
# Of what rows would take by the lines that they need, on one core with seven tables of 32 to 1,000
# columns: 0.25 to 1.4 of it, and less than a fifth of what columns took.
LEFT_RATIOS, MOST_LEFT = (0.25, 1.5), 0.2


def check(trace: Trace) -> Iterator[Found | Small]:
    """The lines that take rows so, most time first."""
    base, thread = step_base_ns(trace), thread_of_steps(trace)
    if base is None or thread is None:
        raise NotChecked("the thread of the steps was not looked at")
    for operand, seen in _gathers(trace, thread):
        ratio = _us(seen) / _us_of(thread)
        if ratio < MATERIAL_STEP_RATIO:
            yield Small(ratio, MATERIAL_STEP_RATIO)
            continue
        took = round(ratio * base)
        least, likely, most = (round(took * (1 - left)) for left in _left(operand))
        yield _found(operand, seen, f"{duration(took)} of a step", took, (least, most), likely)


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """The same of a run of which nothing else was recorded."""
    from pinchpoint.analysis.mean.whole_run import run_account
    from pinchpoint.diagnosis.evidence.run_places import of_run, of_the_run

    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    main = next((t for t in samples.threads if t.main), None) if samples else None
    if main is None or account is None:
        raise NotChecked("the threads of the whole run were not looked at")
    for operand, seen in _gathers(trace, main):
        ns = 1000 * _us(seen)
        if ns < LEAST_RUN_RATIO * account.total_ns:
            yield Small(ns / account.total_ns, LEAST_RUN_RATIO, "the run")
            continue
        won = round(ns * (1 - _left(operand)[1]))
        found = _found(operand, seen, of_the_run(ns, account.total_ns), won, None, None)
        yield _of_run(found, won / account.total_ns, f"about {of_run(won, account.total_ns)}")


def _of_run(found: Found, ratio: float, said: str) -> Found:
    from msgspec.structs import replace

    return replace(found, consequence=said, run_ratio=ratio)


def _gathers(trace: Trace, thread: SampledThread) -> list[tuple[Operand, list[Spent]]]:
    samples = trace.run.samples if trace.run else None
    found = []
    for operand in samples.operands if samples else ():
        seen = [
            one
            for one in thread.spent
            if one.frames and one.frames[0] == operand.at and one.doing == operand.doing
        ]
        if lies_across(operand) and sum(one.looks for one in seen) >= FEWEST_LOOKS:
            found.append((operand, seen))
    return sorted(found, key=lambda pair: -_us(pair[1]))


def lies_across(operand: Operand) -> bool:
    """Whether what is taken at once is spread over memory, and would not be in the other order."""
    others = [n for axis, n in enumerate(operand.shape) if axis != operand.axis]
    apart = [n for axis, n in enumerate(operand.strides_bytes) if axis != operand.axis]
    along = abs(operand.strides_bytes[operand.axis])
    bytes_of_all = math.prod(operand.shape) * operand.item_bytes
    spread = bool(others) and min(map(abs, apart)) >= LINE_BYTES > along > 0
    return spread and math.prod(others) >= FEWEST_ACROSS and bytes_of_all >= LARGE_BYTES


def _left(operand: Operand) -> tuple[float, float, float]:
    """Of its time, with rows that lie side by side: at most, likely, at least."""
    across = math.prod(operand.shape) / max(operand.shape[operand.axis], 1)
    lines = across * operand.item_bytes / LINE_BYTES + 1
    likely = min(lines / across, MOST_LEFT)
    least, most = (ratio * lines / across for ratio in LEFT_RATIOS)
    return max(most, MOST_LEFT), likely, least


def _found(
    operand: Operand,
    seen: Sequence[Spent],
    said: str,
    cost_ns: int,
    saving_ns: tuple[int, int] | None,
    likely_ns: int | None,
) -> Found:
    longest = max(seen, key=lambda one: one.us)
    frame = own_frame(longest.frames)
    place = None if frame is None else Location(frame.file, frame.line, frame.function)
    across = round(math.prod(operand.shape) / max(operand.shape[operand.axis], 1))
    shape = " x ".join(f"{n:,}" for n in operand.shape)
    of_one = across * operand.item_bytes
    return Found(
        summary=(
            f"{operand.taken:,} rows at a time are taken from an array that lies column by column"
            f" ({operand.name}: {shape}, strides {operand.strides_bytes} bytes)"
            + (f" in {place}" if place else "")
            + f", {said}: each row of {size(of_one)} is spread over {across:,} lines of memory"
        ),
        evidence=(
            Evidence("looks that found it there", sum(one.looks for one in seen), "count"),
            Evidence("bytes that a row holds", of_one, "bytes"),
            Evidence("bytes of memory that it needs", across * LINE_BYTES, "bytes"),
            Evidence("the array", math.prod(operand.shape) * operand.item_bytes, "bytes"),
        ),
        cost_ns_per_step=cost_ns,
        saving_ns_per_step=saving_ns,
        likely_saving_ns=likely_ns,
        location=place,
        fix="Copy the array once, before the loop, so that its rows lie side by side",
        hint="table = np.ascontiguousarray(table)  # of a tensor: table.contiguous()",
        confirm=ANY_PROGRAM,
        confidence="high",
    )


def _us(seen: Sequence[Spent]) -> int:
    return sum(one.us for one in seen)


def _us_of(thread: SampledThread) -> int:
    return max(sum(one.us for one in thread.spent) + thread.unplaced_us, 1)

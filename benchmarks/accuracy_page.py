"""The accuracy page: the tables, and the rows that fail with what was said instead."""

from collections.abc import Sequence

import numpy as np

from accuracy_figures import Family, Ranges, covered, families, held, percent, summary
from accuracy_measured import Measured
from accuracy_rows import Row
from held_out import HeldOut
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX, AS_IT_IS, Doubts
from pinchpoint.analysis.replay.recording_cost import COSTS, RecordingCosts
from recording_cost import HeldOutCosts

HELD_OUT = "## On programs that had no part in the fit\n"
_NOT_OF_JOBS = 5  # the last rows of the summary, which are about single recordings


def page(measured: Measured) -> str:
    """The whole page."""
    failed = "".join(
        f"| {r.name} | {' + '.join(r.truth)} | {', '.join(r.found[:3]) or 'nothing'} |\n"
        for r in (*measured.labelled, *measured.untuned)
        if r.failed
    )
    answers = "".join(
        f"| {r.name} | {' + '.join(r.truth) if r.material else 'nothing that matters'} "
        f"| {', '.join(r.found[:3]) or 'nothing'} |\n"
        for r in measured.jobs
    )
    return _PAGE.format(
        rows=len(measured.labelled),
        table=_measures(summary(measured.labelled)),
        untuned=_untuned(measured.untuned),
        held_out=_held_out(measured),
        failed=failed,
        jobs=len(measured.jobs),
        measures=_measures(summary(measured.jobs)[:-_NOT_OF_JOBS]),
        answers=answers,
        families="\n".join(_of_set(name, rows) for name, rows in measured.sets if rows),
    )


def _measures(rows: Sequence[tuple[str, str]]) -> str:
    return _table(("measure", "value"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"|{'|'.join(line)}|\n" if line[0] == "---" else _line(line) for line in lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _untuned(rows: list[Row]) -> str:
    if not rows:
        return ""
    return _UNTUNED.format(
        rows=len(rows), families=len({r.case for r in rows}), table=_measures(summary(rows))
    )


def _held_out(measured: Measured) -> str:
    sets = {
        "all": {r.case for _, rows in measured.sets for r in rows},
        **{name: {r.case for r in rows} for name, rows in measured.sets},
    }
    ranges = [
        _of_ranges(what, name, found, cases)
        for what, found in (
            ("step without the profiler", measured.unprofiled),
            ("step after the fix", measured.gains),
        )
        for name, cases in sets.items()
        if any(p.family in cases for p in found.said)
    ]
    costs = [
        _of_costs(name, measured.costs, cases)
        for name, cases in sets.items()
        if measured.costs and set(measured.costs.families) & cases
    ]
    return _HELD_OUT.format(
        title=HELD_OUT,
        ranges=_table(("range of the", "programs", "as in use", "held out"), ranges),
        unprofiled=_chosen(measured.unprofiled, AS_IT_IS),
        gains=_chosen(measured.gains, AFTER_A_FIX),
        costs=_table(("programs", "recordings", "as recorded", "costs in use", "held out"), costs),
        in_use=_costs(COSTS),
        with_all=_costs(measured.costs.with_all) if measured.costs else "nothing",
    )


def _of_ranges(what: str, name: str, found: HeldOut, cases: set[str]) -> list[str]:
    mine = [i for i, p in enumerate(found.said) if p.family in cases]
    used, left = ([said[i] for i in mine] for said in (found.in_use, found.said))
    return [what, name, held(covered(used)), held(covered(left))]


def _of_costs(name: str, costs: HeldOutCosts, cases: set[str]) -> list[str]:
    mine = [
        i
        for i, (family, ok) in enumerate(zip(costs.families, costs.stable, strict=True))
        if ok and family in cases
    ]
    cells = []
    for errors in (costs.as_recorded, costs.in_use, costs.held_out):
        of = np.array([errors[i] for i in mine])
        cells.append(f"{percent(_at(of, 0.5))}, {percent(_at(of, 0.9))}")
    return [name, str(len(mine)), *cells]


def _at(errors: np.ndarray, q: float) -> float | None:
    return float(np.quantile(errors, q, method="higher")) if len(errors) else None


def _chosen(found: HeldOut, in_use: Doubts) -> str:
    if found.with_all is None:
        return "no rows"
    families = sum(found.chosen.values())
    same = found.chosen.get(in_use, 0)
    return f"{same} of {families} families choose the shares in use; all together {_shares(found)}"


def _shares(found: HeldOut) -> str:
    of = found.with_all
    assert of is not None
    return (
        f"device {of.device:g}, made faster {of.changed_device:g}, host {of.host:g},"
        f" recording {of.recording:g}, saving {of.fix:g}"
    )


def _costs(costs: RecordingCosts) -> str:
    of = {"operators": costs.operator, "Python frames": costs.frame, "calls": costs.call}
    return ", ".join(
        f"{share.ratio:.0%} of what lies next to {what}, at most {share.most_ns / 1000:g} µs"
        for what, share in of.items()
    )


def _of_set(name: str, rows: list[Row]) -> str:
    head = (
        "program", "recordings", "first right", "top 3", "wrong and confident", "alarms",
        "step", "gain", "in range", "below bound",
    )  # fmt: skip
    title = f"### {name[0].upper()}{name[1:]}\n\n"
    return title + _table(head, [_family(f) for f in families(rows)])


def _family(f: Family) -> list[str]:
    right = [f"{n:g} of {f.slow}" if f.slow else "" for n in (f.first_right, f.in_three_right)]
    return [
        f.name,
        str(f.recordings),
        *right,
        str(f.confidently_wrong),
        str(f.alarms),
        "" if f.unprofiled_error is None else percent(f.unprofiled_error),
        "" if f.gain_error is None else percent(f.gain_error),
        f"{_count(f.unprofiled_ranges)}; {_count(f.gain_ranges)}",
        str(f.below_bound),
    ]


def _count(ranges: Ranges) -> str:
    return f"{ranges.holding} of {ranges.count}" if ranges.count else "–"


_UNTUNED = """
## Programs that nobody tuned for

{rows} recordings of {families} programs on H200s, written after the rules. What was missed has been
read since, so programs that are newer still will be answered less well. An answer that was measured
to be right as well counts as right.

{table}"""

_HELD_OUT = """
{title}
Three things were fitted to recordings. Each is chosen here again without one program, with all
others of both sets, and tried on that program.

**Ranges** (`benchmarks/held_out.py`): shares of the parts of a step; of those that hold enough of
the measured steps, the ones with the smallest width.

{ranges}
Step without the profiler: {unprofiled}. Step after the fix: {gains}.

**What recording costs** (`benchmarks/recording_cost.py --held-out`): errors of the step without the
profiler, median and 90th percentile, over recordings whose unprofiled windows agree. Here the
replay alone is judged; the step that is said is also no shorter than the device's work.

{costs}
In use: {in_use}. Fitted to all: {with_all}.

**How sure the steps are**: `python benchmarks/step_confidence.py CORPUS` prints its own table with
one program family left out.
"""

_PAGE = """# How often is it right?

Measured over {rows} recordings of programs with one planted cause, two, or none, made on H100s with
and without the profiler. The command, run from a checkout with the recordings at hand:

```
python benchmarks/accuracy.py CORPUS --document docs/accuracy.md
```

`--json FILE` writes the same figures for machines.

{table}
"First finding right" counts the parent of the cause (see each rule's page) as half. Rows whose
planted cause changed nothing on that machine, and rows that are about memory or about a program's
own stopwatch, are not part of it: a trace of times cannot tell the former. "Step without the
profiler" is over rows whose two unprofiled windows agree within 5 %; "step after the fix" over rows
whose cause was found first. A step that a recording does not tell within 20 % is said as a range,
with why, and counted in the line for these; "said as a number" are the others. "In its range"
counts all rows, also those whose own two measurements differ: the measured time is the lower of the
two. "Wrong, with high confidence" counts healthy programs with a finding, and slow ones whose first
finding is not even half right.
{untuned}{held_out}
## Jobs of two ranks

The recordings above are judged one at a time, as if nobody had the other rank's. One rank cannot
show who is late: that is `pinchpoint ranks`. The same recordings as {jobs} jobs, all ranks
together:

{measures}
| job | planted | said |
|---|---|---|
{answers}
## Where it is not right

| recording | planted | said |
|---|---|---|
{failed}
Loader workers run in processes of their own that a trace of the training process does not show, so
what they do (transforms, decoding, many small files) cannot be told apart from it: the answer is
their parent, `dataloader-starved`, and says what to record.

Which tokens are padding is in the values of a mask, and no recording has values: `padding-waste`
answers *not checked* and says what to log.

The fixed recording of `c19_launch_blocking_env` still names its cause, and its label is doubtful:
half of its launches return only after their kernel has ended, as in the slow one, and the two
programs take the same time without the profiler.

## Program by program

*Step* is the step without the profiler, *gain* the step after the fix: median errors. *In range*
counts ranges that hold the measured time, for both. *Alarms* are healthy programs with a finding,
and fixed ones that are still blamed.

{families}"""

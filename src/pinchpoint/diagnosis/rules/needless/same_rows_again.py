"""Rows of a batch are the same, and each of them is computed.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher
runs them. Rows are the same where one tensor is taken for all of a batch (`expand`, `repeat`,
`repeat_interleave` of the first dimension), and where the token ids that an embedding looks up have
the same rows, of eight positions and more. Work on each row by itself (elementwise work, products
with weights, norms, attention of rows that are all alike) gives rows as much alike; it ends where
rows meet something else, at anything drawn at random, and at what is put together of several.
Named is such work of which half of the rows or fewer are distinct, in four steps in turn.

Rows of one token are left alone: sequences say the same next word by chance.

## Why it matters
The work is real, so that neither the device nor the host looks idle: a question is encoded once for
each passage that it is compared with, a prompt once for each beam or sample, a user once for each
candidate.

## How to fix it
Compute the distinct rows, and take the result for all: `expand` after the encoder in place of
before it, `torch.unique(ids, dim=0, return_inverse=True)` where rows repeat by themselves.

## When to ignore it
Where rows are the same in what was watched alone, as of a batch that is made up.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import Change
from pinchpoint.diagnosis.evidence.called_work import CalledWork, shrunk
from pinchpoint.diagnosis.evidence.vain_work import Vain, counted, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Work on rows of which few differ, with what stays of it."""
    values = watched(trace)
    for work in () if values is None else values.work or ():
        rows = vain(trace, work, beside_modules=False) if work.kind == "alike" else None
        if rows is None:
            continue
        where = f" in {rows.place}" if rows.place else ""
        device = f"{duration(rows.device_ns)} of the device's time, " if rows.device_ns else ""
        count = round(1 / work.left_ratio) if work.left_ratio else 0
        yield Found(
            summary=(
                f"Rows of a batch are the same{where}: {100 * work.left_ratio:.2g} % of the rows"
                f" of {counted(work)} a step are distinct, mostly of {rows.longest}:"
                f" {device}{duration(rows.host_ns)} of the host's as recorded"
            ),
            evidence=(
                Evidence("operations on rows that repeat", work.times, "per step"),
                Evidence("of their rows that are distinct", work.left_ratio, "ratio"),
                *rows.evidence,
            ),
            cost_ns_per_step=round((1 - work.left_ratio) * max(rows.device_ns, rows.host_ns)),
            changes=tuple(_changes(trace, rows)),
            location=rows.place,
            fix=(
                f"Compute each distinct row once, one of {count}, and take the result for all of"
                " them: expand after this work, not before it"
            ),
            hint="x = encoder(ids[:1]).expand(len(ids), -1, -1)  # torch.unique(dim=0) finds them",
            confidence="high",
        )


def _changes(trace: Trace, rows: Vain) -> Iterator[Change]:
    """The same calls on fewer rows: weights are read, and work is started, all the same."""
    left = rows.work.left_ratio
    if len(rows.device_rows):
        found = CalledWork(rows.device_rows, True, 0.0, rows.device_ns, rows.place, ())
        yield shrunk(trace, found, left)
        return
    calls = float(rows.work.times)
    found = CalledWork(rows.spans, False, calls, rows.host_ns, rows.place, ())
    yield shrunk(trace, found, left)

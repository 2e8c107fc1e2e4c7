"""A library computes again what it has computed before, from the same arrays.

## What it looks for
Calls of NumPy, SciPy, pandas and readers of files in the program's own text at which looks of the
whole run found it, ten times or more. At up to four of these, of different calls and ever further
apart, `pinchpoint run` compares what the call is given with the time before: checksums of all of an
array, lists of plain values, how often a tensor was written to, when a file was written. Told is
one that was given the same each time, at least twice: a search tree over points that stay, a
matrix that is inverted again, a file that is read again. Of solvers, the matrix alone is meant.
What draws at random, makes room or a copy, or writes is left alone; so is a call of which one
argument was not told.

## Why it matters
The work is real, so that the host looks busy, and its answer is known.

## How to fix it
Keep what it answers: once before the loop, in the object that has the array, or by what it is
given.

## When to ignore it
Where the array changes more seldom than was seen: keep the answer until it does.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.called_lines import (
    CalledLine,
    called_lines,
    in_run,
    in_steps,
    main_thread,
    of_steps,
)
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import Given

RULE = Rule(
    needs=("host_ops",),
    record=Record("the whole run: pinchpoint run python train.py"),
    parent="host-hotspot",
    removes_host_work=True,
)

FEWEST_COMPARED = 2  # pairs of calls: one pair may be alike by chance, or in one step
FEWEST_NUMBERS = 256  # and letters, that it is given: of fewer, keeping the answer wins little
_LEFT = (0.0, 0.2)  # asking for what is kept, and making it anew now and then
# Libraries whose functions answer by what they are given alone; and what in them does not.
_COMPUTES = regex(
    r"^(numpy\.|scipy\.|pandas\.|sklearn\.|json\.loads$|_?pickle\.loads$|ast\.literal_eval$|zlib\."
    r"|gzip\.decompress$|bz2\.|lzma\.|base64\.|yaml\.|xml\.|re\.compile$|torch\.load$|torch\.serialization\.load$)"
)
_DOES_MORE = regex(
    r"random|\.(zeros|empty|ones|full)(_like)?$|\.(copy|array|ascontiguousarray|asfortranarray|sort"
    r"|fill|put|place|putmask|copyto|fill_diagonal|resize|partition|shuffle|rvs|sample|at)$"
    r"|\.(save|savez|savetxt|to_\w+|dump\w*|tofile|memmap|pop|append|extend|insert|update)$"
)
_READS = regex(r"\.(load|loadtxt|genfromtxt|fromfile|read_\w+|loadmat|imread)$")
# Of these the first argument alone is what takes the time: what is made of it is kept.
_PREPARED = (
    (
        regex(r"^scipy\.sparse\.linalg.*\bspsolve$"),
        "Factor the matrix once",
        "solve = scipy.sparse.linalg.factorized(a.tocsc())  # once; solve(b)",
    ),
    (
        regex(r"^(numpy|scipy)\.linalg.*\b(solve|lstsq)$"),
        "Factor the matrix once",
        "kept = scipy.linalg.lu_factor(a)  # once; scipy.linalg.lu_solve(kept, b)",
    ),
    (
        regex(r"^scipy\.interpolate.*\bgriddata$"),
        "Triangulate the points once",
        "mesh = scipy.spatial.Delaunay(points)  # once; LinearNDInterpolator(mesh, values)(at)",
    ),
)
_HINT = "kept = {}(...)  # once; copy it where it is written to"


def check(trace: Trace) -> Iterator[Found | Small]:
    """The calls that were given the same each time, most time first."""
    base, lines = of_steps(trace)
    for line in lines:
        if (found := _found(line)) is not None:
            yield in_steps(trace, line, base, _LEFT, found)


def check_run(trace: Trace) -> Iterator[Found | Small]:
    """The same of a run of which nothing else was recorded."""
    for line in called_lines(trace, main_thread(trace)):
        if (found := _found(line)) is not None:
            yield in_run(trace, _LEFT, line, found)


def _found(line: CalledLine) -> Found | None:
    call = line.call
    if call.compared < FEWEST_COMPARED or not _COMPUTES.search(call.called):
        return None
    if _DOES_MORE.search(call.called) or call.one("out") is not None:
        return None
    known = next((one for one in _PREPARED if one[0].search(call.called)), None)
    given = call.given[:1] if known else tuple(g for g in call.given if g.name[:1] not in "[@")
    if not given or any(one.alike < call.compared for one in given):
        return None
    reads = _READS.search(call.called) is not None
    if not reads and max(map(_size, given)) < FEWEST_NUMBERS:
        return None
    name = call.called.rpartition(".")[2]
    what = _said(max(given, key=_size)) if not reads else "the same file, unchanged"
    does = "factors" if known and "Factor" in known[1] else "reads" if reads else "is given"
    return Found(
        summary=(
            f"{line.said} {does} {what} again each time, in all of {call.compared + 1} calls that"
            " were compared: {time}"
        ),
        evidence=(Evidence("calls compared with the one before", call.compared, "count"),),
        fix=known[1] if known else f"Keep what {name} answers, and make it anew when that changes",
        hint=known[2] if known else _HINT.format(name),
        confidence="high",
    )


def _size(given: Given) -> int:
    size = 1
    for n in given.shape:
        size *= n
    return size if given.shape else 0


def _said(given: Given) -> str:
    shape = " x ".join(f"{n:,}" for n in given.shape)
    letters = {"str": "letters", "bytes": "bytes"}.get(given.kind, given.dtype or given.kind)
    return f"the same {shape} {letters}"

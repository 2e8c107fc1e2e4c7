"""How often steps that were found without markers are the marked ones, for each stated confidence.

    python benchmarks/step_confidence.py CORPUS [--rows]

Every recording with markers is read, its markers are hidden, and the steps are inferred: from all
that is left, without Python frames, without annotations as well, and from the device alone. Right
is a count that differs by at most one (a marker may have been cut at either end) or a tenth, and a
typical step within a tenth. Recordings of one program, with and without a fault or of other ranks,
are one family; each family has the same weight.

Of recordings with several markers, the middle step alone is tried as well, and its device
operations alone: steps found in it are parts of one, and wrong.

The second table leaves one family out: each family's rows are given the share of right answers that
the same evidence had in the other families, and compared with what they turned out to be. CORPUS is
the folder of ``benchmarks/accuracy.py``.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.steps.repetition import infer_steps
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.errors import PinchpointError
from pinchpoint.trace import HostKind, Table, Trace, table

BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.01)
SAME_RATIO = 0.1  # of the count and of the typical step
VIEWS = ("all", "no frames", "no annotations", "device alone", "one step", "one on device")
_OF_ONE = ("one step", "one on device")
_FRAMES = (HostKind.PYTHON, HostKind.MODULE)


@dataclass(frozen=True)
class Row:
    """One recording in one view: what was inferred, and whether that is what the markers say."""

    name: str
    view: str
    marked: int
    found: int
    basis: str
    evidence: str
    confidence: float | None  # None: no steps were found
    right: bool


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every row that is wrong")
    options = parser.parse_args()
    rows = [row for path in _recordings(options.corpus) for row in _rows_of(path)]
    if not rows:
        sys.exit(f"{options.corpus}: no recording with step markers")
    if options.rows:
        for row in rows:
            if row.confidence is not None and not row.right:
                print(
                    f"wrong  {row.name:50} {row.view:15} {row.marked:4} {row.found:4} "
                    f"{row.confidence:.2f}  {row.basis}"
                )
    print_tables(rows)


def print_tables(rows: list[Row]) -> None:
    """Accuracy in each bin of confidence as stated, and of confidence from the other families."""
    answered = [row for row in rows if row.confidence is not None]
    print(
        f"{len(rows)} views of {len({r.name for r in rows})} recordings, "
        f"{len({family(r.name) for r in rows})} families; steps found in {len(answered)}"
    )
    _print_bins("as stated", answered, np.array([row.confidence for row in answered], float))
    _print_bins("one family left out", answered, np.array(_from_others(answered)))
    for view in _OF_ONE:
        alone = [row for row in rows if row.view == view]
        print(
            f"{view}, alone: steps found in {sum(r.confidence is not None for r in alone)} "
            f"of {len(alone)}"
        )
    for evidence in sorted({row.evidence for row in answered}):
        mine = [i for i, row in enumerate(answered) if row.evidence == evidence]
        said = np.array([row.confidence for row in answered], float)
        _line(evidence, mine, answered, said)


def _print_bins(title: str, rows: list[Row], said: np.ndarray) -> None:
    print(f"{title:20} views families  said  right")
    for low, high in pairwise(BINS):
        mine = np.flatnonzero((said >= low) & (said < high)).tolist()
        if mine:
            _line(f"{low:.2f} to {min(high, 1):.2f}", mine, rows, said)
    _line("all", list(range(len(rows))), rows, said)


def _line(label: str, mine: list[int], rows: list[Row], said: np.ndarray) -> None:
    weight = _weights([rows[i] for i in mine])
    right = np.average([rows[i].right for i in mine], weights=weight)
    mean = np.average(said[mine], weights=weight)
    families = len({family(rows[i].name) for i in mine})
    print(f"{label:18} {len(mine):7} {families:8} {mean:5.0%} {right:6.0%}")


def _from_others(rows: list[Row]) -> list[float]:
    """How often the evidence of each row was right in the other families, each counted once; half
    a right and half a wrong one are added, so that few families say little."""
    shares: dict[str, dict[str, list[bool]]] = {}
    for row in rows:
        shares.setdefault(row.evidence, {}).setdefault(family(row.name), []).append(row.right)
    found = []
    for row in rows:
        others = [v for name, v in shares[row.evidence].items() if name != family(row.name)]
        right = sum(sum(v) / len(v) for v in others)
        found.append((right + 0.5) / (len(others) + 1))
    return found


def _weights(rows: list[Row]) -> np.ndarray:
    count = Counter(family(row.name) for row in rows)
    return np.array([1 / count[family(row.name)] for row in rows])


def family(name: str) -> str:
    """The program that was recorded: its name without fix, rank and form of file."""
    return re.sub(r"(_workers\d+|_rank\d+)?\..*$", "", name)


def _recordings(corpus: Path) -> Iterator[Path]:
    for folder in ("labelled/traces", "own/traces", "own/jax", "public/traces", "public/nsight",
                   "h200/traces"):  # fmt: skip
        yield from sorted(p for p in (corpus / folder).glob("*") if p.is_file())


def _rows_of(path: Path) -> Iterator[Row]:
    try:
        trace = pp.load(path)
    except PinchpointError:
        return
    marked = steps(trace)
    if marked.how != "marker":
        return
    for view in VIEWS:
        seen = without_markers(trace, view)
        if seen is None:
            continue
        found = steps(seen)
        inferred = found.how == "inferred" and (view not in _OF_ONE or len(found) > 1)
        yield Row(
            path.name,
            view,
            len(marked),
            len(found) if inferred else 0,
            found.basis,
            _evidence(seen),
            found.confidence if inferred else None,
            inferred and view not in _OF_ONE and _same(marked, found),
        )


def _evidence(trace: Trace) -> str:
    spans = infer_steps(trace).spans
    return spans.evidence if spans else "single"


def _same(marked: Steps, found: Steps) -> bool:
    """Whether both are the same steps."""
    allowed = max(1, SAME_RATIO * len(marked))
    marked_ns, found_ns = marked.typical_ns or 0, found.typical_ns or 0
    longer = abs(found_ns - marked_ns) > SAME_RATIO * marked_ns
    return abs(len(marked) - len(found)) <= allowed and not longer


def without_markers(trace: Trace, view: str) -> Trace | None:
    """The recording without its markers, and without what the view leaves out; None if there is
    nothing to leave out."""
    host, marks = trace.host_ops, trace.steps
    assert marks is not None
    if view == "device alone":
        return _on_device(trace)
    if host is None:
        return None
    kinds = {"no frames": _FRAMES, "no annotations": (*_FRAMES, HostKind.ANNOTATION)}
    kept = ~np.isin(host["kind"], kinds.get(view, ()))
    if view in kinds and kept.all():
        return None
    kept &= ~np.isin(host["name"], np.unique(marks["name"]))
    if view in _OF_ONE:
        one = _one_step(trace, kept)
        return _on_device(one) if one is not None and view == "one on device" else one
    return _with_host_rows(trace, kept)


def _on_device(trace: Trace) -> Trace | None:
    """What the device ran, without the calls that launched it."""
    if trace.device_ops is None or not len(trace.device_ops):
        return None
    nothing = {"host_ops": None, "api_calls": None, "steps": None, "flows": None}
    alone = _unlinked(trace.device_ops, ("api_call", "host_op"))
    return replace(trace, device_ops=alone, device_annotations=None, **nothing)


def _one_step(trace: Trace, kept: np.ndarray) -> Trace | None:
    """What the host did inside the middle step, and what it launched."""
    marked, calls, ops = steps(trace), trace.api_calls, trace.device_ops
    if len(marked) < 2 or trace.host_ops is None or calls is None or ops is None:
        return None
    middle = len(marked) // 2
    low, high = marked.host_start_ns[middle], marked.host_end_ns[middle]
    host = trace.host_ops
    inside = (host["start_ns"] >= low) & (host.end_ns <= high)
    called = np.flatnonzero((calls["start_ns"] >= low) & (calls["start_ns"] < high))
    place = np.full(len(calls), -1, np.int64)
    place[called] = np.arange(len(called))
    launched = ops.known("api_call") & (place[ops["api_call"]] >= 0)
    mine = ops.take(launched)
    linked = _rebuilt(mine, {"api_call": place[mine["api_call"]]}, {})
    part = replace(trace, api_calls=calls.take(called), device_ops=linked, flows=None)
    return _with_host_rows(part, kept & inside) if len(linked) else None


def _with_host_rows(trace: Trace, kept: np.ndarray) -> Trace:
    """The recording with these rows of ``host_ops`` alone, and without markers."""
    host = trace.host_ops
    assert host is not None
    rows = np.flatnonzero(kept)
    place = np.full(len(host) + 1, len(host), np.int64)
    place[rows] = np.arange(len(rows))
    parent = _outside(host, ~kept)
    tables = {
        "host_ops": _with_rows(host.take(rows), "parent", place[parent[rows]], len(host)),
        "steps": None,
        "device_annotations": None,
    }
    for name in ("api_calls", "device_ops"):
        table_of = getattr(trace, name)
        if table_of is not None and len(table_of):
            at = np.where(table_of.known("host_op"), table_of["host_op"], len(host))
            at = np.where(np.append(kept, True)[at], at, np.append(parent, len(host))[at])
            tables[name] = _with_rows(table_of, "host_op", place[at], len(host))
    return replace(trace, **tables)


def _outside(host: Table, dropped: np.ndarray) -> np.ndarray:
    """The nearest parent of each row that is not dropped; ``len(host)`` where there is none."""
    parent = np.where(host.known("parent"), host["parent"], len(host)).astype(np.int64)
    chain, gone = np.append(parent, len(host)), np.append(dropped, False)
    while (left := gone[chain]).any():
        chain = np.where(left, chain[chain], chain)
    return chain[:-1]


def _with_rows(rows: Table, column: str, values: np.ndarray, none: int) -> Table:
    return _rebuilt(rows, {column: np.where(values == none, 0, values)}, {column: values == none})


def _rebuilt(rows: Table, values: dict[str, np.ndarray], masks: dict[str, np.ndarray]) -> Table:
    return table(rows.name, {**rows.columns, **values}, {**rows.missing, **masks})


def _unlinked(rows: Table, columns: tuple[str, ...]) -> Table:
    nothing = np.ones(len(rows), np.bool_)
    return _rebuilt(rows, {}, dict.fromkeys(columns, nothing))


if __name__ == "__main__":
    main()

"""A solver computes vectors that nobody reads, beside values that are.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher
runs them. Named are `eigh` and `eig` whose eigenvectors, `svd` whose singular vectors, and `qr`
whose Q nobody reads in four steps in turn before its memory is given back, a backward pass
included, while their values (or R) are read. The recording has to say that the program asked for
them: calls that ask for values alone (`eigvalsh`, `svdvals`, `eigvals`, `cond`, norms) are left
alone, also where they compute vectors for a gradient that may be asked of them.

## Why it matters
The vectors take a quarter to two thirds of the time. What the values alone take was measured on one
CPU, one thread, float32, matrices of 32 to 768 rows (`benchmarks/solver_results.py`, on a busy
machine): 0.52 to 0.68 of `eigh`, 0.64 to 0.75 of `eig` (one size of four apart), 0.37 to 0.54 of
`svd`, 0.46 to 0.68 of `qr` (one of eight apart). Counted operations go further: about 4/3 n³ of
4 to 9 n³ for symmetric matrices, 10 of 25 n³ for others, half of them for R. The predicted gain is
the middle between both, and its range reaches from one to the other; no GPU was measured.

## How to fix it
Ask for what is read: `torch.linalg.eigvalsh`, `eigvals`, `svdvals`, `qr(a, mode="r")`. Inside of
`torch.no_grad()` where the matrix needs gradients that nobody asks for: else torch computes the
vectors for them all the same.

## When to ignore it
Where the vectors are used in other steps than those that were watched, such as every hundredth.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.diagnosis.evidence.vain_work import Vain, may_be_read_elsewhere, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


@dataclass(frozen=True)
class _Solver:
    unread: str
    read: str
    instead: str
    left: float  # of its time without the vectors: the most that was measured
    left_at_best: float  # by operations, or the least that was measured of most sizes
    # Which operators hand its vectors on; the program may call it itself, too.
    asks: tuple[str, ...] = ()


# Sources of the shares: the page above.
_SOLVERS = {
    "aten::_linalg_eigh": _Solver(
        "eigenvectors", "eigenvalues", "torch.linalg.eigvalsh(a)", 0.7, 0.3, ("aten::linalg_eigh",)
    ),
    "aten::linalg_eig": _Solver(
        "eigenvectors", "eigenvalues", "torch.linalg.eigvals(a)", 0.75, 0.4
    ),
    "aten::_linalg_svd": _Solver(
        "singular vectors",
        "singular values",
        "torch.linalg.svdvals(a)",
        0.55,
        0.3,
        ("aten::linalg_svd",),
    ),
    "aten::linalg_qr": _Solver(
        "Q", "R", 'torch.linalg.qr(a, mode="r").R', 0.7, 0.45, ("aten::qr",)
    ),
}


def check(trace: Trace) -> Iterator[Found]:
    """Solvers of each place whose vectors nobody reads."""
    values, told = watched(trace), False
    for work in () if values is None else values.work or ():
        solver = _SOLVERS.get(work.operations[0].name) if work.operations else None
        if work.kind != "results" or solver is None:
            continue
        rows = vain(trace, work, beside_modules=False)
        if rows is None or not _are_asked_for(trace, rows, solver):
            continue
        told = True
        where = f" in {rows.place}" if rows.place else ""
        device = f"{duration(rows.device_ns)} of the device's time, " if rows.device_ns else ""
        calls = f"{work.times} calls" if work.times > 1 else "1 call"
        yield Found(
            summary=(
                f"Nobody reads the {solver.unread} of {calls} of {rows.longest} a step{where},"
                f" only the {solver.read}: they take {device}{duration(rows.host_ns)} of the"
                " host's as recorded"
            ),
            evidence=(
                Evidence("calls whose vectors nobody reads", work.times, "per step"),
                Evidence("of their time that stays, at most", solver.left, "ratio"),
                Evidence("of their time that stays, at best", solver.left_at_best, "ratio"),
                *rows.evidence,
            ),
            cost_ns_per_step=round((1 - solver.left) * max(rows.device_ns, rows.host_ns)),
            changes=tuple(_changes(rows, solver.left)),
            at_best=tuple(_changes(rows, solver.left_at_best)),
            location=rows.place,
            fix=f"Ask for the {solver.read} alone",
            hint=solver.instead,
            confidence="high",
        )
    if not told and may_be_read_elsewhere(trace, ("results",)):
        raise NotChecked(
            "threads of the program run beside its steps, and may have read what nobody else reads"
        )


def _changes(rows: Vain, left: float) -> Iterator[Change]:
    if len(rows.device_rows):
        yield ScaleDeviceOps(rows.device_rows, left, left, left)
    yield ScaleHostSpans(rows.spans, left)


def _are_asked_for(trace: Trace, rows: Vain, solver: _Solver) -> bool:
    """Whether the operators around them are those that give vectors to the program."""
    host = trace.host_ops
    assert host is not None
    around = above(parents(host), host["kind"] == HostKind.OPERATOR)[rows.operators]
    names = {trace.names[host["name"][row]] for row in np.unique(around) if row < len(host)}
    direct = bool((around == len(host)).any())
    return names <= set(solver.asks) and not (direct and "_linalg" in rows.longest)

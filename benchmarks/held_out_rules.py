"""What is said of a cause that no rule knows?

    python benchmarks/held_out_rules.py CORPUS [--only NAME] [--rows] [--document PAGE]

CORPUS as for ``accuracy.py``. Each recording of a slow program whose first finding names the cause
by a rule of its own is answered once more without that rule, without those that name the same cause
and without those that it is the parent of. The answer then names the same *place* (the function,
operator, kernels, copies, collectives or waits that the rule named) with a gain within a factor of
two, or the place with another gain, or the *parent* of the cause, or something *other*, or nothing.
Gains are held against the step that was measured after the fix. Recordings of healthy and fixed
programs are counted with what is found in them, by all rules.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pinchpoint as pp
from accuracy_rows import TAXONOMY_PARENTS, recordings
from pinchpoint.analysis.replay import Change
from pinchpoint.diagnosis.engine import Ranked, parents, run_rules, weighed
from pinchpoint.diagnosis.ladder import in_order
from pinchpoint.diagnosis.registry import rules
from pinchpoint.trace import Trace
from pinchpoint.trace import intervals as iv

NEAR_FACTOR = 2.0  # between two gains of one place: what ranges of gains are wide by
SHARED_RATIO = 0.5  # of the events that one finding changes, the other one changes as well
MATERIAL_RATIO = 0.1  # of the step: a measured gain that must not be passed over in silence
SCORES = ("place", "gain apart", "parent", "other", "silent")
BEGIN, END = "<!-- begin: held-out rules -->", "<!-- end: held-out rules -->"


@dataclass(frozen=True)
class HeldOutRule:
    """One recording without the rule that knows its cause; milliseconds a step."""

    name: str
    rule: str
    kind: str  # family of the rule
    score: str  # one of SCORES
    instead: str
    before_ms: float  # measured
    after_ms: float | None  # measured after the fix
    with_rule_ms: float | None
    said_ms: float | None
    where: str

    @property
    def error(self) -> float | None:
        """Of the step after the fix as it is said without the rule."""
        if self.said_ms is None or self.after_ms is None or self.score not in SCORES[:2]:
            return None
        return abs(self.said_ms / self.after_ms - 1)

    @property
    def passed_over(self) -> bool:
        """Whether nothing is said where a fix was measured to give much."""
        gain = self.before_ms - (self.after_ms or self.before_ms)
        return self.score == "silent" and gain > MATERIAL_RATIO * self.before_ms


@dataclass(frozen=True)
class Quiet:
    """A recording of a program without a cause that is known, with what was found."""

    name: str
    found: tuple[str, ...]


def main() -> int:
    """Print a row a recording and the table; optionally write it into a document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--document", type=Path, help=f"replace what is between {BEGIN} and {END}")
    options = parser.parse_args()
    wanted = list(recordings(options.corpus, options.only))
    with ProcessPoolExecutor(max_workers=2) as pool:
        judged = list(pool.map(_judged, *zip(*wanted, strict=True)))
    slow = [one for one in judged if isinstance(one, HeldOutRule)]
    quiet = [one for one in judged if isinstance(one, Quiet)]
    if options.rows:
        print("\n".join(map(_row, slow)))
        print("\n".join(f"{one.name:32s} {' '.join(one.found)}" for one in quiet if one.found))
    text = "\n".join(_table(slow, quiet))
    print(text)
    if options.document:
        before, _, rest = options.document.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        options.document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")
    return 0


def _judged(path: Path, truth: dict[str, Any]) -> HeldOutRule | Quiet | None:
    trace, name = pp.load(path), f"{truth['case']}.{truth['variant']}"
    outcomes = run_rules(trace)
    found = in_order(weighed(trace, outcomes)).found
    if truth["variant"] != "slow":
        return Quiet(name, tuple(one.id for one in found))
    right = set(truth["truth"]) | set(truth.get("also", ()))
    if not found or found[0].id not in right or not truth["material"] or not truth["time_case"]:
        return None
    first = found[0]
    if rules()[first.id].rule.residual or rules()[first.id].rule.generic:
        return None  # nothing knows the cause better than what is left
    left = tuple(o for o in outcomes if o.id not in _of_the_cause(first.id, right))
    instead = next(iter(in_order(weighed(trace, left)).found), None)
    return _held_out(trace, name, truth, first, instead)


def _of_the_cause(rule: str, right: set[str]) -> set[str]:
    """The rule and those that only exist for its cause: not what is more general."""
    wider = set(parents(rule))
    special = {
        one
        for one in right
        if one in rules() and not (rules()[one].rule.residual or rules()[one].rule.generic)
    }
    below = {one for one in rules() if rule in parents(one)}
    return ({rule} | special | below) - wider


def _held_out(
    trace: Trace, name: str, truth: dict[str, Any], first: Ranked, instead: Ranked | None
) -> HeldOutRule:
    after_ns = truth["after_fix_ns"]
    return HeldOutRule(
        name,
        first.id,
        rules()[first.id].check.__module__.split(".")[-2],
        _score(trace, first, instead),
        instead.id if instead else "",
        truth["unprofiled_ns"] / 1e6,
        after_ns / 1e6 if after_ns else None,
        _step_ms(first),
        _step_ms(instead) if instead else None,
        f"{first.finding.location} | {instead.finding.location if instead else ''}",
    )


def _step_ms(ranked: Ranked) -> float | None:
    return ranked.predicted.step_ns / 1e6 if ranked.predicted else None


def _score(trace: Trace, first: Ranked, instead: Ranked | None) -> str:
    if instead is None:
        return "silent"
    if _same_place(trace, first, instead):
        gains = sorted((max(first.saving_ns, 1), max(instead.saving_ns, 1)))
        near = gains[1] <= NEAR_FACTOR * gains[0]
        return "place" if near else "gain apart"
    wider = {*parents(first.id), TAXONOMY_PARENTS.get(first.id)}
    return "parent" if instead.id in wider else "other"


def _same_place(trace: Trace, one: Ranked, other: Ranked) -> bool:
    here, there = one.finding.location, other.finding.location
    if here is not None and there is not None:
        for field in ("function", "operator"):
            named = getattr(here, field), getattr(there, field)
            if named[0] is not None and named[0] == named[1] and here.file == there.file:
                return True
    mine, theirs = (_touched(trace, r.finding.changes) for r in (one, other))
    least = min(mine.total, theirs.total)
    return bool(least) and iv.intersect(mine, theirs).total >= SHARED_RATIO * max(
        mine.total, theirs.total
    )


_TABLES = ("host_ops", "api_calls", "device_ops")


def _touched(trace: Trace, changes: Iterable[Change]) -> iv.Intervals:
    """The time of all events that these changes are about."""
    spans = [
        (table["start_ns"][rows], table.end_ns[rows])
        for change in changes
        for name in _TABLES
        if (rows := getattr(change, name, None)) is not None
        and (table := getattr(trace, name)) is not None
    ]
    spans += [(c.start_ns, c.end_ns) for c in changes if hasattr(c, "start_ns")]
    if not spans:
        return iv.NONE
    return iv.flatten(*(np.concatenate(ends) for ends in zip(*spans, strict=True)))


def _row(one: HeldOutRule) -> str:
    ms = [
        "-" if value is None else f"{value:.2f}"
        for value in (one.before_ms, one.after_ms, one.with_rule_ms, one.said_ms)
    ]
    return (
        f"{one.score:10s} {one.name:34s} {one.rule:26s} {one.instead:22s}"
        f" {ms[0]:>8s} {ms[1]:>8s} {ms[2]:>8s} {ms[3]:>8s} {one.where}"
    )


def _table(slow: list[HeldOutRule], quiet: list[Quiet]) -> Iterator[str]:
    head = ("kind of the rule", "recordings", *SCORES, "error of the gain")
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for kind in sorted({one.kind for one in slow}):
        yield _kind(kind.replace("_", " "), [one for one in slow if one.kind == kind])
    yield _kind("all", slow)
    passed = [one.name for one in slow if one.passed_over]
    yield ""
    yield (
        f"Nothing said where a fix won more than {MATERIAL_RATIO:.0%}: {len(passed)} of"
        f" {len(slow)}{': ' if passed else ''}{', '.join(passed)}. Recordings of healthy and fixed"
        f" programs with a finding, by all rules: {sum(bool(q.found) for q in quiet)} of"
        f" {len(quiet)}, {sum(len(q.found) for q in quiet)} findings."
    )


def _kind(name: str, rows: list[HeldOutRule]) -> str:
    errors = [one.error for one in rows if one.error is not None]
    counts = [str(sum(one.score == score for one in rows)) for score in SCORES]
    error = f"{np.median(errors):.0%} (of {len(errors)})" if errors else ""
    return f"| {name} | {len(rows)} | {' | '.join(counts)} | {error} |"


if __name__ == "__main__":
    sys.exit(main())

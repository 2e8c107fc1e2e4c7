"""How often is the diagnosis right? Measured over labelled recordings.

    python benchmarks/accuracy.py CORPUS [--document docs/accuracy.md] [--only TEXT] [--rows]

CORPUS holds ``labelled/truth.jsonl``: for each recording the planted cause and the step times
without the profiler, before and after the fix; and ``h200/truth.jsonl``, the same for programs that
nobody tuned for, on a device of another kind. Nothing of these files reaches the product.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pinchpoint as pp
from pinchpoint.analysis.replay.predict import corrected_range_ns, corrected_step_ns
from pinchpoint.diagnosis.engine import diagnose, parents
from pinchpoint.diagnosis.registry import rules
from pinchpoint.jobs import diagnose_ranks

STABLE_RATIO = 0.05  # unprofiled windows of a row that agree this well can judge a prediction
NOT_TIME = ("memory", "growth", "claimed", "peak_mib", "worker_growth", "also allo")


@dataclass(frozen=True)
class Row:
    """One recording: what is true of it, and what was said."""

    case: str
    variant: str
    truth: tuple[str, ...]
    material: bool
    time_case: bool
    unprofiled_ns: float
    after_fix_ns: float | None  # the same items once the planted cause is gone
    stable: bool
    found: tuple[str, ...]
    predicted_ns: tuple[int | None, ...]
    predicted_range_ns: tuple[tuple[int, int] | None, ...]
    corrected_ns: int | None
    corrected_range_ns: tuple[int, int] | None
    not_checked: tuple[str, ...]
    crashed: tuple[str, ...]
    also: tuple[str, ...] = ()  # answers that are accepted as right
    half: tuple[str, ...] = ()  # and as half right

    @property
    def name(self) -> str:
        """Case and variant."""
        return f"{self.case}.{self.variant}"

    @property
    def top1(self) -> float:
        """1 for the right cause first, 0.5 for its parent."""
        return _hit(self.found[:1], self.truth + self.also, self.half)

    @property
    def top3(self) -> float:
        """The same for the first three."""
        return _hit(self.found[:3], self.truth + self.also, self.half)


def _hit(found: tuple[str, ...], truth: tuple[str, ...], half: tuple[str, ...] = ()) -> float:
    if any(t in found for t in truth):
        return 1.0
    parents = {_parent(t) for t in truth} - {None}
    return 0.5 if (parents | set(half)) & set(found) else 0.0


def _parent(cause: str) -> str | None:
    return next(iter(parents(cause)), None) or TAXONOMY_PARENTS.get(cause)


TAXONOMY_PARENTS = {
    "slow-transform": "dataloader-starved",
    "decode-bound": "dataloader-starved",
    "small-file-io": "dataloader-starved",
    "worker-respawn": "dataloader-starved",
    "prefetch-shallow": "dataloader-starved",
    "collate-slow": "dataloader-starved",
    "tokenize-in-loop": "dataloader-starved",
    "implicit-sync-indexing": "sync-in-loop",
    "per-param-sync": "sync-in-loop",
    "explicit-synchronize": "sync-in-loop",
    "python-timestep-loop": "launch-bound",
    "unfused-optimizer": "launch-bound",
    "decode-host-overhead": "launch-bound",
    "small-batch": "launch-bound",
    "no-batching": "launch-bound",
}


def judged(corpus: Path, only: str) -> Iterator[Row]:
    """Run the product over every row that has a recording."""
    facts, fixed = _facts(corpus, only)
    for fact in facts:
        yield _judged(corpus / "labelled" / fact["trace"], _truth(fact, fixed))


def judged_untuned(corpus: Path, only: str) -> Iterator[Row]:
    """The same for the programs that nobody tuned for, if they are at hand."""
    truth = corpus / "h200" / "truth.jsonl"
    lines = truth.read_text().splitlines() if truth.exists() else []
    facts = [json.loads(line) for line in lines]
    after = {f["case"]: f["step_ms_fixed"] for f in facts if "step_ms_fixed" in f}
    for fact in facts:
        trace = corpus / "h200" / "traces" / f"{fact['case']}.{fact['variant']}.json.gz"
        if trace.exists() and only in trace.name:
            yield _judged(trace, _untuned_truth(fact, after))


def _judged(path: Path, truth: dict[str, Any]) -> Row:
    trace = pp.load(path)
    said = diagnose(trace)
    return Row(
        **truth,
        found=tuple(r.id for r in said.found),
        predicted_ns=tuple(r.predicted.step_ns if r.predicted else None for r in said.found),
        predicted_range_ns=tuple(r.predicted.range_ns if r.predicted else None for r in said.found),
        corrected_ns=corrected_step_ns(trace),
        corrected_range_ns=corrected_range_ns(trace),
        not_checked=tuple(o.id for o in said.outcomes if o.answer == "not checked"),
        crashed=tuple(f"{o.id}: {o.why}" for o in said.outcomes if o.answer == "crashed"),
    )


def judged_jobs(corpus: Path, only: str) -> Iterator[Row]:
    """The same for jobs of several ranks, all their recordings together."""
    facts, fixed = _facts(corpus, only)
    jobs: dict[tuple[str, str], list[dict]] = {}
    for fact in facts:
        jobs.setdefault((fact["case"], fact["variant"]), []).append(fact)
    for ranks in jobs.values():
        if len(ranks) < 2:
            continue
        said = diagnose_ranks([corpus / "labelled" / fact["trace"] for fact in ranks])
        yield Row(
            **_truth(ranks[0], fixed),
            found=tuple(f.id for f in said.findings),
            predicted_ns=tuple(f.predicted_step_ns for f in said.findings),
            predicted_range_ns=tuple(f.predicted_range_ns for f in said.findings),
            corrected_ns=said.steps.unprofiled_ns_predicted,
            corrected_range_ns=None,
            not_checked=tuple(item.id for item in said.not_checked),
            crashed=tuple(f"{item.id}: {item.why}" for item in said.crashed),
        )


def _facts(corpus: Path, only: str) -> tuple[list[dict], dict[str, dict]]:
    """Rows of the truth with a recording, and the fixed variant of each case."""
    lines = (corpus / "labelled" / "truth.jsonl").read_text().splitlines()
    facts = [json.loads(line) for line in lines]
    fixed = {f["case"]: f for f in facts if f["variant"] == "fixed"}
    return [f for f in facts if f["trace"] and only in f["trace"]], fixed


def _truth(fact: dict, fixed: dict[str, dict]) -> dict[str, Any]:
    """The fields of a row that are known without the product."""
    first, second = fact["step_ms_unprofiled"]
    return {
        "case": fact["case"],
        "variant": fact["variant"],
        "truth": tuple(fact["truth"].split(" + ")),
        "material": fact.get("material", True),
        "time_case": not any(word in fact["measure"] for word in NOT_TIME),
        "unprofiled_ns": min(first, second) * 1e6,
        "after_fix_ns": _after_fix_ns(fact, fixed.get(fact["case"])),
        "stable": abs(first - second) <= STABLE_RATIO * min(first, second),
    }


_WASTE = re.compile(r"real waste of another kind .* see (\w+)")  # the case that is its truth


CALLED_HERE = {"per-matrix-linalg": "operator-of-many-launches"}  # words of a truth, and the rule


def _untuned_truth(fact: dict, after_ms: dict[str, list[float]]) -> dict[str, Any]:
    """The fields of a row of an untuned program, whose right answers may be words.

    ``also_accepted`` names further ids, clause by clause; one that says *half* counts half. A
    healthy program with a waste that was found and measured later is a slow one.
    """
    also, half = _accepted(fact.get("also_accepted", ""))
    truth = tuple(t.removeprefix("new:") for t in fact["truth"].split(" + "))
    truth = tuple(CALLED_HERE.get(t, t) for t in truth)
    case, variant, waste = fact["case"], fact["variant"], _WASTE.search(fact.get("note", ""))
    if waste is not None:
        truth, variant = ("non-contiguous-access",), "slow"
    elif truth == ("healthy",) and variant != "fixed":
        variant = "healthy"
    fixed_ms = fact.get("step_ms_fixed") or after_ms.get(waste[1] if waste else case)
    first, second = fact["step_ms_unprofiled"]
    return {
        "case": case,
        "variant": variant,
        "truth": truth,
        "also": also,
        "half": half,
        "material": True,
        "time_case": True,
        "unprofiled_ns": min(first, second) * 1e6,
        "after_fix_ns": min(fixed_ms) * 1e6 if fixed_ms and variant == "slow" else None,
        "stable": abs(first - second) <= STABLE_RATIO * min(first, second),
    }


def _accepted(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids that these words accept as right, and as half right."""
    whole, half = [], []
    for clause in re.split(r"[;,.]\s", text + " "):
        words = [t.removeprefix("new:") for t in re.findall(r"(?:new:)?[a-z]+(?:-[a-z]+)*", clause)]
        ids = [word for word in words if "-" in word or word in rules()]
        if "wrong" not in clause:
            (half if "half" in clause else whole).extend(ids)
    return tuple(whole), tuple(half)


def _after_fix_ns(fact: dict, fixed: dict | None) -> float | None:
    """Step time after the fix, for as many items as the step has before it."""
    if fixed is None:
        return None
    items = fact["items_per_step"] / fixed["items_per_step"]
    return min(fixed["step_ms_unprofiled"]) * 1e6 * items


@dataclass(frozen=True)
class Ranges:
    """Whether stated ranges hold what was measured, and how wide they are."""

    count: int
    holding: int  # ranges with the measured time in them
    median_width: float | None  # between the ends, as a share of the predicted time
    p90_width: float | None


@dataclass(frozen=True)
class Figures:
    """What the rows come to; errors are ratios, and None where no row can tell."""

    slow: int  # recordings with a planted cause of time that matters
    first_right: float  # a parent counts half
    in_three_right: float
    two: int  # of them with two causes
    both_right: int
    healthy: int
    false_alarms: int
    fixed: int
    still_named: int
    unprofiled_median: float | None
    unprofiled_p90: float | None
    gain_median: float | None
    gain_p90: float | None
    unprofiled_ranges: Ranges
    gain_ranges: Ranges
    crashed: int


def figures(rows: list[Row]) -> Figures:
    """Counts and errors over all rows."""
    slow = [r for r in rows if r.variant == "slow" and r.material and r.time_case]
    two = [r for r in slow if len(r.truth) > 1]
    healthy = [r for r in rows if r.variant == "healthy"]
    fixed = [r for r in rows if r.variant in ("fixed", "without")]
    planted = {r.case: r.truth for r in rows if r.variant == "slow"}
    corrections = [
        abs(r.corrected_ns / r.unprofiled_ns - 1) for r in rows if r.stable and r.corrected_ns
    ]
    gains = list(_gains(rows))
    errors = [abs(g.predicted_ns / g.true_ns - 1) for g in gains]
    return Figures(
        slow=len(slow),
        first_right=sum(r.top1 for r in slow),
        in_three_right=sum(r.top3 for r in slow),
        two=len(two),
        both_right=sum(set(r.truth) <= set(r.found[:3]) for r in two),
        healthy=len(healthy),
        false_alarms=sum(bool(r.found) for r in healthy),
        fixed=len(fixed),
        still_named=sum(bool(set(planted.get(r.case, ())) & set(r.found)) for r in fixed),
        unprofiled_median=_quantile(corrections, 0.5),
        unprofiled_p90=_quantile(corrections, 0.9),
        gain_median=_quantile(errors, 0.5),
        gain_p90=_quantile(errors, 0.9),
        unprofiled_ranges=_ranges(
            [
                Predicted(r.name, r.corrected_ns, r.corrected_range_ns, r.unprofiled_ns)
                for r in rows
                if r.corrected_ns and r.corrected_range_ns
            ]
        ),
        gain_ranges=_ranges(gains),
        crashed=sum(len(r.crashed) for r in rows),
    )


@dataclass(frozen=True)
class Predicted:
    """A predicted step beside the measured one."""

    name: str
    predicted_ns: int
    range_ns: tuple[int, int]
    true_ns: float

    @property
    def holds(self) -> bool:
        """Whether the range holds the measured time."""
        return self.range_ns[0] <= self.true_ns <= self.range_ns[1]


def _ranges(said: list[Predicted]) -> Ranges:
    widths = [(p.range_ns[1] - p.range_ns[0]) / p.predicted_ns for p in said if p.predicted_ns]
    return Ranges(
        count=len(said),
        holding=sum(p.holds for p in said),
        median_width=_quantile(widths, 0.5),
        p90_width=_quantile(widths, 0.9),
    )


def summary(rows: list[Row]) -> list[tuple[str, str]]:
    """The table of the document: measure and value."""
    f = figures(rows)
    return [
        ("first finding right", _share(f.first_right, f.slow)),
        ("right cause among the first three", _share(f.in_three_right, f.slow)),
        ("both of two causes among the first three", _share(f.both_right, f.two)),
        ("healthy runs with a finding", f"{f.false_alarms} of {f.healthy}"),
        ("fixed runs that still name the planted cause", f"{f.still_named} of {f.fixed}"),
        ("step without the profiler, median error", _percent(f.unprofiled_median)),
        ("step without the profiler, 90th percentile", _percent(f.unprofiled_p90)),
        ("step after the fix, median error", _percent(f.gain_median)),
        ("step after the fix, 90th percentile", _percent(f.gain_p90)),
        ("measured step without the profiler in its range", _held(f.unprofiled_ranges)),
        ("measured step after the fix in its range", _held(f.gain_ranges)),
        ("rules that crashed", str(f.crashed)),
    ]


def _gains(rows: list[Row]) -> Iterator[Predicted]:
    """The predicted step after the fix, where the right cause was found first."""
    for r in rows:
        if r.variant != "slow" or r.after_fix_ns is None or len(r.truth) > 1 or r.top1 < 1:
            continue
        predicted = r.predicted_ns[0] if r.predicted_ns else None
        between = r.predicted_range_ns[0] if r.predicted_ns else None
        if predicted is not None and between and r.found[0] in r.truth and r.time_case:
            yield Predicted(r.case, predicted, between, r.after_fix_ns)


def _share(hits: float, total: int) -> str:
    return f"{hits:g} of {total} ({hits / total:.0%})" if total else "no rows"


def _held(ranges: Ranges) -> str:
    if not ranges.count:
        return "no rows"
    return (
        f"{ranges.holding} of {ranges.count} ({ranges.holding / ranges.count:.0%}); width"
        f" {_percent(ranges.median_width)} of the step (median), {_percent(ranges.p90_width)} (p90)"
    )


def _percent(value: float | None) -> str:
    return "no rows" if value is None else f"{value:.1%}"


def _quantile(values: list[float], q: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]


def main() -> int:
    """Print the rows that fail and the summary; optionally write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--document", type=Path)
    options = parser.parse_args()
    rows = []
    for row in judged(options.corpus, options.only):
        rows.append(row)
        failed = _failed(row)
        if options.rows or failed:
            _print(row, failed)
    jobs = list(judged_jobs(options.corpus, options.only))
    untuned = list(judged_untuned(options.corpus, options.only))
    for title, part in (
        ("recordings", rows),
        ("jobs, all ranks together", jobs),
        ("programs that nobody tuned for", untuned),
    ):
        print(f"\n{title}: {len(part)}")
        for row in () if part is rows else part:
            _print(row, _failed(row))
        for gain in _gains(part):
            print(_gain_line(gain))
        for name, value in summary(part):
            print(f"{name:48s} {value}")
    if options.document:
        options.document.write_text(_document(rows, jobs), "utf-8")
    return 0


def _gain_line(gain: Predicted) -> str:
    low, high = (end / 1e6 for end in gain.range_ns)
    predicted, true = gain.predicted_ns / 1e6, gain.true_ns / 1e6
    return (
        f"gain {gain.name:32s} predicted {predicted:8.2f} ({low:.2f} to {high:.2f})"
        f" true {true:8.2f} {abs(predicted / true - 1):7.1%} {'' if gain.holds else 'outside'}"
    )


def _document(rows: list[Row], jobs: list[Row]) -> str:
    """The accuracy page: the tables, and the rows that fail with what was said instead."""
    table = "".join(f"| {name} | {value} |\n" for name, value in summary(rows))
    failed = "".join(
        f"| {r.name} | {' + '.join(r.truth)} | {', '.join(r.found[:3]) or 'nothing'} |\n"
        for r in rows
        if _failed(r)
    )
    answers = "".join(
        f"| {r.name} | {' + '.join(r.truth) if r.material else 'nothing that matters'} "
        f"| {', '.join(r.found[:3]) or 'nothing'} |\n"
        for r in jobs
    )
    measures = "".join(f"| {name} | {value} |\n" for name, value in summary(jobs)[:-3])
    return _PAGE.format(
        rows=len(rows), table=table, failed=failed, jobs=len(jobs), measures=measures,
        answers=answers,
    )  # fmt: skip


_PAGE = """# How often is it right?

Measured over {rows} recordings of programs with one planted cause, two, or none, made on H100s with
and without the profiler. The command, run from a checkout with the recordings at hand:

```
python benchmarks/accuracy.py CORPUS --document docs/accuracy.md
```

| measure | value |
|---|---|
{table}
"First finding right" counts the parent of the cause (see each rule's page) as half. Rows whose
planted cause changed nothing on that machine, and rows that are about memory or about a program's
own stopwatch, are not part of it: a trace of times cannot tell the former. "Step without the
profiler" is over rows whose two unprofiled windows agree within 5 %; "step after the fix" over rows
whose cause was found first. "In its range" counts all rows, also those whose own two measurements
differ: the measured time is the lower of the two. A range that fits nine of ten of these programs
fits fewer of others; its parts are in `analysis/replay/ranges.py`.

## Jobs of two ranks

The recordings above are judged one at a time, as if nobody had the other rank's. One rank cannot
show who is late: that is `pinchpoint ranks`. The same recordings as {jobs} jobs, all ranks
together:

| measure | value |
|---|---|
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
"""


def _failed(row: Row) -> str:
    if row.crashed:
        return "crash"
    if row.variant == "slow" and row.material and row.time_case and row.top1 < 1:
        return "miss" if row.top1 == 0 else "half"
    if row.variant == "healthy" and row.found:
        return "alarm"
    return ""


def _print(row: Row, failed: str) -> None:
    said = ", ".join(
        f"{i} {p / 1e6:.1f}" if p else i
        for i, p in zip(row.found[:4], row.predicted_ns, strict=False)
    )
    corrected = f"{row.corrected_ns / 1e6:.2f}" if row.corrected_ns else "-"
    print(
        f"{failed:5s} {row.name:40s} truth {' + '.join(row.truth):24s} step {corrected:>8s}"
        f" ({row.unprofiled_ns / 1e6:.2f}) said: {said} {' '.join(row.crashed)[:300]}"
    )


if __name__ == "__main__":
    sys.exit(main())

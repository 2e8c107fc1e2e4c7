"""Labelled recordings: what is true of each, and what the product says.

Nothing of these files reaches the product.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pinchpoint as pp
from pinchpoint.analysis.mean.mean_step import made_with_exceptions
from pinchpoint.analysis.mean.what_if import step_base_ns, step_range_ns, why_not_closer
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.replay.ranges import Made
from pinchpoint.diagnosis.engine import diagnose, parents
from pinchpoint.diagnosis.ladder import in_order
from pinchpoint.diagnosis.registry import rules
from pinchpoint.jobs import diagnose_ranks
from pinchpoint.trace import Trace

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
    corrected_ns: int | None  # the step that is said, without the profiler: the mean where told
    corrected_range_ns: tuple[int, int] | None
    not_checked: tuple[str, ...]
    crashed: tuple[str, ...]
    apart: float = 0.0  # of its two unprofiled windows
    confidence: str | None = None  # of the first finding
    first: Prediction | None = None  # of the first finding
    made: Made | None = None  # what the corrected step's range was made from
    only_a_range: bool = False  # the step without the profiler is said as a range, with why
    below_bound: int = 0  # predictions shorter than the least that the step can be
    also: tuple[str, ...] = ()  # answers that are accepted as right
    half: tuple[str, ...] = ()  # and as half right

    @property
    def name(self) -> str:
        """Case and variant."""
        return f"{self.case}.{self.variant}"

    @property
    def corrected_error(self) -> float | None:
        """Of the step without the profiler."""
        if not self.corrected_ns:
            return None
        return abs(self.corrected_ns / self.unprofiled_ns - 1)

    @property
    def confidently_wrong(self) -> bool:
        """Whether the first finding is wrong, and said with high confidence."""
        if not self.found or self.confidence != "high":
            return False
        if self.variant == "slow":
            return self.material and self.time_case and self.top1 == 0
        return self.variant == "healthy"

    @property
    def failed(self) -> str:
        """What is wrong with what was said, in a word; empty if nothing."""
        if self.crashed:
            return "crash"
        if self.variant == "slow" and self.material and self.time_case and self.top1 < 1:
            return "miss" if self.top1 == 0 else "half"
        if self.variant == "healthy" and self.found:
            return "alarm"
        return ""

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


def recordings(corpus: Path, only: str = "") -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every labelled recording of both sets with what is true of it."""
    yield from labelled(corpus, only)
    yield from untuned(corpus, only)


def labelled(corpus: Path, only: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Recordings of programs with a planted cause, or none."""
    facts, fixed = _facts(corpus, only)
    for fact in facts:
        yield corpus / "labelled" / fact["trace"], _truth(fact, fixed)


def untuned(corpus: Path, only: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Recordings of programs that nobody tuned for, if they are at hand."""
    truth = corpus / "h200" / "truth.jsonl"
    lines = truth.read_text().splitlines() if truth.exists() else []
    facts = [json.loads(line) for line in lines]
    after = {f["case"]: f["step_ms_fixed"] for f in facts if "step_ms_fixed" in f}
    for fact in facts:
        trace = corpus / "h200" / "traces" / f"{fact['case']}.{fact['variant']}.json.gz"
        if trace.exists() and only in trace.name:
            yield trace, _untuned_truth(fact, after)


def judged(trace: Trace, truth: dict[str, Any]) -> Row:
    """What the product says of one recording."""
    said = in_order(diagnose(trace))
    predicted = [r.predicted for r in said.found]
    return Row(
        **truth,
        found=tuple(r.id for r in said.found),
        predicted_ns=tuple(p.step_ns if p else None for p in predicted),
        predicted_range_ns=tuple(p.range_ns if p else None for p in predicted),
        corrected_ns=step_base_ns(trace),
        corrected_range_ns=step_range_ns(trace),
        confidence=said.found[0].finding.confidence if said.found else None,
        first=predicted[0] if predicted else None,
        made=made_with_exceptions(trace),
        only_a_range=why_not_closer(trace) is not None,
        below_bound=sum(p is not None and p.step_ns < (p.bound_ns or 0) for p in predicted),
        not_checked=tuple(o.id for o in said.outcomes if o.answer == "not checked"),
        crashed=tuple(f"{o.id}: {o.why}" for o in said.outcomes if o.answer == "crashed"),
    )


def judged_labelled(corpus: Path, only: str = "") -> Iterator[Row]:
    """The product over every labelled recording of its own."""
    for path, truth in labelled(corpus, only):
        yield judged(pp.load(path), truth)


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
        "stable": _apart(first, second) <= STABLE_RATIO,
        "apart": _apart(first, second),
    }


CALLED_HERE = {"ema-per-tensor": "per-tensor-updates"}  # words of a truth, and the rule
_WASTE = re.compile(r"real waste of another kind .* see (\w+)")  # the case that is its truth


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
        "stable": _apart(first, second) <= STABLE_RATIO,
        "apart": _apart(first, second),
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


def _apart(first: float, second: float) -> float:
    return abs(first - second) / min(first, second)

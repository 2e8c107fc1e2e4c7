"""``--fail-over``: whether a report passes in an automatic check."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.errors import UsageError
from pinchpoint.report import Report
from pinchpoint.report.words.report import CANNOT_CONCLUDE, base_ns

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport

PASS, OVER, INCONCLUSIVE = 0, 1, 4


@dataclass(frozen=True)
class Ruling:
    """An exit code and the reason for it."""

    code: int
    why: str


def parse_gate(text: str | None) -> float | None:
    """A share of the step from ``5%`` or ``5``, both five percent; UsageError for anything else."""
    if text is None:
        return None
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 100:  # also refuses NaN
        raise UsageError(
            f"--fail-over {text}: not a share of the step", hint="for example: --fail-over 5%"
        )
    return percent / 100


def judge(report: Report, limit_ratio: float) -> Ruling:
    """Fails if fixing one finding would save more than ``limit_ratio`` of the step."""
    base = base_ns(report)
    if report.health.verdict == CANNOT_CONCLUDE or not base:
        return Ruling(INCONCLUSIVE, "gate: inconclusive, the recording forbids a judgement")
    return _ruling(base, report.findings, limit_ratio)


def judge_job(job: "RanksReport", limit_ratio: float) -> Ruling:
    """The same for the ranks of a job together."""
    base = job.steps.unprofiled_ns_predicted or job.steps.typical_ns
    if not base:
        return Ruling(INCONCLUSIVE, "gate: inconclusive, no step of the job was completed")
    return _ruling(base, job.findings, limit_ratio)


def _ruling(base: int, findings: Sequence[Finding], limit_ratio: float) -> Ruling:
    over = []
    for finding in findings:
        saved = finding.cost_ns_per_step
        if finding.predicted_step_ns is not None:
            saved = base - finding.predicted_step_ns
        if saved is not None and saved > limit_ratio * base:
            over.append(f"{finding.id} ({100 * saved / base:.1f} %)")
    limit = f"{100 * limit_ratio:g} % of the step"
    if over:
        return Ruling(OVER, f"gate: failed, over {limit}: {', '.join(over)}")
    return Ruling(PASS, f"gate: passed, no finding is worth more than {limit}")

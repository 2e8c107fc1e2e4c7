"""One experiment: the program with a knob turned against the program as it is.

Throughput decides where steps are known: a median step can look better while the whole gets
slower (batches that workers deliver in bursts), and a larger batch does more work a step.

The turned program is arm A and the program as it is arm B, so "B regressed" reads "without the
change it is slower": a gain is claimed with the same one per cent error as a regression.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bench.ab import AbPlan, Notice, run_ab
from pinchpoint.bench.ab.result import AbResult
from pinchpoint.bench.experiments.knobs import Setting, with_settings
from pinchpoint.bench.experiments.ledger import Experiment
from pinchpoint.bench.folders import new_id, utc_now
from pinchpoint.bench.measurement import Measurement
from pinchpoint.bench.measures import THROUGHPUT
from pinchpoint.bench.run import Arm
from pinchpoint.errors import MeasurementInvalid

_OUTCOMES = {"regressed": "gain", "pass": "no gain", "inconclusive": "cannot tell"}


@dataclass(frozen=True)
class Prediction:
    """What a diagnosis expects of a change: how much longer the step takes without it."""

    finding: str
    gain: float
    range: tuple[float, float] | None = None


def experiment(
    base: Arm,
    settings: tuple[Setting, ...],
    plan: AbPlan,
    session: Measurement,
    notice: Notice,
    prediction: Prediction | None = None,
) -> Experiment:
    """Measure, and say what came of it; a program that fails with the knob is an outcome too."""
    turned = with_settings(base, settings, "A")
    plan = replace(plan, a=turned, b=replace(base, name="B"), prefer=(THROUGHPUT,))
    about = _about(settings, plan, session, prediction)
    try:
        result = run_ab(plan, session.session, notice, warnings=session.warnings)
    except MeasurementInvalid as error:
        session.session.finish("failed", why=error.message)
        return replace_struct(about, outcome="failed", why=error.message)
    session.finish(result, verdict=result.verdict)
    return _judged(about, settings, result, applied(session.session.folder))


def _about(
    settings: tuple[Setting, ...],
    plan: AbPlan,
    session: Measurement,
    prediction: Prediction | None,
) -> Experiment:
    code: Mapping[str, Any] = session.environment.get("code") or {}
    unknown = {} if prediction else {"predicted_gain": "no diagnosis was given (--from)"}
    return Experiment(
        experiment_id=new_id(),
        utc=utc_now(),
        bench_id=plan.options.bench_id,
        knobs={s.knob.name: s.value for s in settings},
        hypothesis="; ".join(s.knob.what for s in settings),
        finding=prediction.finding if prediction else None,
        predicted_gain=prediction.gain if prediction else None,
        predicted_range=prediction.range if prediction else None,
        outcome="failed",
        why="",
        changes_numbers=any(s.knob.changes_numbers for s in settings),
        commit=code.get("commit"),
        env_sha256=plan.options.env_sha256,
        artifacts=str(session.session.folder),
        unknown=unknown,
    )


def _judged(
    about: Experiment, settings: tuple[Setting, ...], result: AbResult, done: dict[str, int]
) -> Experiment:
    best = max((m for m in result.measures if m.gated), key=lambda m: m.verdict == "regressed")
    outcome, why = _OUTCOMES[result.verdict], result.why
    inside = [s for s in settings if s.knob.variable is None]
    untouched = [s.knob.name for s in inside if not _touched(s, done)]
    if untouched:
        outcome = "not applied"
        why = f"{', '.join(untouched)}: nothing in the program could be changed"
        if done:
            why += f" ({'; '.join(sorted(done))})"
    elif outcome == "no gain" and best.improved:  # the program as it is, against the change
        slower = 1 / (1 + best.estimate_ratio) - 1
        outcome, why = "loss", f"with the change it takes {slower:.1%} longer"
    elif outcome == "gain":
        why = f"{best.label}: without the change {best.estimate_ratio:.1%} worse"
    return replace_struct(
        about,
        outcome=outcome,
        why=why,
        measure=best.name,
        measured_gain=best.estimate_ratio,
        measured_ci95=best.ci95_ratio,
        pairs=best.pairs,
        applied=done,
    )


def _touched(setting: Setting, done: Mapping[str, int]) -> bool:
    name = setting.knob.name
    return any(what.startswith(f"{name}:") and "left," not in what for what in done)


def applied(folder: Path) -> dict[str, int]:
    """What the knobs did in the runs of arm A, by description, how often in all."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob("runs/[0-9]*-A/knobs-*.json")):
        try:
            log = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        for what, count in log.items():
            found[what] = found.get(what, 0) + count
    return found


def replace_struct(about: Experiment, **facts: Any) -> Experiment:
    """A copy with other values."""
    return msgspec.structs.replace(about, **facts)

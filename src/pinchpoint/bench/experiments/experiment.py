"""One experiment: the program with a knob turned against the program as it is.

Throughput decides where steps are known: a median step can look better while the whole gets
slower (batches that workers deliver in bursts), and a larger batch does more work a step.

The turned program is arm A and the program as it is arm B, so "B regressed" reads "without the
change it is slower": a gain is claimed with the same one per cent error as a regression.
"""

import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bench.ab import AbPlan, Notice, run_ab
from pinchpoint.bench.ab.result import AbResult
from pinchpoint.bench.experiments.knobs import Setting, with_settings
from pinchpoint.bench.folders import new_id, utc_now
from pinchpoint.bench.measurement import Measurement
from pinchpoint.bench.measures import THROUGHPUT
from pinchpoint.bench.run import Arm
from pinchpoint.bench.words import improved
from pinchpoint.errors import MeasurementInvalid, UnreadableFile, UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.json_text import encoded
from pinchpoint.replacing import read_bounded

# ------------------------------------------------------------------------------------------------
# ``experiments.jsonl``: one line an experiment, only ever added to (``bench.experiment/1``).


SCHEMA = "bench.experiment/1"


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothesis, what was predicted, what was measured. Gains are how much longer the program
    takes without the change: 0.5 is 1.5 times as fast."""

    schema: str = SCHEMA
    experiment_id: str
    utc: str
    bench_id: str
    knobs: dict[str, str]
    on_top_of: dict[str, str] = {}  # knobs that are turned in both arms
    hypothesis: str
    finding: str | None = None
    predicted_gain: float | None = None
    predicted_range: tuple[float, float] | None = None
    outcome: str  # gain, no gain, loss, cannot tell, not applied, failed
    why: str
    measure: str | None = None
    measured_gain: float | None = None
    measured_ci95: tuple[float, float] | None = None
    pairs: int = 0
    applied: dict[str, int] = {}
    changes_numbers: bool = False
    commit: str | None = None
    env_sha256: str | None = None
    artifacts: str | None = None  # the session folder
    unknown: dict[str, str] = {}

    def as_predicted(self) -> bool | None:
        """Whether the measured interval meets the predicted range; None if one is missing, and on
        top of other changes: the prediction is for the program as it was."""
        if self.measured_ci95 is None or self.predicted_range is None or self.on_top_of:
            return None
        low, high = self.measured_ci95
        return low <= self.predicted_range[1] and high >= self.predicted_range[0]


def append(path: Path, experiment: Experiment) -> None:
    """Add one line, whole, also when two processes write at once."""
    line = encoded(experiment) + b"\n"
    try:
        how = (
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
        )  # no waiting for a pipe's reader
        descriptor = os.open(path, how, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="name another --ledger") from None


def read(path: Path) -> list[Experiment]:
    """All experiments, oldest first; a last line that was cut off is left out."""
    found: list[Experiment] = []
    lines: Sequence[bytes] = read_bounded(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Experiment))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if number == len(lines):
                break
            raise UnreadableFile(f"{path}, line {number}: {error}", hint="was it edited?") from None
    return found


# ------------------------------------------------------------------------------------------------
# One experiment: the program with a knob turned against the program as it is.


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
    kept: tuple[Setting, ...] = (),
) -> Experiment:
    """Measure, and say what came of it; a program that fails with the knob is an outcome too.

    ``kept`` is turned in both arms; of a knob that is in both the new value replaces the other.
    """
    names = {s.knob.name for s in settings}
    below = tuple(s for s in kept if s.knob.name not in names)
    turned = with_settings(base, (*below, *settings), "A")
    plan = replace(plan, a=turned, b=with_settings(base, kept, "B"), prefer=(THROUGHPUT,))
    about = replace_struct(
        _about(settings, plan, session, prediction),
        on_top_of={s.knob.name: s.value for s in kept},
    )
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
    unknown = (
        {} if prediction else {"predicted_gain": "no diagnosis that was given (--from) predicts it"}
    )
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
    decided = [m for m in result.measures if m.name in result.decided_by]
    gated = [m for m in result.measures if m.gated]
    # What the change gives is a matter of the step, whichever measure could tell that it gives
    # something: five times less waiting is no step of a fifth.
    given = max(gated, key=lambda m: m.verdict == "regressed")
    best = decided[0] if decided else given
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
        longer = f"{1 + slower:.3g} × as long" if slower >= 1 else f"{100 * slower:.1f} % longer"
        outcome, why = "loss", f"with the change it takes {longer}"
    elif outcome == "no gain" and result.decided_by:
        gain = f"less than {100 * (given.threshold_ratio or 0.0):.3g} % better"
        why = f"{', '.join(m.label for m in decided)}: {gain}; wall time varies too much to tell"
    elif outcome == "cannot tell":
        why += " (the program as it is, against the change)"
        why += f". To decide: {'; or '.join(result.advice)}" if result.advice else ""
    elif outcome == "gain":
        # Arm A has the change and B is the program as it is: what B is worse by, A gains.
        why = f"{best.label} {improved(1 / (1 + best.estimate_ratio) - 1)}"
    return replace_struct(
        about,
        outcome=outcome,
        why=why,
        measure=given.name,
        measured_gain=given.estimate_ratio,
        measured_ci95=given.ci95_ratio,
        pairs=given.pairs,
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

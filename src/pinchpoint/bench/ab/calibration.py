"""A against A: how noisy this machine is, and the smallest change that it can see."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pinchpoint.bench.ab.decision import LOOKS
from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.measures import Measure
from pinchpoint.bench.statistics.distributions import pairs_needed, smallest_visible
from pinchpoint.bench.statistics.series import two_modes

CALIBRATION_SCHEMA = "bench.calibration/1"
EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.10)  # slow-downs that people ask for; a table of five


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """The noise of one measure."""

    name: str
    label: str
    pairs: int
    sd_pair_log: float
    visible_ratio: dict[str, float]  # smallest slow-down seen 95 % of the time, by pairs
    pairs_needed: dict[str, int | None]  # by slow-down; null: over 400
    two_speeds_ratio: float | None = None  # how far apart, if runs fall into two groups
    verdict: str | None = None  # of the rule, on identical arms: should be pass
    unknown: dict[str, str] = {}


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What an A/A session says about a machine and a command."""

    schema: str = CALIBRATION_SCHEMA
    session_id: str
    bench_id: str
    created_utc: str
    noise: tuple[Noise, ...]
    pairs_excluded: int
    warnings: tuple[str, ...]
    env_sha256: str | None


def calibration(result: AbResult, measures: Mapping[str, Measure], created_utc: str) -> Calibration:
    """From the result of identical arms."""
    return Calibration(
        session_id=result.session_id,
        bench_id=result.bench_id,
        created_utc=created_utc,
        noise=tuple(
            _noise(m, _values(result, measures[m.name]))
            for m in result.measures
            if m.sd_pair_log is not None
        ),
        pairs_excluded=result.pairs_excluded,
        warnings=result.warnings,
        env_sha256=result.env_sha256,
    )


def _noise(measure: MeasureResult, values: Sequence[float]) -> Noise:
    sd = measure.sd_pair_log or 0.0
    modes = two_modes(np.array(values))
    return Noise(
        name=measure.name,
        label=measure.label,
        pairs=measure.pairs,
        sd_pair_log=sd,
        visible_ratio={str(n): smallest_visible(sd, n) for n in LOOKS},
        pairs_needed={f"{e:.0%}": pairs_needed(e, sd) for e in EFFECTS},
        two_speeds_ratio=modes.gap_ratio if modes else None,
        verdict=measure.verdict,
        unknown={} if modes else {"two_speeds_ratio": "one speed"},
    )


def _values(result: AbResult, measure: Measure) -> list[float]:
    found = [measure.get(run) for run in result.runs if run.valid]
    return [v for v in found if v is not None]

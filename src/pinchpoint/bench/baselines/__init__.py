"""``baseline.json`` (schema ``bench.baseline/1``): medians of past sessions, and the gates.

Session medians are kept as they were measured, so that any rule can be applied later. A known
step (an accepted change) begins a new segment; older sessions stay in the file as history.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bench.folders import utc_now, write_atomic
from pinchpoint.bench.measures import MEASURES, QUIET_STEP, QUIET_WORK, Measure, Threshold
from pinchpoint.bench.metrics import encode, read_document
from pinchpoint.bench.result import AcrossRuns, BenchResult, across_runs
from pinchpoint.bench.run import params_digest
from pinchpoint.frozen import dataclass
from pinchpoint.monitor.environment import fingerprint

SCHEMA = "bench.baseline/1"
WINDOW = 20  # sessions that a new one is compared with
MOST_SESSIONS = 1000  # bounds the file; the oldest go
GATES = ("fail", "warn", "show")  # the most serious first
_TESTS, _BETTER = ("window", "exact"), ("higher", "lower")


class BesideBase(msgspec.Struct, frozen=True, kw_only=True):
    """What pairs of runs in the same minutes said of a session: ratios are of the worsening."""

    commit: str | None  # of the base; null: a command that was given
    change_ratio: float
    ci95_ratio: tuple[float, float] | None = None
    pairs: int


class SessionMedian(msgspec.Struct, frozen=True, kw_only=True):
    """One past session: the median of its runs, as the machine of that hour had them."""

    session_id: str
    utc: str
    value: float
    runs: int
    commit: str | None = None
    beside_base: BesideBase | None = None  # null: it was measured by itself


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of one benchmark."""

    better: str
    unit: str
    gate: str = "fail"  # of GATES
    test: str = "window"  # window of sessions; exact: any change over the threshold counts
    threshold_pct: float | None = None
    threshold_abs: float | None = None
    window: int = WINDOW
    segment_start: str | None = None  # first session of the present level
    session_medians: tuple[SessionMedian, ...] = ()

    def __post_init__(self) -> None:
        """A word that is misspelt would be a gate that never fails: damage, where it is read."""
        for said, words in ((self.gate, GATES), (self.test, _TESTS), (self.better, _BETTER)):
            if said not in words:
                raise ValueError(f"{said!r} is none of {', '.join(words)}")
        if self.window < 1:
            raise ValueError(f"a window of {self.window} sessions")

    @property
    def threshold(self) -> Threshold | None:
        """The gate's threshold, if one was set."""
        if self.threshold_pct is not None:
            return Threshold(ratio=self.threshold_pct / 100)
        return None if self.threshold_abs is None else Threshold(absolute=self.threshold_abs)

    def present_level(self) -> tuple[SessionMedian, ...]:
        """The sessions of the present segment, newest last, at most ``window`` of them."""
        ids = [m.session_id for m in self.session_medians]
        start = ids.index(self.segment_start) if self.segment_start in ids else 0
        return self.session_medians[start:][-self.window :]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """All benchmarks of one machine type."""

    schema: str = SCHEMA
    created_utc: str
    updated_utc: str
    env_key_sha256: str
    env: dict[str, Any]
    entries: dict[str, dict[str, Entry]] = {}  # by benchmark and parameters, then by measure
    programs: dict[str, str] = {}  # the script of a benchmark and parameters, by its path


@dataclass(frozen=True)
class Gate:
    """What to do if a measure gets worse by more than its threshold."""

    threshold: Threshold
    action: str  # fail, warn


def entry_key(result: BenchResult) -> str:
    """Which benchmark with which parameters."""
    return f"{result.bench_id}|{result.runs[0].params_sha256[:16] if result.runs else ''}"


def key_of(bench_id: str, params: Mapping[str, Any]) -> str:
    """The same, of a benchmark that was not measured yet."""
    return f"{bench_id}|{params_digest(params)[:16]}"


def last_commit(baseline: Baseline, bench_id: str) -> str | None:
    """The commit of the newest session of a benchmark; None where it is not known."""
    known = (
        entry.session_medians[-1]
        for key, entries in baseline.entries.items()
        for entry in entries.values()
        if key.partition("|")[0] == bench_id and entry.session_medians
    )
    newest = max(known, key=lambda median: median.utc, default=None)
    return newest.commit if newest else None


def gated(baseline: Baseline | None) -> set[str]:
    """The measures of any benchmark that have a gate."""
    entries = baseline.entries.values() if baseline else ()
    return {name for one in entries for name, entry in one.items() if entry.gate != "show"}


def read_baseline(path: Path) -> Baseline:
    """UnreadableFile if it is missing or not one."""
    return read_document(path, Baseline, SCHEMA)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write atomically."""
    write_atomic(path, encode(baseline))


def with_session(
    baseline: Baseline | None,
    result: BenchResult,
    *,
    gates: Mapping[str, Gate],
    measures: Mapping[str, Measure] = MEASURES,
    new_level: bool = False,
    program: str | None = None,
    beside_base: Mapping[str, BesideBase] | None = None,
) -> Baseline:
    """The baseline with this session added, of this ``program``; a new one if there was none.

    ``new_level`` begins a segment: the change was meant, and the old level no longer counts.
    ``beside_base``: by measure, what pairs with the base said of it in the same minutes.
    """
    now = utc_now()
    old = baseline or Baseline(
        created_utc=now,
        updated_utc=now,
        env_key_sha256=fingerprint(result.environment),
        env=result.environment,
    )
    key = entry_key(result)
    before = old.entries.get(key, {})
    found = comparable(result, measures)
    after = dict(before)
    for name, across in found.items():
        median = SessionMedian(
            session_id=result.session_id,
            utc=result.created_utc,
            commit=(result.environment.get("code") or {}).get("commit"),
            value=across.median,
            runs=len(across.values),
            beside_base=(beside_base or {}).get(name),
        )
        entry = before.get(name) or _new_entry(across.measure)
        after[name] = _added(_gated(entry, gates.get(name)), median, new_level)
    programs = old.programs if program is None else old.programs | {key: program}
    entries = old.entries | {key: after}
    return msgspec.structs.replace(old, updated_utc=now, entries=entries, programs=programs)


def comparable(result: BenchResult, measures: Mapping[str, Measure]) -> dict[str, AcrossRuns]:
    """What may be held against other sessions: where threads slept while they waited for each
    other, as they do on a busy machine only, no CPU time."""
    slept = any(run.threads_sleep for run in result.runs)
    found = across_runs(result.runs, measures)
    return {n: a for n, a in found.items() if not (slept and n in (*QUIET_STEP, *QUIET_WORK))}


def with_gates(baseline: Baseline, result: BenchResult, gates: Mapping[str, Gate]) -> Baseline:
    """The baseline with these gates set for the benchmark of the result, sessions unchanged."""
    key = entry_key(result)
    entries = baseline.entries.get(key)
    if entries is None or not gates:
        return baseline
    gated = {name: _gated(entry, gates.get(name)) for name, entry in entries.items()}
    return msgspec.structs.replace(baseline, entries=baseline.entries | {key: gated})


def _new_entry(measure: Measure) -> Entry:
    exact = measure.name == "device_peak_bytes"  # the allocator repeats itself to the byte
    return Entry(
        better=measure.better,
        unit=measure.unit,
        gate="show",
        test="exact" if exact else "window",
    )


def _gated(entry: Entry, gate: Gate | None) -> Entry:
    if gate is None:
        return entry
    ratio = gate.threshold.ratio
    return msgspec.structs.replace(
        entry,
        gate=gate.action,
        threshold_pct=None if ratio is None else 100 * ratio,
        threshold_abs=gate.threshold.absolute,
    )


def _added(entry: Entry, median: SessionMedian, new_level: bool) -> Entry:
    if any(m.session_id == median.session_id for m in entry.session_medians):
        return entry  # the same session given twice counts once
    medians = (*entry.session_medians, median)[-MOST_SESSIONS:]
    start = median.session_id if new_level else entry.segment_start
    return msgspec.structs.replace(entry, session_medians=medians, segment_start=start)

"""Where each finding happens: every row of the trace that its fix would change.

A run has two recordings, one for times and one for names, and the page draws the one for times.
What only the other one tells is found here by its names: the third ``gemm`` of a step there is the
third ``gemm`` of a step here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.replay.changes import (
    AddHostTime,
    DropSyncs,
    RemoveHostTime,
    RemoveRecordingCost,
    ScaleHostSpans,
)
from pinchpoint.analysis.steps.in_steps import window_of
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis import kinds, windows
from pinchpoint.diagnosis.finding import Evidence, Finding, Found, Location
from pinchpoint.diagnosis.ladder import in_order
from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.report import Report
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import distinct

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Rows by table, and stretches of time that are no rows."""

    rows: dict[str, Numbers] = field(default_factory=dict)
    start_ns: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    end_ns: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    how: str = ""  # what was looked for, where that is more than what the fix would change

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows.values()) + len(self.start_ns)


def occurrences(finding: Found) -> Occurrences:
    """What the changes of a finding touch; empty where it has none, as those about memory."""
    rows: dict[str, list[Numbers]] = {}
    starts: list[Numbers] = []
    ends: list[Numbers] = []
    for change in finding.changes:
        match change:
            case RemoveRecordingCost() | AddHostTime():  # no place that the fix would change
                continue
            case RemoveHostTime(start_ns=start, end_ns=end):
                starts.append(np.asarray(start, np.int64))
                ends.append(np.asarray(end, np.int64))
            case DropSyncs(api_calls=calls):
                rows.setdefault("api_calls", []).append(np.asarray(calls, np.int64))
            case ScaleHostSpans(host_ops=spans):
                rows.setdefault("host_ops", []).append(np.asarray(spans, np.int64))
            case _:
                rows.setdefault("device_ops", []).append(np.asarray(change.device_ops, np.int64))
    found = {table: distinct(np.concatenate(parts)) for table, parts in rows.items()}
    if not starts:
        return Occurrences(found)
    return Occurrences(found, np.concatenate(starts), np.concatenate(ends))


def of_findings(trace: Trace, report: Report) -> Iterator[tuple[Finding, Occurrences]]:
    """The findings of a report in their order, with where they happen; empty: not known."""
    told: dict[str, list[Found]] = defaultdict(list)
    for ranked in in_order(windows.diagnose(trace)).found:
        told[ranked.id].append(ranked.finding)
    named = windows.names_of(trace)
    for item in report.findings:
        found = told[item.id].pop(0) if told[item.id] else None
        places = Occurrences() if found is None else occurrences(found)
        if not len(places) and found is not None and named is not trace:
            places = _as_in_names(trace, named, item.id, found)
        if not len(places):
            places = _by_evidence(trace, item.evidence)
        yield item, places if len(places) else _by_location(trace, item.location)


def _as_in_names(trace: Trace, named: Trace, rule_id: str, found: Found) -> Occurrences:
    """The same events as in the recording for names."""
    there = (r.finding for r in kinds.diagnose(named).found if r.id == rule_id)
    same = next((one for one in there if one.summary == found.summary), None)
    if same is None:
        return Occurrences()
    theirs = occurrences(same)
    here = {table: _alike(trace, named, table, of) for table, of in theirs.rows.items()}
    start, end = _stretches(trace, named, theirs)
    return Occurrences({table: of for table, of in here.items() if len(of)}, start, end)


def _alike(trace: Trace, named: Trace, table: str, rows: Numbers) -> Numbers:
    """Rows of one recording that are, in their steps, what others are in steps of another one."""
    ours, theirs = _numbered(trace, table), _numbered(named, table)
    wanted = _spelt(trace, named, theirs.key[np.isin(theirs.rows, rows)])
    return ours.rows[np.isin(ours.key, wanted[wanted >= 0])]


def _stretches(trace: Trace, named: Trace, of: Occurrences) -> tuple[Numbers, Numbers]:
    """Between which times the host is where it is in these stretches of the other recording: from
    the end of the call before to the beginning of the one after."""
    theirs, none = _numbered(named, "api_calls"), np.zeros(0, np.int64)
    if not len(of.start_ns) or not len(theirs.rows) or named.api_calls is None:
        return none, none
    begins = named.api_calls["start_ns"][theirs.rows]
    before = np.searchsorted(begins, of.start_ns, "right") - 1
    after = np.searchsorted(begins, of.end_ns)
    inside = (before >= 0) & (after < len(begins))
    keys = _spelt(trace, named, theirs.key)
    pairs = set(zip(keys[before[inside]].tolist(), keys[after[inside]].tolist(), strict=True))
    ours, calls = _numbered(trace, "api_calls"), trace.api_calls
    wanted = np.flatnonzero(np.isin(ours.key, [key for pair in pairs for key in pair]))
    rows = {(int(ours.step[at]), int(ours.key[at])): int(ours.rows[at]) for at in wanted}
    found = [
        (int(calls.end_ns[rows[step, first]]), int(calls["start_ns"][rows[step, last]]))
        for step in range(len(steps(trace)))
        for first, last in pairs
        if calls is not None and (step, first) in rows and (step, last) in rows
    ]
    ends = np.array(sorted(pair for pair in found if pair[0] < pair[1]), np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


@dataclass(frozen=True, eq=False)
class _Numbered:
    """Rows in steps, their steps, and what tells each from the others in its step: its name, and
    how many of that name are before it."""

    rows: Numbers
    step: Numbers
    key: Numbers


def _spelt(trace: Trace, named: Trace, key: Numbers) -> Numbers:
    """Keys of the other recording as they are here; negative where the name is not known."""
    number = {text: i for i, text in enumerate(trace.names)}
    here = np.array([number.get(text, -1) for text in named.names], np.int64)
    spelt: Numbers = here[key >> _NAME_BITS] << _NAME_BITS | key & ((1 << _NAME_BITS) - 1)
    return spelt


_NAME_BITS = 32  # of a key, for what is counted: more events of one name than a step can hold


def _numbered(trace: Trace, table: str) -> _Numbered:
    held, found = getattr(trace, table), steps(trace)
    if held is None or not len(found):
        return _Numbered(*(np.zeros(0, np.int64),) * 3)
    on_device = table == "device_ops"
    start = found.start_ns if on_device else found.host_start_ns
    end = found.end_ns if on_device else found.host_end_ns
    step = window_of(held["start_ns"], start, end)
    rows = np.flatnonzero(step < len(found))
    name = held["name"][rows].astype(np.int64)
    order = np.lexsort((rows, name, step[rows]))
    first = np.ones(len(rows), np.bool_)
    first[1:] = (np.diff(name[order]) != 0) | (np.diff(step[rows][order]) != 0)
    begin = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    nth = np.zeros(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - begin
    return _Numbered(rows, step[rows], name << _NAME_BITS | nth)


def _by_evidence(trace: Trace, evidence: Iterable[Evidence]) -> Occurrences:
    """All events named as the one that shows it, else the times of the evidence."""
    shown = [fact for fact in evidence if fact.at_ns is not None]
    for fact in shown:
        for table in ("device_ops", "host_ops"):
            held = getattr(trace, table)
            if held is not None and fact.name in _names_at(trace, held, fact.at_ns):
                rows = np.flatnonzero(held["name"] == trace.names.index(fact.name))
                return Occurrences({table: rows}, how="events of this name")
    when = np.array([fact.at_ns for fact in shown], np.int64)
    return Occurrences(start_ns=when, end_ns=when + 1)


def _names_at(trace: Trace, rows: Table, at_ns: int | None) -> set[str]:
    """Names of the events that begin at a time."""
    first, end = np.searchsorted(rows["start_ns"], (at_ns or 0, (at_ns or 0) + 1))
    return {trace.names[i] for i in rows["name"][first:end].tolist()}


def _by_location(trace: Trace, at: Location | None) -> Occurrences:
    """Calls of the operator, module or function that a finding names, the first that is there."""
    if at is None or trace.host_ops is None:
        return Occurrences()
    names, kind = trace.host_ops["name"], trace.host_ops["kind"]
    from pinchpoint.analysis.tables.modules import MODULE_PREFIX

    asked: tuple[tuple[HostKind | None, Callable[[str], bool]], ...] = (
        (None, lambda name: name == at.operator),
        (HostKind.MODULE, lambda name: name.removeprefix(MODULE_PREFIX) == at.module),
        (HostKind.PYTHON, lambda name: _is_function(name, at)),
    )
    for of, is_it in asked:
        mine = np.array([*map(is_it, trace.names), False], np.bool_)[names]
        rows = np.flatnonzero(mine if of is None else mine & (kind == of))
        if len(rows):
            return Occurrences({"host_ops": rows}, how="all calls there")
    return Occurrences()


def _is_function(name: str, at: Location) -> bool:
    frame = frame_of(name) if at.function and at.file and name.endswith(at.function) else None
    return frame is not None and (frame.file, frame.function) == (at.file, at.function)

"""The page of a benchmark's history: its sessions, and where the level changed."""

from dataclasses import replace

from pinchpoint.bench.baselines import GATES, Baseline, Entry, SessionMedian
from pinchpoint.bench.baselines.screen import contradicted, levels
from pinchpoint.bench.measures import MEASURES
from pinchpoint.bench.statistics.series import ChangePoint
from pinchpoint.bench.words import in_words, range_in_words
from pinchpoint.report.blocks import Fact, Table
from pinchpoint.report.pages.result import ResultPage, figure, table

_ROWS = 20  # sessions on a screen
_HASH = 10  # characters of a commit


def history_page(baseline: Baseline) -> ResultPage:
    """Every benchmark's sessions with the changes of level; what has a gate comes first."""
    tables, notes, beside = [], [], False
    for key, entries in baseline.entries.items():
        for name, entry in sorted(entries.items(), key=lambda one: GATES.index(one[1].gate)):
            tables.append(_sessions(f"{key.split('|')[0]}: {_label(name)}", entry))
            notes += [
                f"{_label(name)}: {figure(p.before, entry.unit)} to {figure(p.after, entry.unit)}"
                f" from session {p.at + 1}"
                f" ({in_words(_worsening(p, entry), entry.better)}, p {p.p:.1g})"
                for p in levels(entry)
            ]
            beside = beside or any(m.beside_base for m in entry.session_medians)
    if beside:
        notes.insert(
            0,
            "median: as the machine was at that hour, so that two sessions differ by more than the"
            " program; beside its base: what pairs of runs in the same minutes said of the change",
        )
    sessions = {m.session_id for es in baseline.entries.values() for e in es.values()
                for m in e.session_medians}  # fmt: skip
    return ResultPage(
        title="history",
        headline=f"{_counted(len(sessions), 'session')} since {baseline.created_utc[:10]},"
        f" {_counted(len(tables), 'measure')}",
        tables=tuple(tables),
        notes=tuple(notes),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _label(name: str) -> str:
    return MEASURES[name].label if name in MEASURES else name


def _worsening(p: ChangePoint, entry: Entry) -> float:
    return p.change_ratio if entry.better == "lower" else 1 / (1 + p.change_ratio) - 1


def _sessions(title: str, entry: Entry) -> Table:
    medians = entry.session_medians
    first = max(0, len(medians) - _ROWS)
    shown = [(first + i, m) for i, m in enumerate(medians[first:])]
    paired = any(m.beside_base for _, m in shown)
    rows = [
        (
            str(i + 1),
            m.utc[:16].replace("T", " "),
            (m.commit or "-")[:_HASH],
            figure(m.value, entry.unit),
            *((_beside(m, entry),) if paired else ()),
        )
        for i, m in shown
    ]
    header = ("", "when", "commit", "median", *(("beside its base",) if paired else ()))
    made = table(title, header, tuple(rows))
    return replace(made, below=tuple(_against(entry, i) for i, _ in shown))


def _beside(m: SessionMedian, entry: Entry) -> str:
    return in_words(m.beside_base.change_ratio, entry.better) if m.beside_base else "-"


def _against(entry: Entry, at: int) -> tuple[Fact, ...]:
    """Below a session whose median says something else than the pairs did, what to believe."""
    found = contradicted(entry, at)
    beside = entry.session_medians[at].beside_base
    if found is None or beside is None:
        return ()
    base, alone = found
    said = (
        f"by the medians {in_words(alone, entry.better)} than session {base + 1}; side by side with"
        f" its commit {range_in_words(beside.ci95_ratio, entry.better)} (95 %, {beside.pairs}"
        " pairs): believe these, as the machine was not the same at both hours"
    )
    return (Fact("", said),)

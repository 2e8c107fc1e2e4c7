"""The page of a fleet."""

from collections.abc import Iterator
from datetime import UTC, datetime

from pinchpoint.report.blocks import Block, Command, Gap, Items, Page, Table, Text, Title
from pinchpoint.report.documents.clean import cleaned
from pinchpoint.report.documents.fleet import FleetChange, FleetDocument
from pinchpoint.report.plain import middle_cut
from pinchpoint.report.quantity import percent, relative

_ROWS = 10  # of each table, unless all are wanted
_PROGRAM = 40  # characters; the middle is left out
_COMMIT = 9  # characters that git needs in large repositories


def fleet_page(document: FleetDocument, *, verbose: bool = False) -> Page:
    """Totals, what changed for good, which causes cost most, the programs."""
    return Page(tuple(_blocks(cleaned(document), verbose)))


def _blocks(document: FleetDocument, verbose: bool) -> Iterator[Block]:
    yield Title(document.place, tuple(_about(document)))
    yield Text(_headline(document), "strong")
    yield Text(_hours(document))
    if document.changes:
        yield Gap()
        yield _changes(document, verbose)
    if document.causes:
        yield Gap()
        yield _causes(document, verbose)
    yield Gap()
    yield _programs(document, verbose)
    if document.unreadable:
        yield Items(document.unreadable, "warning")
    if document.not_diagnosed:
        count = document.not_diagnosed
        yield Text(
            f"recordings of {count:,} {'runs' if count > 1 else 'run'} were not read yet; they"
            " count in no cause",
            label="Not diagnosed",
        )
        yield Command(f"pinchpoint fleet {document.place} --diagnose {min(count, 100)}")


def _about(document: FleetDocument) -> Iterator[str]:
    yield f"{document.runs:,} {'runs' if document.runs > 1 else 'run'}"
    yield f"{len(document.programs):,} {'programs' if len(document.programs) > 1 else 'program'}"
    if document.first_unix_ns is not None and document.last_unix_ns is not None:
        days = (document.last_unix_ns - document.first_unix_ns) / 8.64e13
        yield f"{_day(document.first_unix_ns)} to {_day(document.last_unix_ns)} ({days:.0f} days)"
    if document.running:
        yield f"{document.running:,} running"
    if document.failed:
        yield f"{document.failed:,} failed"


def _headline(document: FleetDocument) -> str:
    worse = [change for change in document.changes if change.ratio > 0]
    if not worse:
        return "No program's steps became longer for good."
    lost = sum(change.rank_hours for change in worse)
    count = len({(change.program, change.device, change.ranks) for change in worse})
    some = "Steps of one program" if count == 1 else f"Steps of {count:,} programs"
    return f"{some} became longer for good; the runs since took {lost:,.4g} rank hours more."


def _hours(document: FleetDocument) -> str:
    text = f"{document.rank_hours:,.4g} rank hours in all"
    parts = [
        (document.waiting_rank_hours, "waited for batches"),
        (document.failed_rank_hours, "in runs that failed"),
    ]
    said = [
        f"{percent(hours / document.rank_hours)} % {what}" for hours, what in parts if hours > 0
    ]
    return f"{text}; {', '.join(said)}." if said else f"{text}."


def _changes(document: FleetDocument, verbose: bool) -> Table:
    rows = tuple(_change(change) for change in document.changes)
    return Table(
        (
            "step changed for good",
            "before ms",
            "after ms",
            "change",
            "rank h",
            "since",
            "runs",
            "why",
        ),
        rows,
        (False, True, True, True, True, False, True, False),
        most=None if verbose else _ROWS,
        more="changes; --verbose shows all",
        whole=True,
    )


def _change(change: FleetChange) -> tuple[str, ...]:
    return (
        _program(change.program, change.ranks),
        f"{change.before_ms:,.4g}",
        f"{change.after_ms:,.4g}",
        relative(change.before_ms, change.after_ms),
        f"{change.rank_hours:+,.3g}",
        f"{change.since} ({_day(change.since_unix_ns)})",
        f"{change.runs_after:,}",
        "; ".join(_why(change)),
    )


def _why(change: FleetChange) -> Iterator[str]:
    before, after = change.commits
    if before and after and before != after:
        yield f"commits {before[:_COMMIT]}..{after[:_COMMIT]}"
    old, new = change.torch
    if old and new and old != new:
        yield f"torch {old} to {new}"
    if change.new_findings and change.ratio > 0:
        yield f"now {', '.join(change.new_findings)}"
    if change.gone_findings and change.ratio < 0:
        yield f"no longer {', '.join(change.gone_findings)}"
    if change.waits_more:
        yield "waits for batches"
    if change.same_hosts is False:
        yield "on other hosts"


def _causes(document: FleetDocument, verbose: bool) -> Table:
    rows = tuple(
        (c.id, f"{c.runs:,}", f"{c.programs:,}", f"{c.saves_rank_hours:,.3g}", c.example)
        for c in document.causes
    )
    return Table(
        ("cause", "runs", "programs", "a fix saves, rank h", "most in"),
        rows,
        (False, True, True, True, False),
        most=None if verbose else _ROWS,
        more="causes; --verbose shows all",
    )


def _programs(document: FleetDocument, verbose: bool) -> Table:
    rows = tuple(
        (
            _program(p.program, p.ranks),
            f"{p.runs:,}",
            f"{p.rank_hours:,.3g}",
            "?" if p.step_ms is None else f"{p.step_ms:,.4g}",
            "?" if p.p99_ms is None else f"{p.p99_ms:,.4g}",
            "?" if p.wait_ratio is None else f"{percent(p.wait_ratio)} %",
            p.newest,
        )
        for p in document.programs
    )
    return Table(
        ("program", "runs", "rank h", "step ms", "p99 ms", "waits", "newest run"),
        rows,
        (False, True, True, True, True, True, False),
        most=None if verbose else _ROWS,
        more="programs; --verbose shows all",
    )


def _program(program: str, ranks: int) -> str:
    name = middle_cut(program or "(no command)", _PROGRAM)
    return f"{name} × {ranks}" if ranks > 1 else name


def _day(unix_ns: int | None) -> str:
    return "?" if unix_ns is None else f"{datetime.fromtimestamp(unix_ns / 1e9, UTC):%Y-%m-%d}"

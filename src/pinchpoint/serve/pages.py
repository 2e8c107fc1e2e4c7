"""The pages as text. Names are of files and programs: every one is escaped and bounded."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from pinchpoint.compare.over_time import SAME_RATIO
from pinchpoint.diagnosis.verdict import ONE_OF_MANY
from pinchpoint.importers import load
from pinchpoint.importers.ranks.files import ranks_beside
from pinchpoint.jobs import diagnose_ranks
from pinchpoint.jobs.full_page import full_page, job_in
from pinchpoint.json_text import said
from pinchpoint.report import diagnose
from pinchpoint.report.assemble.comparison import comparison
from pinchpoint.report.html import fragment, template
from pinchpoint.report.pages import compare as compare_page
from pinchpoint.report.pages.result import blocks
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import duration, quantity, rate, size, slower_or_faster
from pinchpoint.report.words.fix import fix_sentence, gone_words
from pinchpoint.run_folder.notes import note_of
from pinchpoint.serve.history import Listed, Program, by_job, programs
from pinchpoint.serve.index import Index, current
from pinchpoint.serve.listing import ListedRecording, inside_run, listed_as, recordings
from pinchpoint.serve.live import RunState, Series, is_running, run_state
from pinchpoint.serve.places import Place
from pinchpoint.serve.reader import Reader, Unread
from pinchpoint.serve.summary import Summary, summarise, summarise_job

# ------------------------------------------------------------------------------------------------
# The pages as text. Names are of files and programs: every one is escaped and bounded.


REFRESH_S = 2  # of the page of a run in progress
STALE_S = 30  # without a sample; five a second are normal
_NAME_LIMIT = 300
_Line = tuple[ListedRecording, Summary | None]
_Known = dict[str, tuple[int, int | None, Summary]]  # as the index has it


def list_page(root: Path, base: str, index: Index, reader: Reader, wanted: str = "") -> str:
    """Everything below the root by program, newest first; ``wanted`` is text to look for."""
    known = index.all()
    listing = recordings(root, {name: row[:2] for name, row in known.items()})
    found = [(r, current(r, known)) for r in listing.recordings]
    lines, members = by_job(found)
    alone = [Unread(recording) for recording, summary in found if summary is None]
    reader.want([*alone, *_unread_jobs(lines, members, known)])
    texts = {r.name: _text_of(r, s).lower() for r, s in found}
    kept = [pair for pair in found if wanted.lower() in texts[pair[0].name]]
    jobs = [
        _of_all_ranks(r, s, known) if r.name in members else (r, s)
        for r, s in lines
        if any(wanted.lower() in texts[m.name] for m in members.get(r.name, [r]))
    ]
    rows = {r.name: _row(r, base) for r, s in kept if r.is_run and s is None}
    running = [row for name, row in rows.items() if is_running(root / name)]
    return _page(
        "list.html",
        plain(root.name or str(root), _NAME_LIMIT),
        home=None,
        programs=[_program(root, program, members, base) for program in programs(jobs)],
        running=running,
        unread=sum(summary is None for _, summary in found),
        complete=listing.complete,
        compare=f"{base}compare",
        here=base,
        wanted=plain(wanted, _NAME_LIMIT),
        found=len(kept),
        total=len(found),
    )


def _job_in_index(line: ListedRecording) -> ListedRecording:
    """What the ranks of a job say together stands in the index beside what each says."""
    return replace(line, name=f"ranks of {line.name}")


def _unread_jobs(
    lines: Sequence[_Line], members: Mapping[str, Sequence[ListedRecording]], known: _Known
) -> Iterator[Unread]:
    for line, summary in lines:
        ranks = tuple(rank.name for rank in members.get(line.name, ()))
        if ranks and current(_job_in_index(line), known) is None:
            yield Unread(_job_in_index(line), ranks, summary)


def _of_all_ranks(line: ListedRecording, slowest: Summary | None, known: _Known) -> _Line:
    """The line of a job with its own answer, where that is known already."""
    summary = current(_job_in_index(line), known)
    return line, summary if summary is not None and not summary.problem else slowest


def _text_of(recording: ListedRecording, summary: Summary | None) -> str:
    """What a search looks at."""
    if summary is None:
        return recording.name
    said = (recording.name, summary.program, summary.device, summary.verdict, *summary.findings)
    return " ".join(said)


def _program(
    root: Path, program: Program, members: dict[str, list[ListedRecording]], base: str
) -> dict[str, Any]:
    times = [ns for ns in program.steps_ns if ns is not None]
    trend = _path(program.steps_ns, max(times, default=0))
    return {
        "name": plain(program.name or "recordings", _NAME_LIMIT),
        "folder": _folder(program),
        "trend": trend if len(times) > 1 else "",
        "least": duration(min(times, default=0)),
        "most": duration(max(times, default=0)),
        "runs": [_listed(root, run, members, base) for run in program.runs],
    }


def _folder(program: Program) -> str:
    """What the names of all its runs begin with, where the heading says it already."""
    begin = f"{program.name}/"
    alike = all(run.recording.name.startswith(begin) for run in program.runs)
    return plain(begin, _NAME_LIMIT) if alike else ""


def _listed(
    root: Path, run: Listed, members: dict[str, list[ListedRecording]], base: str
) -> dict[str, Any]:
    """A row of the list: the step, what changed, the answer, the note."""
    summary, ranks = run.summary, members.get(run.recording.name, [])
    row: dict[str, Any] = dict(_row(run.recording, base))
    if ranks:
        row["href"] = f"{base}ranks/{_quoted(_place_of_job(run.recording.name, ranks))}"
    change = run.change_ratio
    known = summary is not None and summary.step_ns is not None
    return row | {
        "step": duration(summary.step_ns) if summary and summary.step_ns else "",
        "clock": summary.clock if summary and known else "",
        "change": "" if change is None else _change(change, sure=run.sure),
        "tone": ("bad", "good")[change < 0] if change is not None and run.sure else "soft",
        "verdict": _verdict(summary, of_job=bool(ranks)),
        "slowest": bool(ranks) and summary is not None and summary.rank is not None,
        "first": summary.findings[0] if summary and summary.findings else "",
        "gain": summary.first_gain if summary else "",
        "problem": summary.problem if summary else "",
        "unread": summary is None,
        "fix": f"{gone_words(run.fix)}: {fix_sentence(run.fix)}" if run.fix else "",
        "note": plain(note_of(root / run.recording.name), _NAME_LIMIT),
        "ranks": [_row(rank, base) for rank in ranks],
    }


def _verdict(summary: Summary | None, *, of_job: bool) -> str:
    """Of a job without what is said of one rank alone."""
    said = "" if summary is None else summary.verdict
    return said.partition(f" {ONE_OF_MANY} ")[0] if of_job else said


def _place_of_job(name: str, ranks: list[ListedRecording]) -> str:
    """The folder that a job is alone in, else one of its recordings, which leads to the others."""
    in_folder = all(rank.name.startswith(f"{name}/") for rank in ranks)
    return name if in_folder else ranks[0].name


def _change(ratio: float, *, sure: bool) -> str:
    """What changed since the run before, only where that is no chance."""
    if abs(ratio) < SAME_RATIO:
        return "as before"
    return slower_or_faster(1.0, 1 + ratio) if sure else "cannot tell"


def report_page(place: Place, base: str, index: Index) -> str:
    """The same page that ``pinchpoint report`` writes; what it says goes into the index."""
    trace = load(place.path)
    report, job = diagnose(trace), job_in(place.path)
    if recording := listed_as(place.name, place.path):
        summary = summarise(trace, report)
        index.put(recording, summary if job is None else summarise_job(job, summary))
    return full_page(place.path, trace, report, job, home=base)


def ranks_of(root: Path, place: Place) -> list[str]:
    """A folder, or the recordings below ``root`` of the job that a recording belongs to.

    The recording alone where there is too much beside it to look at.
    """
    beside = [] if place.path.is_dir() else ranks_beside(place.path)
    inside = [path for path in beside if Path(path).resolve().is_relative_to(root)]
    return inside or [str(place.path)]


def ranks_page(root: Path, places: Sequence[str], base: str, index: Index) -> str:
    """All ranks of a job together, as ``pinchpoint ranks`` says it; that goes into the index."""
    job, known = diagnose_ranks(places), index.all()
    lines, members = by_job([(r, current(r, known)) for r in recordings(root).recordings])
    for line, summary in lines:
        ranks = [str(root / rank.name) for rank in members.get(line.name, ())]
        if summary is not None and (
            sorted(ranks) == sorted(places) or [str(root / line.name)] == places
        ):
            index.put(_job_in_index(line), summarise_job(job, summary))
    return full_page(Path(places[0]), None, None, job, home=base)


def compare_pages(a: Place, b: Place, base: str) -> str:
    """What changed from A to B, as ``pinchpoint compare`` says it."""
    shown = compare_page.profiles_page(comparison(load(a.path), load(b.path)))
    body = fragment(blocks(shown).blocks)
    return _page("compare.html", plain(shown.title, _NAME_LIMIT), home=base, body=body)


def run_page(root: Path, run: Place, base: str) -> str:
    """A run folder now; it asks to be fetched again while the run goes on."""
    state = run_state(run.path)
    age_s = None if state.newest_unix_ns is None else time.time() - state.newest_unix_ns / 1e9
    inside = inside_run(root, run.path)
    return _page(
        "run.html",
        plain(run.name or root.name, _NAME_LIMIT),
        home=base,
        run=state,
        every_s=REFRESH_S,
        age=None if age_s is None else duration(max(age_s, 0) * 1e9),
        stale=age_s is not None and age_s > STALE_S,
        step=None if state.step_ms is None else duration(state.step_ms * 1e6),
        command=plain(state.command, 500),
        problems=[plain(problem, 600) for problem in state.problems],
        report=None if state.running else f"{base}report/{_quoted(run.name)}",
        devices=list(_devices(state)),
        inside=[_row(recording, base) for recording in inside],
    )


def problem_page(problem: str, hint: str, base: str | None) -> str:
    """What went wrong, and what to do."""
    return _page(
        "problem.html",
        "This cannot be shown",
        home=base,
        problem=plain(problem, 600),
        hint=plain(hint, 600),
    )


@cache
def style() -> str:
    """The one style sheet of these pages; the policy of the server names its hash."""
    return (files("pinchpoint.serve") / "templates/page.css").read_text("utf-8")


def _page(name: str, title: str, **shown: object) -> str:
    return template(name, "pinchpoint.serve").render(title=title, style=Markup(style()), **shown)


def _quoted(name: str) -> str:
    """A name in an address, byte by byte: that of a file need not be UTF-8."""
    return quote(os.fsencode(name))


def _row(recording: ListedRecording, base: str) -> dict[str, str]:
    changed = datetime.fromtimestamp(recording.when_ns / 1e9, UTC).astimezone()
    kind, quoted = "run" if recording.is_run else "report", _quoted(recording.name)
    return {
        "name": plain(recording.name or "this run", _NAME_LIMIT),
        "value": recording.name if said(recording.name) == recording.name else quoted,
        "href": f"{base}{kind}/{quoted}",
        "format": recording.format,
        "size": "" if recording.bytes is None else size(recording.bytes),
        "when": changed.strftime("%Y-%m-%d %H:%M"),
        "report": f"{base}report/{_quoted(recording.name)}",
    }


def _devices(state: RunState) -> Iterator[tuple[str, list[dict[str, str]]]]:
    for device, series in groupby(state.series, key=lambda s: s.device):
        yield "host" if device is None else f"device {plain(device, 20)}", _shown(tuple(series))


def _shown(series: Sequence[Series]) -> list[dict[str, str]]:
    return [
        {
            "label": each.metric.label,
            "meaning": each.metric.meaning,
            "value": _figure(each.latest, each.metric.unit),
            "top": _figure(_top(each), each.metric.unit),
            "path": _path(each.values, _top(each)),
        }
        for each in series
    ]


def _figure(value: float | None, unit: str) -> str:
    return rate(value, "B/s") if unit == "bytes/s" else quantity(value, unit)


def _top(series: Series) -> float:
    """What the height of the drawing stands for: all of it for a ratio, else the most there was."""
    most = max((v for v in series.values if v is not None), default=0.0)
    return max(most, 1.0) if series.metric.unit == "ratio" else most


def _path(values: Sequence[float | None], top: float) -> str:
    """A line in a box of 100 by 30, broken where nothing is known."""
    step = 100 / max(len(values) - 1, 1)
    moves, drawing = [], False
    for at, value in enumerate(values):
        if value is not None:
            height = 29 - 28 * min(max(value / top if top else 0.0, 0.0), 1.0)
            moves.append(f"{'L' if drawing else 'M'}{at * step:.1f} {height:.1f}")
        drawing = value is not None
    return "".join(moves)

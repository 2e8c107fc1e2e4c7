"""The pages as text. Names are of files and programs: every one is escaped and bounded."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pinchpoint.diagnosis.difference import explained
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.report.assemble.memory import memory_report
from pinchpoint.report.html import fragment, template
from pinchpoint.report.html_page import interactive
from pinchpoint.report.html_page.memory import render_page
from pinchpoint.report.pages import compare as compare_page
from pinchpoint.report.pages.result import blocks
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import duration, quantity, rate, size
from pinchpoint.run_folder.layout import RUN_FILE
from pinchpoint.serve.listing import ListedRecording, inside_run, recordings
from pinchpoint.serve.live import RunState, Series, run_state

# ------------------------------------------------------------------------------------------------
# What a browser may name: files and folders below one root, and nothing else.
#
# A name that leads out of the root is refused, whatever leads there: ``..``, an absolute path, a
# symbolic link, or a link inside a run folder whose files a reader would follow.


MOST_FILES = 2000  # of one run folder that are looked at


@dataclass(frozen=True)
class Place:
    """A file or folder below the root; ``name`` is how the browser calls it."""

    name: str
    path: Path


def place(root: Path, name: str) -> Place:
    """What a name means; UnreadableFile if that is nothing, or lies outside ``root``.

    ``root`` must be resolved. The empty name is the root itself, where that is a run folder.
    """
    if not name and (root / RUN_FILE).is_file():
        _all_inside(root, root)
        return Place(name, root)
    parts = name.split("/")
    if not name or "\\" in name or "\0" in name or any(p in ("", ".", "..") for p in parts):
        raise UnreadableFile(f"{name!r}: no name of a recording", hint="start at the list")
    path = root.joinpath(*parts)
    try:
        inside = path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # absent, a loop of links, or too long a name
        inside = False
    if not inside:
        raise UnreadableFile(f"{name}: no such recording here", hint="start at the list")
    if path.is_dir():
        _all_inside(root, path)
    return Place(name, path)


def _all_inside(root: Path, folder: Path) -> None:
    """Refuse a folder with a link that leads out: its files are read as one recording."""
    for file in files_below(folder):
        if file.is_symlink() and not _resolved(file).is_relative_to(root):
            raise UnreadableFile(
                f"{folder.name}: {file.name} leads out of what is served", hint="remove the link"
            )


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return Path("/")


def files_below(folder: Path) -> Iterator[Path]:
    """Files and links below a folder, links to folders not followed; the first ``MOST_FILES``."""
    left = MOST_FILES
    for where, folders, names in os.walk(folder, followlinks=False):
        links = [f for f in folders if (Path(where) / f).is_symlink()]
        for name in sorted([*names, *links]):
            if left == 0:
                return
            left -= 1
            yield Path(where) / name


def fingerprint(path: Path) -> int:
    """Changes when the file, or any file of the folder, does."""
    files = files_below(path) if path.is_dir() else [path]
    return hash(tuple(_state(file) for file in files))


def _state(file: Path) -> tuple[str, int, int]:
    try:
        facts = file.stat()
    except OSError:
        return file.name, 0, 0
    return file.name, facts.st_mtime_ns, facts.st_size


# ------------------------------------------------------------------------------------------------
# The pages as text. Names are of files and programs: every one is escaped and bounded.


REFRESH_S = 2  # of the page of a run in progress
STALE_S = 30  # without a sample; five a second are normal
_NAME_LIMIT = 300


def list_page(root: Path, base: str) -> str:
    """Everything below the root."""
    found = recordings(root)
    rows = [_row(recording, base) for recording in found.recordings]
    running = [
        row
        for row, recording in zip(rows, found.recordings, strict=True)
        if recording.is_run and run_state(root / recording.name).running
    ]
    return _page(
        "list.html",
        plain(root.name or str(root), _NAME_LIMIT),
        home=None,
        rows=rows,
        running=running,
        complete=found.complete,
        compare=f"{base}compare",
    )


def report_page(place: Place) -> str:
    """The same page that ``pinchpoint report`` writes; of a memory snapshot, that of its memory."""
    trace = load(place.path)
    if trace.snapshot is not None:
        return render_page(trace, memory_report(trace))
    return interactive.render(trace, diagnose(trace))


def compare_pages(a: Place, b: Place, base: str) -> str:
    """What changed from A to B, as ``pinchpoint compare`` says it."""
    shown = compare_page.profiles_page(explained(*(load(place.path) for place in (a, b))))
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
        report=None if state.running else f"{base}report/{quote(run.name)}",
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


def _row(recording: ListedRecording, base: str) -> dict[str, str]:
    changed = datetime.fromtimestamp(recording.modified_ns / 1e9, UTC).astimezone()
    kind = "run" if recording.is_run else "report"
    return {
        "name": plain(recording.name or "this run", _NAME_LIMIT),
        "value": recording.name,
        "href": f"{base}{kind}/{quote(recording.name)}",
        "format": recording.format,
        "size": "" if recording.bytes is None else size(recording.bytes),
        "when": changed.strftime("%Y-%m-%d %H:%M"),
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
